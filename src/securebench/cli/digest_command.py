"""``securebench digest``: print the public digests of a pack."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.results.records.commitment import Commitment
    from securebench.results.run_directory.pack_match import Match

_EXIT_DIFFERENT = 1

EXAMPLES: Final = """\b
Examples:
  securebench digest my-pack
  securebench digest my-pack --run results
"""


@click.command("digest", epilog=EXAMPLES)
@click.argument("pack", type=click.Path(path_type=Path))
@click.option(
    "--tasks", type=click.Path(path_type=Path), help="The tasks file, if it is not tasks.jsonl next to the manifest."
)
@click.option("--run", "run", metavar="DIR", type=click.Path(path_type=Path), help="Compare PACK with the run in DIR.")
@click.option(
    "--commitment-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The run's commitment key, to compare hidden content, too.  [default: commitment.key in DIR, if any]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(pack: Path, tasks: Path | None, run: Path | None, commitment_key: Path | None, *, as_json: bool) -> None:
    """Print the public digests of PACK and its rows, so that a published run can be matched with a pack.

    PACK is a manifest file, a tester YAML, or a directory with manifest.yaml and tasks.jsonl.

    A public digest covers what agents may see, and 'metadata', which must not contain answers. So the digest can be
    published. Do not publish a plain digest of the whole pack, such as the SHA-256 of tasks.jsonl: readers could use it
    to test guesses of the answers. To compare hidden content, the command needs the run's commitment key. Give that key
    only to people who have the pack.

    Exit codes: 0 everything that was compared agrees; 1 something differs, or PACK or DIR cannot be read.
    """
    from securebench.cli.pack_argument import load_pack

    if commitment_key is not None and run is None:
        raise click.UsageError("--commitment-key needs --run DIR")
    loaded = load_pack(pack, tasks)
    matches = _matches(loaded, run, commitment_key) if run is not None else None
    if as_json:
        click.echo(json.dumps(_as_json(loaded, matches), indent=2))
    elif sys.stdout.isatty():
        _print_table(loaded, matches)
    else:
        for row in _lines(loaded, matches):
            click.echo("\t".join(row))
    if matches is not None and not all(match is None or match.agrees for match in matches.values()):
        sys.exit(_EXIT_DIFFERENT)


def _matches(pack: BenchmarkPack, directory: Path, key: Path | None) -> dict[str, Match | None]:
    """Compare the run with the pack. Return the pack's result under ``""``, and that of each row under its id.

    The result is ``None`` for a row without a record in the run. If a row has several records, the first difference
    is returned. A task of the run that is not in the pack is returned, too, with the result ``Match.OTHER_PUBLIC``.
    """
    from securebench.results.read import read_run
    from securebench.results.run_directory.pack_match import Match, match_pack, match_row

    run = read_run(directory)
    commitment = _commitment(directory, key)
    rows = {row.id: row for row in pack.rows}
    found: dict[str, Match | None] = {"": match_pack(run.header.decisive.get("pack"), pack, commitment)}
    found |= dict.fromkeys(rows)
    for record in run.records():
        row = rows.get(record.task_id)
        match = match_row(record.provenance.get("row"), row, commitment) if row else Match.OTHER_PUBLIC
        known = found.get(record.task_id)
        found[record.task_id] = match if known is None or known.agrees else known
    return found


def _commitment(directory: Path, key: Path | None) -> Commitment | None:
    from securebench.results.records.commitment import KEY_FILE, Commitment

    if key is not None:
        return Commitment.read_file(key)
    return Commitment.read(directory) if os.path.lexists(directory / KEY_FILE) else None


def _lines(pack: BenchmarkPack, matches: Mapping[str, Match | None] | None) -> list[tuple[str, ...]]:
    """Return a line for the pack and one for each row: digest, ``pack`` or ``row``, id, and the comparison with a run.

    Without a run, the lines have no comparison. Tasks of the run that are not in the pack come last, without a digest.
    """
    from securebench.printable import printable_line

    named = [
        (pack.public_digest, "pack", pack.id, ""),
        *((row.public_digest, "row", row.id, row.id) for row in pack.rows),
    ]
    if matches is None:
        return [(digest, kind, printable_line(name)) for digest, kind, name, _ in named]
    ours = {key for *_, key in named}
    return [
        *((digest, kind, printable_line(name), _text(matches[key])) for digest, kind, name, key in named),
        *(("-", "row", printable_line(name), "not in the pack") for name in matches if name not in ours),
    ]


def _text(match: Match | None) -> str:
    return match.value if match else "not run"


def _print_table(pack: BenchmarkPack, matches: Mapping[str, Match | None] | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("public digest", "", "id", *(["in the run"] if matches is not None else []), box=None)
    table.columns[0].no_wrap = True
    for *cells, last in _lines(pack, matches):
        agrees = matches is None or last.startswith(("same", "not run"))
        table.add_row(*map(Text, cells), Text(last, style="" if agrees else "bold red"))
    Console().print(table)


def _as_json(pack: BenchmarkPack, matches: Mapping[str, Match | None] | None) -> dict[str, Any]:
    def match(name: str) -> dict[str, Any]:
        return {} if matches is None else {"run": _text(matches[name])}

    rows = [
        {"id": row.id, "family": row.family, "public_digest": row.public_digest, **match(row.id)} for row in pack.rows
    ]
    known = {"", *(row.id for row in pack.rows)}
    return {
        "id": pack.id,
        "version": pack.version,
        "public_digest": pack.public_digest,
        **match(""),
        "rows": rows,
        **({} if matches is None else {"not_in_the_pack": [name for name in matches if name not in known]}),
    }
