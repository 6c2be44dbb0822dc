"""``securebench audit --self``: run the catalogue of attacks against this installation."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.audit.installation.model import AuditReport

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_AGAIN: Final = "run the command again"
_MAX_PAGE: Final = 16 * MIB
_STYLES: Final[Mapping[str, str]] = {
    "contained": "green",
    "not contained": "bold red",
    "not applicable": "dim",
    "not checked here": "dim",
}


@click.command("audit")
@click.option("--self", "of_itself", is_flag=True, help="Audit this installation.")
@click.option(
    "--driver",
    "drivers",
    multiple=True,
    metavar="NAME",
    help="Try every attack on this driver: crun, runc, runsc, oci, docker or docker:RUNTIME; repeatable.  "
    "[default: all available drivers, but only the first one for attacks on verdicts]",
)
@click.option(
    "--entry",
    "entries",
    multiple=True,
    metavar="ID",
    help="Run only the entry with this id, or all entries that match a pattern such as 'B*'. Repeatable.",
)
@click.option("--image", metavar="NAME", help="The image for sandboxes. It must contain python3.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--html", type=_FILE, metavar="FILE", help="Also write the report as an HTML page.")
@click.option(
    "--markdown",
    "page",
    type=_FILE,
    metavar="FILE",
    help="Also write the report as Markdown tables. If FILE exists, only the tables of an earlier report are replaced.",
)
@click.option("-o", "--output", type=_FILE, help="Write the report to FILE.  [default: standard output]")
def command(*, of_itself: bool, html: Path | None, page: Path | None, output: Path | None, **flags: Any) -> None:
    """Run known attacks against this installation, and report what contained each attack.

    The catalogue has attacks on verdicts, sandboxes, the network, packs and records. Nothing is left behind. Exit
    codes: 0 if every attack that was tried was contained, 1 if an attack was not contained or gave no result.
    """
    if not of_itself:
        raise click.UsageError("pass --self to audit this installation")
    if html:
        from securebench.report.extras import require

        require("report")
    from securebench.audit.installation.catalogue import read_catalogue, select_entries
    from securebench.audit.installation.run import AuditRequest, audit_installation
    from securebench.fs.durable import storage_errors
    from securebench.tasks import DEFAULT_IMAGE

    sections = select_entries(read_catalogue(), flags["entries"])
    # The audit takes minutes, so directories that cannot be created are reported before it starts.
    for path in filter(None, (html, page, output)):
        with storage_errors(path, _AGAIN):
            path.parent.mkdir(parents=True, exist_ok=True)
    write_page = _page_writer(page)
    image = flags["image"] or DEFAULT_IMAGE
    report = audit_installation(AuditRequest(sections, flags["drivers"], image, _Progress()))
    if html:
        from securebench.audit.installation.page import audit_page

        _write(html, "".join(audit_page(report)))
    write_page(report)
    _print(report, output, as_json=flags["as_json"])
    if not report.holds:
        sys.exit(1)


def _page_writer(page: Path | None) -> Callable[[AuditReport], None]:
    """Return a function that writes the tables of a report to ``page``, or does nothing if ``page`` is ``None``.

    If the page has content but lacks the markers of a table, raise :class:`ConfigError` now, before the audit.
    """
    from securebench.audit.installation.render import empty_tables, markdown, new_page, replaced
    from securebench.strict_input.files import read_text

    old = read_text(page, "page", _MAX_PAGE, follow=True)[0] if page and page.exists() else ""
    if old:
        replaced(old, empty_tables(), str(page))

    def write(report: AuditReport) -> None:
        tables = markdown(report)
        if page:
            _write(page, replaced(old, tables, str(page)) if old else new_page(tables))

    return write


def _write(path: Path, text: str) -> None:
    from securebench.fs.durable import storage_errors, write_whole

    with storage_errors(path, _AGAIN):
        write_whole(path, text.encode("utf-8"))


def _print(report: AuditReport, output: Path | None, *, as_json: bool) -> None:
    from securebench.audit.installation.render import text_lines

    if not (as_json or output) and sys.stdout.isatty():
        _print_table(report)
        return
    text = json.dumps(report.to_json(), indent=2) if as_json else "\n".join(text_lines(report))
    if output:
        _write(output, text + "\n")
    else:
        click.echo(text)


class _Progress:
    """Prints each line of progress on stderr, beginning with the seconds since the start of the audit."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, line: str) -> None:
        from securebench.printable import printable_line

        click.echo(f"{time.monotonic() - self._start:5.0f} s  {printable_line(line)}", err=True)


def _print_table(report: AuditReport) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from securebench.audit.installation.render import summary
    from securebench.printable import printable_line

    console = Console()
    for section in report.sections:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=2)
        table.add_column(ratio=3, overflow="fold")
        for entry in section.entries:
            result = report.entries[entry.id]
            outcome = Text(str(result.outcome), style=_STYLES[result.outcome])
            table.add_row(entry.id, outcome, entry.title, Text(printable_line(result.why), style="dim"))
        console.print(Text(f"\n{section.title}", style="bold"), table)
    for driver in report.drivers:
        if driver.missing:
            console.print(Text(f"\n{driver.name} was not audited: {printable_line(driver.missing)}", style="yellow"))
    console.print("", Text(summary(report), style="bold" if report.holds else "bold red"))
