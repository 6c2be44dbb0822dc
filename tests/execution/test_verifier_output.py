"""The output of verifiers' commands: kept or shown on request, bounded, redacted and not part of records."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import HIDDEN, TESTS, FakeVerifier, Sink, make_context, make_task
from securebench.execution import execute_task
from securebench.execution.verifier_output import VerifierOutput
from securebench.plurals import counted
from securebench.resources import FileReference, Resource, ResourceBundle, ResourceKind, Visibility
from securebench.results.records.redaction import Redactor
from securebench.sandboxes.base import Command, ExitState, SandboxSpec, Stream
from securebench.tasks import DEFAULT_IMAGE, AssetRoot
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.trials import TrialId

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.tasks import SecureBenchTask
    from securebench.testing.scripted_sandbox import ProgramContext
    from securebench.verifiers.base import VerifyContext


def _verifier(capture: int = 0) -> FakeVerifier:
    def check(_: int, __: object, context: VerifyContext) -> None:
        spec = SandboxSpec(image=context.driver.resolve_image(DEFAULT_IMAGE))
        with context.driver.create(spec) as sandbox:
            sandbox.run(Command(argv=("checker", TESTS), timeout_seconds=5, capture=capture))

    return FakeVerifier(hook=check)


def _driver() -> ScriptedDriver:
    driver = ScriptedDriver()

    @driver.program("checker")
    def check(context: ProgramContext) -> int:
        context.stdout.write(f"expected {HIDDEN} and {TESTS}\n")
        context.stderr.write("line 3 failed\x1b[2J")
        return 4

    return driver


def _run(root: Path, verifier: FakeVerifier, **changes: Any) -> tuple[dict[str, Any], Sink]:
    sink = Sink()
    context = make_context(root, sink, driver=_driver(), verifier=verifier, **changes)
    return json.loads(execute_task(make_task(), context).line(0)), sink


def test_output_is_kept_apart_from_the_record(tmp_path: Path) -> None:
    """D170: the output is not in the record, but in a file that only its owner can read. Hidden values are redacted."""
    record, _ = _run(tmp_path, _verifier(), verifier_output=tmp_path / "verifier-output")
    (kept,) = (tmp_path / "verifier-output").iterdir()
    text = kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert text.startswith("$ checker (exit 4)\n[stdout]\nexpected <redacted> and <redacted>\n[stderr]\nline 3 failed")
    assert "line 3 failed\\x1b[2J" in text  # control sequences for a terminal are escaped
    assert HIDDEN not in text
    assert "line 3" not in json.dumps(record)


def test_output_is_shown_where_it_is_asked_for(tmp_path: Path) -> None:
    """D174: a callback for the output gets the redacted text, and no file is written."""
    shown: list[tuple[TrialId, str]] = []
    _run(tmp_path, _verifier(), show_verifier_output=lambda trial, text: shown.append((trial, text)))
    ((trial, text),) = shown
    assert trial == TrialId("pack/one")
    assert "line 3 failed" in text
    assert HIDDEN not in text
    assert not (tmp_path / "verifier-output").exists()


def test_without_asking_nothing_is_kept(tmp_path: Path) -> None:
    """By default the output is in no file and in no event."""
    _, sink = _run(tmp_path, _verifier())
    assert not (tmp_path / "verifier-output").exists()
    assert "line 3" not in "".join(str(event.data) for event in sink.events)


def test_a_stream_that_the_verifier_reads_is_left_out(tmp_path: Path) -> None:
    """The stdout of a command is not kept as output if the verifier captures it."""
    _run(tmp_path, _verifier(capture=100), verifier_output=tmp_path / "verifier-output")
    (kept,) = (tmp_path / "verifier-output").iterdir()
    assert "[stdout]" not in kept.read_text()


def test_what_an_earlier_attempt_left_is_removed(tmp_path: Path) -> None:
    """If a task is executed again and its verifier runs no command, the earlier output file is removed."""
    directory = tmp_path / "verifier-output"
    _run(tmp_path, _verifier(), verifier_output=directory)
    _run(tmp_path, FakeVerifier(), verifier_output=directory)
    assert not list(directory.iterdir())


def test_output_that_cannot_be_removed_is_an_error_in_the_record(tmp_path: Path) -> None:
    """If an earlier output file cannot be removed, the task ends in an error that names the file."""
    directory = tmp_path / "verifier-output"
    _run(tmp_path, _verifier(), verifier_output=directory)
    (kept,) = directory.iterdir()
    kept.unlink()
    kept.mkdir()
    record, _ = _run(tmp_path, _verifier(), verifier_output=directory)
    assert (record["verification_status"], record["failure_reason"]) == ("error", "storage_failed")
    assert kept.name in record["failure_message"]


def _task_with_files(root: Path) -> SecureBenchTask:
    (root / "public").mkdir()
    (root / "hidden" / "tests").mkdir(parents=True)
    (root / "public" / "example.py").write_text("import collections.abc\n")
    (root / "hidden" / "tests" / "test_sum.py").write_text(
        "import collections.abc\n\ndef test_sum():\n    assert total([4, 8]) == 12\n"
    )
    (root / "hidden" / "tests" / "state.json").write_text('{"greeting": "good evening, Ada", "n": 3}')
    (root / "hidden" / "tests" / "fix.patch").write_text("+++ b/a.py\n+    return compute_the_total(values)\n")
    (root / "hidden" / "tests" / "binary").write_bytes(b"\xff\0not a text")
    (root / "hidden" / "tests" / "data.txt").write_text("a line of a large file\n" * 20_000)
    example = Resource("assets", [], Visibility.PUBLIC, ResourceKind.ASSETS, (FileReference("example.py"),))
    tests = Resource(
        "test_files",
        {"path": "tests"},
        Visibility.EVALUATION_INPUTS,
        ResourceKind.FILE,
        (FileReference("tests"), FileReference("missing.txt")),
    )
    task = make_task()
    return replace(
        task,
        resources=ResourceBundle((*task.resources, example, tests)),
        public_assets=AssetRoot(root / "public"),
        eval_assets=AssetRoot(root / "hidden"),
    )


def test_what_hidden_files_say_is_redacted(tmp_path: Path) -> None:
    """Lines and quoted texts of hidden files are redacted.

    Lines that a public asset also contains are shown. So are lines of very large hidden files.
    """
    driver = ScriptedDriver()

    @driver.program("checker")
    def check(context: ProgramContext) -> int:
        context.stdout.write(">       assert total([4, 8]) == 12\nE       assert 11 == 12\n")
        context.stdout.write("said good evening, Ada, not good morning\n")
        context.stderr.write("    return compute_the_total(values)\nimport collections.abc\na line of a large file\n")
        return 1

    directory = tmp_path / "verifier-output"
    context = make_context(tmp_path, Sink(), driver=driver, verifier=_verifier(), verifier_output=directory)
    execute_task(_task_with_files(tmp_path), context)
    (kept,) = directory.iterdir()
    assert kept.read_text().splitlines() == [
        "$ checker (exit 1)",
        "[stdout]",
        ">       <redacted>",
        "E       assert 11 == 12",
        "said <redacted>, not good morning",
        "[stderr]",
        "    <redacted>",
        "import collections.abc",
        "a line of a large file",
    ]


@pytest.mark.parametrize("size", [10, 65536, 65537, 10_000_000])
def test_each_stream_is_bounded(size: int) -> None:
    """At most 64 KiB of a stream are kept: its beginning, its end, and the number of bytes left out between them."""
    output = VerifierOutput()
    printed = output.command("x", stdout=True)
    for at in range(0, size, 70_000):
        printed.add((Stream.STDOUT, b"a" * min(70_000, size - at)))
    printed.add((Stream.STDERR, b"end"))
    printed.end(ExitState(exit_code=124, timed_out=True))
    text = output.text(Redactor())
    assert text.startswith("$ x (timed out)\n[stdout]\naaa")
    assert text.endswith("a\n[stderr]\nend\n")
    assert text.count("a") == min(size, 65536)
    assert (f"[{counted(size - 65536, 'byte')} left out]" in text) is (size > 65536)
