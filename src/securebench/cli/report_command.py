"""``securebench report``: write an HTML report of runs."""

from __future__ import annotations

from pathlib import Path

import click

_DEFAULT = Path("report.html")


@click.command(name="report")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=_DEFAULT,
    help="The file to write.  [default: report.html]",
)
def command(directories: tuple[Path, ...], output: Path) -> None:
    """Write one HTML page about one or more runs.

    DIR is the directory of a run or a suite. The page is self-contained: it loads nothing and runs no script.

    Exit codes: 0 written; 1 not written, for example because a DIR has no run or suite, or is damaged.
    """
    from securebench.printable import printable_line
    from securebench.report.extras import require

    require("report")
    from securebench.report.html_report import write_report

    write_report(directories, output)
    click.echo(f"Report: {printable_line(str(output))}")
