"""Plain data, and how it crosses: by exact type, with the identity of containers, and nothing that carries behaviour.

=================================  ===========================================================================
crosses as itself                  None, bool, int, float, complex, str, bytes, range; builtin types and exceptions;
                                   Decimal, Fraction, date, time, datetime (without a zone), timedelta
crosses with its identity          list, tuple, dict, set, frozenset, bytearray, deque (without ``maxlen``), OrderedDict,
                                   Counter, defaultdict (its factory too, where that is a builtin type), dict views
crosses by reference               what the two ends of a channel make of it (``peer.py``)
=================================  ===========================================================================

A subclass of any of these is not one of these. A message is ``{"value": V, "heap": [[number, kind, contents], ...]}``:
each container stands once in the heap, and values refer to it by number, so that aliases stay aliases and cycles end.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Ends(Protocol):
        """What decides about values that are not plain."""

        def export(self, value: Any, exchange: Exchange) -> list[Any]:
            """Return a tag for ``value``. Raises :class:`UncrossableError`."""

        def adopt(self, tag: list[Any]) -> Any:
            """Return what a tag of the other side stands for. Raises :class:`MalformedError`."""


MAX_DEPTH = 100
"""Containers in containers: deeper than any honest value, shallow enough for every recursion here."""
MAX_NODES = 1_000_000
"""Values in one message."""
MAX_CHARACTERS = 16 * 1024 * 1024
"""Characters of text and bytes in one message, counted before they are copied: a list may name one string a million times."""
_INLINE_INT = 2**63


class UncrossableError(TypeError):
    """A value is not plain data."""


class TooLargeError(ValueError):
    """A value is deeper, longer or larger than a message may be."""


class MalformedError(ValueError):
    """A message is not one that this codec writes."""


_PLAIN_TYPES = (
    *(object, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, type(None)),
    *(Counter, OrderedDict, defaultdict, deque),
)
_EXCEPTION_MODULES = ("dataclasses", "decimal", "json.decoder", "statistics", "struct")
"""Whose exceptions keep their own type; those of any other module cross as their nearest builtin base."""


def _builtin_exceptions() -> dict[str, type]:
    """Return the exceptions that may be re-created: an exit or an interrupt is not one of them."""
    import builtins

    found = {name: value for name, value in vars(builtins).items() if type(value) is type}
    return {name: value for name, value in found.items() if issubclass(value, Exception) and value.__name__ == name}


_TYPES: dict[str, type] = {**{each.__name__: each for each in _PLAIN_TYPES}, **_builtin_exceptions()}
_TYPE_NAMES: dict[type, str] = {each: name for name, each in _TYPES.items()}


def class_tag(value: type) -> list[Any] | None:
    """Return the tag of a class that both sides have, or ``None``."""
    if value in _TYPE_NAMES:
        return ["type", "", _TYPE_NAMES[value]]
    module, name = value.__module__, value.__name__
    home = sys.modules.get(module) if module in _EXCEPTION_MODULES else None
    return ["type", module, name] if home is not None and vars(home).get(name) is value else None


def _class(module: str, name: str) -> Any:
    if not module:
        return _TYPES[name]
    if module not in _EXCEPTION_MODULES:
        raise MalformedError("no such module")
    __import__(module)
    found = vars(sys.modules[module])[name]
    if type(found) is not type or not issubclass(found, Exception):
        raise MalformedError("not an exception")
    return found


_STDLIB: dict[tuple[str, str], Callable[[Any], list[Any] | None]] = {
    ("decimal", "Decimal"): lambda x: [str(x)],
    ("fractions", "Fraction"): lambda x: [x.numerator, x.denominator],
    ("datetime", "date"): lambda x: [x.year, x.month, x.day],
    ("datetime", "time"): lambda x: None if x.tzinfo else [x.hour, x.minute, x.second, x.microsecond],
    ("datetime", "datetime"): lambda x: None if x.tzinfo else [*x.timetuple()[:6], x.microsecond],
    ("datetime", "timedelta"): lambda x: [x.days, x.seconds, x.microseconds],
}
"""Immutable values of the standard library: the arguments that make an equal one, or ``None`` where none do."""


def _stdlib_arguments(value: Any) -> tuple[str, str, list[Any]] | None:
    """Return module, name and arguments of a standard library value. Looks only at modules that are loaded already."""
    for (module, name), arguments in _STDLIB.items():
        if type(value).__name__ == name and type(value) is getattr(sys.modules.get(module), name, None):
            found = arguments(value)
            return (module, name, found) if found is not None else None
    return None


# Containers. Mutable ones are made empty and filled later, which is what lets a cycle close.
_MAPPINGS = ("dict", "OrderedDict", "Counter")
_MUTABLE: dict[str, Callable[[], Any]] = {
    "list": list,
    "set": set,
    "bytearray": bytearray,
    "deque": deque,
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
    "defaultdict": defaultdict,
}
_FACTORIES = {each.__name__: each for each in (int, float, bool, str, list, tuple, dict, set)}
_MUTABLE.update({"defaultdict:" + name: partial(defaultdict, each) for name, each in _FACTORIES.items()})
_IMMUTABLE: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "frozenset": frozenset,
    "dict_keys": lambda items: dict.fromkeys(items).keys(),
    "dict_values": lambda items: dict(enumerate(items)).values(),
    "dict_items": lambda items: dict(items).items(),
}
_EMPTY: dict[Any, Any] = {}
_VIEWS = (type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))
_KINDS: dict[type, str] = {
    each: each.__name__ for each in (list, tuple, dict, set, frozenset, bytearray, deque, OrderedDict, Counter, *_VIEWS)
}


def _kind(value: Any) -> str | None:
    """Return the kind of a container, by its exact type, or ``None`` for what is none."""
    if type(value) is defaultdict:
        name = getattr(value.default_factory, "__name__", "")
        return "defaultdict:" + name if _FACTORIES.get(name, ...) is value.default_factory else "defaultdict"
    if type(value) is deque and value.maxlen is not None:
        return None
    return _KINDS.get(type(value))


def _is_mapping(kind: str) -> bool:
    return kind in _MAPPINGS or kind.startswith("defaultdict")


def _fill(target: Any, kind: str, items: list[Any]) -> None:
    """Give a mutable container its contents, in place."""
    if kind in ("list", "bytearray"):
        target[:] = items
        return
    target.clear()
    if _is_mapping(kind):
        dict.update(target, zip(items[::2], items[1::2]))
    elif kind == "set":
        target.update(items)
    else:
        target.extend(items)


class Exchange:
    """One message and its answer: they share the numbers of containers.

    The side that unpacked a message and then packs the answer also sends the contents of those mutable containers
    that have changed since; the other side, unpacking, puts them into the very objects that it had sent.
    """

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._received: dict[int, tuple[str, list[Any]]] = {}
        self._heap: list[list[Any]] = []
        self._nodes = 0
        self._characters = 0

    # Packing.

    def pack(self, value: Any) -> dict[str, Any]:
        """Return the message of ``value`` and of every change. Raises :class:`UncrossableError` or :class:`TooLargeError`."""
        self._heap = []
        packed = self.value(value)
        for number, (kind, before) in self._received.items():
            contents = self._contents(self._objects[number], kind, 1)
            if repr(contents) != repr(before):  # as text: True, 1 and 1.0 are equal, and not the same
                self._heap.append([number, kind, contents])
        return {"value": packed, "heap": self._heap}

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return what stands for ``value`` in a message."""
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise TooLargeError("the value has too many parts, or is nested too deeply")
        exact = type(value)
        if value is None or exact is bool:
            return value
        if exact in _SCALARS:
            return self._scalar(value, exact)
        kind = _kind(value)
        if kind is not None:
            return ["ref", self._container(value, kind, depth)]
        if exact is range:
            return ["range", *(self.value(part) for part in (value.start, value.stop, value.step))]
        tag = class_tag(value) if exact is type else None
        return tag or self._stdlib(value) or self._ends.export(value, self)

    def _scalar(self, value: Any, exact: type) -> Any:
        if exact is int:
            return value if -_INLINE_INT < value < _INLINE_INT else ["int", self._text(hex(value))]
        if exact is float:
            return value if value - value == 0 else ["float", repr(value)]
        if exact is complex:
            return ["complex", self.value(value.real), self.value(value.imag)]
        self._text(value)
        if exact is bytes:
            return ["bytes", value.hex()]
        return value if _encodes(value) else ["str", value.encode("utf-8", "surrogatepass").hex()]

    def _text(self, value: Any) -> Any:
        self._characters += len(value)
        if self._characters > MAX_CHARACTERS:
            raise TooLargeError("the value holds too much text")
        return value

    def _stdlib(self, value: Any) -> list[Any] | None:
        found = _stdlib_arguments(value)
        return ["stdlib", found[0], found[1], [self.value(part) for part in found[2]]] if found else None

    def _container(self, value: Any, kind: str, depth: int) -> int:
        """Return the number of a container, and append it to the heap, after its parts, if it is new."""
        known = self._numbers.get(id(value))
        if known is not None:
            return known
        number = self._register(len(self._objects), value)
        self._heap.append([number, kind, self._contents(value, kind, depth + 1)])
        return number

    def _contents(self, value: Any, kind: str, depth: int) -> list[Any]:
        if _is_mapping(kind):
            return [self.value(part, depth) for pair in value.items() for part in pair]
        return [self.value(part, depth) for part in value]

    def _register(self, number: int, value: Any) -> int:
        self._objects[number] = value
        self._numbers[id(value)] = number
        return number

    # Unpacking.

    def unpack(self, message: dict[str, Any]) -> Any:
        """Return the value of a message, and apply its changes. Raises :class:`MalformedError` for anything odd in it."""
        try:
            self._unpack_heap(message["heap"])
            return self.read(message["value"])
        except MalformedError:
            raise
        except Exception as error:  # whatever a forged message trips over is one and the same fault
            raise MalformedError(type(error).__name__) from error

    def _unpack_heap(self, heap: list[list[Any]]) -> None:
        for number, kind, _ in heap:
            if number in self._objects and _kind(self._objects[number]) != kind:
                raise MalformedError("a change of the wrong kind")
            if number not in self._objects and kind in _MUTABLE:
                self._register(number, _MUTABLE[kind]())
        for number, kind, contents in heap:
            if kind not in _MUTABLE:
                if number in self._objects:
                    raise MalformedError("a change of what cannot change")
                self._register(number, _IMMUTABLE[kind]([self.read(part) for part in contents]))
        for number, kind, contents in heap:
            if kind in _MUTABLE:
                self._received[number] = (kind, contents)
                _fill(self._objects[number], kind, [self.read(part) for part in contents])

    def read(self, packed: Any) -> Any:
        """Return what ``packed`` stands for."""
        if type(packed) is not list:
            if type(packed) is dict:
                raise MalformedError("an object is no value")
            return packed
        reader = _READERS.get(packed[0])
        return reader(self, *packed[1:]) if reader else self._ends.adopt(packed)


_SCALARS = frozenset({int, float, complex, str, bytes})


def _encodes(text: str) -> bool:
    """Return whether ``text`` holds no surrogate, which JSON would alter where two stand together."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _read_stdlib(exchange: Exchange, module: str, name: str, arguments: list[Any]) -> Any:
    if (module, name) not in _STDLIB:
        raise MalformedError("no such value")
    __import__(module)
    return getattr(sys.modules[module], name)(*map(exchange.read, arguments))


_READERS: dict[str, Callable[..., Any]] = {
    "ref": lambda exchange, number: exchange._objects[number],
    "int": lambda _, text: int(text, 16),
    "float": lambda _, text: float(text),
    "complex": lambda exchange, real, imag: complex(exchange.read(real), exchange.read(imag)),
    "str": lambda _, text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    "bytes": lambda _, text: bytes.fromhex(text),
    "range": lambda exchange, *parts: range(*map(exchange.read, parts)),
    "iterator": lambda exchange, items: iter(exchange.read(items)),
    "type": lambda _, module, name: _class(module, name),
    "stdlib": _read_stdlib,
}
