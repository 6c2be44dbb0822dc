"""The relay accepts a verdict only from the tests' side.

Without a verdict, a judgement is a failure with a reason. Only engine errors are raised.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import EngineError, FailureReason
from securebench.sandboxes.base import ExitState, SandboxProcess, Stream
from securebench.verifiers.code_completion.channel import ChannelEndedError, ChannelFrame, End, FrameChannel, frame
from securebench.verifiers.code_completion.guest.wire import (
    FAILED,
    MAX_FRAME_BYTES,
    OUTPUT_END,
    READY,
    REPLY,
    REQUEST,
    SOURCE,
    VERDICT,
)
from securebench.verifiers.code_completion.relay import (
    DEFAULT_CALL_SECONDS,
    DEFAULT_TOTAL_SECONDS,
    WHEN_ANSWERING,
    Deadlines,
    FrameRelay,
    JudgingEndedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.sandboxes.base import Chunk

PASSED = frame(VERDICT, outcome="passed", answered=1)
LIMITS = Deadlines(total=5.0, call=2.0)
EXIT = ExitState(exit_code=0)


class _Script(SandboxProcess):
    """A process that sends ``pieces`` and then ends with ``state``, or hangs if ``state`` is ``None``."""

    def __init__(self, pieces: Iterable[bytes | Chunk | Exception], state: ExitState | None = EXIT) -> None:
        self.pieces = list(pieces)
        self.state = state
        self.received = bytearray()
        self.reads = True

    def send(self, data: bytes) -> None:
        """Store the data, or raise ``BrokenPipeError`` if ``reads`` is ``False``."""
        if not self.reads:
            raise BrokenPipeError
        self.received += data

    def close_stdin(self) -> None:
        """Do nothing."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next piece, or raise it if it is an exception."""
        if not self.pieces:
            if self.state is None:
                raise TimeoutError
            return None
        piece = self.pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return (Stream.STDOUT, piece) if isinstance(piece, bytes) else piece

    def wait(self) -> ExitState:
        """Return how the process ended."""
        assert self.state is not None
        return self.state

    def kill(self) -> None:
        """Do nothing."""


def _relay(candidate: _Script, tests: _Script, limits: Deadlines = LIMITS) -> FrameRelay:
    return FrameRelay(FrameChannel(candidate), FrameChannel(tests), limits)


def _fault(candidate: _Script, tests: _Script, limits: Deadlines = LIMITS) -> JudgingEndedError:
    with pytest.raises(JudgingEndedError) as caught:
        _relay(candidate, tests, limits).run()
    return caught.value


def _ready(*more: ChannelFrame) -> list[bytes]:
    return [one.encode() for one in (frame(READY), *more)]


def test_frames_are_handed_on_in_turns_and_unread() -> None:
    """Each side receives the other side's frames unchanged and unparsed, until the tests' side sends the verdict."""
    call, callback = ChannelFrame(REQUEST, b"not even JSON"), ChannelFrame(REQUEST, b"\xff")
    answer, reply = ChannelFrame(REPLY, b"\x00" * 10), ChannelFrame(REPLY, b"{")
    candidate = _Script(_ready(callback, reply))
    tests = _Script([call.encode(), answer.encode(), PASSED.encode()])
    assert _relay(candidate, tests).run().outcome == "passed"
    assert candidate.received == call.encode() + answer.encode()
    assert tests.received == callback.encode() + reply.encode()


def test_frames_may_come_in_any_pieces() -> None:
    """Frames that arrive byte by byte are reassembled."""
    call, reply = ChannelFrame(REQUEST, b"abc"), ChannelFrame(REPLY, b"d" * 1000)
    candidate = _Script([bytes([byte]) for byte in b"".join(_ready(reply))])
    tests = _Script([bytes([byte]) for byte in call.encode() + PASSED.encode()])
    assert _relay(candidate, tests).run().outcome == "passed"
    assert tests.received == reply.encode()


def test_what_follows_a_verdict_is_void() -> None:
    """The first verdict counts, and everything after it is ignored."""
    tests = _Script([frame(VERDICT, outcome="failed", answered=1).encode() + PASSED.encode()])
    assert _relay(_Script(_ready()), tests).run().outcome == "failed"


def test_a_verdict_of_the_candidate_is_a_violation() -> None:
    """B12: A verdict from the candidate's side is a protocol violation and is not forwarded to the tests' side."""
    tests = _Script([frame(REQUEST).encode(), PASSED.encode()])
    fault = _fault(_Script(_ready(PASSED)), tests)
    assert fault.reason is FailureReason.PROTOCOL_VIOLATION
    assert tests.received == b""


@pytest.mark.parametrize("kind", [SOURCE, READY, VERDICT, b"\x00", b"{"])
def test_a_frame_out_of_turn_is_a_violation(kind: bytes) -> None:
    """A15: After READY, a frame from the candidate that is no request, reply or failure is a protocol violation."""
    fault = _fault(_Script(_ready(ChannelFrame(kind, b"{}"))), _Script([frame(REQUEST).encode()]))
    assert fault.reason is FailureReason.PROTOCOL_VIOLATION


@pytest.mark.parametrize("kind", [REQUEST, REPLY])
def test_a_candidate_says_ready_first(kind: bytes) -> None:
    """A request or reply from the candidate before READY is a protocol violation."""
    assert _fault(_Script([frame(kind).encode()]), _Script([])).reason is FailureReason.PROTOCOL_VIOLATION


def test_a_header_too_long_is_refused_before_its_payload_comes() -> None:
    """B17: A header with too large a length is refused at once, before any of the payload is received."""
    header = REPLY + (MAX_FRAME_BYTES + 1).to_bytes(4, "big")
    fault = _fault(_Script([*_ready(), header], state=None), _Script([frame(REQUEST).encode()]))
    assert fault.reason is FailureReason.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ExitState(exit_code=0), FailureReason.CANDIDATE_CRASHED),
        (ExitState(exit_code=137), FailureReason.CANDIDATE_CRASHED),
        (ExitState(exit_code=137, out_of_memory=True), FailureReason.CANDIDATE_OUT_OF_MEMORY),
        (ExitState(exit_code=137, output_limit_exceeded=True), FailureReason.CANDIDATE_OUTPUT_LIMIT),
        (ExitState(exit_code=124, timed_out=True), FailureReason.CANDIDATE_TIMEOUT),
        (None, FailureReason.CANDIDATE_TIMEOUT),
    ],
    ids=["exit 0", "killed", "out of memory", "flood", "ended by its limit", "silent"],
)
@pytest.mark.parametrize("phase", ["import", "tests"])
def test_a_candidate_that_ends_early_fails(phase: str, state: ExitState | None, reason: FailureReason) -> None:
    """B01, B02, B17, A18: A candidate that ends early or stays silent fails, whatever its exit code is.

    The reason of the failure says how the candidate ended.
    """
    pieces = _ready() if phase == "tests" else []
    fault = _fault(
        _Script(pieces, state), _Script([frame(REQUEST).encode(), PASSED.encode()]), Deadlines(total=0.05, call=0.05)
    )
    assert (fault.reason, fault.step) == (reason, phase)


class _Hanging(_Script):
    """A process that hangs after its last piece, until the caller's timeout has passed."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next piece. If there is none, wait for ``timeout`` and raise ``TimeoutError``."""
        if not self.pieces:
            time.sleep(timeout or 0.0)
            raise TimeoutError
        return super().receive(timeout)


class _Slow(_Script):
    """A process that takes 0.03 s for each piece."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Wait before the next piece."""
        time.sleep(0.03)
        return super().receive(timeout)


@pytest.mark.parametrize("slow", ["candidate", "tests"])
def test_many_calls_end_for_one_reason(slow: str) -> None:
    """A.4: If many calls together use up the time, the failure is the same, whichever side is slow."""
    calls, replies = [frame(REQUEST).encode()] * 100, _ready(*[frame(REPLY)] * 100)
    kinds = [_Slow, _Script] if slow == "candidate" else [_Script, _Slow]
    fault = _fault(kinds[0](replies, None), kinds[1](calls, None), Deadlines(total=0.5, call=0.5))
    assert fault.reason is FailureReason.CANDIDATE_TIMEOUT
    assert fault.message == "the tests did not finish within 0.5 s: all calls together took too long"


def test_tests_that_hang_are_not_the_candidates_fault() -> None:
    """If one turn takes most of the time, the failure names the side that hung in it."""
    fault = _fault(_Script(_ready(), None), _Hanging([]), Deadlines(total=0.2, call=0.2))
    assert fault.reason is FailureReason.NO_VERDICT
    calls = [frame(REQUEST).encode()]
    fault = _fault(_Hanging(_ready()), _Script(calls, None), Deadlines(total=0.2, call=0.2))
    assert (fault.reason, fault.message) == (FailureReason.CANDIDATE_TIMEOUT, "the candidate did not answer in time")


@pytest.mark.parametrize("code", [0, 1, 137])
def test_tests_that_end_without_a_verdict_are_no_pass(code: int) -> None:
    """A15, A17: If the tests' process exits without a verdict, the candidate fails, even with exit code 0."""
    fault = _fault(_Script(_ready()), _Script([], ExitState(exit_code=code)))
    message = "the tests gave no verdict: their process exited"
    assert (fault.reason, fault.message) == (FailureReason.NO_VERDICT, message)


@pytest.mark.parametrize("end", End)
def test_messages_say_how_a_side_ended(end: End) -> None:
    """Each way in which a side can end has a readable text for messages."""
    assert end.text
    assert "_" not in end.text


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"outcome": "passed"}',
        b'{"outcome": 1, "answered": 1}',
        b'{"outcome": "passed", "answered": "1"}',
        b'{"outcome": "passed", "answered": 1, "more": "' + b"x" * 5000 + b'"}',
        b"[" * 4000,
        b"\xff",
    ],
)
def test_a_verdict_that_cannot_be_read_is_none(payload: bytes) -> None:
    """A15: A malformed verdict is a failure with the reason ``no_verdict``, and raises no other error."""
    fault = _fault(_Script(_ready()), _Script([ChannelFrame(VERDICT, payload).encode()]))
    assert fault.reason is FailureReason.NO_VERDICT


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("syntax", FailureReason.SYNTAX_ERROR),
        ("import", FailureReason.CANDIDATE_CRASHED),
        ("exit", FailureReason.CANDIDATE_CRASHED),
        ("too_large", FailureReason.CANDIDATE_OUTPUT_LIMIT),
        ("protocol", FailureReason.PROTOCOL_VIOLATION),
        ("passed", FailureReason.PROTOCOL_VIOLATION),
        (7, FailureReason.PROTOCOL_VIOLATION),
    ],
)
def test_a_candidate_can_only_fail_itself(why: Any, reason: FailureReason) -> None:
    """A failure report of the candidate's side has one of a few fixed reasons. Any other is a protocol violation."""
    assert _fault(_Script([frame(FAILED, why=why).encode()]), _Script([])).reason is reason


@pytest.mark.parametrize(("name", "named"), [("ValueError", True), ("Canary", False), ("print", False), (["x"], False)])
def test_only_names_of_builtin_exceptions_are_told(name: Any, named: bool) -> None:
    """F13: A message includes the error name that the candidate sends only if it names a builtin exception."""
    fault = _fault(_Script([frame(FAILED, why="import", error=name).encode()]), _Script([]))
    assert (str(name) in fault.message) is named


def test_a_broken_engine_is_no_ones_fault() -> None:
    """L15: An engine error while reading from either side is raised and is no failure of the candidate."""
    for candidate, tests in (
        (_Script([EngineError("gone")]), _Script([])),
        (_Script(_ready()), _Script([EngineError("gone")])),
    ):
        with pytest.raises(EngineError):
            _relay(candidate, tests).run()


def test_a_candidate_that_no_longer_reads_is_found_out_by_its_end() -> None:
    """If the candidate's pipe is broken, the reason for the failure is how the candidate's process ended."""
    candidate = _Script(_ready(), ExitState(exit_code=137, out_of_memory=True))
    candidate.reads = False
    fault = _fault(candidate, _Script([frame(REQUEST).encode()]))
    assert fault.reason is FailureReason.CANDIDATE_OUT_OF_MEMORY


class _Chatter(_Script):
    """A process that writes to stderr without end."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return more output immediately."""
        return Stream.STDERR, b"x"


def test_a_flood_does_not_hold_a_deadline_up() -> None:
    """B17: A candidate that never stops printing still reaches its deadline."""
    started = time.monotonic()
    channel = FrameChannel(_Chatter([]))
    with pytest.raises(ChannelEndedError) as caught:
        channel.receive(time.monotonic() + 0.1, WHEN_ANSWERING)
    assert caught.value.end is End.TIMEOUT
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(("limit", "kept"), [(5, b"abcde"), (100, b"abcdefgh")])
def test_output_is_kept_until_the_tests_begin_and_capped(limit: int, kept: bytes) -> None:
    """F13: Output is kept up to ``keep_output`` bytes. Output after READY may contain arguments and is dropped."""
    early = [(Stream.STDERR, b"abc"), (Stream.STDERR, b"defgh" + OUTPUT_END)]
    candidate = _Script([*early, *_ready(), (Stream.STDERR, b"late"), frame(REPLY).encode()])
    channel = FrameChannel(candidate, keep_output=limit)
    tests = FrameChannel(_Script([frame(REQUEST).encode(), PASSED.encode()]))
    FrameRelay(channel, tests, LIMITS).run()
    assert channel.output == kept


def test_a_task_that_names_its_budget_may_use_it_in_one_call() -> None:
    """A task's timeout is the limit in total and for one call. Without a timeout, the defaults apply."""
    assert Deadlines.of(120.0) == Deadlines(total=120.0, call=120.0)
    assert Deadlines.of(None) == Deadlines(total=DEFAULT_TOTAL_SECONDS, call=DEFAULT_CALL_SECONDS)


def test_frames_stand_on_the_wire_as_documented() -> None:
    """A frame is a type byte, four bytes of length, and JSON."""
    assert frame(SOURCE, code="x").encode() == b"S\0\0\0\x0d" + json.dumps({"code": "x"}).encode()
