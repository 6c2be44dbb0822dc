"""What the sandboxes and the framework cost, in one run: medians, and ratios to trust on a noisy machine.

    make bench                       all of it, some ten minutes
    make bench ARGS=--quick          fewer tasks and rounds
    make bench ARGS="--drivers docker,crun,runc,runsc --json bench.json"

A driver that does not work here is left out, with the reason. Figures of other harnesses are shown if
``make bench-peers`` was run before.
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
import sealing
import streaming
from peers import results as peers
from rich.console import Console
from sides import usable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from report import Table
    from sides import Side

SECTIONS = ("start", "cycle", "humaneval", "task", "repo_patch", "sealing", "streaming", "memory", "peers")


def main() -> None:
    """Run the benchmark and print its tables."""
    asked = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    sides, left_out = usable(asked.drivers.split(","))
    for line in left_out:
        console.print(line)
    if not sides:
        raise SystemExit("no driver can be had here: see securebench doctor")
    tables: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="securebench-bench-") as scratch:
        Path(scratch).chmod(0o711)
        for table in _tables(asked, sides, Path(scratch).resolve()):
            table.show(console)
            tables.append(table.to_json())
    if asked.json:
        asked.json.write_text(json.dumps(tables, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer tasks and rounds, no memory figure")
    parser.add_argument("--drivers", default="docker,crun", help="docker, crun, runc, runsc (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the tables here, too")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="only this table; may be repeated")
    return parser.parse_args()


def _tables(asked: argparse.Namespace, sides: list[Side], scratch: Path) -> Iterator[Table]:
    quick, wanted = asked.quick, asked.only or SECTIONS
    if "start" in wanted:
        yield overhead.start_up()
    if "cycle" in wanted:
        yield cycle.cycles(sides, scratch, rounds=2 if quick else 5, count=12 if quick else 40)
    if "humaneval" in wanted:
        suite = humaneval.Suite.prepare(scratch, 24 if quick else None)
        yield humaneval.table(suite, sides, scratch, workers=(1, 2) if quick else (1, 2, 4), rounds=1 if quick else 3)
    if "task" in wanted:
        tasks, rounds, workers = (8, 1, (1, 2)) if quick else (24, 3, (1, 2, 4, 8))
        yield overhead.per_task(sides, scratch, tasks=tasks, rounds=rounds, workers=workers)
    if "repo_patch" in wanted:
        yield repo_patch.table(sides, scratch, tasks=3 if quick else 10, rounds=1 if quick else 3)
    if "sealing" in wanted:
        yield sealing.table(scratch, rounds=1 if quick else 5, quick=quick)
    if "streaming" in wanted:
        yield streaming.table(rounds=3 if quick else 11, pieces=50 if quick else 200)
    if "memory" in wanted and not quick:
        yield overhead.memory(sides[-1], scratch)
    if "peers" in wanted:
        yield from peers.tables()


if __name__ == "__main__":
    main()
