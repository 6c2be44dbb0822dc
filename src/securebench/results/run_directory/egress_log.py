"""``egress.jsonl``: decisions about network requests of agents and of the judge, one JSON object per line.

A decision is written as soon as it is made. Hosts and paths come from untrusted agents: texts are clipped and redacted,
and no task can fill the disk or displace the lines of other tasks.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from securebench.fs.append_log import AppendLog
from securebench.money import micro_usd
from securebench.strict_input.files import open_regular
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.records.redaction import Redactor

EGRESS_LOG: Final = "egress.jsonl"

MAX_LINES_A_TRIAL: Final = 10_000
"""Maximum number of lines for one trial of a task.

The summary in its record also counts the decisions that are not logged.
"""

MAX_BYTES: Final = 256 * 1024 * 1024
"""Maximum size of the log, in bytes."""

_MAX_TEXT: Final = 512
"""Maximum characters of one text. The longest host name has 253."""

_MAX_FIELDS: Final = 32


def logged_cost(directory: Path) -> int:
    """Return what all requests in the egress logs of a run may have cost, in micro-dollars.

    Damaged lines are left out.
    """
    total = 0
    for path in directory.glob("egress*.jsonl"):
        with open_regular(path, "log of the run") as file:
            total += sum(_cost_of(line) for line in file if b'_usd"' in line)
    return total


def _cost_of(line: bytes) -> int:
    try:
        found = json.loads(line)
        costs = [found.get("cost_usd"), found.get("unreported_usd")]
        return sum(max(0, micro_usd(cost)) for cost in costs if type(cost) in (int, float))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return 0


class EgressLog:
    """The open log; a context manager. Thread safe.

    ``trouble`` is empty until the log is full. Then it is a message that says that later requests are not logged.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        """Open the log for appending. Raises :class:`StorageError`."""
        self._redactor = redactor
        self._lock = threading.Lock()
        self._lines: Counter[TrialId] = Counter()
        self.trouble = ""
        self._log = AppendLog(path, limit=MAX_BYTES)

    def __call__(self, decision: Mapping[str, JsonValue]) -> None:
        """Write a decision: a flat object with ``task_id`` and ``trial``.

        Decisions for which :data:`MAX_LINES_A_TRIAL` or :data:`MAX_BYTES` leaves no room are not written. Raises
        :class:`StorageError` if writing fails; then the caller must deny the request.
        """
        number = decision.get("trial")
        trial = TrialId(str(decision.get("task_id", "")), number if isinstance(number, int) else 0)
        with self._lock:
            self._lines[trial] += 1
            if self._lines[trial] < MAX_LINES_A_TRIAL:
                self._write(self._line(decision))
            elif self._lines[trial] == MAX_LINES_A_TRIAL:
                end = {**trial._asdict(), "kind": "log", "reason": "later decisions of this trial are not logged"}
                self._write(self._line(end))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._log.close()

    def _line(self, decision: Mapping[str, JsonValue]) -> bytes:
        fields = {key: self._plain(value) for key, value in list(decision.items())[:_MAX_FIELDS]}
        return json.dumps(fields, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"

    def _plain(self, value: JsonValue) -> JsonValue:
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        return self._redactor.text(value if isinstance(value, str) else str(value), cap=_MAX_TEXT)

    def _write(self, line: bytes) -> None:
        if self._log.is_closed or self.trouble:
            return
        if not self._log.append(line):
            self.trouble = f"{self._log.path} is full: later requests are not logged (size {self._log.size} bytes)"
