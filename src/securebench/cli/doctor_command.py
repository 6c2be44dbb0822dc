"""``securebench doctor``: check what this machine supports, and show how to fix problems."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.doctor.model import Report

_STYLES: Final[Mapping[str, str]] = {"ok": "green", "weaker": "yellow", "missing": "red"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(*, as_json: bool) -> None:
    """Check what this machine supports, and print how to fix what is weaker or missing.

    Nothing is changed. Exit code 0 if runs work on this machine, 1 if they do not.
    """
    from securebench.doctor import examine
    from securebench.doctor.this_machine import ThisMachine

    report = examine(ThisMachine())
    if as_json:
        click.echo(json.dumps(_as_dict(report), indent=2))
    elif sys.stdout.isatty():
        _print_table(report)
    else:
        _print_lines(report)
    if not report.can_run:
        sys.exit(1)


def _as_dict(report: Report) -> dict[str, object]:
    return {
        "can_run": report.can_run,
        "driver": report.driver or None,
        "checks": [asdict(finding) for finding in report.findings],
    }


def _print_lines(report: Report) -> None:
    """Print one line per finding, its parts separated by tabs."""
    for finding in report.findings:
        text = "; ".join(part for part in (finding.found, finding.meaning) if part)
        click.echo("\t".join((finding.state, finding.name, _plain(text), _plain(finding.fix))).rstrip())
    click.echo(_summary(report))


def _print_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in report.findings:
        text = Text(_plain(finding.found)).append(f"; {_plain(finding.meaning)}" if finding.meaning else "", "dim")
        if finding.fix:
            text.append(f"\n> {_plain(finding.fix)}", "bold")
        table.add_row(Text(finding.state, style=_STYLES[finding.state]), finding.name.replace("_", " "), text)
    console = Console()
    console.print(table, "", Text(_summary(report), style="bold" if report.can_run else "bold red"))


def _summary(report: Report) -> str:
    if report.driver:
        return f"runs use the {report.driver} driver on this machine"
    if report.can_run:
        return "no driver is chosen automatically: oci works but is weaker than Docker; choose it with --driver oci"
    return "no run is possible on this machine: install what one of the drivers needs"


def _plain(text: str) -> str:
    """Return ``text`` on one line, without terminal control sequences: it may quote an engine, a file or an error."""
    from securebench.printable import printable

    return " ".join(printable(text).split())
