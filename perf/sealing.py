"""Compare sealing a workspace with copying it: many small files, and a gigabyte in few files.

Sealing reads and hashes all files, writes one archive, and ends when the archive is on the disk. ``cp -a`` ends before
the copy is on the disk, so the fair comparison is with ``cp -a`` followed by ``sync``. The table has both comparisons:
with ``cp -a`` alone, and with ``cp -a`` and ``sync``. The figures are medians of several rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from measure import memory_mib, run_measured
from report import Table, within

from securebench.candidates.store import CandidateStore
from securebench.fs.rmtree import remove_entry
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND: Final = 2.0
MIB: Final = 1024 * 1024
_COLUMNS = ("tree", "cp -a, s", "cp -a and sync, s", "seal, s", "x cp -a", "x cp -a and sync", "peak MiB")


def table(scratch: Path, *, rounds: int, quick: bool) -> Table:
    """Measure sealing and copying of both trees, ``rounds`` times each. If ``quick``, the trees are smaller."""
    found = Table("Sealing a workspace (medians)", _COLUMNS)
    files, megabytes = (2_000, 128) if quick else (20_000, 1024)
    for name, make in (
        (f"{files:,} small files", lambda root: _many(root, files)),
        (f"{megabytes} MiB in 4 files", lambda root: _large(root, megabytes)),
    ):
        found.add(name, *_compared(scratch, make, rounds))
    found.notes.append(f"The sha256 of {megabytes} MiB alone takes {_hash_seconds(megabytes):.2f} s on one processor.")
    return found


def _compared(scratch: Path, make: Callable[[Path], None], rounds: int) -> list[float | str]:
    tree = scratch / "tree"
    tree.mkdir()
    make(tree)
    os.sync()
    figures = [_round(scratch, tree) for _ in range(rounds)]
    copied, synced, sealed, peak = (statistics.median(values) for values in zip(*figures, strict=True))
    _remove(tree)
    return [copied, synced, sealed, sealed / copied, within(sealed / synced, BOUND), peak]


def _round(scratch: Path, tree: Path) -> tuple[float, float, float, float]:
    copy, started = scratch / "copy", time.perf_counter()
    subprocess.run(["cp", "-a", "--reflink=never", tree, copy], check=True)
    copied = time.perf_counter() - started
    subprocess.run(["sync", "-f", copy], check=True)
    synced = time.perf_counter() - started
    _remove(copy)
    _, output = run_measured([sys.executable, str(Path(__file__)), str(tree), str(scratch / "store")])
    sealed, peak = json.loads(output)
    _remove(scratch / "store")
    os.sync()
    return copied, synced, sealed, peak


def _many(root: Path, files: int) -> None:
    for number in range(files):
        path = root / f"{number % 200}" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(500 + number % 3000))


def _large(root: Path, megabytes: int) -> None:
    for number in range(4):
        with (root / str(number)).open("wb") as file:
            for _ in range(megabytes // 4):
                file.write(os.urandom(MIB))


def _hash_seconds(megabytes: int) -> float:
    import hashlib

    block, sha, started = os.urandom(MIB), hashlib.sha256(), time.perf_counter()
    for _ in range(megabytes):
        sha.update(block)
    return time.perf_counter() - started


def _remove(path: Path) -> None:
    parent = os.open(path.parent, os.O_RDONLY)
    remove_entry(parent, path.name)
    os.close(parent)


def _seal(tree: Path, store: Path) -> tuple[float, float]:
    started = time.perf_counter()
    CandidateStore(store).seal_tree(CandidateKind.WORKSPACE, tree)
    return time.perf_counter() - started, memory_mib("self", peak=True)


if __name__ == "__main__":
    print(json.dumps(_seal(Path(sys.argv[1]), Path(sys.argv[2]))))
