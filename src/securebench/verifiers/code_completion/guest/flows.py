"""The tests' side: stand-ins for the candidate's iterators and coroutines, and requests to copy its objects."""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.peer import pair_of
from securebench.verifiers.code_completion.guest.plain import MalformedError
from securebench.verifiers.code_completion.guest.remote import OpaqueRemote, Remote, forwarded_attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from securebench.verifiers.code_completion.guest.remote import Candidate

MAX_ITEMS = 1_000_000
"""After this number of items, a candidate's iterator is not asked for more: an endless one must not hang the tests."""


def make_flow(peer: Candidate, number: int, trait: str) -> Any:
    """Return the stand-in for a coroutine, an iterator or an asynchronous iterator, as ``trait`` says.

    With any other trait, return the stand-in for an object.
    """
    if trait == "coroutine":
        return _coroutine(peer, number)
    return {"iterator": RemoteIterator, "asyncgen": RemoteAsyncIterator}.get(trait, OpaqueRemote)(peer, number)


async def _coroutine(peer: Candidate, number: int) -> Any:
    """Return the result of a coroutine of the candidate, which runs to its end on the candidate's side."""
    return peer.request("await", number)


class RemoteIterator(Remote):
    """An iterator of the candidate.

    Each request asks for as many items as the tests have used so far, but at least for one.
    """

    def __iter__(self) -> RemoteIterator:
        return self

    def __next__(self) -> Any:
        try:
            items = object.__getattribute__(self, "_securebench_items")
        except AttributeError:
            items = _items(self._securebench_peer, self._securebench_number)
            object.__setattr__(self, "_securebench_items", items)
        return next(items)


class RemoteAsyncIterator(Remote):
    """An asynchronous iterator of the candidate. Each item is awaited on the candidate's side."""

    def __aiter__(self) -> RemoteAsyncIterator:
        return self

    async def __anext__(self) -> Any:
        more, item = self._securebench_peer.request("anext", self._securebench_number)
        if more is not True:
            raise StopAsyncIteration
        return item


def copy(subject: Any, memo: Any) -> Any:
    """Request a copy of an object: a deep copy unless ``memo`` is ``None``.

    Raises :class:`UnsupportedError` for an object that is compared by its data. The candidate makes the copy, and could
    give it different data.
    """
    kind = type(subject)
    if getattr(kind, "_securebench_fields", ()) or getattr(kind, "_securebench_family", "object") != "object":
        raise subject._securebench_peer.notes.unsupported("copy")
    return subject._securebench_peer.request(
        "copy", subject._securebench_number, "deepcopy" if memo is not None else "copy"
    )


for _class in (RemoteIterator, RemoteAsyncIterator):
    for _name in ("__doc__", "__module__"):
        setattr(_class, _name, forwarded_attribute(_name))


def _items(peer: Candidate, number: int) -> Iterator[Any]:
    used, more = 0, True
    while more:
        if used >= MAX_ITEMS:
            raise OverflowError("the candidate's iterator has too many items, or does not end")
        items, more = _ask_items(peer, number, max(used, 1))
        used += len(items)
        yield from items


def _ask_items(peer: Candidate, number: int, count: int) -> tuple[list[Any], bool]:
    """Return the next items of an iterator, and whether there may be more.

    There is at least one item unless the iterator has ended.
    """
    try:
        items, more = pair_of(peer.request("next", number, count), list, bool)
    except MalformedError:
        peer.abandon("protocol")
    if more and not items:
        peer.abandon("protocol")
    return items, more
