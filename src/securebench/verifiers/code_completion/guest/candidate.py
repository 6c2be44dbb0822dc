"""The candidate's side: loads the candidate, then does what the tests' side asks, for as long as it is asked.

Candidate code shares this process and may take it over. All that it gains is the power to answer requests, which it
has anyway.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from securebench.verifiers.code_completion.guest.peer import Peer, name_of
from securebench.verifiers.code_completion.guest.wire import FAILED, OUTPUT_END, READY, REQUEST, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from securebench.verifiers.code_completion.guest.codec import Exchange

MODULE = "candidate"
"""The candidate's ``__name__``: not ``__main__``, so that what it does when run as a program stays out."""
FILE = "<candidate>"
_ITEMS_SECONDS = 0.01
"""How long items are fetched ahead of their use: an iterator that searches must not search for what nobody wants."""


def fail(wire: Wire, why: str, error: BaseException | None = None) -> NoReturn:
    """Report why this side cannot go on, with the type of the error, print its traceback, and end."""
    if error is not None:
        sys.__excepthook__(type(error), error, error.__traceback__)
    end_output()
    wire.write(FAILED, {"why": why, "error": type(error).__name__ if error is not None else ""})
    os._exit(1)


def load(wire: Wire, source: str) -> dict[str, Any]:
    """Run the candidate's code as a module and return its namespace."""
    try:
        code = compile(source, FILE, "exec", dont_inherit=True)
    except BaseException as error:  # noqa: BLE001 - too deep, too large, no Python: its own fault in each case
        fail(wire, "syntax", error)
    module = type(sys)(MODULE)
    sys.modules[MODULE] = module
    try:
        exec(code, module.__dict__)  # noqa: S102 - this is the sandbox that it is meant to run in
    except Exception as error:  # noqa: BLE001 - whatever it raises
        fail(wire, "import", error)
    except BaseException as error:  # noqa: BLE001 - an exit is no way to finish loading
        fail(wire, "exit", error)
    end_output()
    return module.__dict__


def end_output() -> None:
    """Let out what the candidate has printed so far, and mark its end: what it prints later is not kept."""
    try:
        sys.stdout.flush()
        os.write(2, OUTPUT_END)
    except Exception:  # noqa: BLE001 - it may do to its own stdout what it likes
        return


class CandidatePeer(Peer):
    """Serves the tests' side: calls, reads, writes, iterates and awaits what the candidate defines."""

    def __init__(self, wire: Wire, namespace: dict[str, Any]) -> None:
        super().__init__(wire)
        self._namespace = namespace
        self._callbacks: dict[int, Any] = {}
        self._callback_numbers: dict[int, int] = {}
        self._late_errors: dict[int, Exception] = {}
        self._loop: Any = None

    def serve_forever(self) -> NoReturn:
        """Serve until the host ends the sandbox."""
        while True:
            kind, message = self.read()
            if kind != REQUEST:
                self.abandon("protocol")
            self.serve(message)

    def abandon(self, why: str) -> NoReturn:
        """Fail for good."""
        fail(self.wire, why)

    def perform(self, operation: str, target: Any, value: Any) -> Any:
        """Do one operation on an object of the candidate, or on its namespace."""
        try:
            return getattr(self, "_do_" + operation)(target, value)
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - an exit is never an answer
            fail(self.wire, "exit", error)

    def _do_name(self, name: str, _: None) -> Any:
        return self._namespace[name]

    def _do_defined(self, _: None, names: list[str]) -> list[str]:
        return [name for name in names if name in self._namespace]

    def _do_call(self, target: int, value: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        positional, named = value
        return self.exported(target)(*positional, **named)

    def _do_get(self, target: int, name: str) -> Any:
        return getattr(self.exported(target), name)

    def _do_set(self, target: int, value: tuple[str, Any]) -> None:
        setattr(self.exported(target), *value)

    def _do_next(self, target: int, count: int) -> tuple[list[Any], bool]:
        """Return up to ``count`` more items, fewer if they are slow, and whether there may be more after them."""
        if target in self._late_errors:
            raise self._late_errors.pop(target)
        iterator, until = self.exported(target), monotonic() + _ITEMS_SECONDS
        items: list[Any] = []
        try:
            while len(items) < count and (not items or monotonic() < until):
                items.append(next(iterator))
        except StopIteration:
            return items, False
        except Exception as error:
            if not items:
                raise
            self._late_errors[target] = error
        return items, True

    def _do_await(self, target: int, _: None) -> Any:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(self.exported(target))

    def export(self, value: Any, exchange: Exchange) -> list[Any]:
        """Return the tag of an object: its number, name, trait, and bases if it is a class of exceptions."""
        if id(value) in self._callback_numbers:
            return ["yours", self._callback_numbers[id(value)]]
        trait = _trait(value)
        name = name_of(value) if callable(value) else ""
        bases = [exchange.value(base) for base in value.__bases__] if trait == "exception" else []
        return ["mine", self.number_of(value), name, trait, bases]

    def error_class(self, kind: type) -> type:
        """Return ``kind`` itself: a class of exceptions that the candidate defines crosses with its bases."""
        return kind

    def adopt(self, tag: list[Any]) -> Any:
        """Return an object of the candidate, or a function that calls one of the tests."""
        if tag[0] != "mine":
            return super().adopt(tag)
        _, number, name = tag
        if number not in self._callbacks:
            callback = self._callback(number, name)
            self._callbacks[number] = callback
            self._callback_numbers[id(callback)] = number
        return self._callbacks[number]

    def _callback(self, number: int, name: str) -> Any:
        def callback(*positional: Any, **named: Any) -> Any:
            return self.request("call", number, (positional, named))

        callback.__name__ = callback.__qualname__ = name
        return callback


def _trait(value: Any) -> str:
    """Return how the tests' side should treat an object that stays here."""
    if isinstance(value, type) and issubclass(value, Exception):
        return "exception"
    if type(value).__name__ == "coroutine":
        return "coroutine"
    return "iterator" if hasattr(type(value), "__next__") else "object"


def main() -> NoReturn:
    """Be the candidate's side."""
    wire = Wire.take_over(silent=False)
    _, source = wire.read()
    namespace = load(wire, source["code"])
    wire.write(READY, {})
    CandidatePeer(wire, namespace).serve_forever()
