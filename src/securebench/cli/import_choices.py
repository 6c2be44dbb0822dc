"""Code shared by the ``securebench import`` commands: options, the lock file, and writing the pack."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securebench.plurals import counted
from securebench.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from securebench.importers.pack_output import WrittenPack
    from securebench.importers.row import ImportedRow, LeftOut

LOCK_NAME = "lock.json"
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MAX_ROWS = 100_000


def _row_numbers(_context: click.Context, _option: click.Parameter, value: str | None) -> list[int] | None:
    """Return the row numbers in a text such as ``0-9,12``, counted from 0, in the given order, each once."""
    found: dict[int, None] = {}
    for part in value.split(",") if value is not None else ():
        match = _NUMBERS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not 0 <= last - first <= _MAX_ROWS:
            what = f"neither a row number nor a range of at most {_MAX_ROWS + 1:,} rows"
            raise click.BadParameter(f"{part.strip()!r} is {what}; write rows as 0-9,12")
        found |= dict.fromkeys(range(first, last + 1))
    return None if value is None else list(found)


def choosing_rows(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every importer has."""
    for option in (
        click.option("--force", is_flag=True, help="Replace existing files that have different content."),
        click.option("--skip-unusable", is_flag=True, help="Skip rows that cannot become tasks, and list them."),
        click.option(
            "--write-lock", is_flag=True, help="Write a lock file of the chosen rows instead of checking one."
        ),
        click.option(
            "--lock",
            "lock_path",
            type=click.Path(path_type=Path),
            help="Import only the rows in this lock file, and check their digests; with --write-lock, write the lock "
            f"file here. Default: DIR/{LOCK_NAME}, which need not exist.",
        ),
        click.option(
            "--rows", "positions", callback=_row_numbers, help="Import these rows, counted from 0, such as 0-9,12."
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Import the first N rows only."),
        click.option(
            "--output",
            required=True,
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Where to write the pack.",
        ),
    ):
        function = option(function)
    return function


def lock_path(options: Mapping[str, Any]) -> Path | None:
    """Return the lock file to check rows against: the given one, or else the pack's.

    Returns ``None`` with ``--write-lock``, or if no file is given and the pack has none.
    """
    named: Path | None = options["lock_path"]
    if options["write_lock"] or named is not None:
        return None if options["write_lock"] else named
    path: Path = options["output"] / LOCK_NAME
    try:
        return path if path.exists() else None
    except OSError as error:
        from securebench.errors import ConfigError

        message = f"cannot read {options['output']}: {error.strerror}"
        raise ConfigError(message, code="import-output-unwritable", hint="choose another --output") from error


def finish(
    rows: Sequence[ImportedRow],
    benchmark: str,
    manifest: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    complete: bool = True,
    skipped: LeftOut | None = None,
) -> WrittenPack:
    """Check ``rows`` against the lock file. Write a pack with the rows that ``--rows`` and ``--limit`` select.

    If ``--skip-unusable`` leaves no row, no tasks file is written.

    If ``complete`` is false, the user has selected ``rows`` from a larger set, so the lock file may list more rows.
    ``skipped`` are the records that could not become rows; the lock file may list them, too. The problems in
    ``skipped``, and those of the rows that ``--skip-unusable`` leaves out, are printed.
    """
    from securebench.importers.lock import load_lock, lock_text
    from securebench.importers.pack_output import write_pack, write_text
    from securebench.importers.row import selected

    output: Path = options["output"]
    path = lock_path(options)
    if path is not None:
        lock = load_lock(path, benchmark, trust_new=options.get("trust_new", False))
        rows = lock.rows_in(rows, skipped.ids if skipped else ()) if complete else lock.checked(rows)
    rows = selected(rows, options.get("positions"), options.get("limit"), skipped if path is None else None)
    written = write_pack(output, rows, manifest, force=options["force"], skip_unusable=options["skip_unusable"])
    if options["write_lock"] and written.rows:
        text = lock_text(benchmark, written.rows)
        write_text(options["lock_path"] or output / LOCK_NAME, text, force=options["force"])
    for problem in itertools.chain(skipped or (), *written.left_out.values()):
        click.echo(f"left out: {problem}", err=True)
    checked = f" (checked against {path})" if path else ""
    if written.rows:
        tasks = counted(len(written.rows), "task")
        click.echo(f"{tasks} in {written.tasks}{checked}", err=bool(options.get("as_json")))
    return written


def left_out(options: Mapping[str, Any]) -> LeftOut | None:
    """With ``--skip-unusable``, return a collection to which unusable records will be added; otherwise ``None``."""
    from securebench.importers.row import LeftOut

    return LeftOut() if options["skip_unusable"] else None


def require_some(written: WrittenPack) -> None:
    """Raise :class:`ConfigError` (``import-nothing-left``) if no row is left. The reasons were printed before."""
    from securebench.errors import ConfigError

    if not written.rows:
        message = f"no row is left: nothing was written to {written.tasks}"
        hint = "the reason for each row is printed above"
        raise ConfigError(message, code="import-nothing-left", hint=hint)


def tell_next(written: WrittenPack, options: Mapping[str, Any], *, images: bool = False) -> None:
    """Print the next commands. If ``images`` is set, the first one builds the images of the pack.

    The last one runs the pack, or checks it if it has no tester YAML.
    """
    pack = written.tasks.parent
    config = pack / "tester.yaml"
    has_config = config.is_file()
    steps = [f"securebench images build {shlex.quote(str(pack / 'images'))}"] if images else []
    steps.append(
        shlex.join(("securebench", "run", str(config)) if has_config else ("securebench", "validate", str(pack)))
    )
    lines = ["\n  ".join(("next:", *steps))]
    if not has_config:
        lines += [
            "To run the pack, write a tester YAML that names an agent and this benchmark:",
            "  benchmark:",
            f"    manifest: {printable_line(str(pack / 'manifest.yaml'))}",
            f"    tasks: {printable_line(str(written.tasks))}",
        ]
    click.echo("\n".join(lines), err=bool(options.get("as_json")))
