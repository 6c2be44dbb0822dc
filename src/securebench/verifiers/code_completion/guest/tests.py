"""The tests' side: runs the tests, with stand-ins for what they use of the candidate, and sends the verdict.

Only this side ever holds a test or an expected value. Whatever the candidate answers becomes plain data or a stand-in
before any test sees it, so no comparison here ever runs candidate code.
"""

from __future__ import annotations

from itertools import islice

from securebench.verifiers.code_completion.guest.arguments import Comparisons, evaluate, tests_frame
from securebench.verifiers.code_completion.guest.codec import MAX_NODES, Exchange
from securebench.verifiers.code_completion.guest.nan import nan_maker
from securebench.verifiers.code_completion.guest.notes import CHANGED_ARGUMENT, Notes
from securebench.verifiers.code_completion.guest.peer import Peer, name_of, pair_of
from securebench.verifiers.code_completion.guest.plain import MalformedError, TooLargeError, UncrossableError
from securebench.verifiers.code_completion.guest.remote import Remote, RemoteIterator, exception_class
from securebench.verifiers.code_completion.guest.run import Run, send_verdict
from securebench.verifiers.code_completion.guest.wire import Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


class JudgingPeer(Peer):
    """Asks the candidate's side. The candidate may only call back the functions that a test has handed to it."""

    def __init__(self, wire: Wire, source: str) -> None:
        super().__init__(wire)
        self.asked = False
        self.answered = 0
        self.notes = Notes()
        self._source = source
        self._is_paused = False
        self._comparisons: Comparisons | None = None
        self._make_nan: Callable[[], float] | None = None
        self._stand_ins: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def request(self, operation: str, target: Any, value: Any = None) -> Any:
        """Ask the candidate, and count what it answers: a mere reference to something of its own is no answer."""
        if self._is_paused:
            raise RuntimeError("the candidate is not asked now")
        self.asked = True
        acts = operation in ("call", "next", "await")
        try:
            result = super().request(operation, target, value)
        except (UncrossableError, TooLargeError):
            raise  # it was never asked
        except Exception:
            self.answered += acts
            raise
        self.answered += acts or id(result) not in self._numbers
        return result

    def look_up(self, name: str) -> Any:
        """Return what the candidate defines by a name. Raises ``KeyError``."""
        return self.request("name", name)

    def defined(self, names: list[str]) -> Any:
        """Return those of ``names`` that the candidate defines, as it says."""
        return super().request("defined", None, names)

    def before_changes(self) -> Callable[[], None] | None:
        """Compute the other side of the comparison that the call is part of, and afterwards see if it has changed."""
        frame = tests_frame()
        if self._comparisons is None:
            self._comparisons = Comparisons(self._source)
        expected = self._comparisons.expected_of(frame) if frame is not None else None
        if expected is None:
            return None
        before = self._evaluate(expected, frame)

        def compare() -> None:
            if self._evaluate(expected, frame) != before:
                self.notes.reject(CHANGED_ARGUMENT)

        return compare

    def _evaluate(self, expected: Any, frame: Any) -> str:
        self._is_paused = True
        try:
            return evaluate(expected, frame)
        finally:
            self._is_paused = False

    def not_a_number(self) -> float:
        """Return a NaN of the candidate, which notes what the tests do with it."""
        if self._make_nan is None:
            self._make_nan = nan_maker(self._source, self.notes)
        return self._make_nan()

    def next_items(self, target: int, count: int) -> tuple[list[Any], bool]:
        """Return more items of an iterator: at least one, unless it has ended."""
        try:
            items, more = pair_of(self.request("next", target, count), list, bool)
        except MalformedError:
            self.abandon("protocol")
        if more and not items:
            self.abandon("protocol")
        return items, more

    def perform(self, operation: str, target: Any, value: Any) -> Any:
        """Call one of the tests' functions for the candidate: nothing else may be asked of this side."""
        positional, named = pair_of(value, tuple, dict)
        function = self.exported(target)
        if operation != "call" or not all(type(name) is str for name in named):
            raise MalformedError("not a call")
        try:
            return function(*positional, **named)
        except (SystemExit, KeyboardInterrupt) as leaving:  # the tests end when they end, not when the candidate wants
            raise RuntimeError(f"a function of the tests raised {type(leaving).__name__}") from None

    def abandon(self, why: str) -> NoReturn:
        """Send a verdict, and end the process: no test may catch this."""
        send_verdict(self.wire, {"outcome": why, "answered": self.answered})

    def export(self, value: Any, exchange: Exchange) -> list[Any]:
        """Return the tag of a candidate's own object, of an iterator's items, or of a function that it may call."""
        if id(value) in self._numbers:
            return ["yours", self._numbers[id(value)]]
        if hasattr(type(value), "__next__"):
            return ["iterator", exchange.value(list(islice(value, MAX_NODES + 1)))]
        if not callable(value):
            raise UncrossableError(f"a {type(value).__name__} is no plain data: it cannot be given to the candidate")
        return ["mine", self.number_of(value), name_of(value)]

    def describe(self, error: Exception) -> tuple[type, tuple[Any, ...]]:
        """Describe an error of a test's function. An assertion may name what it expected: that stays here."""
        kind, arguments = super().describe(error)
        return kind, () if issubclass(kind, AssertionError) else arguments

    def error_class(self, kind: type) -> type:
        """Return the nearest class that the candidate knows."""
        return next((each for each in kind.__mro__ if id(each) in self._numbers), None) or super().error_class(kind)

    def adopt(self, tag: list[Any]) -> Any:
        """Return the stand-in for an object of the candidate."""
        if tag[0] != "mine":
            return super().adopt(tag)
        _, number, name, trait, bases = tag
        if type(number) is not int or type(name) is not str or type(bases) is not list:
            raise MalformedError("no such tag")
        if number not in self._stand_ins:
            stand_in = self._stand_in(number, name, trait, bases)
            self._stand_ins[number] = stand_in
            self._numbers[id(stand_in)] = number
        return self._stand_ins[number]

    def _stand_in(self, number: int, name: str, trait: str, bases: list[Any]) -> Any:
        if trait == "exception":
            return exception_class(name, [Exchange(self).read(base) for base in bases])
        if trait == "coroutine":
            return self._coroutine(number)
        return RemoteIterator(self, number) if trait == "iterator" else Remote(self, number)

    async def _coroutine(self, number: int) -> Any:
        """Await a coroutine of the candidate: it runs to its end over there."""
        return self.request("await", number)


def main() -> NoReturn:
    """Be the tests' side."""
    wire = Wire.take_over(silent=True)
    _, source = wire.read()
    peer = JudgingPeer(wire, source["code"])
    run = Run(source["code"], source["starter"], peer.look_up, peer.defined, peer.notes)
    verdict = run.verdict()
    if verdict.pop("import", False) and not peer.asked:
        verdict["outcome"] = "unusable"  # nothing of the candidate has reached this side yet
    send_verdict(wire, {**verdict, "answered": peer.answered})
