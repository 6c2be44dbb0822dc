"""Read the token counts and the outcome of an answer while it is forwarded, in bounded memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.egress.relay.providers.base import read_object

if TYPE_CHECKING:
    from securebench.egress.model import Trouble
    from securebench.egress.relay.providers.base import Dialect, EventReading
    from securebench.money import CachedTokens, TokenPrices

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""The longest stream line or unstreamed answer that is parsed, in bytes. The last event of a stream may repeat the
whole answer. Longer data is forwarded without parsing, and its tokens are estimated from its length."""

BYTES_A_TOKEN: Final = 4
"""Bytes per token, to estimate tokens that the provider does not report. The value is low: an estimate may
be too high, but should not be too low."""

_DATA: Final = b"data:"
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,119}")


class AddedEvents:
    """Removes from a stream the events that the agent did not ask for: see :meth:`Dialect.is_added`.

    Data is forwarded line by line. If the last line is incomplete, it is forwarded at the end of the stream. A line
    that is too long to be parsed is never removed.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._held = bytearray()
        self._has_removed = False
        """Whether the previous line was the removed data of an event. The empty line after the data is also removed."""

    def feed(self, piece: bytes) -> bytes:
        """Add a piece, and return the data that can be forwarded."""
        *lines, rest = piece.split(b"\n")
        passed = bytearray()
        for line in lines:
            self._held += line + b"\n"
            passed += self.finish()
        self._held += rest
        if len(self._held) > MAX_EVENT_BYTES:
            passed += self._held
            self._held.clear()
        return bytes(passed)

    def finish(self) -> bytes:
        """Return the current line, or ``b""`` if the line belongs to an added event.

        Call this at the end of the stream to get the last line, even if the line is incomplete.
        """
        line = bytes(self._held)
        self._held.clear()
        if self._has_removed and not line.strip():
            self._has_removed = False
            return b""
        self._has_removed = line.startswith(_DATA) and self._dialect.is_added(read_object(line.removeprefix(_DATA)))
        return b"" if self._has_removed else line


class AnswerMeter:
    """Reads one answer while it is forwarded. ``request_bytes`` is the size of the request body."""

    def __init__(self, dialect: Dialect, *, request_bytes: int, is_stream: bool) -> None:
        self._dialect = dialect
        self._request_bytes = request_bytes
        self._is_stream = is_stream
        self._held = bytearray()
        self._too_long = False
        self._length = 0
        self._input: int | None = None
        self._output: int | None = None
        self._cached: CachedTokens | None = None
        self.ended = False
        """Whether the answer is complete."""
        self.trouble: Trouble | None = None
        """The trouble that the answer itself reports."""
        self.model = ""
        """The model that answered, as named by the provider, if the name is well-formed."""

    def feed(self, piece: bytes) -> None:
        """Read the next piece of the body. Never raises."""
        self._length += len(piece)
        if not self._is_stream:
            self._hold(piece)
            return
        *whole, rest = piece.split(b"\n")
        for line in whole:
            self._hold(line)
            self._read_line()
        self._hold(rest)

    def finish(self) -> None:
        """Handle the end of the body."""
        if self._is_stream:
            self._read_line()
        elif self._too_long:
            self.ended = True  # the answer was not parsed, so assume that it is complete
        elif answer := read_object(bytes(self._held)):
            self._take(self._dialect.read_whole(answer))

    def tokens(self) -> tuple[int, int]:
        """Return the input and output tokens that the provider reported, or estimates if the report is incomplete."""
        output = self._output or 0
        if not (self.ended and self._output is not None):
            output = max(output, self._length // BYTES_A_TOKEN)
        return self._request_bytes // BYTES_A_TOKEN if self._input is None else self._input, output

    @property
    def input_tokens(self) -> int | None:
        """The input tokens, if the provider has reported them."""
        return self._input

    @property
    def is_reported(self) -> bool:
        """Whether the answer is complete and the provider has reported its input and output tokens."""
        return self.ended and self._input is not None and self._output is not None

    def cost(self, prices: TokenPrices) -> int:
        """Return the price of :meth:`tokens` in micro-dollars."""
        return prices.cost(*self.tokens(), self._cached)

    def _hold(self, data: bytes) -> None:
        if len(self._held) + len(data) > MAX_EVENT_BYTES:
            self._too_long = True
            self._held.clear()
        elif not self._too_long:
            self._held += data

    def _read_line(self) -> None:
        line, readable = bytes(self._held), not self._too_long
        self._held.clear()
        self._too_long = False
        if not (readable and line.startswith(_DATA) and any(mark in line for mark in self._dialect.marks)):
            return
        if event := read_object(line.removeprefix(_DATA)):
            self._take(self._dialect.read(event))

    def _take(self, reading: EventReading) -> None:
        self._input = _larger(self._input, reading.input_tokens)
        self._output = _larger(self._output, reading.output_tokens)
        self._cached = reading.cached or self._cached
        self.ended = self.ended or reading.ended
        self.trouble = reading.trouble or self.trouble
        if not self.model and _MODEL.fullmatch(reading.model):
            self.model = reading.model


def _larger(known: int | None, reported: int | None) -> int | None:
    return reported if known is None else max(known, reported or 0)
