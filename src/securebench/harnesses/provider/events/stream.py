"""The event stream of an agent program: one JSON object per line, from an untrusted writer.

Any process in the sandbox can write to this stream, so an event is only a claim. Reading the stream is bounded in time
and memory. Lines that are too long, nested too deep or not valid JSON objects are skipped and counted. After
``MAX_EVENTS`` events, all lines are skipped and counted. Blank lines are ignored. No line raises an error.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_LINE: Final = MIB
"""Maximum bytes of one event. A program puts the whole output of a command into one line."""

MAX_EVENTS: Final = 100_000
"""Maximum events of one try. Even a long task has far fewer."""

MAX_NUMBER: Final = 10**15
"""The largest count or amount that is accepted."""

MAX_ITEMS: Final = 1000
"""Maximum number of items that are read from a list or an object in an event."""

Event = dict[str, Any]


class EventReader:
    """Splits a stream into events and passes each to ``take``. Not thread safe.

    ``skipped`` is the number of lines that were not passed to ``take``, not counting blank lines.
    """

    def __init__(self, take: Callable[[Event], None]) -> None:
        self._take = take
        self._line = bytearray()
        self._is_too_long = False
        self._left = MAX_EVENTS
        self.skipped = 0

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._add(part)
            self.finish()
        self._add(rest)

    def finish(self) -> None:
        """End the current line, as at the end of the stream."""
        line, is_too_long = bytes(self._line), self._is_too_long
        self._line.clear()
        self._is_too_long = False
        if not is_too_long and not line.strip():
            return
        event = None if is_too_long or self._left <= 0 else parse_event(line)
        if event is None:
            self.skipped += 1
            return
        self._left -= 1
        self._take(event)

    def _add(self, part: bytes) -> None:
        self._is_too_long = self._is_too_long or len(self._line) + len(part) > MAX_LINE
        if not self._is_too_long:
            self._line += part


def parse_event(line: bytes) -> Event | None:
    """Return the JSON object in ``line``; ``None`` if it is anything else, nested too deep, or has a non-finite number.

    The interpreter's recursion limit bounds the nesting here; code that reads an event must not recurse into it.
    """
    try:
        event = json.loads(line, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def text_of(value: Any, limit: int) -> str:
    """Return the first ``limit`` characters of ``value``, or ``""`` if it is not text. Lone surrogates are replaced."""
    return value[:limit].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def number_of(value: Any) -> int:
    """Return ``value`` if it is a plausible count, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER else 0


def amount_of(value: Any) -> float | None:
    """Return ``value`` rounded to six decimals if it is a number from 0 to ``MAX_NUMBER``, else ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        return None
    return round(float(value), 6)


def object_of(value: Any) -> Event:
    """Return ``value`` if it is an object, else an empty dictionary."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> Iterator[Event]:
    """Yield the objects among the first ``MAX_ITEMS`` items of ``value`` if it is a list."""
    if isinstance(value, list):
        yield from (item for item in value[:MAX_ITEMS] if isinstance(item, dict))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is out of range")
    return number


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
