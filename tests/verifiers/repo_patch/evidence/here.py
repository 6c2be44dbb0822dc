"""Judge a change with all parts of the evidence but without a sandbox. This is fast, and uses this Python's pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patches.trees import MemoryTree
from securebench.patches.model import FileVersion
from securebench.sandboxes.base import CommandResult, Stream
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.repo_patch.checks import GUEST_FILES
from securebench.verifiers.repo_patch.evidence.adapter import GUEST
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.channel import ReportedRun, read_channel
from securebench.verifiers.repo_patch.evidence.controls import Controls, plant
from securebench.verifiers.repo_patch.evidence.judge import Judge
from verifiers.repo_patch.evidence.in_process import request_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.errors import FailureReason
    from securebench.sandboxes.base import Chunk, Command
    from securebench.verifiers.repo_patch.evidence.channel import ReportedTests
    from securebench.verifiers.repo_patch.evidence.collection import Required


@dataclass
class Verdict:
    """The result of a judgement. ``reason`` is ``None`` for a pass."""

    reason: FailureReason | None
    message: str
    evidence: dict[str, Any]
    reported: ReportedTests
    output: bytes = b""


@dataclass
class Here:
    """A repository with ``files``, and the test command that judges it.

    ``without`` names parts of the evidence that are switched off: ``controls``, ``fingerprint`` or ``spots``. The part
    ``spots`` is the list of changes that were detected during the run.
    """

    files: Mapping[str, str]
    command: tuple[str, ...] = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    needed: Required | None = None
    unchanged: Mapping[str, str] = field(default_factory=dict)
    """Outcomes of the tests without the change."""
    test_by_test: bool = False
    packages: str = ""
    """A directory that contains another version of pytest, or an empty string for this Python's pytest."""
    plugins: bool = False
    """Whether pytest loads the plugins of installed packages."""
    styles: Callable[[str], bool] = field(default=lambda _style: True)
    fingerprint: Callable[[str], bool] = field(default=lambda _name: True)
    """``styles`` selects which styles of controls are used.

    ``fingerprint`` selects which names in the fingerprint are used.
    """

    def judge(self, root: Path) -> Verdict:
        """Create ``root`` with the files and controls, run the command in it, and judge the result."""
        adapter = recognise(self.command)
        assert adapter is not None
        tree = MemoryTree({name.encode(): FileVersion(text.encode()) for name, text in self.files.items()})
        tests = [name.encode() for name in self.files if Path(name).name.startswith("test_")]
        ids = self.fail_to_pass, self.pass_to_pass
        request = request_of(*ids, command=self.command, root=str(root), test_by_test=self.test_by_test)
        controls = self._controls(plant(tests, tree, request.expected, adapter))
        for name, text in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(text.encode())
        for path, version in controls.files.items():
            (root / path.decode()).write_bytes(version.content)
        order = {"protected": adapter.protected, "libraries": controls.libraries, "repository": str(root)}
        talk = ReportedRun({**order, "keep": controls.digests(adapter)})
        sandbox = _Process(root, {**adapter.environment}, self.packages, self.plugins)
        result = talk.run(sandbox, _Run(adapter.argv, talk.stdin))  # type: ignore[arg-type]
        details: dict[str, Any] = {}
        reported = read_channel(b"", talk.mark)
        reason, message = None, ""
        try:
            reported = read_channel(result.stdout, talk.mark)
            if "fingerprint" in self.without and reported.after is not None:
                reported.after, reported.before, reported.changed = {}, {}, []
            if "spots" in self.without:
                reported.changed = []
            self._forget(reported)
            judge = Judge(adapter, controls, request, details, self.needed, lambda: self.unchanged)
            judge.judge(reported, result, talk)
        except CandidateFailedError as fault:
            reason, message = fault.reason, fault.message
        return Verdict(reason, message, details.get("evidence", {}), reported, result.stderr)

    def _forget(self, reported: ReportedTests) -> None:
        """Remove the names that ``fingerprint`` does not select from the reported fingerprints."""
        reported.changed = [name for name in reported.changed if self.fingerprint(name)]
        for digests in (reported.before, reported.after):
            for name in [name for name in digests or {} if not self.fingerprint(name)]:
                digests.pop(name)  # type: ignore[union-attr]

    def _controls(self, planted: Controls) -> Controls:
        """Return the controls of the selected styles. If controls are switched off, no file is edited."""
        if "controls" in self.without:
            return Controls()
        for index, group in enumerate(planted.groups):
            left = {name: style for name, style in group.controls.items() if self.styles(style)}
            planted.groups[index] = replace(group, controls=left)
        return planted


@dataclass
class _Run:
    argv: tuple[str, ...]
    stdin: bytes


@dataclass
class _Process:
    """A stand-in for a sandbox, which runs a command as a process on this machine."""

    root: Path
    environment: dict[str, str]
    packages: str = ""
    plugins: bool = False

    def run(self, command: Command, reply: Callable[[Chunk], bytes | None]) -> CommandResult:
        """Run ``command``. Pass each chunk of its output to ``reply``, and send the answer to its stdin."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root), **self.environment}
        if "PYTHONPATH" in environment:
            environment["PYTHONPATH"] = str(GUEST_FILES)
        if self.packages:
            environment["PYTHONPATH"] = ":".join([*environment.get("PYTHONPATH", "").split(), self.packages])
        if not self.plugins:  # the plugin of Hypothesis alone takes a second to load
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        argv = [word.replace(GUEST, str(GUEST_FILES)) for word in command.argv]
        out = bytearray()
        with (self.root.parent / f"{self.root.name}.stderr").open("w+b") as errors:
            with subprocess.Popen(
                argv, bufsize=0, cwd=self.root, env=environment, stdin=-1, stdout=-1, stderr=errors
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(command.stdin)
                while chunk := os.read(process.stdout.fileno(), 65536):
                    out += chunk
                    answer = reply((Stream.STDOUT, chunk))
                    if answer:
                        with suppress(BrokenPipeError):  # a cheat has ended the process
                            process.stdin.write(answer)
            errors.seek(0)
            return CommandResult(exit_code=process.returncode, stdout=bytes(out), stderr=errors.read())
