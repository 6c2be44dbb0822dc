"""The candidate's side: loads the candidate, then serves the requests of the tests' side.

Candidate code shares this process and may take it over. It then gains only the power to answer requests, which it has
anyway.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from securebench.verifiers.code_completion.guest.peer import Peer
from securebench.verifiers.code_completion.guest.wire import FAILED, HELLO, OUTPUT_END, READY, REQUEST, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from securebench.verifiers.code_completion.guest.codec import Exchange

MODULE = "candidate"
"""The candidate's ``__name__``. It is not ``__main__``, so that an ``if __name__ == "__main__"`` block is skipped."""
FILE = "<candidate>"
_ITEMS_SECONDS = 0.01
"""Seconds after which a request fetches no more items. A slow iterator should not compute items that are never used."""


def fail(wire: Wire, why: str, error: BaseException | None = None) -> NoReturn:
    """Print the traceback of ``error`` if there is one, report why this side cannot continue, and exit."""
    if error is not None:
        sys.__excepthook__(type(error), error, error.__traceback__)
    end_output()
    wire.write(FAILED, {"why": why, "error": type(error).__name__ if error is not None else ""})
    os._exit(1)


def load(wire: Wire, source: str) -> dict[str, Any]:
    """Run the candidate's code as a module and return its namespace. If it fails, report that and exit."""
    try:
        code = compile(source, FILE, "exec", dont_inherit=True)
    except BaseException as error:  # noqa: BLE001 - too deep, too large, not Python: always a failure of the candidate
        fail(wire, "syntax", error)
    module = type(sys)(MODULE)
    sys.modules[MODULE] = module
    try:
        exec(code, module.__dict__)  # noqa: S102 - this is the sandbox that it is meant to run in
    except Exception as error:  # noqa: BLE001 - whatever it raises
        fail(wire, "import", error)
    except BaseException as error:  # noqa: BLE001 - loading must not finish with an exit
        fail(wire, "exit", error)
    end_output()
    return module.__dict__


def end_output() -> None:
    """Flush what the candidate has printed so far, and mark its end. Later output is not kept."""
    try:
        sys.stdout.flush()
        os.write(2, OUTPUT_END)
    except Exception:  # noqa: BLE001 - the candidate may have replaced stdout
        return


_ITERABLE_COROUTINE = 0x100
"""``inspect.CO_ITERABLE_COROUTINE``."""


class CandidatePeer(Peer):
    """Serves the tests' side: calls, reads, writes, iterates and awaits what the candidate defines."""

    def __init__(self, wire: Wire, namespace: dict[str, Any]) -> None:
        super().__init__(wire)
        self._namespace = namespace
        self._callbacks: dict[int, Any] = {}
        self._callback_numbers: dict[int, int] = {}
        self._late_errors: dict[int, Exception] = {}
        self._lent: dict[int, Any] = {}
        self._lent_numbers: dict[int, int] = {}
        self._described: set[int] = set()
        self._describing: set[int] = set()
        self._loop: Any = None

    def serve_forever(self) -> NoReturn:
        """Serve until the host ends the sandbox."""
        while True:
            kind, message = self.read()
            if kind != REQUEST:
                self.abandon("protocol")
            self.serve(message)

    def abandon(self, why: str) -> NoReturn:
        """Report that this side cannot continue, and exit."""
        fail(self.wire, why)

    def perform(self, operation: str, target: Any, value: Any) -> Any:
        """Perform an operation on an object of the candidate, or on its namespace, and return the result."""
        try:
            return getattr(self, "_do_" + operation)(target, value)
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - the candidate tried to exit
            fail(self.wire, "exit", error)

    def _do_name(self, name: str, _: None) -> Any:
        return self._namespace[name]

    def _do_defined(self, _: None, names: list[str]) -> list[str]:
        return [name for name in names if name in self._namespace]

    def _do_call(self, target: int, value: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        positional, named = value
        return self.exported(target)(*positional, **named)

    def _do_make(self, target: int, value: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        return self._do_call(target, value)

    def _do_get(self, target: int, name: str) -> Any:
        return getattr(self.exported(target), name)

    def _do_set(self, target: int, value: tuple[str, Any]) -> None:
        setattr(self.exported(target), *value)

    def _do_next(self, target: int, count: int) -> tuple[list[Any], bool]:
        """Return up to ``count`` items, and whether to ask for more.

        There are fewer than ``count`` items if the iterator ends, fails or is slow. If the iterator fails after the
        first item, the next request for items raises the error.
        """
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
        return self._complete(self.exported(target))

    def _complete(self, awaitable: Any) -> Any:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(awaitable)

    def _do_operate(self, target: int, value: tuple[str, tuple[Any, ...]]) -> tuple[bool, Any]:
        """Apply an operator. Return whether the object's class supports it for these arguments, and the result."""
        subject, (name, arguments) = self.exported(target), value
        result = getattr(type(subject), name)(subject, *arguments)
        return (False, None) if result is NotImplemented else (True, result)

    def _do_copy(self, target: int, function: str) -> Any:
        import copy

        return copy.deepcopy(self.exported(target)) if function == "deepcopy" else copy.copy(self.exported(target))

    def _do_text(self, target: int, function: str) -> str:
        return str.__str__(repr(self.exported(target)) if function == "repr" else str(self.exported(target)))

    def _do_exit(self, target: int, error: Exception | None) -> bool:
        """Call the ``__exit__`` of an object, and return whether the object suppresses the error."""
        subject = self.exported(target)
        return bool(type(subject).__exit__(subject, type(error) if error else None, error, None))

    def _do_state(self, _: None, numbers: list[int]) -> list[Any]:
        """Return the contents of the numbered objects, whose classes extend ``list``, ``dict`` or a similar type."""
        from securebench.verifiers.code_completion.guest.shapes import plain_base, plain_parts

        subjects = map(self.exported, numbers)
        return [plain_parts(subject, plain_base(type(subject))) for subject in subjects]

    def _do_fields(self, _: None, numbers: list[int]) -> list[Any]:
        """Return for each of these dataclass objects its field values, or an empty list if they cannot be read."""
        from securebench.verifiers.code_completion.guest.shapes import field_values

        found: list[Any] = []
        for number in numbers:
            try:
                found.append(field_values(self.exported(number)))
            except Exception:  # noqa: BLE001 - whatever code of the candidate raises
                found.append([])
        return found

    def _do_member(self, target: int, value: tuple[str, str]) -> Any:
        """Return an attribute of a member of an enumeration, or the member's text (``str()``)."""
        member = self.exported(target)[value[0]]
        return str.__str__(str(member)) if value[1] == "str()" else getattr(member, value[1])

    def _do_signature(self, target: int, _: None) -> list[list[Any]]:
        from securebench.verifiers.code_completion.guest.shapes import signature_of

        return signature_of(self.exported(target))

    def _do_anext(self, target: int, _: None) -> tuple[bool, Any]:
        """Return whether an asynchronous iterator had another item, and the item."""
        try:
            return True, self._complete(self.exported(target).__anext__())
        except StopAsyncIteration:
            return False, None

    # How objects are sent and received.

    def shape_of(self, value: Any) -> tuple[str, list[Any]] | None:
        """Return the kind and the parts of an object or class of the candidate.

        Returns ``None`` if only a reference to the object or class is to be sent.
        """
        if id(value) in self._callback_numbers or id(value) in self._lent_numbers:
            return None
        if isinstance(value, Exception):
            return "error", [*self.parts_of_error(value), self.number_of(value)]
        is_class = isinstance(value, type)
        if not is_class and type(value).__module__ in ("builtins", "itertools"):
            return None  # what Python itself makes: functions, generators, coroutines
        from securebench.verifiers.code_completion.guest.shapes import class_shape, object_shape

        number = self.number_of(value)
        if not is_class:
            return object_shape(value, number)
        if number in self._described:
            return None
        self._describing.add(number)
        return class_shape(value, number)

    def sent(self, *, arrives: bool) -> None:
        """If the last message ``arrives``, remember which classes it describes, so that no class is described twice."""
        if self._describing:
            self._described |= self._describing if arrives else set()
            self._describing = set()

    def export(self, value: Any, _exchange: Exchange, /) -> list[Any]:
        """Return a tag that refers to ``value``: an object of this side, or a stand-in for an object of the tests.

        For an object of this side, the tag also says how the tests' side treats it: see :func:`_trait`.
        """
        for numbers in (self._callback_numbers, self._lent_numbers):
            if id(value) in numbers:
                return ["yours", numbers[id(value)]]
        return ["mine", self.number_of(value), _trait(value)]

    def error_class(self, kind: type) -> type:
        """Return ``kind`` if the candidate defines it, else the first class of its MRO that both sides have."""
        return kind if kind.__module__ == MODULE else super().error_class(kind)

    def adopt(self, tag: list[Any]) -> Any:
        """Return what ``tag`` names: an object of the candidate, or a stand-in for one of the tests' objects."""
        if tag[0] == "member":
            kind = self.exported(tag[1])
            return kind(tag[3]) if tag[2] is None else kind[tag[2]]
        if tag[0] == "lent":
            return self._lent_object(*tag[1:])
        if tag[0] != "mine":
            return super().adopt(tag)
        _, number, name = tag
        if number not in self._callbacks:
            callback = self._callback(number, name)
            self._callbacks[number] = callback
            self._callback_numbers[id(callback)] = number
        return self._callbacks[number]

    def _lent_object(self, number: int, name: str, trait: str) -> Any:
        """Return the stand-in for an object that stays on the tests' side."""
        if number not in self._lent:
            from securebench.verifiers.code_completion.guest.lent import Lent, LentIterator

            base = LentIterator if trait == "iterator" else Lent
            self._lent[number] = lent = type(name, (base,), {})(self, number)
            self._lent_numbers[id(lent)] = number
        return self._lent[number]

    def _callback(self, number: int, name: str) -> Any:
        def callback(*positional: Any, **named: Any) -> Any:
            return self.request("call", number, (positional, named))

        callback.__name__ = callback.__qualname__ = name
        return callback


def _trait(value: Any) -> str:
    """Return how the tests' side treats this object: as ``coroutine``, ``asyncgen``, ``iterator`` or ``object``."""
    kind = type(value).__name__
    if kind == "coroutine" or (kind == "generator" and value.gi_code.co_flags & _ITERABLE_COROUTINE):
        return "coroutine"
    if kind == "async_generator":
        return "asyncgen"
    return "iterator" if hasattr(type(value), "__next__") else "object"


def main() -> NoReturn:
    """Run the candidate's side."""
    wire = Wire.take_over(silent=False)
    wire.write(HELLO, {})
    _, source = wire.read()
    namespace = load(wire, source["code"])
    wire.write(READY, {})
    CandidatePeer(wire, namespace).serve_forever()
