"""What an answer says of itself while it passes: its tokens, and how it ended. In bounded memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.egress.relay.providers.base import read_object

if TYPE_CHECKING:
    from securebench.egress.model import Trouble
    from securebench.egress.relay.providers.base import Dialect, EventReading

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""What one line of a stream, or a whole answer, is kept of to be read: the last event of a stream repeats the answer.
What is longer is passed on unread, and counted by its length."""

BYTES_A_TOKEN: Final = 4
"""How many bytes are counted as a token where the provider does not say: few, so that nobody is better off unsaid."""

_DATA: Final = b"data:"
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,119}")


class AnswerMeter:
    """Reads one answer while it passes. ``asked`` is the size of its request in bytes."""

    def __init__(self, dialect: Dialect, *, asked: int, is_stream: bool) -> None:
        self._dialect = dialect
        self._asked = asked
        self._is_stream = is_stream
        self._held = bytearray()
        self._too_long = False
        self._length = 0
        self._input: int | None = None
        self._output: int | None = None
        self.ended = False
        """The answer came to its end."""
        self.trouble: Trouble | None = None
        """What the answer itself says that went wrong."""
        self.model = ""
        """The model that answered, in the provider's words, as far as they are plain."""

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the body. Raises nothing, whatever it holds."""
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
        """Take the end of the body."""
        if self._is_stream:
            self._read_line()
        elif self._too_long:
            self.ended = True  # for all that can be told
        elif answer := read_object(bytes(self._held)):
            self._take(self._dialect.read_whole(answer))

    def tokens(self) -> tuple[int, int]:
        """Return the tokens of input and of output: what the provider said, and an estimate where it did not."""
        output = self._output or 0
        if not (self.ended and self._output is not None):
            output = max(output, self._length // BYTES_A_TOKEN)
        return self._asked // BYTES_A_TOKEN if self._input is None else self._input, output

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
        self.ended = self.ended or reading.ended
        self.trouble = reading.trouble or self.trouble
        if not self.model and _MODEL.fullmatch(reading.model):
            self.model = reading.model


def _larger(known: int | None, said: int | None) -> int | None:
    return said if known is None else max(known, said or 0)
