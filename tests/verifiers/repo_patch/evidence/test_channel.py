"""Reading the channel: lines that the reporter writes count, and anything else between or after them is tampering."""

from __future__ import annotations

import json
from typing import Any

import pytest

from securebench.errors import FailureReason
from securebench.sandboxes.base import Command, Stream
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.repo_patch.evidence.channel import ReportedRun, read_channel

MARK = "ab" * 16


def _line(number: int, *words: Any, mark: str = MARK) -> bytes:
    return f"{mark} {number} {json.dumps(words)}\n".encode()


WHOLE = _line(0, "start", "9") + _line(1, "test", "a", "passed") + _line(2, "end", 1)


def test_the_channel_is_read() -> None:
    """Output before the reporter's first line is ignored. If a test has two outcomes, the worse one counts."""
    reported = read_channel(b"hello\n" + WHOLE, MARK)
    assert (reported.started, reported.outcomes, reported.exit) == (True, {"a": "passed"}, 1)
    twice = _line(0, "start", "9") + _line(1, "test", "a", "failed") + _line(2, "test", "a", "passed")
    assert read_channel(twice, MARK).outcomes == {"a": "failed"}
    assert not read_channel(b"PASSED\n", MARK).started


@pytest.mark.parametrize(
    "data",
    [
        WHOLE + b"x\n",
        WHOLE + _line(3, "test", "b", "passed"),
        _line(0, "start", "9") + b"noise\n" + _line(1, "end", 1),
        _line(0, "start", "9") + _line(2, "end", 1),
        _line(0, "start", "9") + _line(1, "test", "a", "passed", mark="cd" * 16),
        _line(0, "start", "9") + _line(1, "test", "a", "splendid"),
        _line(0, "start", "9") + _line(1, "start", "9"),
        _line(0, "start", "9") + _line(1, "end", "1"),
        WHOLE + _line(3, "end", 1),
        WHOLE + _line(3, "before", {}),
        WHOLE + _line(3, "after", {"a": 1}),
        WHOLE + _line(3, "after", {}) + _line(4, "after", {}),
        _line(0, "start", "9") + _line(1, "after", {}),
        _line(0, "start", "9") + _line(1, "before", {}) + _line(2, "before", {}),
        _line(0, "start", "9") + MARK.encode() + b" 1 [" + b"[" * 100_000 + b"]\n",
        _line(0, "start", "9") + MARK.encode() + b" 1 [nonsense]\n",
    ],
)
def test_what_we_did_not_write_is_tampering(data: bytes) -> None:
    """These are tampering: other marks, lines out of order, unknown words, noise between lines, lines after the end."""
    with pytest.raises(CandidateFailedError) as caught:
        read_channel(data, MARK)
    assert caught.value.reason is FailureReason.TAMPERED


class _Sandbox:
    """A sandbox whose command outputs ``chunks``. It keeps the answers that it gets."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.answers: list[bytes | None] = []

    def run(self, _command: Command, reply: Any) -> None:
        """Pass each chunk to ``reply``."""
        self.answers = [reply((Stream.STDOUT, chunk)) for chunk in self.chunks]


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_the_nonce_is_sent_when_the_end_was_reported(cut: int) -> None:
    """The nonce is sent after the complete line ``end``, even if the line is split. Each run has a new nonce."""
    talk = ReportedRun()
    line = _line(7, "end", 1, mark=talk.mark)
    sandbox = _Sandbox(b"noise\n" * 1000, line[:cut], line[cut:])
    talk.run(sandbox, Command(argv=("x",), timeout_seconds=1))  # type: ignore[arg-type]
    assert sandbox.answers == [None, None, talk.nonce.encode() + b"\n"]
    assert talk.nonce != ReportedRun().nonce
    assert json.loads(talk.stdin) == {"mark": talk.mark}
