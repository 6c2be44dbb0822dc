"""The table of escape attempts and what stopped each, as Markdown, for a page between two markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.testing.breakout.inside.base import ATTEMPTS
from securebench.testing.breakout.run import AttemptOutcome
from securebench.testing.breakout.target import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.testing.breakout.run import AttemptResult

BEGIN: Final = "<!-- breakout: begin -->"
END: Final = "<!-- breakout: end -->"


def render(columns: Mapping[str, Mapping[str, Sequence[AttemptResult]]]) -> str:
    """Return the table, with a row for each attempt. ``columns`` has the findings by driver and by user."""
    lines = [_line("Attempt", "What it would mean", "", "Stopped by"), _line(*["---"] * 4)]
    by_name = {driver: _by_name(column) for driver, column in columns.items()}
    for name, means, entry in _rows():
        lines.append(_line(name, means, entry, together({driver: _cell(by_name[driver][name]) for driver in columns})))
    return "\n".join(lines) + "\n"


def together(results: Mapping[str, str]) -> str:
    """Return each result with its drivers in parentheses. ``results`` are by driver.

    The result of more than half of the drivers comes first, without their names.
    """
    drivers: dict[str, list[str]] = {}
    for driver, result in results.items():
        drivers.setdefault(result, []).append(driver)
    by_frequency = sorted(drivers.items(), key=lambda item: -len(item[1]))
    return "; ".join(
        result if len(names) * 2 > len(results) else f"{result} ({', '.join(names)})" for result, names in by_frequency
    )


def replaced(page: str, table: str) -> str:
    """Return ``page`` with ``table`` between its two markers. Raises ``ValueError`` if they are missing."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN} and {END}")
    return f"{before}{begin}\n\n{table}\n{end}{after}"


def names_in(page: str) -> list[str]:
    """Return the names of the attempts in the table of ``page``, in order. Raises ``ValueError`` without markers."""
    replaced(page, "")
    rows = page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    return [row.split(" | ")[0].removeprefix("| ") for row in rows]


def _rows() -> Iterator[tuple[str, str, str]]:
    yield from ((attempt.name, attempt.means, attempt.entry) for attempt in ATTEMPTS.values())
    yield from ((evidence.name, evidence.means, evidence.entry) for evidence in EVIDENCE)


def _by_name(column: Mapping[str, Sequence[AttemptResult]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for findings in column.values():
        for finding in findings:
            shown = (
                finding.how if finding.outcome is AttemptOutcome.CONTAINED else f"**{finding.outcome}**: {finding.how}"
            )
            found.setdefault(finding.name, []).append(shown.replace("|", "\\|"))
    return found


def _cell(by_user: Sequence[str]) -> str:
    return " / ".join(dict.fromkeys(by_user))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
