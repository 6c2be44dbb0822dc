"""``securebench compare``: compare runs task by task."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from securebench.results.comparison import Comparison, PairTally

EXAMPLES: Final = """\b
Examples:
  securebench compare runs/agent-a runs/agent-b
  securebench compare runs/suite --markdown > comparison.md
"""


@click.command(name="compare", short_help="Compare runs of the same benchmark, task by task.", epilog=EXAMPLES)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--markdown", "form", flag_value="markdown", help="Print a Markdown table.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV, one line for each comparison.")
@click.option(
    "--json", "form", flag_value="json", help="Print JSON, with the ids of all tasks whose pass rates differ."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the comparison to FILE as an HTML page, instead of printing it.",
)
def command(directories: tuple[Path, ...], form: str | None, html: Path | None) -> None:
    """Compare runs of the same benchmark, task by task.

    Each DIR is the output directory of a run or a suite. For a suite, all its runs are compared. For each benchmark,
    the first run is the baseline. All other runs are compared with it.

    Only tasks with a verdict in both runs are counted. If each run has one verdict on each of these tasks, the p-value
    is that of McNemar's exact test; otherwise, it comes from a paired bootstrap over tasks. All intervals are 95 %
    confidence intervals.
    """
    from securebench.cli.views import compare as compare_view

    groups = _groups(directories)
    if html is not None:
        _write_page(groups, html)
        return
    if form is None and sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        console.print(compare_view.tables(console, groups))
        return
    if form == "json":
        click.echo(json.dumps([pair.to_json() for pairs in groups.values() for pair in pairs], indent=2))
        return
    renderer = {"markdown": compare_view.markdown, "csv": compare_view.csv_text, None: compare_view.plain}[form]
    click.echo(renderer(groups), nl=False)


def _write_page(groups: dict[str, list[Comparison]], output: Path) -> None:
    from securebench.cli.export_command import text_output
    from securebench.printable import printable_line
    from securebench.report.extras import require

    require("report")
    from securebench.report.html_report import write_comparison

    with text_output(output) as file:
        write_comparison(groups, file)
    click.echo(f"Comparison: {printable_line(str(output))}")


def _groups(directories: tuple[Path, ...]) -> dict[str, list[Comparison]]:
    """Return the comparisons by benchmark. Each compares a run with the first run of the same benchmark."""
    from securebench.errors import ConfigError
    from securebench.results.comparison import compare, tally
    from securebench.results.suite import read_runs

    runs: dict[str, list[PairTally]] = {}
    for directory in directories:
        for run in read_runs(directory):
            runs.setdefault(run.benchmark_id, []).append(tally(run))
    groups = {name: [compare(first, other) for other in others] for name, (first, *others) in runs.items()}
    if alone := [name for name, pairs in groups.items() if not pairs]:
        raise ConfigError(
            f"no second run of {', '.join(alone)} was given",
            code="runs-differ",
            hint="give at least two runs of each benchmark",
        )
    return groups
