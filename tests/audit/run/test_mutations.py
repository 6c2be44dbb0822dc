"""Mutation tests: ``verify-run`` finds each of these changes of a finished run. The original runs are made once."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from audit.run.made_runs import copy_of, make_run
from audit.run.mutations import FILES, exit_code, flips, line_changes, survivors
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = 150
"""The approximate number of bytes in each file that fast tests change. Tests marked ``long`` change every byte."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two finished runs of the same pack, made from fakes."""
    root = tmp_path_factory.mktemp("made")
    return make_run(root / "one"), make_run(root / "other")


@pytest.fixture
def run(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """Return a copy of the first run that may be changed."""
    return copy_of(runs[0], tmp_path / "run")


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_byte_is_overlooked(run: Path, name: str) -> None:
    """``verify-run`` finds a change of each of about 150 bytes, evenly spaced over the file."""
    assert exit_code(run) == 0
    assert survivors(run, name, flips((run / name).read_bytes(), SAMPLE)) == []
    assert exit_code(run) == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FILES)
def test_no_flipped_byte_is_overlooked_anywhere(run: Path, name: str) -> None:
    """``verify-run`` finds a change of any byte of run.json, the journal or the superseded records."""
    assert survivors(run, name, flips((run / name).read_bytes())) == []


@pytest.mark.parametrize("name", [JOURNAL, SUPERSEDED])
def test_no_line_is_dropped_added_or_moved_unnoticed(run: Path, runs: tuple[Path, Path], name: str) -> None:
    """``verify-run`` finds lines that were dropped, duplicated, swapped, cut off, or taken from another run."""
    foreign = (runs[1] / JOURNAL).read_bytes()
    assert survivors(run, name, line_changes((run / name).read_bytes(), foreign)) == []


def test_lines_do_not_move_between_the_files_unnoticed(run: Path) -> None:
    """``verify-run`` finds a record that was moved from the journal to the superseded records, or back."""
    journal, superseded = run / JOURNAL, run / SUPERSEDED
    kept, aside = journal.read_bytes(), superseded.read_bytes()
    lines = kept.splitlines(keepends=True)
    for at, line in enumerate(lines):
        journal.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
        superseded.write_bytes(_in_order([*aside.splitlines(keepends=True), line]))
        assert exit_code(run) != 0, at
    journal.write_bytes(_in_order([*lines, *aside.splitlines(keepends=True)]))
    superseded.unlink()
    assert exit_code(run) != 0


def _in_order(lines: list[bytes]) -> bytes:
    ordered = sorted(lines, key=_sequence)
    return b"".join(ordered)


def _sequence(line: bytes) -> int:
    return int(line.split(b'"sequence": ')[1].split(b",")[0])


def test_no_candidate_is_replaced_unnoticed(run: Path, runs: tuple[Path, Path]) -> None:
    """``verify-run`` finds a candidate that was removed or replaced: by other bytes, a link, a directory or a FIFO.

    A copy of a candidate with its name in upper case is found, too.
    """
    files = sorted((run / "candidates").iterdir())
    for path in files:
        data = path.read_bytes()
        for other in (b"", data + b"\n", data[:-1], bytes([data[0] ^ 1]) + data[1:], *(f.read_bytes() for f in files)):
            if other != data:
                path.unlink()
                path.write_bytes(other)
                assert exit_code(run) == 13
        path.unlink()
        assert exit_code(run) == 13
        path.symlink_to(runs[0] / "candidates" / path.name)
        assert exit_code(run) == 13
        path.unlink()
        path.mkdir()
        assert exit_code(run) == 13
        path.rmdir()
        os.mkfifo(path)
        assert exit_code(run) == 13
        path.unlink()
        path.write_bytes(data)
        assert exit_code(run) == 0
        (run / "candidates" / path.name.upper()).write_bytes(data)
        assert exit_code(run) == 13
        (run / "candidates" / path.name.upper()).unlink()


def test_no_file_of_another_run_fits(run: Path, runs: tuple[Path, Path]) -> None:
    """A run is refused if one of its files is replaced with that of another run of the same pack.

    This is tried in both directions.
    """
    for name in FILES:
        saved = (run / name).read_bytes()
        shutil.copy(runs[1] / name, run / name)
        assert exit_code(run) != 0, name
        (run / name).write_bytes(saved)
    for name in FILES:
        mixed = copy_of(runs[1], run.parent / f"mixed-{name}")
        shutil.copy(run / name, mixed / name)
        assert exit_code(mixed) != 0, name
