"""The relay: hands each side's frames to the other, in turns, until the tests' side gives its verdict.

Nothing but a verdict is read here, and a verdict only ever comes from the tests' side: the candidate's side is not
allowed that frame. Every other way that this can end is a fault, and no fault is a pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason
from securebench.verifiers.code_completion.channel import ChannelEndedError, End, Frame
from securebench.verifiers.code_completion.explain import NOTES
from securebench.verifiers.code_completion.guest.wire import FAILED, READY, REPLY, REQUEST, VERDICT
from securebench.verifiers.faults import CandidateFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.verifiers.code_completion.channel import FrameChannel

WHEN_LOADING: Final = frozenset({READY, FAILED})
WHEN_ANSWERING: Final = frozenset({REQUEST, REPLY, FAILED})
WHEN_JUDGING: Final = frozenset({REQUEST, REPLY, VERDICT})
"""The frames that a side may send, by what it does. Only tests judge."""

DEFAULT_TOTAL_SECONDS: Final = 60.0
"""For a task that names no ``environment.timeout_seconds``: twenty times the slowest honest test of a function."""
DEFAULT_CALL_SECONDS: Final = 10.0
"""For one call of such a task: a candidate that hangs should not cost a minute."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a judgement may take from its start, and that the candidate may take for one answer."""

    total: float
    call: float

    @classmethod
    def of(cls, timeout_seconds: float | None) -> Deadlines:
        """Return those of a task. Where it names its budget, one call may use all of it: some functions are slow."""
        if timeout_seconds is None:
            return cls(DEFAULT_TOTAL_SECONDS, DEFAULT_CALL_SECONDS)
        return cls(timeout_seconds, timeout_seconds)


class JudgingEndedError(CandidateFailedError):
    """A judgement ended without a verdict of the tests.

    ``step`` is how far it had come. ``in_time`` is false if its time was over.
    """

    def __init__(self, reason: FailureReason, message: str, step: str, *, in_time: bool = True) -> None:
        super().__init__(reason, message)
        self.step = step
        self.in_time = in_time


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests' side says: ``outcome`` is ``passed``, ``failed``, ``invalid`` or what broke.

    ``answered`` counts what the candidate answered; ``error`` is a builtin exception's name, ``line`` one of the tests,
    ``note`` one of ``explain.NOTES``.
    """

    outcome: str
    answered: int
    error: str = ""
    line: int | None = None
    note: str = ""


class FrameRelay:
    """One judgement: its two channels, its deadlines, and how far it has come."""

    def __init__(self, candidate: FrameChannel, tests: FrameChannel, deadlines: Deadlines) -> None:
        self._candidate = candidate
        self._tests = tests
        self._deadlines = deadlines
        self._end = time.monotonic() + deadlines.total

    def run(self) -> Verdict:
        """Relay until the verdict.

        Raises :class:`JudgingEndedError`, and :class:`InfrastructureError` of the engine.
        """
        load(self._candidate, self._call_end())
        speaker, listener = self._tests, self._candidate
        while True:
            spoken = self._hear(speaker)
            if spoken.kind == VERDICT:
                return read_verdict(spoken)
            listener.send(spoken.encode())
            speaker, listener = listener, speaker

    def _hear(self, speaker: FrameChannel) -> Frame:
        begun = time.monotonic()
        try:
            if speaker is self._tests:
                return hear_tests(self._tests, self._end)
            return hear_candidate(self._candidate, self._call_end(), WHEN_ANSWERING)
        except JudgingEndedError as ended:
            if not ended.in_time and self._took_many_turns(begun):
                raise self._calls_took_too_long() from ended
            raise

    def _took_many_turns(self, begun: float) -> bool:
        """Return whether all time is used up, and this turn, since ``begun``, was less than half of it."""
        now = time.monotonic()
        return now >= self._end and now - begun < self._deadlines.total / 2

    def _calls_took_too_long(self) -> JudgingEndedError:
        """Return the failure of many calls: whose turn it was at the end is chance, and decides no reason."""
        message = f"the tests did not end within {self._deadlines.total:g} s: all calls together took too long"
        return JudgingEndedError(FailureReason.CANDIDATE_TIMEOUT, message, "tests")

    def _call_end(self) -> float:
        return min(self._end, time.monotonic() + self._deadlines.call)


def load(candidate: FrameChannel, deadline: float) -> None:
    """Wait until the candidate is loaded. From then on it may know arguments of the tests: no more output is kept."""
    try:
        hear_candidate(candidate, deadline, WHEN_LOADING)
    finally:
        candidate.stop_keeping()


def hear_candidate(candidate: FrameChannel, deadline: float, allowed: frozenset[bytes]) -> Frame:
    """Return what the candidate's side says next. Whatever else it does is its own fault."""
    phase = "import" if allowed is WHEN_LOADING else "tests"
    try:
        heard = candidate.receive(deadline, allowed)
    except ChannelEndedError as ended:
        reason, message = _ENDS[ended.end]
        code = f" (exit code {ended.exit_code})" if ended.end is End.EXITED else ""
        in_time = ended.end is not End.TIMEOUT
        raise JudgingEndedError(reason, message + code, phase, in_time=in_time) from ended
    if heard.kind == FAILED:
        raise _candidate_failed(heard, phase)
    return heard


def hear_tests(tests: FrameChannel, deadline: float) -> Frame:
    """Return what the tests' side says next."""
    try:
        return tests.receive(deadline, WHEN_JUDGING)
    except ChannelEndedError as ended:
        message = f"the tests gave no verdict: their process ended with {ended.end.value}"
        in_time = ended.end is not End.TIMEOUT
        raise JudgingEndedError(FailureReason.NO_VERDICT, message, "tests", in_time=in_time) from ended


def read_verdict(spoken: Frame) -> Verdict:
    """Return the verdict in a frame. One that does not read as a verdict is none."""
    try:
        fields = spoken.fields()
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


def _candidate_failed(heard: Frame, phase: str) -> JudgingEndedError:
    """Return the fault that the candidate's side reports of itself: one of a fixed few, whatever it claims."""
    try:
        fields = heard.fields()
        reason, message = _FAILURES[_text(fields, "why")]
        error = _builtin_exception(fields.get("error", ""))
    except (ValueError, TypeError, KeyError):
        return JudgingEndedError(FailureReason.PROTOCOL_VIOLATION, _ENDS[End.VIOLATION][1], phase)
    return JudgingEndedError(reason, f"{message}: {error}" if error else message, phase)


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
    """Return ``name`` if it is that of a builtin exception: any other may carry what a record must not hold."""
    import builtins

    found = getattr(builtins, name, None) if isinstance(name, str) else None
    return found.__name__ if isinstance(found, type) and issubclass(found, BaseException) else ""


_ENDS: Final[Mapping[End, tuple[FailureReason, str]]] = {
    End.EXITED: (FailureReason.CANDIDATE_CRASHED, "the candidate's process ended before the tests did"),
    End.OUT_OF_MEMORY: (FailureReason.CANDIDATE_OUT_OF_MEMORY, "the candidate used more memory than its sandbox has"),
    End.OUTPUT_LIMIT: (FailureReason.CANDIDATE_OUTPUT_LIMIT, "the candidate wrote more than its sandbox may"),
    End.TIMEOUT: (FailureReason.CANDIDATE_TIMEOUT, "the candidate did not answer in time"),
    End.VIOLATION: (FailureReason.PROTOCOL_VIOLATION, "the candidate wrote to the channel of the tests"),
}

_FAILURES: Final[Mapping[str, tuple[FailureReason, str]]] = {
    "syntax": (FailureReason.SYNTAX_ERROR, "the candidate is not valid Python"),
    "import": (FailureReason.CANDIDATE_CRASHED, "loading the candidate raised an exception"),
    "exit": (FailureReason.CANDIDATE_CRASHED, "the candidate tried to end its process"),
    "too_large": (FailureReason.CANDIDATE_OUTPUT_LIMIT, "the candidate returned more than a reply may hold"),
    "protocol": (FailureReason.PROTOCOL_VIOLATION, "the candidate's side could not read a frame"),
}
