"""``trajectories/``: each agent's own log of its steps. It is redacted and limited in size, and is never evidence."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from securebench.fs.durable import make_directories, storage_errors, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.records.redaction import Redactor

TRAJECTORIES: Final = "trajectories"

MAX_TRAJECTORY: Final = 4 * 1024 * 1024
"""Maximum bytes of one try's file, without the line that counts omitted lines.

Redacting that much takes seconds and slows down other tasks of the run.
"""

MAX_LINES: Final = 20_000
"""Maximum steps of one try.

A limit in bytes is not enough: many short lines take longer to redact than a few long ones.
"""


def trajectory_file(directory: Path, name: str, attempt: int = 1, number: int = 1) -> Path:
    """Return the path of one try's trajectory. ``name`` is the directory name of its trial.

    ``number`` counts the tries of each ``attempt`` from 1. Except for the first try of the first attempt, both numbers
    are part of the file name, so that a resumed run keeps earlier trajectories.
    """
    return directory / (f"{name}.jsonl" if (attempt, number) == (1, 1) else f"{name}.{attempt}-{number}.jsonl")


def keep_trajectory(path: Path, text: str, redactor: Redactor) -> dict[str, JsonValue]:
    """Write a trajectory atomically, and return its description for the record. Raises :class:`StorageError`.

    Each line of ``text`` that is not blank becomes one JSON value; a line that is not JSON becomes ``{"text": …}``.
    Lines beyond the limits are omitted, and a last line counts them: ``{"left_out": lines}``.
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
        make_directories(path.parent)
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
