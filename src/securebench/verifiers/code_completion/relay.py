"""The frame relay: forwards the frames of each side to the other, in turns, until the tests' side sends its verdict.

The frame relay parses only verdicts and the failure reports of the candidate's side. It accepts a verdict only from the
tests' side. A conversation that ends without a verdict is never a pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.code_completion.channel import ChannelEndedError, ChannelFrame, End
from securebench.verifiers.code_completion.guest import notes
from securebench.verifiers.code_completion.guest.wire import END, FAILED, READY, REPLY, REQUEST, VERDICT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.verifiers.code_completion.channel import FrameChannel


_REASONS: Final[Mapping[str, str]] = {
    notes.NAN: (
        "the candidate sent a NaN, and the tests might accept it by mistake: they never check for NaN, and < and > are "
        "always False with a NaN"
    ),
    notes.CHANGED_ARGUMENT: (
        "a call changed its argument, and the tests compute the expected value from the changed argument: compute the "
        "expected value before the call"
    ),
    notes.BROAD_EXCEPTION: (
        "the tests received the class AssertionError, Exception or BaseException from the candidate; a test that "
        "catches the received class would hide its own failed asserts"
    ),
    notes.UNITTEST: "a unittest or doctest run failed, and the tests did not use its result",
    notes.BUILTIN: (
        "the candidate redefines a Python builtin, but the tests use Python's version; to let the tests use "
        "the candidate's version, define the builtin's name in the task's starter_code"
    ),
}

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "operator": "the tests apply an operator or len(), bool() or iter() to a candidate's object that is not plain data",
    "equality": "the tests compare objects of a class of the candidate that defines its own equality",
    "fields": "the tests compare an object of the candidate's dataclass, and not all of its fields can be read",
    "constructor": (
        "the tests compare an object that they built from a candidate's class, and the class does not store or does "
        "not compare all constructor arguments"
    ),
    "subclass": "the tests define a subclass of a class of the candidate",
    "own_operator": "the candidate applies an operator to an object of a class that the tests define",
    "argument": "the tests give the candidate an object that is not plain data",
    "source": "the tests read the source of the candidate",
    "patch": "the tests patch something that the candidate uses",
    "printed": "the tests read printed output",
    "copy": "the tests copy an instance of a candidate's dataclass, or of a candidate's subclass of a builtin type",
    "process": "the tests configure their own process (random seed, environment variables, warnings)",
    "files": "the tests create files that the candidate cannot see",
    "attribute": "the tests change a list, dict or set that they got from an object of the candidate",
    "kind": "the tests inspect what kind of function the candidate defines",
}
NOTES: Final = frozenset({*_REASONS, *_UNSUPPORTED})

WHEN_LOADING: Final = frozenset({READY, FAILED})
WHEN_ANSWERING: Final = frozenset({REQUEST, REPLY, FAILED})
WHEN_JUDGING: Final = frozenset({REQUEST, REPLY, VERDICT, END})
"""The frames that are accepted from the tests' side. Only this side may send a verdict.

The two sets above are for the candidate's side: the first until the candidate is loaded, the second after that.
"""

DEFAULT_TOTAL_SECONDS: Final = 60.0
"""The time limit of a task without ``environment.timeout_seconds``: twenty times what the slowest honest tests need."""

DEFAULT_CALL_SECONDS: Final = 10.0
"""The time limit of one call if the task sets no timeout.

If the candidate hangs in a call, this limit ends the call long before :data:`DEFAULT_TOTAL_SECONDS` would.
"""

_ENDS: Final[Mapping[End, tuple[FailureReason, str]]] = {
    End.EXITED: (FailureReason.CANDIDATE_CRASHED, "the candidate's process exited before the tests finished"),
    End.OUT_OF_MEMORY: (FailureReason.CANDIDATE_OUT_OF_MEMORY, "the candidate exceeded the sandbox's memory limit"),
    End.OUTPUT_LIMIT: (FailureReason.CANDIDATE_OUTPUT_LIMIT, "the candidate exceeded the sandbox's output limit"),
    End.TIMEOUT: (FailureReason.CANDIDATE_TIMEOUT, "the candidate did not answer in time"),
    End.VIOLATION: (FailureReason.PROTOCOL_VIOLATION, "the candidate's side sent an invalid message to the tests"),
}

_FAILURES: Final[Mapping[str, tuple[FailureReason, str]]] = {
    "syntax": (FailureReason.SYNTAX_ERROR, "the candidate is not valid Python"),
    "import": (FailureReason.CANDIDATE_CRASHED, "loading the candidate raised an exception"),
    "exit": (FailureReason.CANDIDATE_CRASHED, "the candidate tried to exit its process"),
    "too_large": (FailureReason.CANDIDATE_OUTPUT_LIMIT, "a value of the candidate is too large or too deeply nested"),
    "protocol": (FailureReason.PROTOCOL_VIOLATION, "the candidate's side could not read a message of the tests' side"),
}


def explain(note: str) -> str:
    """Return the text that explains ``note`` in a message, or an empty string if the note is unknown."""
    if note in _UNSUPPORTED:
        return f"{_UNSUPPORTED[note]}, which does not work across the two sandboxes; set tests.isolation: shared"
    return _REASONS.get(note, "")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The time limits of a judgement in seconds: in total, and for each answer of the candidate."""

    total: float
    call: float

    @classmethod
    def of(cls, timeout_seconds: float | None) -> Deadlines:
        """Return the deadlines of a task. If the task sets a timeout, one slow call may use all of it."""
        if timeout_seconds is None:
            return cls(DEFAULT_TOTAL_SECONDS, DEFAULT_CALL_SECONDS)
        return cls(timeout_seconds, timeout_seconds)


class JudgingEndedError(CandidateFailedError):
    """A judgement ended without a verdict of the tests.

    ``step`` is the phase in which it ended. ``in_time`` is ``False`` if one side did not answer in time.
    """

    def __init__(self, reason: FailureReason, message: str, step: str, *, in_time: bool = True) -> None:
        super().__init__(reason, message)
        self.step = step
        self.in_time = in_time


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of the tests' side.

    ``outcome`` is ``passed``, ``failed``, or why the tests could not be completed, such as ``invalid``.
    ``answered`` counts the candidate's answers. With ``isolation: shared``, it counts the candidate's names that the
    tests used. ``error`` is the name of a builtin exception, ``line`` a line number in the tests, and ``note`` one of
    :data:`NOTES`.
    """

    outcome: str
    answered: int
    error: str = ""
    line: int | None = None
    note: str = ""


class FrameRelay:
    """One judgement: its two channels and its deadlines."""

    def __init__(self, candidate: FrameChannel, tests: FrameChannel, deadlines: Deadlines) -> None:
        self._candidate = candidate
        self._tests = tests
        self._deadlines = deadlines
        self._end = time.monotonic() + deadlines.total

    def run(self) -> Verdict:
        """Relay frames until the tests' side sends the verdict, and return it.

        Raises :class:`JudgingEndedError`, and the driver's :class:`InfrastructureError`.
        """
        load(self._candidate, self._call_end())
        sender, receiver = self._tests, self._candidate
        while True:
            message = self._receive_from(sender)
            if message.kind == VERDICT:
                return read_verdict(message)
            receiver.send(message.encode())
            sender, receiver = receiver, sender

    def _receive_from(self, sender: FrameChannel) -> ChannelFrame:
        started = time.monotonic()
        try:
            if sender is self._tests:
                return receive_from_tests(self._tests, self._end)
            return receive_from_candidate(self._candidate, self._call_end(), WHEN_ANSWERING)
        except JudgingEndedError as ended:
            now = time.monotonic()
            if not ended.in_time and now >= self._end and now - started < self._deadlines.total / 2:
                # Many calls used up the time together. It is chance which side was running at the end, so the side
                # does not determine the reason.
                text = f"the tests did not finish within {self._deadlines.total:g} s: all calls together took too long"
                raise JudgingEndedError(FailureReason.CANDIDATE_TIMEOUT, text, "tests") from ended
            raise

    def _call_end(self) -> float:
        return min(self._end, time.monotonic() + self._deadlines.call)


def load(candidate: FrameChannel, deadline: float) -> None:
    """Wait until the candidate is loaded.

    Output after that is not kept, because it may contain arguments of the tests.
    """
    try:
        receive_from_candidate(candidate, deadline, WHEN_LOADING)
    finally:
        candidate.stop_keeping()


def receive_from_candidate(candidate: FrameChannel, deadline: float, allowed: frozenset[bytes]) -> ChannelFrame:
    """Return the next frame of the candidate's side.

    Raises :class:`JudgingEndedError` if the candidate's side reports a failure or sends no valid frame.
    """
    phase = "import" if allowed is WHEN_LOADING else "tests"
    try:
        message = candidate.receive(deadline, allowed)
    except ChannelEndedError as ended:
        reason, text = _ENDS[ended.end]
        code = f" (exit code {ended.exit_code})" if ended.end is End.EXITED else ""
        in_time = ended.end is not End.TIMEOUT
        raise JudgingEndedError(reason, text + code, phase, in_time=in_time) from ended
    if message.kind == FAILED:
        raise _candidate_failed(message, phase)
    return message


def receive_from_tests(tests: FrameChannel, deadline: float) -> ChannelFrame:
    """Return the next frame of the tests' side.

    Raises :class:`JudgingEndedError` if the process of the tests has exited or the tests' side sends no valid frame.
    """
    try:
        message = tests.receive(deadline, WHEN_JUDGING)
    except ChannelEndedError as ended:
        raise _no_verdict(ended.end) from ended
    if message.kind == END:
        raise _no_verdict(End.EXITED)
    return message


def _no_verdict(end: End) -> JudgingEndedError:
    text = f"the tests gave no verdict: their process {end.text}"
    return JudgingEndedError(FailureReason.NO_VERDICT, text, "tests", in_time=end is not End.TIMEOUT)


def read_verdict(message: ChannelFrame) -> Verdict:
    """Return the verdict that a frame contains. Raises :class:`JudgingEndedError` if the verdict is not valid."""
    try:
        fields = message.fields()
        verdict = Verdict(
            outcome=_text(fields, "outcome"),
            answered=_count(fields, "answered"),
            error=_builtin_exception(fields.get("error", "")),
            line=fields["line"] if isinstance(fields.get("line"), int) else None,
            note=next((note for note in NOTES if note == fields.get("note")), ""),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise JudgingEndedError(FailureReason.NO_VERDICT, "the tests gave no readable verdict", "verdict") from error
    return verdict


def _candidate_failed(message: ChannelFrame, phase: str) -> JudgingEndedError:
    """Return the failure that the candidate's side reports. Only failures in ``_FAILURES`` are accepted."""
    try:
        fields = message.fields()
        reason, text = _FAILURES[_text(fields, "why")]
        error = _builtin_exception(fields.get("error", ""))
    except (ValueError, TypeError, KeyError):
        return JudgingEndedError(FailureReason.PROTOCOL_VIOLATION, _ENDS[End.VIOLATION][1], phase)
    return JudgingEndedError(reason, f"{text}: {error}" if error else text, phase)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(name)
    return value


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int):
        raise TypeError(name)
    return value


def _builtin_exception(name: object) -> str:
    """Return ``name`` if it is the name of a builtin exception, else an empty string. Other names could leak data."""
    import builtins

    found = getattr(builtins, name, None) if isinstance(name, str) else None
    return found.__name__ if isinstance(found, type) and issubclass(found, BaseException) else ""
