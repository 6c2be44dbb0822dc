"""``trajectories/``: what each agent did, step by step, in its own words: redacted, bounded, never evidence."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from securebench.fs.durable import storage_errors, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.redaction import Redactor

TRAJECTORIES: Final = "trajectories"

MAX_TRAJECTORY: Final = 4 * 1024 * 1024
"""Bytes of one task's file. Redaction takes seconds for so much, on the time of all that the run is at."""

MAX_LINES: Final = 20_000
"""Steps of one task: the shorter they are, the more each byte costs."""


def trajectory_file(directory: Path, name: str, attempt: int = 1, number: int = 1) -> Path:
    """Return where the trajectory of one try lies. ``name`` is what the directories of its task are called.

    Tries are counted from 1 in each attempt. All but the very first have their numbers in the name, so that what an
    agent did stays also where a run goes on: it was paid for.
    """
    return directory / (f"{name}.jsonl" if (attempt, number) == (1, 1) else f"{name}.{attempt}-{number}.jsonl")


def keep_trajectory(path: Path, text: str, redactor: Redactor) -> dict[str, JsonValue]:
    """Write a trajectory, all or nothing, and return what the record says of it. Raises :class:`StorageError`.

    Each line of ``text`` becomes one JSON value; a line that is none is kept as ``{"text": …}``. What is too much is
    left out at the end, and a last line says how much that is: ``{"left_out": lines}``.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    kept, size = [], 0
    for number, line in enumerate(_redacted(lines, redactor)):
        if number >= MAX_LINES or size + len(line) > MAX_TRAJECTORY:
            kept.append(_encoded({"left_out": len(lines) - number}))
            break
        kept.append(line)
        size += len(line)
    data = b"".join(kept)
    with storage_errors(path):
        path.parent.mkdir(exist_ok=True)
    write_durably(path, data)
    return {
        "path": f"{path.parent.name}/{path.name}",
        "lines": len(kept),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _redacted(lines: list[str], redactor: Redactor) -> Iterator[bytes]:
    for line in lines:
        try:
            yield _encoded(redactor.value(json.loads(line)))
        except (ValueError, RecursionError):
            yield _encoded({"text": redactor.text(line)})


def _encoded(value: JsonValue) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
