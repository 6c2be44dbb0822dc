"""The table at the end of a run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from results.samples import STATUS, record
from securebench.cli.summary_table import summary_table
from securebench.results.record import Entry, read_entry
from securebench.results.summary import Counts, TesterRunSummary, total
from securebench.results.usage import Usage


def shown(width: int = 80, **changes: Any) -> str:
    """Return the table of a summary, as it stands on a terminal so wide."""
    families = {
        "code_completion": Counts(5, 2, 1, 1, 0),
        "multiple_choice": Counts(3, 3),
        "tool_call": Counts(1, pending=1),
    }
    fields: dict[str, Any] = {
        "run_id": "r",
        "benchmark_id": "b",
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


def entry(task_id: str = "pack/one") -> Entry:
    """Return a failed task."""
    return read_entry(record(task_id, STATUS.FAILED).line(0))


def rows(text: str) -> dict[str, list[str]]:
    """Return the table's cells by their first."""
    return {cells[0]: cells[1:] for line in text.splitlines() if (cells := line.split())}


def test_counts_by_family() -> None:
    """Each family has its counts and its rate, which says of how many; errors and pending are left out of it (L15)."""
    table = rows(shown())
    assert table["code_completion"] == ["5", "2", "1", "1", "0", "1", "66.7%", "of", "3"]
    assert table["multiple_choice"] == ["3", "3", "0", "0", "0", "0", "100.0%", "of", "3"]
    assert table["tool_call"] == ["1", "0", "0", "0", "1", "0", "none"]
    assert table["all"] == ["9", "5", "1", "1", "1", "1", "83.3%", "of", "6"]


def test_fits_80_columns() -> None:
    """Nothing of the table is cut off on a terminal of 80 columns."""
    text = shown()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_one_family_has_no_sum() -> None:
    """One family is its own sum."""
    assert "all" not in rows(shown(families={"short_answer": Counts(1, 1)}, total=Counts(1, 1)))


def test_what_was_used_is_shown_where_it_is_known() -> None:
    """Tokens, turns and cost are one line; a cost that nobody told is not made up."""
    assert "Usage" not in shown()
    used = Usage(input_tokens=1_234_567, output_tokens=890, turns=12, cost_usd=3.456)
    assert "Usage: 1,234,567 tokens in, 890 out, 12 turns, about $3.46\n" in shown(usage=used)
    assert "1 turn\n" in shown(usage=Usage(input_tokens=5, turns=1))
    assert "$" not in shown(usage=Usage(output_tokens=1))


def test_failures_and_where_the_results_are() -> None:
    """What did not pass is named with its reason, and where the records are."""
    text = shown(failures=(entry(),))
    assert "failed  pack/one  wrong_answer  not the answer" in text
    assert "Verification: partial" in text
    assert "Results: /out/candidates.jsonl" in text


def test_failures_are_bounded() -> None:
    """More failures than are named are counted."""
    counts = Counts(100, 0, 100)
    assert "and 99 more; see the records" in shown(failures=(entry(),), total=counts, families={"a": counts})


def test_nothing_is_obeyed() -> None:
    """Neither escape sequences nor markup of an id or a message reach the terminal (M13)."""
    text = shown(width=200, failures=(entry("[bold]x[/bold]\x1b[2J\u202e"),), benchmark_id="b\x1b[31m")
    assert "[bold]x[/bold]" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
