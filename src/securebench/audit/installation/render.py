"""The report of an audit as plain text, and as Markdown tables that go between the markers of a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.audit.installation.model import HOST, AuditOutcome
from securebench.errors import ConfigError, SourceLocation
from securebench.printable import markdown_text, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.audit.installation.model import AuditReport, EntryResult, ProbeResult

_MARKS: Final = ("<!-- {}: begin -->", "<!-- {}: end -->")
CATALOGUE_MARK: Final = "catalogue"
BREAKOUT_MARK: Final = "breakout"


def text_lines(report: AuditReport) -> Iterator[str]:
    """Yield a line for each driver and each entry (outcome, id, title, reason; separated by tabs), and a summary."""
    for driver in report.drivers:
        yield "\t".join(("driver", driver.name, printable_line(driver.missing or driver.version)))
    for result in report.entries.values():
        entry = result.entry
        yield "\t".join((str(result.outcome), entry.id, entry.title, printable_line(result.why)))
    yield summary(report)


def summary(report: AuditReport) -> str:
    """Return, in one line, the number of entries with each outcome, the available drivers, and the duration."""
    tried = [driver.name for driver in report.drivers if not driver.missing]
    return f"{_counts(report)}; drivers: {', '.join(tried) or 'none'}; {report.seconds:.0f} s"


def _counts(report: AuditReport) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in report.counts.items() if count)


def empty_tables() -> dict[str, str]:
    """Return an empty text for each table, so that :func:`replaced` can check a page before there is a report."""
    return dict.fromkeys((CATALOGUE_MARK, BREAKOUT_MARK), "")


def markdown(report: AuditReport) -> dict[str, str]:
    """Return the tables of the report by the name of their markers."""
    return {CATALOGUE_MARK: _catalogue(report), BREAKOUT_MARK: _breakout(report)}


def _catalogue(report: AuditReport) -> str:
    """Return a line that says what was audited, and a table for each section."""
    tried = [f"{one.name} ({one.version})" for one in report.drivers if not one.missing]
    version = f"SecureBench {report.version} on {report.platform}"
    parts = [f"{report.started_at[:10]}, {version}. Drivers: {', '.join(tried) or 'none'}. {_counts(report)}."]
    for section in report.sections:
        parts += [f"### {section.title} ({section.id})", _section(report, [entry.id for entry in section.entries])]
    return "\n\n".join(parts)


def _section(report: AuditReport, ids: list[str]) -> str:
    lines = [_row("", "Attack", "Contained by", "Result", "Checked by"), _row(*["---"] * 5)]
    for entry_id in ids:
        result = report.entries[entry_id]
        entry = result.entry
        attack = f"**{entry.title}.** {entry.attack}"
        lines.append(_row(entry_id, attack, entry.contained_by, _outcome(result), _checked_by(result)))
    return "\n".join(lines)


def _outcome(result: EntryResult) -> str:
    """Return the outcome, and for "not contained" the reason."""
    if result.outcome is AuditOutcome.NOT_CONTAINED:
        return f"**{result.outcome}**: {markdown_text(result.why)}"
    return str(result.outcome)


def _checked_by(result: EntryResult) -> str:
    """Return how an entry was checked: the number of applicable probes of each kind, and the names of tests.

    If the entry was not checked, return the reason. If a kind was tried in several places, its number is that of the
    place with the most applicable probes.
    """
    if result.entry.not_applicable:
        return result.entry.not_applicable
    counts: dict[str, dict[str, int]] = {}
    for one in result.results:
        if one.outcome is not AuditOutcome.NOT_APPLICABLE:
            by_place = counts.setdefault(one.kind, {})
            by_place[one.place] = by_place.get(one.place, 0) + 1
    parts = [f"{max(by_place.values())} {kind}" for kind, by_place in counts.items()]
    parts += [f"`{test.removeprefix('tests/')}`" for test in result.entry.tests]
    return ", ".join(parts) or markdown_text(result.why)


def _breakout(report: AuditReport) -> str:
    """Return the table of escape attempts, with what stopped each attempt on each driver."""
    by_item: dict[str, dict[str, ProbeResult]] = {}
    for entry in report.entries.values():
        for result in entry.results:
            if result.kind == "breakout" and result.place != HOST:
                by_item.setdefault(result.item, {})[result.place] = result
    lines = [_row("Attempt", "", "Stopped by"), _row(*["---"] * 3)]
    for item, by_place in by_item.items():
        entry_id = next(iter(by_place.values())).entry
        lines.append(_row(item, entry_id, together({place: _how(one) for place, one in by_place.items()})))
    return "\n".join(lines)


def together(results: Mapping[str, str]) -> str:
    """Return a text with each different result and, in parentheses, its drivers. ``results`` maps drivers to results.

    A result that more than half of the drivers share comes first, without their names.
    """
    drivers: dict[str, list[str]] = {}
    for driver, result in results.items():
        drivers.setdefault(result, []).append(driver)
    by_frequency = sorted(drivers.items(), key=lambda item: -len(item[1]))
    return "; ".join(
        result if len(names) * 2 > len(results) else f"{result} ({', '.join(names)})" for result, names in by_frequency
    )


def _how(result: ProbeResult) -> str:
    shown = result.how.replace("|", "\\|")
    return shown if result.outcome is AuditOutcome.CONTAINED else f"**{result.outcome}**: {shown}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def replaced(page: str, tables: Mapping[str, str], name: str) -> str:
    """Return ``page``, the content of the file ``name``, with each table between its markers.

    Raises :class:`ConfigError` (``audit-page-unmarked``) if a marker is missing.
    """
    for mark, table in tables.items():
        begin, end = (form.format(mark) for form in _MARKS)
        if begin not in page or end not in page.partition(begin)[2]:
            message = f"the page has no line {begin} with a line {end} after it"
            hint = "pass the path of a file that does not exist, or add the two lines where the table should be"
            raise ConfigError(message, code="audit-page-unmarked", hint=hint, location=SourceLocation(name))
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
    return page


def new_page(tables: Mapping[str, str]) -> str:
    """Return a new Markdown page with headings, the markers, and the tables between them."""
    parts = ["# Audit of a SecureBench installation", "## Attacks"]
    marks = {mark: tuple(form.format(mark) for form in _MARKS) for mark in tables}
    parts += ["\n".join(marks[CATALOGUE_MARK]), "## Escape attempts", "\n".join(marks[BREAKOUT_MARK])]
    return replaced("\n\n".join(parts) + "\n", tables, "")


def rows_of(page: str, mark: str) -> list[str]:
    """Return the first cell of each table row in ``page`` between the two markers of ``mark``, without header rows."""
    begin, end = (form.format(mark) for form in _MARKS)
    table = page.partition(begin)[2].partition(end)[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")]
    return [cell for cell in cells if cell not in {"", "---", "Attempt"} and not re.fullmatch(r"\|.*", cell)]
