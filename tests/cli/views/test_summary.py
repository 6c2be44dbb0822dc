"""The summary at the end of a run: a table on a terminal, lines in a pipe."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from results.samples import STATUS, record
from securebench.cli.views.summary import summary_lines, summary_table
from securebench.results.records.record import WEAK as WEAK_WORDS
from securebench.results.records.record import Assurance, RecordEntry
from securebench.results.records.strict_record import read_entry
from securebench.results.records.usage import Usage
from securebench.results.run_directory.judge import JudgeSummary
from securebench.results.run_directory.part_of_pack import PartOfPack
from securebench.results.statistics import TaskResult
from securebench.results.summary import Counts, TesterRunSummary, estimate, total


def shown(width: int = 80, **changes: Any) -> str:
    """Return the table of a summary as shown on a terminal with ``width`` columns."""
    families = {
        "code_completion": Counts(5, 2, 1, 1, 0),
        "multiple_choice": Counts(3, 3),
        "tool_call": Counts(1, pending=1),
    }
    fields: dict[str, Any] = {
        "run_id": "r",
        "benchmark_id": "b",
        "agent": "a",
        "output_dir": Path("/out"),
        "total": total(families.values()),
        "families": families,
        **changes,
    }
    console = Console(file=io.StringIO(), width=width)
    console.print(summary_table(TesterRunSummary(**fields)))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def entry(task_id: str = "pack/one") -> RecordEntry:
    """Return the record of a failed task."""
    return read_entry(record(task_id, STATUS.FAILED).line(0))


def rows(text: str) -> dict[str, list[str]]:
    """Return the lines of the table by their first cells. The value for a line is the list of its other cells."""
    return {cells[0]: cells[1:] for line in text.splitlines() if (cells := line.split())}


def test_counts_by_family() -> None:
    """Each family has its counts and its pass rate, which excludes errors and pending tasks (L15)."""
    table = rows(shown())
    assert table["code_completion"] == ["5", "2", "1", "1", "0", "1", "66.7%", "of", "3"]
    assert table["multiple_choice"] == ["3", "3", "0", "0", "0", "0", "100.0%", "of", "3"]
    assert table["tool_call"] == ["1", "0", "0", "0", "1", "0", "none"]
    assert table["all"] == ["9", "5", "1", "1", "1", "1", "83.3%", "of", "6"]


def test_estimates_have_intervals() -> None:
    """One trial gives a pass rate. Several give pass@k, pass^k and the names of a few flaky tasks, escaped."""
    results = {f"t{number}": TaskResult(number % 4, 3) for number in range(40)}
    text = shown(120, estimates=estimate({"a": TaskResult(1, 1), "b": TaskResult(0, 1)}, 1))
    assert "Pass rate: 50.0% of 2 tasks, 95% interval 9.5% to 90.5%" in text
    assert "pass@" not in text
    several = shown(200, estimates=estimate({"\x1b[31m": TaskResult(1, 3), **results}, 3))
    assert "pass@1: 49.6% of 41 tasks, 95% interval " in several
    assert "pass@3: 75.6% of 41 tasks" in several
    assert "pass^3: 24.4% of 41 tasks" in several
    assert "Flaky tasks: 21 (\\x1b[31m, t1, t2, t5, " in several
    assert ", and 11 more)" in several


def test_a_part_of_a_pack_says_so() -> None:
    """If only a part of the pack was selected, the summary says that it is not the whole benchmark."""
    text = shown(part=PartOfPack(10, 164, {"limit": 10}))
    assert "Selection: 10 of 164 tasks, not the whole benchmark" in text
    assert "Selection" not in shown()


def test_fits_80_columns() -> None:
    """Nothing of the table is cut off on a terminal of 80 columns."""
    text = shown()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_one_family_has_no_sum() -> None:
    """The table of a run with one family has no row ``all``."""
    assert "all" not in rows(shown(families={"short_answer": Counts(1, 1)}, total=Counts(1, 1)))


def test_what_was_used_is_shown_where_it_is_known() -> None:
    """Tokens, turns and cost are one line. The line has no cost if the cost is not known."""
    assert "Usage" not in shown()
    used = Usage(input_tokens=1_234_567, output_tokens=890, turns=12, cost_usd=3.456)
    assert "Usage: 1,234,567 tokens in, 890 out, 12 turns, about $3.46\n" in shown(usage=used)
    assert "1 turn\n" in shown(usage=Usage(input_tokens=5, turns=1))
    assert "$" not in shown(usage=Usage(output_tokens=1))


def test_total_cost_with_a_judge_model() -> None:
    """A total is shown only if the costs of the agent and of the judge model are both known.

    An agent without any usage costs nothing. If the cost of the agent or of the judge model is not known, the other
    cost is shown alone.
    """

    def shown_cost(agent: Usage) -> str:
        return shown(usage=agent, judge=JudgeSummary({"model": "m"}, None, Usage(input_tokens=9, cost_usd=0.5)))

    assert "Cost: about $1.75, $0.50 of it for the judge model\n" in shown_cost(Usage(input_tokens=1, cost_usd=1.25))
    assert "Cost: about $0.50, $0.50 of it for the judge model\n" in shown_cost(Usage())
    unknown = "Cost: about $0.50 for the judge model; the cost of the agent is not known\n"
    assert unknown in shown_cost(Usage(input_tokens=1))
    judge = JudgeSummary({"model": "m"}, None, Usage(input_tokens=9))
    text = shown(usage=Usage(input_tokens=1, cost_usd=1.25), judge=judge)
    assert ", about $1.25\n" in text
    assert "Cost:" not in text


def test_failures_and_where_the_results_are() -> None:
    """The summary names the tasks that did not pass with their reasons, and the path of the records."""
    text = shown(failures=(entry(),))
    assert "  failed  pack/one\n          wrong_answer: not the answer\n" in text
    assert "Verification: partial" in text
    assert "Results: /out/candidates.jsonl\nDetails: securebench show /out TASK\n" in text
    assert "Details" not in shown()


def test_a_failure_without_a_message_is_its_reason() -> None:
    """Nothing follows the reason of a failure whose verifier gives no message."""
    failures = (replace(entry(), message=""),)
    assert "  failed  pack/one\n          wrong_answer\n" in shown(failures=failures)
    assert "  failed pack/one wrong_answer" in plain(failures=failures)


def test_failures_are_bounded() -> None:
    """Failures that are not listed are counted."""
    counts = Counts(100, 0, 100)
    assert "and 99 more: securebench show /out --failed --errors" in shown(
        failures=(entry(),), total=counts, families={"a": counts}
    )


LONG = f"slow-pack/a-task-with-a-rather-long-name-{'x' * 30}-number-007"
WEAK = Counts(6, 6, passed_by_assurance={Assurance.EXIT_CODE: 6})
MIXED = Counts(3, 3, passed_by_assurance={Assurance.FULL: 1, Assurance.SHARED: 2})


def plain(**changes: Any) -> list[str]:
    """Return the lines of a summary for a pipe."""
    ids = {"run_id": "r", "benchmark_id": "b", "agent": "a"}
    fields = {**ids, "output_dir": Path("/out"), "families": {}, "total": Counts()}
    return summary_lines(TesterRunSummary(**{**fields, **changes}))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_ids_are_whole_on_a_terminal(width: int) -> None:
    """An id that is too long for one line is wrapped, never cut (D7)."""
    text = shown(width, failures=(entry(LONG),), families={"a": Counts(1, 0, 1)}, total=Counts(1, 0, 1))
    below = text.partition("Did not pass:")[2]
    assert f"failed{LONG}wrong_answer:nottheanswer" in "".join(below.split())


def test_a_pipe_gets_whole_lines() -> None:
    """In a pipe, each family and each failure is one line. Nothing is padded or cut (D7)."""
    lines = plain(failures=(entry(LONG),), families={"a": Counts(2, 1, 1)}, total=Counts(2, 1, 1))
    assert lines == [
        "b, run r, agent a",
        "a: 2 tasks, 1 passed, 1 failed, 0 errors, 0 pending, 0 not run, pass rate 50.0% of 2",
        "Did not pass:",
        f"  failed {LONG} wrong_answer: not the answer",
        "Verification: complete",
        "Results: /out/candidates.jsonl",
        "Details: securebench show /out TASK",
    ]
    assert "  and 6 more: securebench show /out --failed --errors" in plain(failures=(entry(),), total=Counts(7, 0, 7))


def test_a_failure_shows_the_last_line_of_its_agents_stderr() -> None:
    """The line from stderr is below the failure: complete in a pipe, cut to one line on a terminal."""
    failed = replace(entry(), agent_stderr=f"no module {'x' * 200}")
    assert f"    agent's stderr: no module {'x' * 200}" in plain(failures=(failed,))
    text = shown(failures=(failed,))
    assert "          agent's stderr: no module xxx" in text
    assert max(map(len, text.splitlines())) <= 80


def test_one_task_is_one_task() -> None:
    """A count of one is in the singular."""
    assert "a: 1 task, 0 passed, 0 failed, 1 error, " in "\n".join(plain(families={"a": Counts(1, errors=1)}))


def test_weak_passes_are_named_beside_the_number() -> None:
    """Passes that rest only on an exit code, or on a process shared with the candidate, are counted separately."""
    families = {"code_completion": MIXED, "repo_patch": WEAK, "short_answer": Counts(1, 1)}
    text = shown(families=families, total=total(families.values()))
    assert "repo_patch: 6 passed, 6 on exit code only\n" in text
    assert "code_completion: 3 passed, 2 judged in the candidate's process\n" in text
    assert "short_answer: " not in text
    lines = plain(families=families, total=total(families.values()))
    assert any(line.startswith("repo_patch: ") and line.endswith("(6 passed, 6 on exit code only)") for line in lines)
    assert lines[4].endswith("(10 passed, 6 on exit code only, 2 judged in the candidate's process)")


def test_every_weak_assurance_has_words() -> None:
    """Every assurance except ``full`` and ``test_by_test`` has a text in ``WEAK_WORDS``."""
    assert {*WEAK_WORDS, "full", "test_by_test"} == set(Assurance)


def test_nothing_is_obeyed() -> None:
    """Control characters in ids do not reach the terminal, and markup is shown as text (M13)."""
    text = shown(width=200, failures=(entry("[bold]x[/bold]\x1b[2J\u202e"),), benchmark_id="b\x1b[31m")
    assert "[bold]x[/bold]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
