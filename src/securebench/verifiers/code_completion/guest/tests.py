"""The tests' side: runs the tests, with stand-ins for what they use of the candidate, and sends the verdict.

Only this side ever receives a test or an expected value. Every answer of the candidate becomes plain data or a stand-in
before a test sees it, so no comparison on this side runs candidate code.
"""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.names import catches_failures
from securebench.verifiers.code_completion.guest.notes import BROAD_EXCEPTION, CHANGED_ARGUMENT, Notes
from securebench.verifiers.code_completion.guest.peer import Peer, name_of, pair_of
from securebench.verifiers.code_completion.guest.plain import MalformedError, UncrossableError, ValueTooLargeError
from securebench.verifiers.code_completion.guest.remote import OpaqueRemote
from securebench.verifiers.code_completion.guest.run import Run, send_verdict
from securebench.verifiers.code_completion.guest.wire import Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from securebench.verifiers.code_completion.guest.arguments import Comparisons
    from securebench.verifiers.code_completion.guest.codec import Exchange


_ACTS = frozenset({"call", "make", "next", "await", "operate", "exit", "anext"})
"""Requests that run code of the candidate. Lookups of names and attributes, for example, usually run no such code."""
_PLAIN_ARGUMENTS = frozenset({type(None), bool, int, float, str, bytes})


class JudgingPeer(Peer):
    """Sends requests to the candidate's side, which may use only the functions and objects that a test passes to it."""

    def __init__(self, wire: Wire, source: str) -> None:
        super().__init__(wire)
        self.has_requested = False
        self.answered = 0
        self.notes = Notes()
        self.turns = 0
        self.lent: set[int] = set()
        self.live: dict[int, Any] = {}
        self.stand_ins: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.is_making = False
        """Whether a ``make`` request is pending. Such a request creates an object whose data the tests can see.

        Until the request is answered, data for objects that already have data is ignored.
        """
        self._source = source
        self._is_paused = False
        self._comparisons: Comparisons | None = None
        self._make_nan: Callable[[], float] | None = None

    # Sending requests.

    def request(self, operation: str, target: Any, value: Any = None) -> Any:
        """Send a request and return the result.

        Increases ``answered`` if code of the candidate ran, or if the result is not a stand-in.
        """
        if self._is_paused:
            raise RuntimeError("no request may be sent to the candidate now")
        self.has_requested = True
        acts = operation in _ACTS
        changes = (acts and operation != "make") or operation == "set"
        making, self.is_making = self.is_making, operation == "make"
        self.turns += changes
        try:
            result = super().request(operation, target, value)
        except Exception as error:
            if type(error) not in (UncrossableError, ValueTooLargeError):  # both are raised before anything is sent
                self.answered += acts
                self.refresh()
            raise
        finally:
            self.is_making = making
        self.answered += acts or id(result) not in self.numbers
        if changes:
            self.refresh()
        return result

    def refresh(self) -> None:
        """Update the contents of each stand-in for an object whose class extends a mutable type, such as ``list``."""
        if not self.live:
            return
        from securebench.verifiers.code_completion.guest.subclasses import refill

        numbers = list(self.live)
        try:
            contents = super().request("state", None, numbers)
            for number, parts in zip(numbers, contents):
                refill(self.live[number], parts)
        except Exception:  # noqa: BLE001 - no code of the candidate runs here: any error means an invalid answer
            self.abandon("protocol")

    def operate(self, target: int, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return the result of an operator on an object, or ``NotImplemented`` if its class does not support it."""
        answer = self.request("operate", target, (name, arguments))
        if type(answer) is not tuple or len(answer) != 2:  # noqa: PLR2004 - whether it applies, and the result
            self.abandon("protocol")
        return answer[1] if answer[0] is True else NotImplemented

    def ask_text(self, target: int, function: str, member: str = "") -> str:
        """Return ``str()`` or ``repr()`` of a candidate's object, or ``str()`` of an enumeration's member."""
        answer = self.request("member" if member else "text", target, (member, "str()") if member else function)
        if type(answer) is not str:
            self.abandon("protocol")
        return answer

    def look_up(self, name: str) -> Any:
        """Return the candidate's object for a name. Raises ``KeyError``."""
        found = self.request("name", name)
        if name[:1].isupper() and isinstance(found, type) and id(found) in self.numbers:
            from securebench.verifiers.code_completion.guest.twins import name_class

            name_class(found)
        return found

    def defined(self, names: list[str]) -> Any:
        """Return those of ``names`` that the candidate says it defines, without setting ``has_requested``."""
        # The answer only decides which names are looked up. No import in the tests can fail because of the answer.
        return super().request("defined", None, names)

    # Answers that could mislead the tests.

    def before_changes(self) -> Callable[[], None] | None:
        """Compute the expected value of the current comparison. Return a function that rejects a changed value.

        The function computes the value again, and notes a rejection if it differs.

        Returns ``None`` if no expected value can be found for the call that the tests are waiting for.
        """
        from securebench.verifiers.code_completion.guest.arguments import Comparisons, evaluate, tests_frame

        frame = tests_frame()
        if self._comparisons is None:
            self._comparisons = Comparisons(self._source)
        expected = self._comparisons.expected_of(frame) if frame is not None else None
        if expected is None:
            return None

        def computed() -> str:
            self._is_paused = True
            try:
                return evaluate(expected, frame)
            finally:
                self._is_paused = False

        before = computed()

        def compare() -> None:
            if computed() != before:
                self.notes.reject(CHANGED_ARGUMENT)

        return compare

    def received_class(self, found: type) -> type:
        """Return ``found``, a class that was received from the candidate.

        A test that catches ``AssertionError`` or a base of it would hide failed asserts. The candidate fails if it
        sends such a class to tests that may catch a class from the candidate.
        """
        if catches_failures(found):
            from securebench.verifiers.code_completion.guest.arguments import catches_unknown_classes

            if catches_unknown_classes(self._source):
                self.notes.reject(BROAD_EXCEPTION)
        return found

    def not_a_number(self) -> float:
        """Return the float that stands for a NaN of the candidate.

        If the tests compare this float with ``<``, ``<=``, ``>`` or ``>=``, the candidate fails, unless the tests use
        the name ``nan`` or ``isnan``.
        """
        if self._make_nan is None:
            from securebench.verifiers.code_completion.guest.nan import nan_maker

            self._make_nan = nan_maker(self._source, self.notes)
        return self._make_nan()

    # Answering requests.

    def perform(self, operation: str, target: Any, value: Any) -> Any:
        """Call a function of the tests, or use an object that the tests lent to the candidate. Refuse all else."""
        subject = self.exported(target)
        try:
            if target in self.lent:
                from securebench.verifiers.code_completion.guest.described import use_lent

                return use_lent(self.notes, operation, subject, value)
            positional, named = pair_of(value, tuple, dict)
            if operation != "call" or not all(type(name) is str for name in named):
                raise MalformedError("not a call")
            return subject(*positional, **named)
        except (SystemExit, KeyboardInterrupt) as leaving:  # the candidate must not be able to end the tests
            raise RuntimeError(f"a function of the tests raised {type(leaving).__name__}") from None

    def abandon(self, why: str) -> NoReturn:
        """Send a verdict with the outcome ``why``, and end the process, so that no test can catch this."""
        send_verdict(self.wire, {"outcome": why, "answered": self.answered})

    # Values that are sent to the candidate.

    def export(self, value: Any, exchange: Exchange, /) -> list[Any]:
        """Return the tag of a value that is not plain: a candidate's object, an iterator, or an object of the tests."""
        kind = type(value)
        if id(value) in self.numbers or id(kind) in self.numbers:
            from securebench.verifiers.code_completion.guest.described import own_tag

            return own_tag(value, self.numbers)
        if hasattr(kind, "__next__") or not callable(value):
            from securebench.verifiers.code_completion.guest.described import lend

            return lend(self, value, exchange)
        return ["mine", self.number_of(value), name_of(value)]

    def parts_of_error(self, error: Exception) -> list[Any]:
        """Return the parts of an error of the tests, but no text of an assertion, which may show expected values."""
        arguments = error.args
        if any(type(part) not in _PLAIN_ARGUMENTS for part in arguments):
            from securebench.verifiers.code_completion.guest.errors import text_of

            arguments = (text_of(error),)
        return [self.error_class(type(error)), () if isinstance(error, AssertionError) else arguments, {}, None, False]

    def error_class(self, kind: type) -> type:
        """Return the first class in the MRO of ``kind`` that the candidate has."""
        return next((each for each in kind.__mro__ if id(each) in self.numbers), None) or super().error_class(kind)

    # Values that are received from the candidate.

    def adopt(self, tag: list[Any]) -> Any:
        """Return what ``tag`` refers to: the stand-in for an object of the candidate, or an object of the tests."""
        if tag[0] != "mine":
            return super().adopt(tag)
        _, number, trait = tag
        if type(number) is not int or type(trait) is not str:
            raise MalformedError("invalid tag of an object")
        return self.stand_ins[number] if number in self.stand_ins else self.keep(number, self._stand_in(number, trait))

    def _stand_in(self, number: int, trait: str) -> Any:
        if trait == "object":
            return OpaqueRemote(self, number)
        from securebench.verifiers.code_completion.guest.flows import make_flow

        return make_flow(self, number, trait)

    def keep(self, number: int, stand_in: Any) -> Any:
        """Keep a new stand-in under the number of its object. Raises :class:`MalformedError`."""
        if type(number) is not int or number in self.stand_ins:
            raise MalformedError("two objects have the same number")
        self.stand_ins[number] = stand_in
        self.numbers[id(stand_in)] = number
        return stand_in

    def begin(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
        """Return the stand-in for a class or an object, or ``None`` for other kinds. A new object has no data yet."""
        if kind not in ("class", "mine"):
            return None
        from securebench.verifiers.code_completion.guest.described import begin

        return begin(self, kind, contents, exchange)

    def finish(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
        """Return the stand-in for an enumeration, a member of one, an object that cannot change, or an exception."""
        if kind == "error":
            return super().finish(kind, contents, exchange)
        from securebench.verifiers.code_completion.guest.described import finish

        return finish(self, kind, contents, exchange)

    def fill(self, kind: str, stand_in: Any, contents: list[Any], exchange: Exchange) -> None:
        """Set the data of a stand-in."""
        if kind == "error":
            super().fill(kind, stand_in, contents, exchange)
        if kind != "error" or id(type(stand_in)) in self.numbers:
            from securebench.verifiers.code_completion.guest.described import fill

            fill(self, kind, stand_in, contents, exchange)


def main() -> NoReturn:
    """Receive the tests of a task, run them, and send the verdict."""
    from securebench.verifiers.code_completion.guest.forks import await_task

    await_task()
    wire = Wire.take_over(silent=True)
    _, source = wire.read()
    peer = JudgingPeer(wire, source["code"])
    run = Run(source["code"], source["starter"], peer.look_up, peer.defined, peer.notes)
    verdict = run.verdict()
    if verdict.pop("import", False) and not peer.has_requested:
        verdict["outcome"] = "unusable"  # the tests have not used anything of the candidate yet
    send_verdict(wire, {**verdict, "answered": peer.answered})
