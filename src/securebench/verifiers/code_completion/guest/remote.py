"""The tests' side: stand-ins for objects of the candidate."""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.names import catches_failures
from securebench.verifiers.code_completion.guest.notes import BROAD_EXCEPTION
from securebench.verifiers.code_completion.guest.operators import OPERATORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol

    from securebench.verifiers.code_completion.guest.notes import Notes

    class Candidate(Protocol):
        """The connection to the candidate."""

        notes: Notes
        turns: int
        stand_ins: dict[int, Any]

        def request(self, operation: str, target: Any, value: Any = None) -> Any:
            """Request an operation on an object, and return its result."""

        def abandon(self, why: str) -> NoReturn:
            """End the judgement with the outcome ``why``."""

        def ask_text(self, target: int, function: str, member: str = "") -> str:
            """Return ``str()`` or ``repr()`` of a candidate's object, or ``str()`` of an enumeration's member."""

        def operate(self, target: int, name: str, arguments: tuple[Any, ...]) -> Any:
            """Return the result of an operator on an object, or ``NotImplemented`` if its class does not support it."""


READABLE_DUNDERS = frozenset(
    {
        "__name__",
        "__qualname__",
        "__doc__",
        "__module__",
        "__annotations__",
        "__defaults__",
        "__kwdefaults__",
        "__dict__",
    }
)
"""Special attributes that are plain data. :func:`get_attribute` refuses all others, because they may be code."""


class Remote:
    """A stand-in for an object of the candidate. It can be called, and its attributes can be read and set.

    It is equal only to itself. ``twins.py`` adds operators for objects of the candidate's own classes.
    """

    def __init__(self, peer: Candidate, number: int) -> None:
        object.__setattr__(self, "_securebench_peer", peer)
        object.__setattr__(self, "_securebench_number", number)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call the candidate's object, and return the result."""
        return self._securebench_peer.request("call", self._securebench_number, (positional, named))

    def __getattr__(self, name: str) -> Any:
        return get_attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        set_attribute(self, name, value)

    def __bool__(self) -> bool:
        return True

    def __copy__(self) -> Any:
        return self.__deepcopy__(None)

    def __deepcopy__(self, memo: Any) -> Any:
        from securebench.verifiers.code_completion.guest.flows import copy

        return copy(self, memo)

    def __str__(self) -> str:
        return str(self._securebench_peer.ask_text(self._securebench_number, "str"))

    def __repr__(self) -> str:
        return str(self._securebench_peer.ask_text(self._securebench_number, "repr"))

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return self._securebench_peer.request("get", self._securebench_number, "__dict__")

    @property
    def __signature__(self) -> Any:
        from securebench.verifiers.code_completion.guest.shapes import read_signature

        return read_signature(self._securebench_peer.request("signature", self._securebench_number))


def get_attribute(subject: Any, name: str) -> Any:
    """Return an attribute of an object or a class of the candidate, as the candidate's side returns it.

    If the attribute has a capitalized name and is an exception class that would catch failed asserts, this notes a
    rejection and raises ``TypeError``.
    """
    if name.startswith("_securebench") or (name.startswith("__") and name not in READABLE_DUNDERS):
        raise AttributeError(f"{name} of a candidate's object is not forwarded to the tests")
    peer = subject._securebench_peer
    value = peer.request("get", subject._securebench_number, name)
    if type(value) in (list, dict, set):
        from securebench.verifiers.code_completion.guest.hints import watch

        watch(peer.notes, value)
    if name[:1].isupper() and catches_failures(value):
        peer.notes.reject(BROAD_EXCEPTION)
        raise TypeError(f"the candidate's {name} would catch failed asserts: it is AssertionError or a base of it")
    return value


def set_attribute(subject: Any, name: str, value: Any) -> None:
    """Set an attribute of an object or a class on the candidate's side."""
    if name.startswith("__"):
        raise AttributeError(f"{name} of a candidate's object cannot be set by the tests")
    subject._securebench_peer.request("set", subject._securebench_number, (name, value))


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Remote, *_: Any) -> NoReturn:
        raise self._securebench_peer.notes.unsupported("operator")

    refuse.__name__ = name
    return refuse


def forwarded_attribute(name: str) -> property:
    """Return a property that requests the attribute ``name`` of the candidate's object."""
    return property(lambda self: self._securebench_peer.request("get", self._securebench_number, name))


class OpaqueRemote(Remote):
    """A stand-in for an object whose class has no stand-in, such as a function.

    It supports ``==``, ``!=``, ``bool()`` and conversion to text, and refuses all other operators.
    """


for _name in OPERATORS - {
    "__bool__",
    "__eq__",
    "__str__",
    "__repr__",
    "__format__",
    "__next__",
    "__anext__",
    "__missing__",
}:
    setattr(OpaqueRemote, _name, _refuse(_name))


for _class in (Remote, OpaqueRemote):
    for _name in ("__doc__", "__module__"):
        setattr(_class, _name, forwarded_attribute(_name))
