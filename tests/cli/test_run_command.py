"""``securebench run``: what the command does before and after a run. Most tests replace the run with a fake."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import securebench.cli.views.summary as summary_table_module
import securebench.tester_run as tester_run_module
import synthetic_run
from results.samples import STATUS, record
from securebench.cli import main
from securebench.cli.run_command import command, exit_code, resume_command
from securebench.progress import AgentOutput, Event, RunStart, SandboxCommand
from securebench.results.records.strict_record import read_entry
from securebench.results.summary import Counts, RunEnd, TesterRunSummary
from securebench.tester_run import RunOptions
from tester_run.running import make_parts, run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from securebench.tester_config import TesterConfig

SUMMARY = TesterRunSummary(
    run_id="run",
    benchmark_id="pack",
    agent="a",
    output_dir=Path("/out"),
    total=Counts(2, 1, 1),
    families={"short_answer": Counts(2, 1, 1)},
    failures=(read_entry(record("pack/bad", STATUS.FAILED).line(0)),),
)

RUN_START = RunStart(
    run_id="r",
    benchmark_id="b",
    agent="a",
    tasks=4,
    trials=1,
    pack_tasks=4,
    to_do=3,
    workers=1,
    output_dir="/o",
)


class FakeRun:
    """A fake of ``run_benchmark``: it keeps its arguments, emits ``events``, and returns ``summary``."""

    def __init__(self) -> None:
        self.options = RunOptions()
        self.config: TesterConfig | None = None
        self.summary = SUMMARY
        self.events: tuple[Event, ...] = ()
        self.before: Callable[[], object] = lambda: None

    def __call__(
        self, config: TesterConfig, options: RunOptions, sinks: Iterable[Callable[[Event], None]]
    ) -> TesterRunSummary:
        """Accept the arguments of ``run_benchmark``, and return the summary."""
        self.config, self.options = config, options
        self.before()
        for event in self.events:
            for sink in sinks:
                sink(event)
        return self.summary


@pytest.fixture
def fake_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    """Replace ``run_benchmark`` with a fake, and return the fake. The working directory has a tester YAML."""
    write_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    fake = FakeRun()
    monkeypatch.setattr(tester_run_module, "run_benchmark", fake)
    return fake


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Call ``securebench run`` and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["securebench", "run", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.parametrize(
    "arguments", [["tester.yaml"], ["--config", "tester.yaml"], ["tester.yaml", "--config", "tester.yaml"]]
)
def test_the_path_may_be_given_either_way(
    arguments: list[str], fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tester YAML may be given as an argument, as an option, or as both."""
    assert call(monkeypatch, *arguments) == 0
    assert fake_run.config is not None
    assert fake_run.config.run.id == "run"


@pytest.mark.parametrize("arguments", [[], ["tester.yaml", "--config", "other.yaml"]])
def test_no_path_or_two(arguments: list[str], fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """To give no path, or two different paths, is wrong usage."""
    assert call(monkeypatch, *arguments) == 2
    assert fake_run.config is None


@pytest.mark.parametrize("name", ["", "manifest.yaml"])
def test_a_pack_is_no_tester_yaml(
    name: str, fake_run: FakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``run PACK`` reports that ``run`` needs a tester YAML, and nothing runs."""
    for file in ("manifest.yaml", "tasks.jsonl"):
        (tmp_path / file).write_text("{}")
    assert call(monkeypatch, str(tmp_path / name)) == 1
    assert "is a pack; 'run' needs a tester YAML [config-invalid]" in capsys.readouterr().err
    assert fake_run.config is None


def test_flags_reach_the_run(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flag sets an option of the run."""
    flags = ["--limit", "3", "--output-dir", "elsewhere", "--resume", "--workers", "4", "--show-agent-output"]
    flags += ["--show-verifier-output", "--keep-verifier-output", "--trials", "5", "--shuffle", "0"]
    flags += ["--task", "a*", "--task", "b", "--tag", "easy", "--family", "short_answer"]
    call(monkeypatch, "tester.yaml", *flags)
    options = fake_run.options
    assert (options.limit, options.output_dir, options.workers) == (3, Path("elsewhere"), 4)
    assert (options.trials, options.shuffle) == (5, 0)
    assert (options.task, options.tag, options.family) == (("a*", "b"), ("easy",), ("short_answer",))
    assert options.resume
    assert options.show_agent_output
    assert options.show_verifier_output
    assert options.keep_verifier_output
    assert options.handle_signals


def test_defaults(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without flags, the options of the run are not set, so that the tester YAML decides."""
    call(monkeypatch, "tester.yaml")
    options = fake_run.options
    assert (options.limit, options.output_dir, options.workers) == (None, None, None)
    assert (options.trials, options.shuffle) == (None, None)
    assert (options.task, options.tag, options.family) == ((), (), ())
    assert not options.resume
    assert not options.show_agent_output
    assert options.show_verifier_output is None
    assert not options.keep_verifier_output


@pytest.mark.parametrize("arguments", [[], ["--env-file", "mine.env"]])
def test_variables_that_are_set_already_win(
    arguments: list[str], fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables come from ``.env``, or the file given with ``--env-file``, but the environment takes precedence."""
    Path(arguments[1] if arguments else ".env").write_text("FROM_FILE=one\nSET_ALREADY=file\n")
    monkeypatch.setenv("SET_ALREADY", "process")
    call(monkeypatch, "tester.yaml", *arguments)
    assert (fake_run.options.variables["FROM_FILE"], fake_run.options.variables["SET_ALREADY"]) == ("one", "process")


def test_a_missing_env_file(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file given with ``--env-file`` is an error; the default file ``.env`` may be missing."""
    assert call(monkeypatch, "tester.yaml", "--env-file", "mine.env") == 1
    assert "mine.env" in capsys.readouterr().err
    assert call(monkeypatch, "tester.yaml") == 0
    assert dict(fake_run.options.variables) == dict(os.environ)


def test_a_bad_tester_yaml(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every mistake in a tester YAML is reported on stderr, and nothing runs."""
    Path("tester.yaml").write_text('schema_version: 0.2\nrun: {id: "", output_dri: x}\n')
    assert call(monkeypatch, "tester.yaml") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("tester.yaml:") >= 3
    assert "output_dir" in captured.err
    assert fake_run.config is None


EXITS = [
    ({}, 0),
    ({"total": Counts(2, 0, 2)}, 0),
    ({"total": Counts(2, pending=2)}, 0),
    ({"total": Counts(2, 1, 0, 1)}, 3),
    ({"problems": ("the pack changed",)}, 3),
    ({"ending": RunEnd.STOPPED}, 3),
    ({"ending": RunEnd.INTERRUPTED}, 130),
    ({"ending": RunEnd.INTERRUPTED, "total": Counts(2, 0, 0, 1)}, 130),
]


@pytest.mark.parametrize(("changes", "code"), EXITS)
def test_exit_codes(changes: dict[str, Any], code: int, fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts do not change the exit code; errors, other problems and interrupts do."""
    fake_run.summary = replace(SUMMARY, **changes)
    assert exit_code(fake_run.summary) == code
    assert call(monkeypatch, "tester.yaml") == code


def test_a_run_with_errors_writes_its_junit_file(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run with errors writes its JUnit file, which is needed most then. The exit code stays that of the error."""
    run = synthetic_run.write_run(tmp_path / "run", [synthetic_run.record(0), synthetic_run.record(1, STATUS.ERROR)])
    fake_run.summary = replace(SUMMARY, total=Counts(2, 1, 0, 1), output_dir=run)
    junit = tmp_path / "results.xml"
    assert call(monkeypatch, "tester.yaml", "--junit", str(junit), "--fail-under", "1") == 3
    assert junit.read_text().count("<error") == 1


def test_the_table_goes_to_stdout(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is printed on stdout, and progress on stderr."""
    fake_run.events = (RUN_START,)
    call(monkeypatch, "tester.yaml")
    captured = capsys.readouterr()
    assert "50.0% of 2" in captured.out
    assert "pack/bad" in captured.out
    assert captured.err == "run r: 4 tasks of b, agent a, 1 worker\n"


def test_quiet(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``--quiet`` suppresses progress and notes, but not the table."""
    fake_run.events = (RUN_START,)
    fake_run.before = lambda: fake_run.options.notify("pulling")
    call(monkeypatch, "tester.yaml", "--quiet")
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "50.0% of 2" in captured.out


def test_notes_go_to_stderr(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Notes of a run are printed on stderr, with markup unchanged and control characters escaped (M13)."""
    fake_run.before = lambda: fake_run.options.notify("pulling [bold]x[/bold]\x1b[2J")
    call(monkeypatch, "tester.yaml")
    assert capsys.readouterr().err == "pulling [bold]x[/bold]\\x1b[2J\n"


@pytest.mark.parametrize(
    ("flag", "event"),
    [
        ("--show-command-output", SandboxCommand(task_id="t", command="hello")),
        ("--show-agent-output", AgentOutput(task_id="t", stream="stdout", text="hello\n")),
    ],
)
def test_show_flags(
    flag: str, event: Event, fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output of commands or of agents is shown only with its flag."""
    fake_run.events = (event,)
    call(monkeypatch, "tester.yaml")
    assert "hello" not in capsys.readouterr().err
    call(monkeypatch, "tester.yaml", flag)
    assert "hello" in capsys.readouterr().err


def test_json(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` prints the summary and nothing else on stdout."""
    call(monkeypatch, "tester.yaml", "--json")
    assert json.loads(capsys.readouterr().out) == SUMMARY.to_json()


def test_how_to_go_on(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """If tasks have no verdict, their number, the problem and the command that resumes the run are printed."""
    fake_run.summary = replace(SUMMARY, total=Counts(5, 1, 1, 1), ending=RunEnd.STOPPED, problems=("no engine",))
    call(monkeypatch, "tester.yaml", "--workers", "2", "--output-dir", "my results")
    shown = capsys.readouterr().err
    assert "error: no engine" in shown
    assert "3 tasks without a verdict" in shown
    assert "securebench run tester.yaml --workers 2 --output-dir 'my results' --resume" in shown


def test_a_finished_run_says_nothing_of_going_on(
    fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If every task has a verdict, no command to resume the run is printed."""
    call(monkeypatch, "tester.yaml")
    assert "--resume" not in capsys.readouterr().err


@pytest.mark.parametrize(("code", "exit_code"), [(errno.EIO, 0), (errno.ENOSPC, 70)])
def test_a_closed_terminal(code: int, exit_code: int, fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed terminal does not change the exit code of a finished run; another error while printing does (L12)."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(summary_table_module, "summary_lines", fail)
    assert call(monkeypatch, "tester.yaml") == exit_code


def test_resume_stands_once() -> None:
    """The command that resumes a resumed run contains ``--resume`` only once."""
    assert resume_command(["run", "x", "--resume"]) == "securebench run x --resume"


@pytest.mark.parametrize("given", [[], ["--budget-usd", "0.5"], ["--budget-usd=0.5"]])
def test_a_run_that_spent_its_budget_is_resumed_with_more(given: list[str]) -> None:
    """The command that resumes a run with a spent budget has a larger budget; otherwise the run would end at once."""
    found = resume_command(["run", *given, "x"], 0.5)
    assert found == "securebench run x --resume --budget-usd 1"


@pytest.mark.parametrize("option", ["--budget-usd", "--fail-under"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0.0000001x"])
def test_a_number_must_be_in_its_range(option: str, value: str) -> None:
    """A value that is no number or is outside the range is wrong usage. So is ``nan``: it would limit nothing."""
    result = CliRunner().invoke(command, ["tester.yaml", option, value])
    assert (result.exit_code, option in result.output) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_before_the_first_task(
    number: signal.Signals, fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal while a run is prepared ends the command with code 130, and the signal handlers are restored (L12)."""
    before = signal.getsignal(number)
    fake_run.before = lambda: signal.raise_signal(number)
    assert call(monkeypatch, "tester.yaml") == 130
    assert signal.getsignal(number) is before


def test_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal, progress is live: the cursor is hidden, and shown again at the end."""
    write_run(tmp_path, 2)
    output = _on_terminal(tmp_path)
    assert "\x1b[?25l" in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")
    assert "PASSED pack/task-1" in output


def _on_terminal(root: Path) -> str:
    """Run with a console that behaves like a terminal, and return what was written to it."""
    import io

    from rich.console import Console

    from securebench.cli.views.live import LiveSink

    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=30)
    run(root, sinks=[LiveSink(console)], parts=make_parts())
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()
