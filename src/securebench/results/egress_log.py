"""``egress.jsonl``: every decision about what agents wanted to reach, one JSON object a line.

One writer. A decision is one line, one write, as it is made. What makes agents' hosts and paths come to be here is
hostile: texts are clipped and redacted, and no task can fill the disk, nor push the lines of others out.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from securebench.fs.durable import storage_errors, write_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from securebench.resources import JsonValue
    from securebench.results.redaction import Redactor

EGRESS_LOG: Final = "egress.jsonl"

MAX_LINES_A_TASK: Final = 10_000
"""What one task may have in the log; the summary in its record counts the rest, too."""

MAX_BYTES: Final = 256 * 1024 * 1024
"""What the whole log may hold."""

_MAX_TEXT: Final = 512
"""Characters of one text: the longest name of a host has 253."""

_MAX_FIELDS: Final = 32
_TAIL: Final = 1024 * 1024
"""Where the end of the last whole line is looked for: no line is nearly as long."""

_OPEN: Final = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class EgressLog:
    """The log, open; a context manager. Any thread may call it.

    ``trouble`` says why it is not whole, if it has come to its bound.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        """Open it, at the end of what an earlier part of the run has left. Raises :class:`StorageError`."""
        self._path = path
        self._redactor = redactor
        self._lock = threading.Lock()
        self._lines: Counter[str] = Counter()
        self.trouble = ""
        with storage_errors(path):
            self._descriptor = os.open(path, _OPEN, 0o644)
            self._size = _cut_torn_line(self._descriptor)

    def __call__(self, decision: Mapping[str, JsonValue]) -> None:
        """Write down a decision: a flat object, with the task's id in ``task_id``.

        Raises :class:`StorageError`; then nothing of it is in the log. Where nothing can be logged, nothing may pass.
        """
        task_id = str(decision.get("task_id", ""))
        with self._lock:
            self._lines[task_id] += 1
            if self._lines[task_id] < MAX_LINES_A_TASK:
                self._write(self._line(decision))
            elif self._lines[task_id] == MAX_LINES_A_TASK:
                self._write(self._line({"task_id": task_id, "kind": "log", "reason": "no more of this task is kept"}))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1

    def _line(self, decision: Mapping[str, JsonValue]) -> bytes:
        fields = {key: self._plain(value) for key, value in list(decision.items())[:_MAX_FIELDS]}
        return json.dumps(fields, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"

    def _plain(self, value: JsonValue) -> JsonValue:
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        return self._redactor.text(value if isinstance(value, str) else str(value), cap=_MAX_TEXT)

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0 or self.trouble:
            return
        if self._size + len(line) > MAX_BYTES:
            self.trouble = f"{self._path} is full: what was reached after {self._size} bytes of it is not logged"
            return
        with storage_errors(self._path):
            try:
                write_at_once(self._descriptor, line)
            except OSError:
                os.ftruncate(self._descriptor, self._size)
                raise
        self._size += len(line)


def _cut_torn_line(descriptor: int) -> int:
    """Cut off half a line that a killed run left, and return the size of the rest."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _TAIL)
    tail = os.pread(descriptor, size - start, start)
    whole = start + tail.rfind(b"\n") + 1
    if whole < size:
        os.ftruncate(descriptor, whole)
    return whole
