"""Messages: values as JSON, with the identity of their containers.

A message is ``{"value": V, "heap": [[number, kind, contents], ...]}``. Each container stands once in the heap and
values refer to it by number, so that aliases stay aliases and cycles end. ``V`` is null, a bool, a small int, a finite
float or a string as itself, and anything else a list that starts with a tag.
"""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.plain import (
    IMMUTABLE,
    MUTABLE,
    MalformedError,
    TooLargeError,
    class_tag,
    fill,
    kind_of,
    make_stdlib,
    parts_of,
    read_class,
    stdlib_parts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Ends(Protocol):
        """What decides about values that are not plain."""

        def export(self, value: Any, exchange: Exchange) -> list[Any]:
            """Return a tag for ``value``. Raises :class:`UncrossableError`."""

        def adopt(self, tag: list[Any]) -> Any:
            """Return what a tag of the other side stands for. Raises :class:`MalformedError`."""

        def not_a_number(self) -> float:
            """Return the NaN that stands for one of the other side."""


MAX_DEPTH = 100
"""Containers in containers: deeper than any honest value, shallow enough for every recursion here."""
MAX_NODES = 1_000_000
"""Values in one message."""
MAX_CHARACTERS = 16 * 1024 * 1024
"""Characters of text and bytes in one message, counted before they are copied: a list may name one text many times."""
_INLINE_INT = 2**63
_INFINITIES = (float("inf"), -float("inf"))
_SCALARS = frozenset({int, float, complex, str, bytes})


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
        """Return the message of ``value`` and of every change.

        Raises :class:`UncrossableError` or :class:`TooLargeError`.
        """
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
        kind = kind_of(value)
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
            if value - value == 0:
                return value
            return ["float", repr(value)] if value in _INFINITIES else ["nan"]
        if exact is complex:
            return ["complex", self.value(value.real), self.value(value.imag)]
        self._text(value)
        if exact is bytes:
            return ["bytes", value.hex()]
        return value if _is_unicode(value) else ["str", value.encode("utf-8", "surrogatepass").hex()]

    def _text(self, value: Any) -> Any:
        self._characters += len(value)
        if self._characters > MAX_CHARACTERS:
            raise TooLargeError("the value holds too much text")
        return value

    def _stdlib(self, value: Any) -> list[Any] | None:
        found = stdlib_parts(value)
        return ["stdlib", found[0], found[1], [self.value(part) for part in found[2]]] if found else None

    def _container(self, value: Any, kind: str, depth: int) -> int:
        """Return the number of a container. A new one is appended to the heap, after its parts."""
        known = self._numbers.get(id(value))
        if known is not None:
            return known
        number = self._register(len(self._objects), value)
        self._heap.append([number, kind, self._contents(value, kind, depth + 1)])
        return number

    def _contents(self, value: Any, kind: str, depth: int) -> list[Any]:
        return [self.value(part, depth) for part in parts_of(value, kind)]

    def _register(self, number: int, value: Any) -> int:
        self._objects[number] = value
        self._numbers[id(value)] = number
        return number

    # Unpacking.

    def unpack(self, message: dict[str, Any]) -> Any:
        """Return the value of a message, and apply its changes. Raises :class:`MalformedError` for anything odd."""
        try:
            self._unpack_heap(message["heap"])
            return self.read(message["value"])
        except Exception as error:  # whatever a forged message trips over is one and the same fault
            raise MalformedError(type(error).__name__) from error

    def changes(self, message: dict[str, Any]) -> bool:
        """Return whether a message changes containers that this side has sent. Raises :class:`MalformedError`."""
        try:
            return any(number in self._objects for number, _, _ in message["heap"])
        except Exception as error:
            raise MalformedError(type(error).__name__) from error

    def _unpack_heap(self, heap: list[list[Any]]) -> None:
        for number, kind, _ in heap:
            if number in self._objects and kind_of(self._objects[number]) != kind:
                raise MalformedError("a change of the wrong kind")
            if number not in self._objects and kind in MUTABLE:
                self._register(number, MUTABLE[kind]())
        for number, kind, contents in heap:
            if kind not in MUTABLE:
                if number in self._objects:
                    raise MalformedError("a change of what cannot change")
                self._register(number, IMMUTABLE[kind](self._read_all(contents)))
        for number, kind, contents in heap:
            if kind in MUTABLE:
                self._received[number] = (kind, contents)
                fill(self._objects[number], kind, self._read_all(contents))

    def _read_all(self, contents: list[Any]) -> list[Any]:
        return [self.read(part) for part in contents]

    def read(self, packed: Any) -> Any:
        """Return what ``packed`` stands for."""
        if type(packed) is not list:
            if type(packed) is dict or (type(packed) is float and packed - packed != 0):
                raise MalformedError("neither an object nor a bare NaN or infinity is a value")
            return packed
        tag, parts = packed[0], packed[1:]
        if tag == "ref":
            return self._objects[parts[0]]
        if tag in _READERS:
            return _READERS[tag](*parts)
        if tag in _COMPOSERS:
            return _COMPOSERS[tag](*self._read_all(parts))
        if tag == "stdlib":
            return make_stdlib(parts[0], parts[1], self._read_all(parts[2]))
        return self._ends.not_a_number() if tag == "nan" else self._ends.adopt(packed)


def _is_unicode(text: str) -> bool:
    """Return whether ``text`` holds no surrogate: JSON would make one character of two that stand together."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_READERS: dict[str, Callable[..., Any]] = {
    "int": lambda text: int(text, 16),
    "float": dict(zip(("inf", "-inf"), _INFINITIES)).__getitem__,  # noqa: B905 - "strict" came with Python 3.10
    "str": lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    "bytes": bytes.fromhex,
    "type": read_class,
}
"""From the parts of a tag, as they stand in the message."""
_COMPOSERS: dict[str, Callable[..., Any]] = {"complex": complex, "range": range, "iterator": iter}
"""From the values of a tag's parts."""
