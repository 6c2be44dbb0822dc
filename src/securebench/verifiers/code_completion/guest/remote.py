"""What stands for a candidate's object among the tests."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, Protocol

    class Candidate(Protocol):
        """The way to the candidate."""

        def request(self, operation: str, target: Any, value: Any = None) -> Any:
            """Ask for an operation on an object."""

        def next_items(self, target: int, count: int) -> tuple[list[Any], bool]:
            """Return up to ``count`` more items of an iterator, and whether there may be more."""


MAX_ITEMS = 1_000_000
"""How many items of one iterator of the candidate may be used: an endless one must not be a way to hang the tests."""
_READABLE_DUNDERS = frozenset({"__name__", "__qualname__"})
"""Plain texts about an object. No other dunder is read: the rest are behaviour."""
_OPERATORS = (
    *("len", "iter", "contains", "getitem", "setitem", "delitem", "lt", "le", "gt", "ge", "enter", "exit"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "neg", "abs"),
    *("and", "or", "xor", "invert", "int", "float", "index", "complex", "round", "bytes"),
)


class Remote:
    """An object of the candidate: it can be called, its attributes read and set; it is true, and equal to itself.

    No operator reaches the candidate's class: an object that decides about its own equality would pass every test.
    """

    __slots__ = ("__weakref__", "_securebench_number", "_securebench_peer")

    def __init__(self, peer: Candidate, number: int) -> None:
        object.__setattr__(self, "_securebench_peer", peer)
        object.__setattr__(self, "_securebench_number", number)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call it."""
        return self._securebench_peer.request("call", self._securebench_number, (positional, named))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _READABLE_DUNDERS:
            raise AttributeError(f"{name} of a candidate's object is not forwarded to the tests")
        return self._securebench_peer.request("get", self._securebench_number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            raise AttributeError(f"{name} of a candidate's object cannot be set by the tests")
        self._securebench_peer.request("set", self._securebench_number, (name, value))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<candidate object {self._securebench_number}>"


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any) -> NoReturn:
        raise TypeError(
            f"__{name}__ of a candidate's object is not forwarded: an object that decides about operators could pass "
            "any test; compare plain values that its methods return, or ask for tests.isolation: shared"
        )

    return refuse


for _name in _OPERATORS:
    setattr(Remote, f"__{_name}__", _refuse(_name))


class RemoteIterator(Remote):
    """An iterator of the candidate. Items come in batches that grow, never more ahead than were used already."""

    __slots__ = ("_securebench_items",)

    def __init__(self, peer: Candidate, number: int) -> None:
        super().__init__(peer, number)
        object.__setattr__(self, "_securebench_items", _items(peer, number))

    def __iter__(self) -> RemoteIterator:
        return self

    def __next__(self) -> Any:
        return next(self._securebench_items)


def _items(peer: Candidate, number: int) -> Iterator[Any]:
    used, more = 0, True
    while more:
        if used >= MAX_ITEMS:
            raise OverflowError("the candidate's iterator does not end")
        items, more = peer.next_items(number, max(used, 1))
        used += len(items)
        yield from items


def exception_class(name: str, bases: list[Any]) -> type:
    """Return a class that tests can catch for a class of exceptions that the candidate defines."""
    known = tuple(base for base in bases if isinstance(base, type) and issubclass(base, Exception))
    return type(name, known or (Exception,), {"__module__": "candidate"})
