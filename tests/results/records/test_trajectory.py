"""The trajectories of a run, in ``trajectories/``."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import StorageError
from securebench.fs.durable import discard
from securebench.results.records import trajectory
from securebench.results.records.redaction import Redactor
from securebench.results.records.trajectory import keep_trajectory, trajectory_file

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk-canary-0123456789"
HIDDEN = "the-hidden-answer"


def kept(directory: Path, text: str) -> tuple[list[Any], dict[str, Any]]:
    """Write a trajectory, check its description for the record, and return its lines and that description."""
    path = trajectory_file(directory / "trajectories", "task")
    metadata = keep_trajectory(path, text, Redactor([HIDDEN], credentials=[KEY]))
    assert [name.name for name in path.parent.iterdir()] == ["task.jsonl"]
    data = path.read_bytes()
    assert metadata["sha256"] == hashlib.sha256(data).hexdigest()
    assert metadata["bytes"] == len(data)
    lines = [json.loads(line) for line in data.splitlines()]
    assert metadata["lines"] == len(lines)
    return lines, metadata


def test_steps_are_kept_in_order(tmp_path: Path) -> None:
    """The file has the agent's JSON lines in order. Its path in the record is relative to the run directory."""
    lines, metadata = kept(tmp_path, '{"step": 1, "text": "a"}\n\n{"step": 2, "ok": true, "n": 1.5}\n')
    assert lines == [{"step": 1, "text": "a"}, {"step": 2, "ok": True, "n": 1.5}]
    assert metadata["path"] == "trajectories/task.jsonl"


def test_nothing_secret_is_kept(tmp_path: Path) -> None:
    """J15, F13: credentials and hidden values are removed from all texts, including nested ones and keys of objects."""
    step = {"text": f"{KEY} {HIDDEN}", "deep": [{KEY: f"\x00{KEY}"}], "answer": "B"}
    lines, _ = kept(tmp_path, json.dumps(step) + "\nplain " + KEY)
    assert KEY not in json.dumps(lines)
    assert HIDDEN not in json.dumps(lines)
    assert lines[0]["answer"] == "<redacted>"
    assert lines[1] == {"text": "plain <redacted>"}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "\x1b[2J",
        "[" * 100_000,
        '{"n": ' + "9" * 10_000 + "}",
        '{"n": NaN}',
        '"\ud800"',
        '{"a": 1, "a": 2}',
        "null",
    ],
)
def test_whatever_a_line_holds_the_file_is_json(tmp_path: Path, line: str) -> None:
    """Any line of a hostile agent becomes one ASCII line of valid JSON, and the next line is kept."""
    lines, _ = kept(tmp_path, f"{line}\n{{}}")
    assert len(lines) == 2
    assert lines[1] == {}
    path = trajectory_file(tmp_path / "trajectories", "task")
    assert path.read_bytes().isascii()
    assert b"NaN" not in path.read_bytes() or lines[0] == {"n": "nan"}


def test_what_is_too_much_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines beyond the maximum size are left out, and the last line of the file counts them."""
    monkeypatch.setattr(trajectory, "MAX_TRAJECTORY", 30)
    lines, _ = kept(tmp_path, "".join(f'{{"step": {number}}}\n' for number in range(9)))
    assert lines == [{"step": 0}, {"step": 1}, {"left_out": 7}]


def test_so_is_what_comes_in_too_many_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines beyond the maximum number are left out and counted, so that many tiny steps do not delay the run."""
    monkeypatch.setattr(trajectory, "MAX_LINES", 2)
    lines, _ = kept(tmp_path, "1\n" * 1000)
    assert lines == [1, 1, {"left_out": 998}]


def test_a_later_attempt_leaves_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    """Writing a trajectory again replaces the old one, and ``discard`` removes a trajectory if there is one."""
    kept(tmp_path, '{"first": 1}\n{"first": 2}')
    assert kept(tmp_path, '{"second": 1}')[0] == [{"second": 1}]
    path = trajectory_file(tmp_path / "trajectories", "task")
    discard(path)
    assert not path.exists()
    discard(path)
    discard(tmp_path / "nowhere" / "task.jsonl")


def test_a_disk_without_room_is_trouble_with_the_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a trajectory cannot be written, ``StorageError`` is raised and no partial file is left."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = trajectory_file(tmp_path / "trajectories", "task")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        keep_trajectory(path, "{}", Redactor())
    assert not path.exists()
