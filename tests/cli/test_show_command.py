"""``securebench show``: the summary, lists of tasks, and one task in detail."""

from __future__ import annotations

import hashlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import synthetic_run as synthetic
from bounds import processor_seconds
from securebench import read_run
from securebench.candidates.store import CANDIDATES
from securebench.cli import show_command
from securebench.cli.show_command import command
from securebench.cli.views.excerpt import print_lines
from securebench.cli.views.summary import summary_lines
from securebench.cli.views.task import TaskView
from securebench.errors import ConfigError
from securebench.results.records.record import Assurance, Output, VerificationStatus, candidate_fields
from securebench.trials import TrialId

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.resources import JsonValue
    from securebench.results.records.record import TaskRecord

STATUS = VerificationStatus
TASK = "made-up/task-00000"
HOSTILE = (
    "\x1b[2J\x1b]8;;https://evil.example\x07click\x1b]8;;\x07 \u202egnp.exe\u2069 "
    "[link=https://evil.example]go[/link] \r\x00\x9b1A"
)
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal acts on: control characters except newline and tab, and those for the text direction."""


def invoke(*arguments: object) -> Result:
    """Run the command. Its exceptions are not caught."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


def written(directory: Path, *given: TaskRecord) -> Path:
    """Write a run with these records, and return its directory."""
    return synthetic.write_run(directory, given)


def detail(directory: Path, task_id: str = TASK, width: int = 100, **options: Any) -> str:
    """Return the details of a task as shown on a terminal without colours."""
    run = read_run(directory)
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width)
    print_lines(console, TaskView(run, run.find(task_id), **options).lines())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class TestSummaries:
    """``securebench show`` without a task."""

    def test_the_summary_is_that_of_the_run(self, tmp_path: Path) -> None:
        """The output is the summary that a run prints at its end."""
        synthetic.write_run(tmp_path, 30)
        done = invoke(tmp_path)
        assert done.exit_code == 0
        assert done.stdout.splitlines() == summary_lines(read_run(tmp_path).summary())
        assert "short_answer: 10 tasks, " in done.stdout

    def test_tasks_that_did_not_run_are_counted(self, tmp_path: Path) -> None:
        """For an interrupted run, the tasks that did not run are counted by family."""
        synthetic.write_run(tmp_path, [synthetic.record(0)], synthetic.header(6))
        lines = invoke(tmp_path).stdout.splitlines()
        assert "code_completion: 2 tasks, 0 passed, 0 failed, 0 errors, 0 pending, 2 not run, pass rate none" in lines
        assert json.loads(invoke(tmp_path, "--json").stdout)["ending"] == "interrupted"

    def test_several_trials(self, tmp_path: Path) -> None:
        """``--json`` has the number of tasks and of trials per task. ``passed`` and ``not_run`` count trials."""
        given = [synthetic.record(task, trial=trial) for trial in (1, 2) for task in (0, 3)]
        synthetic.write_run(tmp_path, given, synthetic.header(8, trials=2))
        counts = json.loads(invoke(tmp_path, "--json").stdout)
        assert (counts["tasks"], counts["trials"], counts["passed"], counts["not_run"]) == (4, 2, 4, 4)

    def test_json(self, tmp_path: Path) -> None:
        """``--json`` has the summary, the agent and the selection, but no records."""
        synthetic.write_run(tmp_path, 3, synthetic.header(3, pack_tasks=164))
        shown = json.loads(invoke(tmp_path, "--json").stdout)
        assert (shown["tasks"], shown["ending"], shown["agent"]) == (3, "finished", "command")
        assert shown["selection"] == "3 of 164 tasks, not the whole benchmark"
        assert "records" not in shown

    def test_problems_of_the_run_are_repeated(self, tmp_path: Path) -> None:
        """A problem of the run, such as a changed pack, is printed to stderr with control characters escaped."""
        synthetic.write_run(tmp_path, 1, synthetic.header(1).with_problem(f"changed {HOSTILE}"))
        done = invoke(tmp_path)
        assert "error: changed " in done.stderr
        assert not RAW.search(done.stderr)


class TestLists:
    """``securebench show`` with options that list tasks."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        """Return a run with passed, failed and error records."""
        given = [synthetic.record(n, status) for n, status in enumerate((STATUS.PASSED, STATUS.FAILED, STATUS.ERROR))]
        given.append(synthetic.record(3, STATUS.FAILED, task_id=f"made-up/{HOSTILE}", trial=2))
        return synthetic.write_run(tmp_path, given, synthetic.header(8, trials=2))

    @pytest.mark.parametrize(
        ("options", "statuses"),
        [
            (("--all",), ["passed", "failed", "error", "failed"]),
            (("--failed",), ["failed", "failed"]),
            (("--errors",), ["error"]),
            (("--failed", "--errors"), ["failed", "error", "failed"]),
            (("--reason", "engine_unavailable"), ["error"]),
            (("--failed", "--reason", "engine_unavailable"), []),
        ],
    )
    def test_filters(self, run: Path, options: tuple[str, ...], statuses: list[str]) -> None:
        """In a pipe, each matching record is a line with tabs between columns. ``--json`` has the same records."""
        done = invoke(run, *options)
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        assert [line[0] for line in lines] == statuses
        assert all(len(line) == 5 for line in lines)
        assert not RAW.search(done.stdout)
        records = json.loads(invoke(run, *options, "--json").stdout)["records"]
        assert [record["status"] for record in records] == statuses

    def test_a_record_is_one_row_of_a_terminal(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a terminal, a long message is cut and ends with an ellipsis. With several trials, the trial is named."""
        console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=60)
        monkeypatch.setattr(show_command, "_console", lambda: console)
        assert invoke(run, "--errors").exit_code == 0
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue() == "error   made-up/task-00002 (trial 1)  engine_unavailable: t…\n"

    def test_columns(self, run: Path) -> None:
        """The columns are status, task, trial, reason and message."""
        assert invoke(run, "--errors").stdout == (
            "error\tmade-up/task-00002\t1\tengine_unavailable\tthe engine does not answer\n"
        )

    def test_a_reason_that_does_not_exist(self, run: Path) -> None:
        """For a mistyped reason, the error message suggests the right one."""
        done = invoke(run, "--reason", "wrong_anser")
        assert done.exit_code == 2
        assert "did you mean 'wrong_answer'?" in done.stderr

    @pytest.mark.parametrize("options", [(TASK, "--failed"), ("--full",), ("--trial", "2"), (TASK, "--trial", "0")])
    def test_options_that_do_not_go_together(self, run: Path, options: tuple[str, ...]) -> None:
        """Options for a list are wrong usage with a task, and options for a task are wrong usage without a task.

        ``--trial 0`` is wrong usage.
        """
        assert invoke(run, *options).exit_code == 2


class TestDetail:
    """``securebench show`` with a task."""

    def test_all_sections(self, tmp_path: Path) -> None:
        """The output has the task, steps, candidate, verdict with evidence, sandbox and usage."""
        steps: list[JsonValue] = [
            {"step": 1, "kind": "message", "text": "I will look.\nThen I answer."},
            {"step": 2, "kind": "command", "tool": "Bash", "command": "ls -la"},
            {"step": 3, "kind": "result", "output": "a\nb\nc", "exit_code": 0},
            {"left_out": 7},
        ]
        provenance: Any = {
            **synthetic.trajectory(tmp_path, TASK, *steps),
            "failed_tries": [{"error": "engine-unavailable", "message": "gone"}],
            "agent": {"program": "codex", "version": "0.169.0", "settings": {"effort": "high"}},
            "usage": {"warnings": ["unknown model"]},
        }
        evidence: JsonValue = {
            "kind": "test_by_test",
            "controls": 8,
            "outcomes": {"passed": 14},
            "styles": ["plain", "raises"],
        }
        verifier = Output(
            metadata={"verifier": "short_answer", "version": "1", "phase": "verdict", "evidence": evidence}
        )
        given = synthetic.record(
            candidate=synthetic.sealed_text(tmp_path, "Answer: 42\n"),
            provenance=provenance,
            verifier=verifier,
            assurance=Assurance.TEST_BY_TEST,
        )
        done = invoke(written(tmp_path, given), TASK)
        assert done.exit_code == 0
        for line in (
            "made-up/task-00000  short_answer  PASSED",
            "    What is 0 times nothing?",
            "  not shown to the agent: answer",
            "     1 message   I will look. (+1 line)",
            "     2 command   ls -la (tool Bash)",
            "     3 result    a (exit_code 0) (+2 lines)",
            "  exit_code: 0",
            "  7 more steps not kept",
            "    Answer: 42",
            "  sealed: 11 B, digest verified",
            "  rests on: test_by_test. Tests were judged one by one. For a pass, added control tests had to fail.",
            "  evidence.controls: 8",
            "  evidence.outcomes.passed: 14",
            "  evidence.styles: plain, raises",
            "  driver: oci crun 1.8.1",
            "  not enforced: memory limit",
            "  failed try 1: engine-unavailable: gone",
            "  Usage: 1,000 tokens in, 100 out, 3 turns, about $0.01",
            "  program: codex 0.169.0",
            "  settings.effort: high",
            "  warning from the program: unknown model",
        ):
            assert line in done.stdout.splitlines()

    def test_the_kept_workspace_is_named(self, tmp_path: Path) -> None:
        """The path of the workspace is shown only if the workspace was kept."""
        written(tmp_path, synthetic.record())
        assert "workspace: " not in detail(tmp_path)
        workspace = tmp_path / "workspaces" / TrialId(TASK).directory
        workspace.mkdir(parents=True)
        assert f"workspace: {workspace}" in detail(tmp_path, width=500)

    def test_full_shows_every_line(self, tmp_path: Path) -> None:
        """With ``--full``, texts are complete. Without it, they are cut, and the number of omitted lines is shown."""
        output = Output(stdout="".join(f"line {number}\n" for number in range(100)))
        outputs = [f"out {number}" + " and so on" * 30 for number in range(50)]
        steps: JsonValue = {"step": 1, "kind": "result", "output": "\n".join(outputs)}
        provenance: Any = synthetic.trajectory(tmp_path, TASK, steps)
        written(tmp_path, synthetic.record(producer=output, provenance=provenance))
        brief, full = invoke(tmp_path, TASK).stdout, invoke(tmp_path, TASK, "--full").stdout
        assert "    … 70 more lines (--full shows them)\n    line 70\n" in brief
        assert "line 69\n" not in brief
        assert "… (+49 lines)\n" in brief
        assert all(f"line {number}\n" in full for number in range(100))
        assert all(f"{output}\n" in full for output in outputs)

    def test_a_failure(self, tmp_path: Path) -> None:
        """The title of a failed task has the reason. The section on the verdict has the message."""
        written(tmp_path, synthetic.record(0, STATUS.FAILED))
        shown = invoke(tmp_path, TASK).stdout
        assert shown.startswith("made-up/task-00000  short_answer  FAILED: wrong_answer\n")
        assert "  wrong_answer in the phase verify\n    expected another answer\n" in shown

    def test_a_patch_is_a_coloured_diff(self, tmp_path: Path) -> None:
        """Added and removed lines differ in colour on a terminal. In a pipe there are no colours."""
        diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old [bold]\n+new\n"
        fields = {
            **candidate_fields(None, None),
            "candidate_patch": diff,
            "candidate_digest": "0" * 64,
            "candidate_redacted": True,
        }
        run = read_run(written(tmp_path, synthetic.record(candidate=fields)))
        styles = {
            line.plain.strip(): {str(span.style) for span in line.spans}
            for line in TaskView(run, run.find(TASK)).lines()
            if line.plain.strip() in {"-old [bold]", "+new"}
        }
        assert styles.keys() == {"-old [bold]", "+new"}
        assert styles["-old [bold]"] != styles["+new"]
        plain = invoke(tmp_path, TASK).stdout
        assert "".join(f"    {line}\n" for line in diff.splitlines()) in plain
        assert "\x1b" not in plain

    def test_a_workspace_is_listed(self, tmp_path: Path) -> None:
        """The files of a workspace are listed with sizes and link targets. Control characters in names are escaped."""
        tree = tmp_path / "tree"
        (tree / "sub").mkdir(parents=True)
        (tree / "sub" / "run.sh").write_text("exit\n")
        (tree / "sub" / "run.sh").chmod(0o755)
        (tree / "a\x1b[2Jb\n").write_text("")
        (tree / "out").symlink_to("/etc/passwd")
        directory = tmp_path / "run"
        written(directory, synthetic.record(candidate=synthetic.sealed_tree(directory, tree)))
        lines = invoke(directory, TASK).stdout.splitlines()
        assert "       5 B  sub/run.sh*" in lines
        assert "            out -> /etc/passwd" in [line.rstrip() for line in lines]
        assert r"       0 B  a\x1b[2Jb\n" in lines

    def test_damage_is_said_and_the_rest_is_shown(self, tmp_path: Path) -> None:
        """An altered candidate is an error. The sections after it are still shown."""
        written(tmp_path, synthetic.record(candidate=synthetic.sealed_text(tmp_path, "answer")))
        (sealed,) = (tmp_path / CANDIDATES).iterdir()
        sealed.chmod(0o644)
        sealed.write_text("another")
        done = invoke(tmp_path, TASK)
        assert done.exit_code == 1
        assert "error: the sealed candidate was altered" in done.stderr
        assert "Sandbox" in done.stdout
        with pytest.raises(ConfigError, match="altered"):
            invoke(tmp_path, TASK, "--json")

    def test_a_published_run_may_lack_files(self, tmp_path: Path) -> None:
        """A record whose candidate and trajectory files are missing is shown, with a note on the candidate."""
        described: Any = {"trajectory": {"path": "trajectories/a.jsonl", "sha256": "0" * 64}}
        written(tmp_path, synthetic.record(provenance=described))
        done = invoke(tmp_path, TASK)
        assert done.exit_code == 0
        assert "  the sealed candidate is missing" in done.stdout
        whole = json.loads(invoke(tmp_path, TASK, "--json").stdout)
        assert (whole["steps"], whole["candidate"]) == (None, None)
        assert whole["record"]["task_id"] == TASK

    def test_json(self, tmp_path: Path) -> None:
        """``--json`` prints the whole record, the steps and the sealed candidate."""
        provenance: Any = synthetic.trajectory(tmp_path, TASK, {"kind": "message", "text": HOSTILE})
        candidate = synthetic.sealed_text(tmp_path, "answer")
        written(tmp_path, synthetic.record(candidate=candidate, provenance=provenance))
        done = invoke(tmp_path, TASK, "--json")
        assert not RAW.search(done.stdout)
        whole = json.loads(done.stdout)
        assert whole["steps"] == [{"kind": "message", "text": HOSTILE}]
        assert (whole["candidate"]["text"], whole["candidate"]["kind"]) == ("answer", "text")

    def test_a_trial(self, tmp_path: Path) -> None:
        """The first trial is shown by default, and another one with ``--trial``."""
        given = [synthetic.record(), synthetic.record(0, STATUS.FAILED, trial=2)]
        synthetic.write_run(tmp_path, given, synthetic.header(2, trials=2))
        assert invoke(tmp_path, TASK).stdout.startswith("made-up/task-00000 (trial 1)  short_answer  PASSED")
        assert "(trial 2)  short_answer  FAILED" in invoke(tmp_path, TASK, "--trial", "2").stdout

    def test_a_task_that_does_not_exist(self, tmp_path: Path) -> None:
        """For an unknown task, the error message suggests a similar id."""
        written(tmp_path, synthetic.record())
        with pytest.raises(ConfigError, match="did you mean 'made-up/task-00000'"):
            invoke(tmp_path, "task-00000")

    def test_a_task_that_is_like_no_other(self, tmp_path: Path) -> None:
        """If no id is similar, the hint is a command that lists the tasks."""
        written(tmp_path, synthetic.record())
        with pytest.raises(ConfigError, match="'securebench show DIR --all' lists the tasks"):
            invoke(tmp_path, "zzz")


class TestHostileRecords:
    """Records with hostile or malformed content from an agent or from the author of a run."""

    def test_nothing_reaches_the_terminal(self, tmp_path: Path) -> None:
        """Escape sequences are escaped and markup is shown as text, whichever field contains them."""
        steps: list[JsonValue] = [
            {"kind": HOSTILE, "text": HOSTILE},
            {"kind": "result", HOSTILE: HOSTILE},
            HOSTILE,
            [HOSTILE],
            7,
            None,
        ]
        provenance: Any = {
            **synthetic.trajectory(tmp_path, TASK, *steps),
            "driver": {"name": HOSTILE, "enforced": [HOSTILE, 7], "weaker": HOSTILE},
            "image": HOSTILE,
            "verifier": {"family": HOSTILE, "version": HOSTILE},
            "usage": {
                "relay": {"models": {HOSTILE: 1}},
                "egress": {HOSTILE: HOSTILE},
                "warnings": [HOSTILE, {HOSTILE: HOSTILE}],
            },
            "agent": {"program": HOSTILE, "version": [HOSTILE], "settings": {HOSTILE: {HOSTILE: HOSTILE}}},
            "failed_tries": [HOSTILE, {"error": HOSTILE}],
            "durations": {HOSTILE: HOSTILE},
        }
        output = Output(stdout=HOSTILE, stderr=HOSTILE, metadata={HOSTILE: {HOSTILE: [HOSTILE]}})
        given = synthetic.record(
            0,
            task_type=HOSTILE,
            candidate=synthetic.sealed_text(tmp_path, HOSTILE),
            producer=output,
            verifier=output,
            resource_summary=[{"name": HOSTILE, "visibility": "public", "value": HOSTILE}, HOSTILE],
            provenance=provenance,
        )
        written(tmp_path, given)
        for text in (detail(tmp_path), detail(tmp_path, full=True), invoke(tmp_path, TASK).stdout):
            assert not RAW.search(text)
            assert "[link=https://evil.example]go[/link]" in text
        for options in ((), ("--all",), ("--json",), (TASK, "--json")):
            assert not RAW.search(invoke(tmp_path, *options).stdout)

    @pytest.mark.parametrize("filler", ["x", "x ", "\t", "\u3000", "\U0001f600"])
    @pytest.mark.parametrize("full", [False, True])
    def test_a_heading_cannot_be_imitated(self, tmp_path: Path, filler: str, full: bool) -> None:
        """A long line that is wrapped never continues at the left margin, where it would look like a heading."""
        lines = [filler * length + "Verdict" for length in range(20, 80)]
        steps: JsonValue = {"kind": "message", "text": "\n".join(lines)}
        provenance: Any = synthetic.trajectory(tmp_path, TASK, steps)
        output = Output(stdout="\n".join(lines[:30]), stderr="\n".join(lines[30:]))
        written(tmp_path, synthetic.record(producer=output, provenance=provenance))
        rows = detail(tmp_path, width=60, full=full).splitlines()
        assert [row.rstrip() for row in rows if row.startswith("Verdict")] == ["Verdict"]

    def test_brief_steps_fit_the_terminal(self, tmp_path: Path) -> None:
        """Without ``full``, each step is one row of the terminal."""
        steps: list[JsonValue] = [{"kind": "message", "text": "word " * 100}] * 3
        provenance: Any = synthetic.trajectory(tmp_path, TASK, *steps)
        written(tmp_path, synthetic.record(provenance=provenance))
        rows = detail(tmp_path, width=60, columns=60).splitlines()
        first = rows.index("What it did")
        assert [row.split()[:2] for row in rows[first + 1 : first + 4]] == [[str(n), "message"] for n in (1, 2, 3)]

    @pytest.mark.parametrize(
        "changes",
        [
            {"resource_summary": "x"},
            {"resource_summary": [[], 7, {"visibility": "public"}]},
            {"verifier_metadata": {"verifier": [], "evidence": {"kind": "full", "a": [{"b": [[]]}]}}},
            {"producer_metadata": {str(number): number for number in range(10_000)}},
        ],
    )
    def test_odd_values_are_shown(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        """Values of unexpected types, or many values, neither break the output nor make it long."""
        written(tmp_path, synthetic.record())
        synthetic.forge(tmp_path, lambda records: records[0].update(changes))
        done = invoke(tmp_path, TASK)
        assert done.exit_code == 0
        assert done.stdout.count("\n") < 150

    @pytest.mark.parametrize("text", ["x" * 40_000_000, "\n" * 6_000_000, "\x1b" * 6_000_000, "ab\n" * 6_000_000])
    def test_megabytes_take_no_time(self, tmp_path: Path, text: str) -> None:
        """A huge candidate takes little processor time, because only the part that is shown is processed."""
        fields = {
            **candidate_fields(None, None),
            "candidate_patch": text,
            "candidate_digest": "0" * 64,
            "candidate_redacted": True,
        }
        written(tmp_path, synthetic.record(candidate=fields))
        with processor_seconds(3):
            done = invoke(tmp_path, TASK)
        assert len(done.stdout) < 50_000

    def test_steps_that_a_stranger_wrote(self, tmp_path: Path) -> None:
        """Malformed steps in a trajectory with the right digest are shown, in short lines."""
        data = b'{"left_out": "many"}\n{"kind": null, "text": {"a": 1}}\n"' + b"y" * 100_000 + b'"\n'
        (tmp_path / "trajectories").mkdir()
        (tmp_path / "trajectories" / "a.jsonl").write_bytes(data)
        described: Any = {"path": "trajectories/a.jsonl", "sha256": hashlib.sha256(data).hexdigest()}
        written(tmp_path, synthetic.record(provenance={"trajectory": described}))
        done = invoke(tmp_path, TASK)
        assert done.exit_code == 0
        assert max(map(len, done.stdout.splitlines())) < 500


def test_ten_thousand_records(large_run: Path) -> None:
    """The summary, a list and one task of a run with 10,000 records take little processor time."""
    for options in ((), ("--failed",), ("made-up/task-09999",)):
        with processor_seconds(3):
            assert invoke(large_run, *options).exit_code == 0
