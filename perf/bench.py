"""Measure what the sandboxes and the framework cost: medians, and ratios, which are reliable even on a busy machine.

    make bench                       everything, about ten minutes
    make bench ARGS=--quick          fewer tasks and rounds
    make bench ARGS="--drivers docker,crun,runc,runsc --json bench.json"
    make bench ARGS="--drivers crun,crun:kept-tests --only humaneval"     with and without an optimisation

A driver that does not work here is left out, and the reason is printed. Figures of other harnesses are shown if ``make
bench-peers`` was run before.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cycle
import humaneval
import overhead
import repo_patch
import scale
import sealing
import streaming
from peers import run as peers
from rich.console import Console
from sides import usable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from report import Table
    from sides import Side

SECTIONS = (
    *("start", "cycle", "humaneval", "task", "repo_patch", "sealing", "streaming"),
    *("executor", "throughput", "rows", "memory", "peers"),
)


def main() -> None:
    """Run the benchmark and print its tables."""
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    sides, left_out = usable(arguments.drivers.split(","))
    for line in left_out:
        console.print(line)
    if not sides:
        raise SystemExit("no driver works on this machine; run 'securebench doctor'")
    tables: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="securebench-bench-") as scratch:
        Path(scratch).chmod(0o711)
        for table in _tables(arguments, sides, Path(scratch).resolve()):
            table.show(console)
            tables.append(table.to_json())
    if arguments.json:
        arguments.json.write_text(json.dumps(tables, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer tasks and rounds, no memory figure")
    parser.add_argument(
        "--drivers",
        default="docker,crun",
        help="comma-separated list of docker, crun, runc and runsc (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="also write the tables to this JSON file")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="only this table; may be repeated")
    return parser.parse_args()


def _tables(arguments: argparse.Namespace, sides: list[Side], scratch: Path) -> Iterator[Table]:
    makers = _makers(sides, scratch, quick=arguments.quick)
    for section in SECTIONS:
        if section in (arguments.only or SECTIONS) and (table := makers[section]()) is not None:
            yield table


def _makers(sides: list[Side], scratch: Path, *, quick: bool) -> Mapping[str, Callable[[], Table | None]]:
    """Return, for each section, the function that makes its table.

    The function returns ``None`` if there is nothing to show.
    """
    workers, rounds = ((1, 2), 1) if quick else ((1, 2, 4), 3)

    def human_eval() -> Table:
        suite = humaneval.Suite.prepare(scratch, 24 if quick else None)
        return humaneval.table(suite, sides, scratch, workers=workers, rounds=rounds)

    return {
        "start": overhead.start_up,
        "cycle": lambda: cycle.cycles(sides, scratch, rounds=2 if quick else 5, count=12 if quick else 40),
        "humaneval": human_eval,
        "task": lambda: overhead.per_task(
            sides, scratch, tasks=8 if quick else 24, rounds=rounds, workers=workers if quick else (*workers, 8)
        ),
        "repo_patch": lambda: repo_patch.table(sides, scratch, tasks=3 if quick else 10, rounds=rounds),
        "sealing": lambda: sealing.table(scratch, rounds=1 if quick else 5, quick=quick),
        "streaming": lambda: streaming.table(rounds=3 if quick else 11, pieces=50 if quick else 200),
        "executor": lambda: scale.executors(tasks=500 if quick else 5000, rounds=1 if quick else 5),
        "throughput": lambda: scale.throughput(sides[-1], scratch, tasks=32 if quick else 128, rounds=rounds),
        "rows": lambda: scale.many_rows(scratch, rows=1000 if quick else 10_000),
        "memory": lambda: None if quick else overhead.memory(sides[-1], scratch),
        "peers": lambda: peers.results_table() if peers.RESULTS.exists() else None,
    }


if __name__ == "__main__":
    main()
