"""The channel between the host and the reporter that runs beside the tests.

Before anything runs, the host sends one line, the order. The reporter answers in numbered lines that begin with the
order's mark. When the line ``end`` arrives, the host sends a nonce, and the reporter signs its last fingerprint with
it. An answer prepared in advance would not match.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason
from securebench.sandboxes.base import Stream
from securebench.verifiers.base import CandidateFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.sandboxes.base import Command, CommandResult, Sandbox

MAX_CHANNEL_BYTES: Final = 48 * 1024 * 1024
"""The maximum number of bytes that a reporter may write: enough for several hundred thousand tests."""

WORST_FIRST: Final = ("contradicted", "error", "failed", "skipped", "xfailed", "xpassed", "passed")
_LINE = re.compile(rb"([0-9a-f]{32}) (\d{1,9}) (\[.*\])")


@dataclass(slots=True)
class ReportedTests:
    """The reported results. ``outcomes`` has outcomes by test id. ``exit`` is ``None`` if no end was reported.

    ``unloaded`` are the ids of files that could not be loaded. ``descriptions`` has, by test id, the name that a log
    may show instead of the id.

    ``before`` and ``after`` are fingerprints: digests by name, for example of a function or class. ``after`` is signed
    with the nonce. ``changed`` are names whose digest differed from ``before`` at some time between the two, even if
    the code was restored by the end. ``collected`` are the ids of all tests, if the reporter only had to
    collect them.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    unloaded: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    before: dict[str, str] | None = None
    after: dict[str, str] | None = None
    exit: int | None = None
    started: bool = False
    descriptions: dict[str, str] = field(default_factory=dict)

    def add(self, words: list[Any]) -> None:
        """Process one line. Raises ``ValueError`` for a line that the reporter would not write at this point."""
        match words:
            case ["start", str()] if not self.started:
                self.started = True
            case ["before", dict() as digests] if self.before is None and self.exit is None:
                self.before = _texts(digests)
            case ["after", dict() as digests] if self.after is None and self.exit is not None:
                self.after = _texts(digests)
            case _ if self.exit is not None:
                raise ValueError
            case ["test", str(name), str(outcome), str(description)] if outcome in WORST_FIRST:
                self.descriptions[name] = description
                self._add_outcome(name, outcome)
            case ["test", str(name), str(outcome)] if outcome in WORST_FIRST:
                self._add_outcome(name, outcome)
            case ["unloaded" | "changed" | "collected" as kind, str(name)]:
                {"unloaded": self.unloaded, "changed": self.changed, "collected": self.collected}[kind].append(name)
            case ["end", int(code)]:
                self.exit = code
            case _:
                raise ValueError

    def _add_outcome(self, name: str, outcome: str) -> None:
        """Keep the worst outcome: set-up, test and tear-down may each report one."""
        self.outcomes[name] = min(outcome, self.outcomes.get(name, outcome), key=WORST_FIRST.index)


def read_channel(data: bytes, mark: str) -> ReportedTests:
    """Parse the channel. Raises :class:`CandidateFailedError` (``tampered``) for unexpected data.

    Output before the first line of the reporter, while Python and the runner started, is ignored.
    """
    reported = ReportedTests()
    begin = data.find(mark.encode("ascii") + b" 0 ")
    if begin < 0:
        return reported
    for count, line in enumerate(data[begin:].removesuffix(b"\n").split(b"\n")):
        match = _LINE.fullmatch(line)
        try:
            if match is None or match[1].decode() != mark or int(match[2]) != count:
                raise ValueError  # noqa: TRY301 - the same error as for malformed values
            reported.add(json.loads(match[3]))
        except (ValueError, RecursionError):
            raise CandidateFailedError(
                FailureReason.TAMPERED, "the test result channel contains data that the reporter did not write"
            ) from None
    return reported


@dataclass(slots=True)
class ReportedRun:
    """One run of a command with a reporter. ``order`` has the instructions for the reporter: see ``checks.py``."""

    order: Mapping[str, Any] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(16))
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def stdin(self) -> bytes:
        """The mark and the instructions, as the line of JSON that the command reads from stdin when it starts."""
        return json.dumps({"mark": self.mark, **self.order}).encode("ascii") + b"\n"

    def run(self, sandbox: Sandbox, command: Command) -> CommandResult:
        """Run ``command``, and send it the nonce when the line ``end`` arrives. Raises :class:`InfrastructureError`."""
        end = re.compile(self.mark.encode() + rb' \d+ \["end", -?\d+\]\n')
        tail = b""

        def answer(chunk: tuple[Stream, bytes]) -> bytes | None:
            nonlocal tail
            stream, data = chunk
            if stream is not Stream.STDOUT:
                return None
            tail = (tail + data)[-4096 - len(data) :]
            return self.nonce.encode() + b"\n" if end.search(tail) else None

        return sandbox.run(command, reply=answer)


def _texts(digests: dict[Any, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in digests.values()):
        raise ValueError("a digest in the message is not a string")
    return digests
