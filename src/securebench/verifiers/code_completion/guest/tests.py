"""The tests' side: runs the tests, with stand-ins for what they use of the candidate, and sends the verdict.

Only this side ever holds a test or an expected value. Whatever the candidate answers becomes plain data or a stand-in
before any test sees it, so no comparison here ever runs candidate code.
"""

from __future__ import annotations

import builtins
import os
import symtable
import sys
from itertools import islice

from securebench.verifiers.code_completion.guest.codec import MAX_NODES, Exchange
from securebench.verifiers.code_completion.guest.peer import Peer, name_of, pair_of
from securebench.verifiers.code_completion.guest.plain import MalformedError, TooLargeError, UncrossableError
from securebench.verifiers.code_completion.guest.remote import Remote, RemoteIterator, exception_class
from securebench.verifiers.code_completion.guest.wire import VERDICT, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


FILE = "<tests>"


class JudgingPeer(Peer):
    """Asks the candidate's side. The candidate may only call back the functions that a test has handed to it."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.answered = 0
        self._stand_ins: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def request(self, operation: str, target: Any, value: Any = None) -> Any:
        """Ask the candidate, and count what it answers: a mere reference to something of its own is no answer."""
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


class Names(dict):  # type: ignore[type-arg]  # dict[...] is no base class before Python 3.9
    """The builtins of the tests, and behind them the candidate's names: only those that the tests leave free.

    A name is looked up among the tests' own first, then among the builtins, and only then here: nothing that a
    candidate defines can stand in the way of either.
    """

    def __init__(self, free: frozenset[str], lookup: Callable[[str], Any]) -> None:
        super().__init__(vars(builtins))
        self._free = free
        self._lookup = lookup

    def __missing__(self, name: str) -> Any:
        if name not in self._free:
            raise KeyError(name)
        return self._lookup(name)


def free_names(source: str) -> frozenset[str]:
    """Return the names that the tests use as globals, do not define and that are no builtins: the candidate's."""
    used: set[str] = set()
    defined: set[str] = set()
    tables = [symtable.symtable(source, FILE, "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() != "module" and not symbol.is_global():
                continue
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                defined.add(symbol.get_name())
            elif symbol.is_referenced():
                used.add(symbol.get_name())
    return frozenset(name for name in used - defined if not name.startswith("__")) - frozenset(vars(builtins))


def run(source: str, lookup: Callable[[str], Any]) -> dict[str, Any]:
    """Run the tests as the module ``__main__`` and return their verdict: outcome, type of error, line."""
    try:
        code = compile(source, FILE, "exec", dont_inherit=True)
        names = Names(free_names(source), lookup)
    except Exception as error:  # noqa: BLE001 - however they fail to compile
        return {"outcome": "invalid", "error": _public_name(error), "line": getattr(error, "lineno", None)}
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    vars(module)["__builtins__"] = names
    try:
        exec(code, vars(module))  # noqa: S102 - this is the sandbox that they are meant to run in
    except SystemExit as leaving:
        if leaving.code not in (None, 0, False) or not _is_own_exit(leaving):
            return {"outcome": "failed", "error": "SystemExit", "line": _line(leaving)}
    except BaseException as error:  # noqa: BLE001 - whatever ends the tests early fails them
        return {"outcome": "failed", "error": _public_name(error), "line": _line(error)}
    return {"outcome": "passed"}


def _public_name(error: BaseException) -> str:
    """Return the nearest builtin type's name: that of a class of the candidate may be made of an argument."""
    return str(next(each.__name__ for each in type(error).__mro__ if vars(builtins).get(each.__name__) is each))


def _frames(error: BaseException) -> list[Any]:
    """Return the frames that ``error`` has passed, from :func:`run` to where it was raised, each with its line."""
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found


def _line(error: BaseException) -> int | None:
    """Return the line of the tests at which ``error`` passed last."""
    return next((line for frame, line in reversed(_frames(error)) if frame.f_code.co_filename == FILE), None)


def _is_own_exit(leaving: SystemExit) -> bool:
    """Return whether the tests left by themselves, or ``unittest.main()`` did, which always leaves.

    It matters where the candidate shares this process: its exit is no pass.
    """
    runner = vars(sys.modules.get("unittest.main", sys))
    frames = [frame for frame, _ in _frames(leaving)][1:]
    return all(frame.f_code.co_filename == FILE or frame.f_globals is runner for frame in frames)


def send_verdict(wire: Wire, verdict: dict[str, Any]) -> NoReturn:
    """Send the verdict, and end the process at once: nothing runs after it."""
    wire.write(VERDICT, verdict)
    os._exit(0 if verdict["outcome"] == "passed" else 1)


def main() -> NoReturn:
    """Be the tests' side."""
    wire = Wire.take_over(silent=True)
    _, source = wire.read()
    peer = JudgingPeer(wire)
    verdict = run(source["code"], lambda name: peer.request("name", name))
    send_verdict(wire, {**verdict, "answered": peer.answered})
