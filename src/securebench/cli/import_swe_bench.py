"""``securebench import swe-bench``: make a pack from the authors' rows."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securebench.cli.import_choices import choosing_rows, finish, lock_path, require_some, tell_next
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.errors import SourceLocation
    from securebench.importers.pack_output import WrittenPack
    from securebench.importers.report import Refusals, TaskReport
    from securebench.importers.swe_bench.pins import Pins
    from securebench.importers.swe_bench.rows import ImportedInstance, SweBenchChoices


@click.command("swe-bench", short_help="Import SWE-bench.")
@click.argument("source")
@click.option("--instance", "instances", multiple=True, metavar="ID", help="Import this instance. May be repeated.")
@click.option(
    "--images",
    type=click.Choice(["registry", "build"]),
    default="registry",
    show_default=True,
    help="registry: use the authors' images. build: write recipes from which you build the images.",
)
@click.option(
    "--repos",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --images build: a directory with clones of the repositories. Without a clone, a PyPI release is used.",
)
@click.option(
    "--pins",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --images build: a file of pins, which say how to set up a repository. They override the built-in pins.",
)
@click.option("--hints", is_flag=True, help="Show hints_text to the agent. It may reveal the solution.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@choosing_rows
def swe_bench(source: str, instances: tuple[str, ...], **options: Any) -> None:
    """Import SWE-bench from SOURCE: the path of the authors' .jsonl or .parquet file, or the URL of a .jsonl file.

    Each row becomes a repo_patch task. The problem statement is public, and the gold patch is hidden. The test patch
    and the test command decide the verdict. For each task, the report lists the differences from the authors' set-up.
    """
    from securebench.importers.report import Refusals
    from securebench.importers.row import LeftOut
    from securebench.importers.swe_bench import rows as importer
    from securebench.importers.swe_bench.records import chosen

    build = options["images"] == "build"
    choices = importer.SweBenchChoices(build, options["repos"], _pins(options["pins"], build=build), options["hints"])
    wanted = instances or _locked(options)
    refusals = Refusals(skip=options["skip_unusable"])
    made = _made(chosen(_records(source, refusals), wanted), choices, refusals)
    rows = [one.row for one in made]
    refused = LeftOut(ids=frozenset(report.name for report in refusals.reports))
    written = finish(rows, importer.BENCHMARK, importer.MANIFEST, options, complete=not instances, skipped=refused)
    names = {row.id for row in written.rows}
    kept = [one for one in made if one.row.id in names]
    _write_recipes(kept, options)
    print_reports([one.report for one in kept], written, refusals, as_json=options["as_json"])
    require_some(written)
    tell_next(written, options, images=any(one.image.recipe is not None for one in kept))


def _pins(path: Path | None, *, build: bool) -> Pins:
    """Return the shipped pins, overridden by the pins in the file ``path``. Without ``build``, return no pins.

    Pins say how to set up repositories. Raises :class:`ConfigError` if the file is invalid, and ``click.UsageError`` if
    ``path`` is given without ``build``.
    """
    from securebench.importers.swe_bench.pins import Pins, read_pins, shipped_pins

    if not build:
        if path is not None:
            raise click.UsageError("--pins needs --images build")
        return Pins()
    return read_pins(path).over(shipped_pins()) if path else shipped_pins()


def print_reports(kept: Sequence[TaskReport], written: WrittenPack, refusals: Refusals, *, as_json: bool) -> None:
    """Print a report on each task: those that were ``kept``, and those that were skipped at any stage."""
    from securebench.importers.report import report_lines

    for task_id, problems in written.left_out.items():
        refusals.add(task_id.rpartition("/")[2], problems)
    reports = [*kept, *refusals.reports]
    if as_json:
        click.echo(json.dumps([report.as_json() for report in reports], indent=2))
    else:
        click.echo("\n".join(report_lines(reports)))


def _locked(options: Mapping[str, Any]) -> Sequence[str]:
    """Return the ids of the instances in the lock file, to import only these; empty without a lock file."""
    from securebench.importers.lock import load_lock
    from securebench.importers.swe_bench.rows import BENCHMARK

    path = lock_path(options)
    return [*load_lock(path, BENCHMARK).rows] if path else ()


def _records(source: str, refusals: Refusals) -> Sequence[tuple[SourceLocation, Any]]:
    from securebench.importers.sources import is_url, opened, read_document
    from securebench.importers.swe_bench.parquet import parquet_records
    from securebench.importers.swe_bench.records import json_lines

    if not is_url(source) and source.endswith(".parquet"):
        return [*parquet_records(Path(source))]
    with opened(source) as (stream, name):
        return [*json_lines(read_document(stream, name), name, refusals.add)]


def _made(
    records: Sequence[tuple[SourceLocation, Any]], choices: SweBenchChoices, refusals: Refusals
) -> list[ImportedInstance]:
    """Return the instances that can be imported, and add the others to ``refusals``."""
    from securebench.errors import ConfigError, ImageError, Problem
    from securebench.importers.row import bad_record
    from securebench.importers.swe_bench.records import instance
    from securebench.importers.swe_bench.rows import imported

    made: dict[str, ImportedInstance] = {}
    for place, record in records:
        name = str((record.get("instance_id") if isinstance(record, dict) else None) or place)
        try:
            one = imported(instance(place, record), choices)
            if one.row.id in made:
                raise bad_record(place, f"{one.row.id} appears twice")
            made[one.row.id] = one
        except ConfigError as error:
            refusals.add(name, error.problems)
    refusals.settle()
    placed = []
    for one in made.values():
        try:
            placed.append(_at_its_commit(one))
        except ImageError as error:
            refusals.add(one.row.id, [Problem(error.code, error.message, one.row.location, error.hint)])
    refusals.settle()
    return placed


def _at_its_commit(one: ImportedInstance) -> ImportedInstance:
    """Return ``one`` with the base commit that the build of its image will create from the source's files.

    Return ``one`` unchanged if its base commit is already known, or if no image is to be built for it.
    """
    if one.image.recipe is None or one.image.base_commit:
        return one
    from securebench.images.build.derived.content import content_layer
    from securebench.images.build.derived.sources import fetch_source
    from securebench.images.build.recipe_file import read_recipe
    from securebench.images.build.recipe_kinds import DerivedRecipe

    with tempfile.TemporaryDirectory(prefix="securebench-import-") as scratch:
        path = Path(scratch) / "recipe.yaml"
        path.write_text(one.image.recipe_text, encoding="utf-8")
        recipe = read_recipe(path)
        assert isinstance(recipe, DerivedRecipe)
        assert recipe.source is not None
        source, _ = fetch_source(recipe.source, Path(scratch), lambda text: click.echo(text, err=True))
        return one.at(content_layer(recipe, source)[1])


def _write_recipes(made: Sequence[ImportedInstance], options: Mapping[str, Any]) -> None:
    from securebench.importers.pack_output import write_text

    recipes = [one for one in made if one.image.recipe is not None]
    for one in recipes:
        directory = options["output"] / "images" / one.row.id
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / "recipe.yaml", one.image.recipe_text, force=options["force"])
    if recipes:
        click.echo(f"{counted(len(recipes), 'image recipe')}: {options['output'] / 'images'}", err=True)
