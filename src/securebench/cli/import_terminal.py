"""``securebench import harbor`` and ``securebench import terminal-bench``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securebench.cli.images_build import base_image_option
from securebench.cli.import_choices import choosing_rows, finish, lock_path, require_some, tell_next
from securebench.cli.import_swe_bench import print_reports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.importers.report import Refusals
    from securebench.importers.row import ImportedRow
    from securebench.importers.terminal.rows import ImportedTask, TerminalChoices
    from securebench.importers.terminal.task import TerminalTask

_PYTHON = re.compile(r"3\.[0-9]{1,2}")


def _python_version(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if not _PYTHON.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a version such as 3.11")
    return value


def _terminal_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that the commands of both formats have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
        click.option("--trust-new", is_flag=True, help="Accept tasks that the lock file lists without a digest."),
        click.option(
            "--python",
            default="3.11",
            show_default=True,
            callback=_python_version,
            help="The Python version that the images have. Compiled packages for tests are chosen for this version.",
        ),
        click.option(
            "--wheels",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            metavar="DIR",
            help="Take pytest and the tests' other packages from the wheels in DIR. Default: the package index.",
        ),
        click.option(
            "--workdir", default="", metavar="PATH", help="The working directory if a Dockerfile has no WORKDIR."
        ),
        base_image_option,
        choosing_rows,
        click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        function = option(function)
    return function


@click.command("harbor", short_help="Import tasks in Harbor's format (Terminal-Bench 2).")
@_terminal_options
@click.option(
    "--images",
    type=click.Choice(["registry", "build"]),
    default="build",
    show_default=True,
    help="build: write recipes. registry: use the authors' images where a task names one.",
)
def harbor(directories: tuple[Path, ...], **options: Any) -> None:
    """Import tasks of Harbor's format (Terminal-Bench 2) from DIRECTORIES: tasks, or directories of tasks.

    Instructions are public. Tests and solution are hidden. A task is refused, for example, if its Dockerfile copies
    them into the agent's image, or if its verifier script cannot be replaced by a runner that works without a network.
    """
    from securebench.importers.terminal import harbor as importer

    _import(directories, importer.read_harbor, importer.MARK, importer.BENCHMARK, options)


@click.command("terminal-bench", short_help="Import tasks in Terminal-Bench's first format.")
@_terminal_options
def terminal_bench(directories: tuple[Path, ...], **options: Any) -> None:
    """Import tasks of Terminal-Bench's first format from DIRECTORIES: tasks, or directories of tasks.

    What is public, hidden or refused is the same as with 'securebench import harbor'.
    """
    from securebench.importers.terminal import terminal_bench as importer

    _import(directories, importer.read_terminal_bench, importer.MARK, importer.BENCHMARK, options)


def _import(
    directories: Sequence[Path],
    read: Callable[[Path], TerminalTask],
    mark: str,
    benchmark: str,
    options: Mapping[str, Any],
) -> None:
    from securebench.importers.report import Refusals
    from securebench.importers.row import LeftOut
    from securebench.importers.terminal.rows import MANIFEST_DEFAULTS, TerminalChoices

    choices = TerminalChoices(options["base_images"], options["workdir"], options.get("images") == "registry")
    places = _named(_tasks(directories, mark), benchmark, options)
    refusals = Refusals(skip=options["skip_unusable"])
    made = _made(places, read, choices, refusals)
    rows = _with_runner(made, options, refusals)
    manifest = {"id": benchmark, "version": 1, "defaults": MANIFEST_DEFAULTS}
    refused = LeftOut(ids=frozenset(f"{benchmark}/{report.name}" for report in refusals.reports))
    written = finish(rows, benchmark, manifest, options, skipped=refused)
    kept = {row.id for row in written.rows}
    reports = [one.task.report for one in made if one.row.id in kept]
    print_reports(reports, written, refusals, as_json=options["as_json"])
    require_some(written)
    tell_next(written, options, images=any(place.startswith("images/") for one in made for place in one.trees))


def _tasks(directories: Sequence[Path], mark: str) -> list[Path]:
    """Return the given task directories, and the task directories directly inside the other given directories.

    Raises :class:`ConfigError` if a given directory neither is nor contains a task directory.
    """
    from securebench.errors import ConfigError

    found: dict[Path, None] = {}
    for directory in directories:
        inner = (
            [directory] if (directory / mark).is_file() else sorted(path.parent for path in directory.glob(f"*/{mark}"))
        )
        if not inner:
            message = f"{directory} is neither a task nor a directory of tasks: no {mark} was found"
            raise ConfigError(message, code="import-file-missing")
        found |= dict.fromkeys(path.absolute() for path in inner)
    return list(found)


def _named(places: Sequence[Path], benchmark: str, options: Mapping[str, Any]) -> Sequence[Path]:
    """Return the tasks that are in the lock file. Without a lock file, return all."""
    from securebench.importers.lock import load_lock

    path = lock_path(options)
    if path is None:
        return places
    names = load_lock(path, benchmark, trust_new=options["trust_new"]).rows
    return [place for place in places if f"{benchmark}/{place.name}" in names]


def _made(
    places: Sequence[Path], read: Callable[[Path], TerminalTask], choices: TerminalChoices, refusals: Refusals
) -> list[ImportedTask]:
    """Return the tasks that can be imported, and add the others to ``refusals``."""
    from securebench.errors import ConfigError
    from securebench.importers.terminal.files import refused as refusal
    from securebench.importers.terminal.rows import imported

    made: dict[str, ImportedTask] = {}
    for place in places:
        try:
            one = imported(read(place), choices)
            if one.row.id in made:
                raise refusal(place, f"another task has the id {one.row.id!r}")
            made[one.row.id] = one
        except ConfigError as error:
            refusals.add(place.name, error.problems)
    refusals.settle()
    return list(made.values())


def _with_runner(made: Sequence[ImportedTask], options: Mapping[str, Any], refusals: Refusals) -> list[ImportedRow]:
    """Write the files of the tasks, and the packages that their tests need, into the pack. Return the rows.

    Tasks whose packages cannot be fetched, are invalid or are too large are added to ``refusals``.
    """
    from securebench.importers.pack_output import put_tree
    from securebench.importers.terminal.rows import finished

    fitted = [*_with_sites(made, options, refusals)]
    refusals.settle()
    rows = []
    for one, digest in fitted:
        row, trees = finished(one, f"site/{digest}", digest)
        for root, files in trees.items():
            put_tree(options["output"] / root, files, force=options["force"])
        rows.append(row)
    return rows


def _with_sites(
    made: Sequence[ImportedTask], options: Mapping[str, Any], refusals: Refusals
) -> Iterator[tuple[ImportedTask, str]]:
    """Write to the pack the Python packages that the tests of each task need.

    Yield each task and the digest of its package directory.
    """
    from securebench.errors import ConfigError
    from securebench.importers.pack_output import put_tree
    from securebench.importers.terminal.files import tree_digest
    from securebench.importers.terminal.wheels import WheelSource, site_files

    source = WheelSource(options["wheels"], options["python"])
    sites: dict[tuple[tuple[str, str], ...], tuple[str, list[str]] | ConfigError] = {}
    for one in made:
        packages = tuple(sorted(one.packages.items()))
        if packages not in sites:
            try:
                files, wheels = site_files(source, dict(packages))
            except ConfigError as error:
                sites[packages] = error
            else:
                sites[packages] = (tree_digest(files), wheels)
                put_tree(options["output"] / "hidden" / "site" / tree_digest(files), files, force=options["force"])
        found = sites[packages]
        if isinstance(found, ConfigError):
            refusals.add(one.task.name, (replace(each, location=one.row.location) for each in found.problems))
            continue
        if packages:
            one.task.report.changed.append(f"tests run with {', '.join(found[1])}")
        yield one, found[0]
