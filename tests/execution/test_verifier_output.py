"""What verifiers' commands print is kept and shown where it is asked for, bounded, redacted and apart from records."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import HIDDEN, TESTS, FakeVerifier, Sink, make_context, make_task
from securebench.execution import execute_task
from securebench.execution.verifier_output import VerifierOutput
from securebench.results.redaction import Redactor
from securebench.sandboxes.base import Command, ExitState, SandboxSpec, Stream
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.fake_sandbox import FakeDriver

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.testing.fake_process import FakeProcessContext
    from securebench.verifiers.base import VerifyContext


def _verifier(capture: int = 0) -> FakeVerifier:
    def check(_: int, __: object, context: VerifyContext) -> None:
        spec = SandboxSpec(image=context.driver.resolve_image(DEFAULT_IMAGE))
        with context.driver.create(spec) as sandbox:
            sandbox.run(Command(argv=("checker", TESTS), timeout_seconds=5, capture=capture))

    return FakeVerifier(hook=check)


def _driver() -> FakeDriver:
    driver = FakeDriver()

    @driver.program("checker")
    def check(context: FakeProcessContext) -> int:
        context.stdout.write(f"expected {HIDDEN} and {TESTS}\n")
        context.stderr.write("line 3 failed\x1b[2J")
        return 4

    return driver


def _run(root: Path, verifier: FakeVerifier, **changes: Any) -> tuple[dict[str, Any], Sink]:
    sink = Sink()
    context = make_context(root, sink, driver=_driver(), verifier=verifier, **changes)
    return json.loads(execute_task(make_task(), context).line(0)), sink


def test_output_is_kept_apart_from_the_record(tmp_path: Path) -> None:
    """D170: the file has what was printed, without hidden values, for its owner alone; the record has nothing."""
    record, _ = _run(tmp_path, _verifier(), verifier_output=tmp_path / "verifier-output")
    (kept,) = (tmp_path / "verifier-output").iterdir()
    text = kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert text.startswith("$ checker (exit 4)\n[stdout]\nexpected <redacted> and <redacted>\n[stderr]\nline 3 failed")
    assert "line 3 failed\\x1b[2J" in text  # nothing that a terminal obeys
    assert HIDDEN not in text
    assert "line 3" not in json.dumps(record)


def test_output_is_shown_where_it_is_asked_for(tmp_path: Path) -> None:
    """D174: whoever asks is given the same text."""
    shown: list[tuple[str, str]] = []
    _run(tmp_path, _verifier(), show_verifier_output=lambda task, text: shown.append((task, text)))
    ((task, text),) = shown
    assert task == "pack/one"
    assert "line 3 failed" in text
    assert HIDDEN not in text
    assert not (tmp_path / "verifier-output").exists()


def test_without_asking_nothing_is_kept(tmp_path: Path) -> None:
    """No file and no event, by default."""
    _, sink = _run(tmp_path, _verifier())
    assert not (tmp_path / "verifier-output").exists()
    assert "line 3" not in "".join(str(event.data) for event in sink.events)


def test_a_stream_that_the_verifier_reads_is_left_out(tmp_path: Path) -> None:
    """Evidence and frames are no output."""
    _run(tmp_path, _verifier(capture=100), verifier_output=tmp_path / "verifier-output")
    (kept,) = (tmp_path / "verifier-output").iterdir()
    assert "[stdout]" not in kept.read_text()


def test_what_an_earlier_attempt_left_is_removed(tmp_path: Path) -> None:
    """A file is of the last attempt, or is not there."""
    directory = tmp_path / "verifier-output"
    _run(tmp_path, _verifier(), verifier_output=directory)
    _run(tmp_path, FakeVerifier(), verifier_output=directory)
    assert not list(directory.iterdir())


@pytest.mark.parametrize("size", [10, 65536, 65537, 10_000_000])
def test_each_stream_is_bounded(size: int) -> None:
    """The beginning and the end are kept, and how much is missing is said."""
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
    assert (f"[{size - 65536} bytes left out]" in text) is (size > 65536)
