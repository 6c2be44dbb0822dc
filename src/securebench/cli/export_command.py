"""``securebench export``: convert a run for other programs."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.results.read import RecordedRun

_NEEDS_PATH: Final = {"parquet": "a file", "atif": "a directory"}

EXAMPLES: Final = """\b
Examples:
  securebench export runs/first --csv > results.csv
  securebench export runs/first --junit -o results.xml
  securebench export runs/first --atif -o trajectories
"""


@click.command(name="export", short_help="Convert a run for other programs.", epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--csv", "form", flag_value="csv", help="CSV, with one row for each trial.")
@click.option("--parquet", "form", flag_value="parquet", help="Parquet: the same rows as CSV, with typed columns.")
@click.option("--junit", "form", flag_value="junit", help="JUnit XML, for continuous integration.")
@click.option("--markdown", "form", flag_value="markdown", help="The pass rate and a table of trials, as Markdown.")
@click.option(
    "--atif", "form", flag_value="atif", help="Trajectories as ATIF, a file for each trial with a trajectory."
)
@click.option("--inspect", "form", flag_value="inspect", help="An evaluation log of Inspect, as JSON.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file, or for --atif to this directory.  [default: standard output]",
)
def command(directory: Path, form: str | None, output: Path | None) -> None:
    """Convert the run in DIR for other programs."""
    from securebench.results.read import read_run

    if form is None:
        raise click.UsageError("choose a format: --csv, --parquet, --junit, --markdown, --atif or --inspect")
    if form in _NEEDS_PATH and output is None:
        raise click.UsageError(f"--{form} needs {_NEEDS_PATH[form]}: add --output PATH")
    run = read_run(directory)
    if form == "atif":
        from securebench.report.export.atif import write_atif

        assert output is not None
        written = write_atif(run, output)
        why = "" if written else ": no trial has a trajectory"
        click.echo(f"{counted(written, 'trajectory', 'trajectories')} in {output}{why}")
        return
    if form == "parquet":
        from securebench.report.export.tables import write_parquet

        assert output is not None
        with replaced_output(output) as path:
            write_parquet(run, path)
        return
    from securebench.report.export.inspect_log import write_inspect
    from securebench.report.export.junit import write_junit
    from securebench.report.export.tables import write_csv, write_markdown

    writers: dict[str, Callable[[RecordedRun, IO[str]], None]] = {
        "csv": write_csv,
        "junit": lambda found, file: write_junit([found], file),
        "markdown": write_markdown,
        "inspect": write_inspect,
    }
    with text_output(output) as file:
        writers[form](run, file)


@contextmanager
def text_output(output: Path | None) -> Iterator[IO[str]]:
    """Yield a file that replaces ``output`` when it is complete; without ``output``, yield standard output."""
    if output is None:
        yield sys.stdout
        return
    with (
        replaced_output(output) as path,
        path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
    ):
        yield file


@contextmanager
def replaced_output(output: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``output``. Unless an error occurs, the file written there replaces ``output``.

    Missing directories are created.
    """
    from securebench.errors import StorageError

    path = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield path
            path.replace(output)
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:
        message = f"cannot write {output}: {error.strerror or error}"
        raise StorageError(message, hint="choose another file") from error
