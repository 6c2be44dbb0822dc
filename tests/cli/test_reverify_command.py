"""``securebench reverify``: its text output, its JSON, its exit codes, and its options."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import securebench.tester_run.reverify as reverify_module
from run_fakes import FakeProducer, FakeVerifier, agent_failure, seal
from securebench.candidates.store import CANDIDATES
from securebench.cli import cli
from securebench.cli.views.reverify import print_result
from securebench.errors import FailureReason
from securebench.harnesses.base import AgentResult
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.tasks import DEFAULT_IMAGE
from securebench.tester_run import RunOptions
from securebench.tester_run.planning.directory import VERIFIER_OUTPUT
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.verifiers.base import VerificationResult
from tester_run.running import make_parts, records, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.tester_run import RunParts
    from securebench.testing.scripted_sandbox import ProgramContext
    from securebench.verifiers.base import VerifyContext

HOSTILE = "\x1b]0;owned\x07\u202eno\ttab"


def parts(verifier: FakeVerifier | None = None, producer: FakeProducer | None = None) -> RunParts:
    """Return the parts of a run, with the given verifier and producer or with default fakes."""
    return make_parts(producer, verifier_for=lambda *_: verifier or FakeVerifier())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a finished run of three tasks. The command uses fakes like those of the run."""
    write_run(tmp_path, 3)
    run(tmp_path, parts=parts())
    use(monkeypatch, parts())
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, chosen: RunParts) -> None:
    """Make the command use the parts ``chosen``."""
    monkeypatch.setattr(reverify_module, "reverify", partial(_REVERIFY, parts=chosen))


_REVERIFY = reverify_module.reverify


def command(root: Path, *arguments: str) -> Result:
    """Run the command on the run in ``root``."""
    return CliRunner().invoke(cli, ["reverify", str(root / "results"), *arguments])


def broken(*_: object) -> VerificationResult:
    """Return a failure with a hostile message."""
    return VerificationResult(reason=FailureReason.WRONG_ANSWER, message=HOSTILE)


def test_the_same_verdicts(root: Path) -> None:
    """If all verdicts are confirmed, stdout has one line and the results' directory; progress goes to stderr."""
    result = command(root)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "3 of 3 verdicts confirmed",
        f"Results: {root / 'results.reverified'}",
    ]
    assert "pack/task-1" in result.stderr
    assert command(root, "--resume", "--quiet").stderr == ""


def test_other_verdicts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed verdict gives exit code 4 and a line with the old verdict, the new verdict and the escaped reason."""
    use(monkeypatch, parts(FakeVerifier(hook=broken)))
    result = command(root, "--task", "*-1", "--quiet")
    assert result.exit_code == 4
    escaped = (
        HOSTILE.replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\u202e", "\\u202e").replace("\t", "\\t")
    )
    assert result.stdout.splitlines()[:3] == [
        "task\twas\tis now\treason",
        f"pack/task-1\tpassed (full)\tfailed (wrong_answer, full)\t{escaped}",
        "0 of 1 verdict confirmed, 1 changed",
    ]


def test_trials_that_were_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that is not judged again gives exit code 3 and a line with the reason.

    If the verdict of another trial changed, the exit code is 4.
    """
    write_run(tmp_path, 2)
    producer = FakeProducer(hook=lambda number, *_: agent_failure() if number == 1 else None)
    run(tmp_path, parts=parts(producer=producer))
    use(monkeypatch, parts())
    result = command(tmp_path)
    assert result.exit_code == 3
    assert "pack/task-0\tthe agent failed, so nothing was judged: the agent exited with 1" in result.stdout
    assert "1 of 1 verdict confirmed, 1 trial not judged again" in result.stdout
    use(monkeypatch, parts(FakeVerifier(hook=broken)))
    assert command(tmp_path, "-o", str(tmp_path / "second")).exit_code == 4  # a changed verdict takes precedence


def test_json(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--json`` prints the changed trials, the notes and the summary of the new run."""
    (root / "results" / "commitment.key").unlink()
    use(monkeypatch, parts(FakeVerifier(hook=lambda number, *_: broken() if number == 1 else None)))
    result = command(root, "--json", "--quiet")
    assert result.exit_code == 4
    found = json.loads(result.stdout)
    assert found["same"] == 2
    assert found["changed"] == [
        {
            "task_id": "pack/task-0",
            "trial": 1,
            "was": {"verification_status": "passed", "assurance": "full"},
            "is": {"verification_status": "failed", "failure_reason": "wrong_answer", "assurance": "full"},
            "message": HOSTILE,
        }
    ]
    assert (found["unjudged"], found["differences"]) == ([], [])
    assert "commitment.key" in found["notes"][0]
    assert found["summary"]["passed"] == 2
    assert found["output_dir"] == str(root / "results.reverified")


def test_on_a_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal, trials are shown in tables. A long table is cut, and the number of omitted trials is printed."""
    write_run(root, 25)
    run(root, output_dir=root / "many", parts=parts(producer=FakeProducer(hook=lambda *_: agent_failure())))
    result = _REVERIFY(root / "many", RunOptions(), parts=parts())
    print_result(Console(force_terminal=True, width=100), result)
    shown = capsys.readouterr().out
    assert "not judged again because" in shown
    assert "and 5 more (--json lists all)" in shown
    assert "no candidate was judged again, 25 trials not judged again" in shown


def test_notes_and_differences(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed verifier version is printed as a note. It does not change the exit code."""
    verifier = FakeVerifier()
    verifier.version = "2"
    use(monkeypatch, parts(verifier))
    result = command(root)
    assert result.exit_code == 0
    assert "Note: verifiers.short_answer.version was 1, and is 2 now" in result.stdout


def test_errors_come_before_anything_is_judged(root: Path) -> None:
    """Wrong usage gives exit code 2. Missing files, an empty selection and an unsafe output directory are errors."""
    assert command(root, "--driver", "nonsense").exit_code == 2
    assert command(root, "--workers", "0").exit_code == 2
    assert CliRunner().invoke(cli, ["reverify"]).exit_code == 2
    for arguments, code in (
        (["--pack", str(root / "nowhere.yaml")], "file-missing"),
        (["--pack", str(root)], "file-missing"),
        (["--config", str(root / "nowhere.yaml")], "file-missing"),
        (["--task", "nothing"], "selection-empty"),
        (["-o", str(root / "results")], "output-dir-unsafe"),
    ):
        assert code in str(command(root, *arguments).exception), arguments


@pytest.mark.parametrize("given", ["pack", "pack/manifest.yaml", "tester.yaml"])
@pytest.mark.parametrize("option", ["--pack", "--config"])
def test_the_pack_as_an_option(option: str, given: str, root: Path) -> None:
    """``--pack`` accepts a directory, a manifest or a tester YAML; ``--config`` accepts the tester YAML of the run."""
    (root / "results" / "source.json").unlink()
    if option == "--config":
        given = "tester.yaml"
    result = command(root, option, str(root / given))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("is_shown", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
def test_output_of_verifiers_is_kept_and_shown(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool, is_shown: bool
) -> None:
    """``--keep-verifier-output`` keeps the output of verifiers in the new run.

    ``--show-verifier-output`` prints it on stderr.
    """
    driver = ScriptedDriver()

    @driver.program("checker")
    def check(context: ProgramContext) -> int:
        context.stderr.write("line 3 failed\n")
        return 0

    def verify(_: int, __: object, context: VerifyContext) -> None:
        with context.driver.create(SandboxSpec(image=context.driver.resolve_image(DEFAULT_IMAGE))) as sandbox:
            sandbox.run(Command(argv=("checker",), timeout_seconds=5))

    verifier = FakeVerifier(hook=verify)
    use(monkeypatch, make_parts(driver=driver, verifier_for=lambda *_: verifier))
    options = ["--keep-verifier-output"] * is_kept + ["--show-verifier-output"] * is_shown
    result = command(root, *options, "--workers", "2")
    assert result.exit_code == 0, result.output
    kept = [path.read_text() for path in (root / "results.reverified" / VERIFIER_OUTPUT).glob("*")]
    assert kept == ["$ checker (exit 0)\n[stderr]\nline 3 failed\n"] * (3 if is_kept else 0)
    shown = sorted(line for line in result.stderr.splitlines() if "line 3 failed" in line)
    assert shown == [f"  pack/task-{number} | line 3 failed" for number in range(3 if is_shown else 0)]


def test_an_altered_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sealed candidate that was altered is reported, and the exit code is 3."""
    write_run(tmp_path, 1)
    run(tmp_path, parts=parts(producer=FakeProducer(hook=_answer)))
    use(monkeypatch, parts())
    candidate = tmp_path / "results" / CANDIDATES / records(tmp_path)[0]["candidate_digest"]
    candidate.chmod(0o644)
    candidate.write_text("right")
    result = command(tmp_path)
    assert result.exit_code == 3
    assert "the sealed candidate was altered" in result.stdout


def _answer(_number: int, _view: object, context: Any) -> AgentResult:
    return AgentResult(candidate=seal(context.store, "wrong"))
