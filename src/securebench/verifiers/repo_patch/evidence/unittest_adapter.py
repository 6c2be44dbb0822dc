"""unittest and runners based on it: ``python -m unittest …``, Django's ``runtests.py`` and ``manage.py test``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from securebench.verifiers.repo_patch.commands import started
from securebench.verifiers.repo_patch.evidence.adapter import GUEST, Adapter, CasePlace

if TYPE_CHECKING:
    from securebench.runner_commands import RunnerCommand

_OPTIONS: Final = """
-s --start-directory -p --pattern -t --top-level-directory --settings --parallel --verbosity --testrunner --durations
--using --start-at --start-after --pythonpath
"""
_WITH_VALUE: Final = frozenset(_OPTIONS.split())
"""Options with a value in the next argument, which is not the label of a test."""

_STARTS: Final = ("-s", "--start-directory")
_PRINTED = re.compile(r"(\w+) \(([\w.<>]+)\)")
_SERIAL: Final = "--parallel=1"


class ReportedTest(NamedTuple):
    """A test as ``guest/securebench_unittest.py`` reports it: these fields, joined by ``::``."""

    module: str
    qualified: str
    method: str

    @classmethod
    def read(cls, test: str) -> ReportedTest | None:
        """Parse a reported id. Returns ``None`` for any other text."""
        parts = test.split("::")
        return cls(*parts) if len(parts) == len(cls._fields) else None


@dataclass(frozen=True, slots=True)
class UnittestAdapter(Adapter):
    """A command whose tests are run by ``unittest.TestCase.run``, in one process."""

    runner: ClassVar[str] = "unittest"
    protected: ClassVar[tuple[str, ...]] = ("unittest.main", "unittest.runner", "unittest.mock", "unittest.async_case")
    functions: ClassVar[bool] = False

    command: RunnerCommand

    @property
    def argv(self) -> tuple[str, ...]:
        """The same command, started by the launcher. Django's runners must run all tests in one process."""
        command = self.command
        kind, script = ("script", (command.script,)) if command.script else ("module", ())
        serial = (_SERIAL,) if command.runner == "django" and not self._is_serial else ()
        launcher = f"{GUEST}/securebench_unittest.py"
        return started((command.program, *command.flags, launcher, kind, *script, *command.arguments, *serial))

    @property
    def environment(self) -> dict[str, str]:
        """Bytecode is not written, so that no later process can load it."""
        return {"PYTHONDONTWRITEBYTECODE": "1"}

    @property
    def selected(self) -> tuple[str, ...]:
        """The files and directories that the labels may refer to. Those that do not exist select nothing."""
        labels, starts, before = [], [], ""
        for word in self._words:
            if before in _STARTS:
                starts.append(word)
            elif not word.startswith("-") and before not in _WITH_VALUE:
                labels.append(word)
            before = word
        if self.command.runner == "unittest" and labels[:1] == ["discover"]:
            return tuple(starts or labels[1:2] or ["."])
        return tuple(path for label in labels for path in self._paths(label)) or (self._top or ".",)

    @property
    def narrows(self) -> bool:
        """A label may select a class, including its controls. Commands that select a method are not recognised."""
        return False

    @property
    def collecting(self) -> UnittestAdapter:
        """The same command: the launcher only collects if the order says so."""
        return self

    def file(self, test: str) -> str | None:
        """Return the file of a test's module, judging by names: classes begin with a capital letter."""
        printed = _PRINTED.fullmatch(test)
        return self._paths(printed[2])[0] if printed else None

    def owns(self, path: str) -> bool:
        """Return whether ``path`` belongs to the repository's own runner."""
        return self.command.owns(path)

    def place(self, test: str) -> CasePlace | None:
        """Parse a reported id, or an id as unittest prints it. A description has no place."""
        if reported := ReportedTest.read(test):
            return CasePlace(reported.module.rpartition(".")[2], tuple(reported.qualified.split(".")), reported.method)
        printed = _PRINTED.fullmatch(test)
        if printed is None:
            return None
        parts = printed[2].removesuffix(f".{printed[1]}").split(".")
        return CasePlace(parts[-2], (parts[-1],), printed[1]) if len(parts) > 1 else None

    def stem(self, path: str) -> str:
        """Return the last part of the module name of ``path``."""
        file = PurePosixPath(path)
        return file.parent.name if file.name == "__init__.py" else file.stem

    def names(self, test: str) -> tuple[str, ...]:
        """Return the names of a reported test in logs: as older and newer unittest print it, and its dotted name."""
        reported = ReportedTest.read(test)
        if reported is None:
            return (test,)
        owner = f"{reported.module}.{reported.qualified}"
        printed = (f"{reported.method} ({owner})", f"{reported.method} ({owner}.{reported.method})")
        return (*printed, f"{owner}.{reported.method}")

    @property
    def _top(self) -> str:
        """The root of module names: the script's directory, or else the working directory."""
        top = PurePosixPath(self.command.script or ".").parent.as_posix()
        return "" if top == "." else top

    @property
    def _words(self) -> tuple[str, ...]:
        arguments = self.command.arguments
        return arguments[1:] if PurePosixPath(self.command.script).name == "manage.py" else arguments

    @property
    def _is_serial(self) -> bool:
        text = " ".join(self.command.arguments)
        return "--parallel 1" in text or _SERIAL in text

    def _paths(self, label: str) -> list[str]:
        """Return the files and directories that a label may refer to, relative to the working directory.

        Modules are searched in the script's directory, where Python looks first, and in the working directory.
        """
        if "/" in label or label.endswith(".py"):
            return [label]
        parts = label.split(".")
        named = [*parts]
        while named and named[-1][:1].isupper():
            named.pop()
        if named == parts and len(parts) > 1 and parts[-2][:1].isupper():
            named = parts[:-2]
        tops = dict.fromkeys(["/".join([self._top, *named]).strip("/"), "/".join(named)])
        return [name for path in tops if path for name in (f"{path}.py", path)] or ["."]


def read_unittest(command: RunnerCommand) -> UnittestAdapter | None:
    """Return the adapter of a command that runs its tests with unittest."""
    return UnittestAdapter(command) if command.runner in ("unittest", "django") else None
