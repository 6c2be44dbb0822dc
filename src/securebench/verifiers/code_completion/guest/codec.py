"""Encode values as JSON messages that preserve the identity of containers.

A message is ``{"value": V, "heap": [[number, kind, contents], ...]}``. Each container is in the heap once, and values
refer to it by number, so that aliases are preserved and cycles are finite. ``V`` is null, a bool, a small int, a finite
float or a string without surrogates. Any other value is encoded as a list that starts with a tag.
"""

from __future__ import annotations

from itertools import chain

from securebench.verifiers.code_completion.guest.plain import (
    IMMUTABLE,
    MalformedError,
    ValueTooLargeError,
    class_tag,
    empty_container,
    fill,
    kind_of,
    may_be_stdlib,
    parts_of,
    read_class,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    class Ends(Protocol):
        """How one side of the channel converts values that are not plain."""

        def shape_of(self, value: Any) -> tuple[str, list[Any]] | None:
            """Return kind and parts of a value that gets a stand-in on the other side; ``None`` for other values."""

        def export(self, value: Any, exchange: Exchange, /) -> list[Any]:
            """Return a tag for ``value``. Raises :class:`UncrossableError`."""

        def begin(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
            """Return a stand-in whose parts are set later.

            Returns ``None`` if the parts must be known first. :meth:`finish` then makes the stand-in.
            """

        def finish(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
            """Return a stand-in that is made from the parts in ``contents``. Raises :class:`MalformedError`."""

        def fill(self, kind: str, stand_in: Any, contents: list[Any], exchange: Exchange) -> None:
            """Set the parts of a stand-in that were missing when it was made."""

        def adopt(self, tag: list[Any]) -> Any:
            """Return the object that a tag of the other side refers to. Raises :class:`MalformedError`."""

        def received_class(self, found: type) -> type:
            """Return the class to use for a builtin class that the other side has sent by name."""

        def not_a_number(self) -> float:
            """Return the float that stands for a NaN that the other side has sent."""


MAX_DEPTH = 500
"""The maximum nesting depth of containers. Python itself can compare and print containers of this depth."""
_MAX_TAG_DEPTH = 20
"""The maximum nesting depth of objects of standard library classes. They are packed recursively."""
MAX_NODES = 1_000_000
"""The maximum number of values in one message."""
MAX_CHARACTERS = 16 * 1024 * 1024
"""The maximum total length of the strings, bytes objects and very large ints in one message.

A repeated value counts each time.
"""
_INLINE_INT = 2**63
_INFINITIES = (float("inf"), -float("inf"))
_CONTAINER: Any = object()
_SCALARS = frozenset({int, float, complex, str, bytes})


class Exchange:
    """A message and its answer. Both identify a container, such as a list, by the same number.

    The answer also contains the contents of those mutable containers of the message that have changed since. The side
    that sent the message copies these contents into its original objects.
    """

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._received: dict[int, tuple[str, list[Any]]] = {}
        self._heap: list[list[Any]] = []
        self._shapes: dict[int, tuple[str, list[Any]]] = {}
        self._depth = 0
        self._nodes = 0
        self._characters = 0

    # Packing.

    def pack(self, value: Any) -> dict[str, Any]:
        """Return a message with ``value``, and with each mutable container from the other side that was changed.

        Raises :class:`UncrossableError` or :class:`ValueTooLargeError`.
        """
        self._heap = []
        packed = self.value(value)
        for number, (kind, before) in self._received.items():
            contents = [self.value(part) for part in parts_of(self._objects[number], kind)]
            if repr(contents) != repr(before):  # as text, because True, 1 and 1.0 are equal but differ
                self._heap.append([number, kind, contents])
        return {"value": packed, "heap": self._heap}

    def value(self, value: Any) -> Any:
        """Encode ``value`` for a message. A container, such as a list, becomes a reference to its number in the heap.

        Containers that the other side does not know yet are added to the heap.
        """
        leaf = self._leaf(value)
        if leaf is not _CONTAINER:
            return leaf
        known = self._numbers.get(id(value))
        if known is not None:
            return ["ref", known]
        packed = ["ref", len(self._objects)]
        pending = [self._open(value, 1)]
        while pending:
            number, kind, parts, contents = pending[-1]
            for part in parts:
                leaf = self._leaf(part)
                if leaf is _CONTAINER:
                    known = self._numbers.get(id(part))
                    contents.append(["ref", len(self._objects) if known is None else known])
                    if known is None:
                        pending.append(self._open(part, len(pending) + 1))
                        break
                else:
                    contents.append(leaf)
            else:
                pending.pop()
                # A container follows its parts, because the other side makes immutable containers from their parts.
                self._heap.append([number, kind, contents])
        return packed

    def _open(self, value: Any, depth: int) -> tuple[int, str, Iterator[Any], list[Any]]:
        """Assign a number to a container.

        Return the number, the container's kind and parts, and a list for the encoded parts.
        """
        if depth > MAX_DEPTH:
            raise ValueTooLargeError("the value is nested too deeply")
        number = self._register(len(self._objects), value)
        kind = kind_of(value)
        if kind is not None:
            return number, kind, iter(parts_of(value, kind)), []
        kind, parts = self._shapes.pop(id(value))
        return number, kind, iter(parts), []

    def _leaf(self, value: Any) -> Any:
        """Return the encoding of a value that is not a container, else ``_CONTAINER``."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise ValueTooLargeError("the value has too many parts")
        exact = type(value)
        if value is None or exact is bool:
            return value
        if exact in _SCALARS:
            return self._scalar(value, exact)
        if kind_of(value) is not None or id(value) in self._numbers:
            return _CONTAINER
        if exact is range:
            return ["range", *(self.value(part) for part in (value.start, value.stop, value.step))]
        tag = class_tag(value) if exact is type else None
        return tag or self._stdlib(value) or self._encode_object(value)

    def _encode_object(self, value: Any) -> Any:
        shape = self._ends.shape_of(value)
        if shape is None:
            return self._ends.export(value, self)
        self._shapes[id(value)] = shape
        return _CONTAINER

    def _scalar(self, value: Any, exact: type) -> Any:
        if exact is int:
            # The digits of a large int count towards MAX_CHARACTERS.
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
        return value if value.isascii() or _is_unicode(value) else ["str", value.encode("utf-8", "surrogatepass").hex()]

    def _text(self, value: Any) -> Any:
        self._characters += len(value)
        if self._characters > MAX_CHARACTERS:
            raise ValueTooLargeError("the value holds too much text")
        return value

    def _stdlib(self, value: Any) -> list[Any] | None:
        if not may_be_stdlib(type(value)):
            return None
        from securebench.verifiers.code_completion.guest.values import stdlib_parts

        found = stdlib_parts(value)
        if found is None:
            return None
        self._depth += 1
        if self._depth > _MAX_TAG_DEPTH:
            raise ValueTooLargeError("the value is nested too deeply")
        packed = [self.value(part) for part in found[2]]
        self._depth -= 1
        return ["stdlib", found[0], found[1], packed]

    def _register(self, number: int, value: Any) -> int:
        self._objects[number] = value
        self._numbers[id(value)] = number
        return number

    # Unpacking.

    def unpack(self, message: dict[str, Any]) -> Any:
        """Return the value of a message, and apply its changes. Raises :class:`MalformedError` if it is invalid."""
        try:
            self._unpack_heap(message["heap"])
            return self.read(message["value"])
        except Exception as error:  # any error here means that the message is invalid
            raise MalformedError(type(error).__name__) from error

    def changes(self, message: dict[str, Any]) -> bool:
        """Return whether the answer ``message`` has new contents for a list or other container of the request.

        Raises :class:`MalformedError`.
        """
        try:
            return any(number in self._objects for number, _, _ in message["heap"])
        except Exception as error:
            raise MalformedError(type(error).__name__) from error

    def _unpack_heap(self, heap: list[list[Any]]) -> None:
        """Make the objects of a message. Objects that can be filled later, such as lists, are made empty first."""
        begun: list[tuple[int, str, list[Any]]] = []
        for number, kind, contents in heap:
            known = self._objects.get(number)
            if known is not None and (kind_of(known) != kind or kind in IMMUTABLE):
                raise MalformedError("a change of the wrong kind, or of an immutable object")
            if known is None:
                empty = empty_container(kind)
                self._begin(number, self._ends.begin(kind, contents, self) if empty is None else empty)
        for number, kind, contents in heap:
            if number in self._objects:
                begun.append((number, kind, contents))
            elif kind in IMMUTABLE:
                self._register(number, IMMUTABLE[kind](self.read_all(contents)))
            else:
                self._register(number, self._ends.finish(kind, contents, self))
                begun.append((number, kind, contents))
        for number, kind, contents in begun:
            if kind_of(self._objects[number]) == kind:
                self._received[number] = (kind, contents)
                fill(self._objects[number], kind, self.read_all(contents))
            else:
                self._ends.fill(kind, self._objects[number], contents, self)

    def _begin(self, number: int, made: Any) -> None:
        if made is not None:
            self._register(number, made)

    def read_all(self, contents: list[Any]) -> list[Any]:
        """Decode each of ``contents``."""
        return [self.read(part) for part in contents]

    def read_description(self, contents: list[Any]) -> list[Any]:
        """Decode each part of a description. Unlike :meth:`read`, this does not replace builtin classes."""
        return [
            read_class(*part[1:]) if type(part) is list and part[0] == "type" else self.read(part) for part in contents
        ]

    def read(self, packed: Any) -> Any:
        """Decode one value of a message."""
        if type(packed) is not list:
            if type(packed) is dict or (type(packed) is float and packed - packed != 0):
                raise MalformedError("a value must not be a JSON object, NaN or Infinity")
            return packed
        tag, parts = packed[0], packed[1:]
        if tag == "ref":
            return self._objects[parts[0]]
        if tag in _READERS:
            return _READERS[tag](*parts)
        if tag in _COMPOSERS:
            return _COMPOSERS[tag](*self.read_all(parts))
        return self._read_special(tag, packed)

    def _read_special(self, tag: str, packed: list[Any]) -> Any:
        """Decode an instance of a standard-library class, or a tag that :class:`Ends` resolves."""
        if tag == "stdlib":
            from securebench.verifiers.code_completion.guest.values import make_stdlib

            return make_stdlib(packed[1], packed[2], self.read_all(packed[3]))
        if tag == "type":
            return self._ends.received_class(read_class(*packed[1:]))
        return self._ends.not_a_number() if tag == "nan" else self._ends.adopt(packed)


def _is_unicode(text: str) -> bool:
    """Return whether ``text`` has no surrogates. JSON would merge two adjacent surrogates into one character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_READERS: dict[str, Callable[..., Any]] = {
    "int": lambda text: int(text, 16),
    "float": dict(zip(("inf", "-inf"), _INFINITIES)).__getitem__,
    "str": lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    "bytes": bytes.fromhex,
}
"""For each tag, the function that makes the value from its encoded parts."""
_COMPOSERS: dict[str, Callable[..., Any]] = {"complex": complex, "range": range, "iterator": iter, "chain": chain}
"""For each tag, the function that makes the value from its decoded parts."""
