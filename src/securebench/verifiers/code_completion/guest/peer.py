"""Requests and replies between the two sides. Before a side replies, it may send requests to the other side.

The sides take strict turns: the side that has read a frame writes the next frame. So the host can relay frames without
parsing them, and threads need only one lock.
"""

from __future__ import annotations

from _thread import RLock

from securebench.verifiers.code_completion.guest.codec import Exchange
from securebench.verifiers.code_completion.guest.plain import (
    MalformedError,
    UncrossableError,
    ValueTooLargeError,
    class_tag,
)
from securebench.verifiers.code_completion.guest.wire import REPLY, REQUEST, FrameTooLargeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from securebench.verifiers.code_completion.guest.wire import Wire

MAX_EXPORTS = 100_000
"""The maximum number of one side's objects that the other side may refer to. They stay alive until the process ends."""
_LONGEST_NAME = 200


class Peer:
    """One side of the channel. It sends requests (:meth:`request`), and answers requests (:meth:`serve`).

    The sides differ in the operations that they allow (:meth:`perform`), in how they convert objects that are not plain
    data (:meth:`export`, :meth:`adopt`), and in how they give up (:meth:`abandon`).
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._lock = RLock()
        self._serial = 0
        self._exports: list[Any] = []
        self._export_numbers: dict[int, int] = {}

    # Methods in which the sides differ.

    def perform(self, operation: str, target: Any, value: Any) -> Any:
        """Perform an operation for the other side. Return its result or raise its error."""
        raise NotImplementedError

    def export(self, value: Any, exchange: Exchange, /) -> list[Any]:
        """Return a tag for a value that is not plain. Raises :class:`UncrossableError`."""
        raise NotImplementedError

    def adopt(self, tag: list[Any]) -> Any:
        """Return the object that a tag refers to. This class accepts only references to objects of this side."""
        _, number = tag
        if tag[0] != "yours":
            raise MalformedError("unknown tag")
        return self.exported(number)

    def abandon(self, why: str) -> NoReturn:
        """Report that this side cannot continue, and exit the process in a way that no code in it can catch."""
        raise NotImplementedError

    def before_changes(self) -> Callable[[], None] | None:
        """Prepare for a reply that changes objects of this side. Return a function to call afterwards, or ``None``."""

    def received_class(self, found: type) -> type:
        """Return the class to use for the builtin class ``found``, which the other side has sent by name."""
        return found

    def not_a_number(self) -> float:
        """Return the float that stands for a NaN that the other side has sent."""
        return float("nan")

    # Sending requests.

    def request(self, operation: str, target: Any, value: Any = None) -> Any:
        """Send a request to the other side, and return its result or raise its error.

        Raises :class:`UncrossableError` or :class:`ValueTooLargeError` if ``value`` cannot be sent.
        """
        with self._lock:
            exchange = Exchange(self)
            message = self._pack(exchange, value)
            self._serial += 1
            serial = self._serial
            self._write(REQUEST, {"id": serial, "do": operation, "on": target, **message})
            self.sent(arrives=True)
            try:
                reply = self._await_reply(serial)
                done = self.before_changes() if exchange.changes(reply) else None
                result = exchange.unpack(reply)
                if done is not None:
                    done()
            except MalformedError:
                self.abandon("protocol")
        if reply.get("error") and not isinstance(result, Exception):
            self.abandon("protocol")
        if reply.get("error"):
            from securebench.verifiers.code_completion.guest.errors import to_raise

            raise to_raise(result)
        return result

    def _await_reply(self, serial: int) -> dict[str, Any]:
        while True:
            kind, message = self.read()
            if kind == REQUEST:
                self.serve(message)
            elif kind == REPLY and message.get("id") == serial:
                return message
            else:
                raise MalformedError("a reply without a request")

    def sent(self, *, arrives: bool) -> None:
        """Record whether the last message was sent. ``arrives`` is false if the message could not be packed."""

    # Answering requests.

    def serve(self, message: dict[str, Any]) -> None:
        """Answer one request."""
        exchange = Exchange(self)
        failed = False
        try:
            value = exchange.unpack(message)
            result = self.perform(str(message.get("do")), message.get("on"), value)
        except MalformedError:
            self.abandon("protocol")
        except Exception as error:  # noqa: BLE001 - any error of a call is its answer
            failed = True
            result = error
        self._write(REPLY, {"id": message.get("id"), **self._pack_reply(exchange, result, failed=failed)})
        self.sent(arrives=True)

    def _pack(self, exchange: Exchange, value: Any) -> dict[str, Any]:
        try:
            return exchange.pack(value)
        except (UncrossableError, ValueTooLargeError):
            self.sent(arrives=False)
            raise

    def _pack_reply(self, exchange: Exchange, result: Any, *, failed: bool) -> dict[str, Any]:
        try:
            return {**self._pack(exchange, result), "error": failed}
        except ValueTooLargeError:
            self.abandon("too_large")
        except UncrossableError as error:
            return {**Exchange(self).pack(error), "error": True}

    # Values that get a stand-in on the other side. In this class, these are exceptions. Subclasses add the objects and
    # classes of the candidate.

    def shape_of(self, value: Any) -> tuple[str, list[Any]] | None:
        """Return the kind ``"error"`` and the parts of an exception; ``None`` for other values."""
        if not isinstance(value, Exception):
            return None
        return "error", self.parts_of_error(value)

    def parts_of_error(self, error: Exception) -> list[Any]:
        """Return the parts of an exception of this side."""
        from securebench.verifiers.code_completion.guest.errors import parts_of_error

        return parts_of_error(error, self.error_class(type(error)))

    def error_class(self, kind: type) -> type:
        """Return the first class in the MRO of ``kind`` that both sides have."""
        return next(each for each in kind.__mro__ if type(each) is type and class_tag(each))

    def begin(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
        """Return a stand-in whose parts are set later.

        Returns ``None`` if the parts must be known first. :meth:`finish` then makes the stand-in.
        """

    def finish(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
        """Return a stand-in that is made from the parts in ``contents``. Raises :class:`MalformedError`."""
        if kind != "error":
            raise MalformedError("unknown kind of stand-in")
        from securebench.verifiers.code_completion.guest.errors import make_error

        return make_error(exchange.read_description(contents[:5]))

    def fill(self, kind: str, stand_in: Any, contents: list[Any], exchange: Exchange) -> None:
        """Set the attributes of the exception ``stand_in``.

        Raises :class:`MalformedError` if ``kind`` is not ``"error"``.
        """
        if kind != "error":
            raise MalformedError("unknown kind of stand-in")
        from securebench.verifiers.code_completion.guest.errors import give_attributes

        give_attributes(stand_in, exchange.read(contents[2]))

    # Objects of this side.

    def number_of(self, value: Any) -> int:
        """Return the permanent number of an object of this side. Raises :class:`ValueTooLargeError`."""
        number = self._export_numbers.get(id(value))
        if number is None:
            number = len(self._exports)
            if number >= MAX_EXPORTS:
                raise ValueTooLargeError("the other side refers to too many objects")
            self._exports.append(value)
            self._export_numbers[id(value)] = number
        return number

    def exported(self, number: Any) -> Any:
        """Return the object with this number. Raises :class:`MalformedError`."""
        if type(number) is not int or not 0 <= number < len(self._exports):
            raise MalformedError("no object has this number")
        return self._exports[number]

    # Frames. When this side reads an invalid frame, it ends its process.

    def read(self) -> tuple[bytes, dict[str, Any]]:
        """Return the type and payload of the next frame."""
        try:
            kind, message = self.wire.read()
        except (ValueError, RecursionError):
            self.abandon("protocol")
        if type(message) is not dict:
            self.abandon("protocol")
        return kind, message

    def _write(self, kind: bytes, message: dict[str, Any]) -> None:
        try:
            self.wire.write(kind, message)
        except FrameTooLargeError:
            self.abandon("too_large")


def pair_of(value: Any, first: type, second: type) -> tuple[Any, Any]:
    """Return ``value`` if it is a tuple of these two exact types. Raises :class:`MalformedError`."""
    if type(value) is tuple and tuple(map(type, value)) == (first, second):
        return value
    raise MalformedError("not a pair of the expected types")


def name_of(value: Any) -> str:
    """Return the ``__name__`` of a callable, or an empty string."""
    name = getattr(value, "__name__", "")
    return name[:_LONGEST_NAME] if type(name) is str else ""
