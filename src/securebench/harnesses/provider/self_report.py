"""An agent program's self-report, and the trajectory built from it. None of it is evidence."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from securebench.egress.model import Trouble
from securebench.harnesses.provider.events.stream import text_of
from securebench.limits import MIB
from securebench.plurals import counted

if TYPE_CHECKING:
    from typing import Any

    from securebench.harnesses.provider.events.stream import Event
    from securebench.resources import JsonValue

MAX_TEXT: Final = 16 * 1024
"""Maximum characters of one text in a trajectory: a message, a command, its output."""

MAX_MESSAGE: Final = 64 * 1024
"""Maximum characters of a program's last message."""

MAX_WARNING: Final = 512
"""Maximum characters of one warning."""

MAX_WARNINGS: Final = 5
"""Maximum number of warnings from one program."""

MAX_TRAJECTORY: Final = 4 * MIB
"""Maximum bytes of one trajectory, not counting the line that marks it as clipped."""

_REFUSED: Final = frozenset({401, 402, 403})
_RATE_LIMITED: Final = 429
_SERVER_ERROR: Final = 500


@dataclass(slots=True)
class SelfReport:
    """What a program has reported so far.

    ``answered``: a model answered. ``finished``: the work is done. ``failed``: the work failed. ``refused``: the model
    refused the task. ``gave_up``: the program reported that it gave up. ``stopped`` is why the program ended; only the
    values ``truncated`` and ``out_of_turns`` matter. ``error`` is the message of the last error, and ``trouble`` is
    the provider trouble that this error means; the next answer resets both. ``denials`` counts denied tool calls.
    ``tokens`` are token counts by name; ``cost_usd`` is the program's own estimate. ``warnings`` are the first few
    different warnings.
    """

    answered: bool = False
    finished: bool = False
    failed: bool = False
    refused: bool = False
    gave_up: bool = False
    stopped: str = ""
    error: str = ""
    trouble: Trouble | None = None
    message: str = ""
    denials: int = 0
    turns: int = 0
    cost_usd: float | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Record a warning, clipped. Repeated warnings and those after the first few are dropped."""
        clipped = text[:MAX_WARNING]
        if clipped not in self.warnings and len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(clipped)

    def answer(self) -> None:
        """Record that a model answered, which ends earlier provider trouble."""
        self.answered, self.trouble, self.error = True, None, ""


class Trajectory:
    """An agent's steps, one JSON object per line, in ASCII.

    Its steps have at most ``limit`` bytes in total. Steps beyond this limit are dropped, and a last line marks the
    trajectory as clipped.
    """

    def __init__(self, limit: int = MAX_TRAJECTORY) -> None:
        self._left = limit
        self._lines: list[str] = []
        self._is_full = False

    def add(self, kind: str, **fields: JsonValue) -> None:
        """Add a step. Texts are clipped."""
        if self._is_full:
            return
        line = _line({"step": len(self._lines) + 1, "kind": kind, **{key: _clip(item) for key, item in fields.items()}})
        if len(line) > self._left:
            self._is_full, line = True, _line({"step": len(self._lines) + 1, "kind": "clipped"})
        self._left -= len(line)
        self._lines.append(line)

    def text(self) -> str:
        """Return all lines."""
        return "".join(self._lines)


class EventParser(ABC):
    """Parses one program's events of one task. Not thread safe."""

    def __init__(self) -> None:
        self.self_report = SelfReport()
        self.trajectory = Trajectory()

    @abstractmethod
    def take(self, event: Event) -> None:
        """Process the next event. Never raises, whatever the event contains."""

    def _fail(self, message: Any, trouble: Trouble | None) -> None:
        """Record an error. ``trouble`` says what was wrong with the provider, if this is known."""
        self.self_report.error = text_of(message, MAX_TEXT)
        self.self_report.trouble = trouble
        self.trajectory.add("error", text=self.self_report.error)

    def _say(self, message: Any) -> None:
        self.self_report.message = text_of(message, MAX_MESSAGE)
        self.trajectory.add("message", text=self.self_report.message)


def trouble_of_status(status: int) -> Trouble | None:
    """Return the provider trouble that an HTTP status means, or ``None`` if it is not an error."""
    if status in _REFUSED:
        return Trouble.REFUSED
    if status == _RATE_LIMITED:
        return Trouble.RATE_LIMITED
    if status >= _SERVER_ERROR:
        return Trouble.FAILED
    return Trouble.REJECTED if status >= 400 else None  # noqa: PLR2004 - the first HTTP error status


def _line(step: dict[str, JsonValue]) -> str:
    return json.dumps(step, ensure_ascii=True, allow_nan=False) + "\n"


def _clip(value: JsonValue) -> JsonValue:
    if not isinstance(value, str) or len(value) <= MAX_TEXT:
        return value
    return f"{value[:MAX_TEXT]}\n[{counted(len(value) - MAX_TEXT, 'more character')}]"
