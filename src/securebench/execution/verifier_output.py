"""The output of a verifier's commands and of a judge, for pack authors: bounded, and collected only on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.fs.durable import make_directories, storage_errors, write_durably
from securebench.limits import MIB
from securebench.plurals import counted
from securebench.printable import printable
from securebench.sandboxes.base import Stream

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.results.records.redaction import Redactor
    from securebench.sandboxes.base import Chunk, ExitState

_END: Final = 32 * 1024
"""The maximum number of bytes that are kept from the beginning of each stream, and also from its end."""
_ALL: Final = MIB
"""The maximum number of characters that are kept from the output of one verification."""


class VerifierOutput:
    """The output of one verification. Several threads may start commands. Each command has a :class:`Printed`."""

    def __init__(self) -> None:
        self._printed: list[Printed] = []
        self.replies: list[str] = []
        """The replies of the judge model."""

    def command(self, program: str, *, stdout: bool) -> Printed:
        """Return a collector for the output of ``program``. It keeps stderr, and stdout only if ``stdout`` is true."""
        printed = Printed(program, stdout=stdout)
        self._printed.append(printed)
        return printed

    def text(self, redactor: Redactor) -> str:
        """Return the collected output, at most about ``_ALL`` characters, redacted and safe for a terminal."""
        replies = (f"[reply of the judge]\n{text}\n" for text in self.replies)
        parts = (*(printed.text() for printed in self._printed), *replies)
        return printable(redactor.text("".join(parts), cap=_ALL, lines=True))


class Printed:
    """The output of one command: the beginning and the end of each stream."""

    def __init__(self, program: str, *, stdout: bool) -> None:
        self._program = program
        self._end = ""
        kept = (Stream.STDOUT, Stream.STDERR) if stdout else (Stream.STDERR,)
        self._heads = {stream: bytearray() for stream in kept}
        self._tails = {stream: bytearray() for stream in kept}
        self._left_out = dict.fromkeys(kept, 0)

    def add(self, chunk: Chunk) -> None:
        """Add one chunk."""
        stream, data = chunk
        if stream not in self._heads:
            return
        head, tail = self._heads[stream], self._tails[stream]
        room = _END - len(head)
        head += data[:room]
        tail += data[room:] if room < len(data) else b""
        if (excess := len(tail) - _END) > 0:
            self._left_out[stream] += excess
            del tail[:excess]

    def end(self, state: ExitState) -> None:
        """Note how the command ended."""
        self._end = "timed out" if state.timed_out else f"exit {state.exit_code}"

    def text(self) -> str:
        """Return the output for people: the program, how it ended, and each stream that is not empty."""
        parts = [f"$ {self._program} ({self._end or 'ended with its sandbox'})\n"]
        for stream, head in self._heads.items():
            if head:
                left_out = self._left_out[stream]
                gap = f"\n[{counted(left_out, 'byte')} left out]\n".encode() if left_out else b""
                text = bytes(head + gap + self._tails[stream]).decode("utf-8", "replace")
                parts.append(f"[{stream}]\n{text}{'' if text.endswith(chr(10)) else chr(10)}")
        return "".join(parts)


def output_file(directory: Path, name: str) -> Path:
    """Return the path of the output file of the trial whose directory name is ``name``."""
    return directory / f"{name}.log"


def keep_output(path: Path, text: str) -> None:
    """Write the output of a verifier to a file that only this user can read, because it may contain hidden data."""
    with storage_errors(path):
        make_directories(path.parent, 0o700)
    write_durably(path, text.encode("utf-8", "backslashreplace"), mode=0o600)
