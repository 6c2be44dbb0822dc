"""The tests' side: makes stand-ins for the candidate's objects, and lends objects of the tests to the candidate.

The stand-ins are made from descriptions that the candidate's side sends (``shapes.py``).
"""

from __future__ import annotations

import sys
from itertools import islice

from securebench.verifiers.code_completion.guest.enums import make_enum
from securebench.verifiers.code_completion.guest.fields import give_state, remember_fields, subject_state
from securebench.verifiers.code_completion.guest.peer import name_of
from securebench.verifiers.code_completion.guest.plain import MalformedError, UncrossableError
from securebench.verifiers.code_completion.guest.shapes import CONTAINERS
from securebench.verifiers.code_completion.guest.subclasses import make_frozen, refill
from securebench.verifiers.code_completion.guest.twins import RemoteType, make_class, make_empty, note_possible_change

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from securebench.verifiers.code_completion.guest.codec import Exchange
    from securebench.verifiers.code_completion.guest.notes import Notes
    from securebench.verifiers.code_completion.guest.tests import JudgingPeer

_ITEMS = 1000
"""Items of the tests' iterators are sent in portions of this size."""
_DATA = 2
"""The index of the data in an object's description. Before it are the object's number and class."""


def begin(peer: JudgingPeer, kind: str, contents: list[Any], exchange: Exchange) -> Any:
    """Return the stand-in for a class or an object. A new stand-in for an object has no data yet."""
    if kind == "class":
        return peer.keep(contents[0], make_class(peer, exchange.read_description(contents)))
    number: Any = contents[0]
    cls = exchange.read(contents[1])
    if not isinstance(cls, RemoteType):
        raise MalformedError("the class of the object is not a class of the candidate")
    if number not in peer.stand_ins:
        return peer.keep(number, give_state(make_empty(cls), number))
    known = peer.stand_ins[number]
    if id(type(known)) != id(cls):
        raise MalformedError("the object had another class before")
    return known


def finish(peer: JudgingPeer, kind: str, contents: list[Any], exchange: Exchange) -> Any:
    """Return the stand-in for an enumeration, a member of an enumeration, or an object that cannot change."""
    parts = exchange.read_all(contents)
    if kind == "enum":
        return peer.keep(parts[0], make_enum(peer, parts))
    if kind == "member":
        cls, name, value = parts
        if id(cls) not in peer.numbers or not hasattr(cls, "__members__"):
            raise MalformedError("the class of the member is not an enumeration")
        return cls(value) if name is None else cls.__members__[name]
    number, cls, value = parts
    if kind != "frozen" or not isinstance(cls, RemoteType):
        raise MalformedError("unknown kind of object")
    known = peer.stand_ins.get(number)
    return peer.keep(number, give_state(make_frozen(cls, value), number)) if known is None else known


def fill(peer: JudgingPeer, kind: str, stand_in: Any, contents: list[Any], exchange: Exchange) -> None:
    """Set the data of a stand-in. For an exception, set only the number that identifies it in requests for attributes.

    While a ``make`` request is pending, new data for an object that already has data is ignored.
    """
    if kind == "error":
        if type(contents[-1]) is int:
            vars(stand_in)["_securebench_own_number"] = contents[-1]
    elif kind == "mine" and len(contents) > _DATA:
        number, data = contents[0], exchange.read(contents[_DATA])
        if peer.is_making and (number in peer.live or "_securebench_values" in subject_state(stand_in)):
            return
        if type(stand_in)._securebench_family in CONTAINERS:
            refill(stand_in, data)
            peer.live[number] = stand_in
        else:
            remember_fields(stand_in, data)


def own_tag(value: Any, numbers: dict[int, int]) -> list[Any]:
    """Return the tag of ``value``, a stand-in for an object of the candidate, such as an enumeration's member."""
    if id(value) in numbers:
        note_possible_change(value)
        return ["yours", numbers[id(value)]]
    kind = type(value)
    name = value._name_ if value._name_ in kind.__members__ else None
    return ["member", numbers[id(kind)], name, value._value_ if name is None else None]


def lend(peer: JudgingPeer, value: Any, exchange: Exchange) -> list[Any]:
    """Return the tag of an iterator or another object of the tests. Raises :class:`UncrossableError`.

    The first items of an iterator are sent with its tag. Further items are sent on request, because the iterator may be
    endless. The lines of a file are sent only on request.
    """
    kind = type(value)
    trait = "iterator" if hasattr(kind, "__next__") else "object"
    if trait == "iterator" and not _is_file(kind):
        items = list(islice(value, _ITEMS))
        if len(items) < _ITEMS:
            return ["iterator", exchange.value(items)]
        return ["chain", exchange.value(items), _lent(peer, value, trait)]
    if kind in (object, getattr(sys.modules.get("random"), "Random", None)) or kind.__module__ in ("__main__", "_io"):
        return _lent(peer, value, trait)
    raise UncrossableError(str(peer.notes.unsupported("argument")))


def _lent(peer: JudgingPeer, value: Any, trait: str) -> list[Any]:
    number = peer.number_of(value)
    peer.lent.add(number)
    return ["lent", number, name_of(type(value)), trait]


def _is_file(kind: type) -> bool:
    return kind.__module__ == "_io"


def use_lent(notes: Notes, operation: str, subject: Any, value: Any) -> Any:
    """Perform an operation of the candidate on an object of the tests, and return the result.

    The candidate can neither use attributes that begin with an underscore nor replace methods. ``next`` returns the
    next items of an iterator, or an empty list at its end. A file returns one line at a time.
    """
    if operation == "refuse":
        raise notes.unsupported("own_operator")
    if operation == "text":
        return str(subject)
    if operation == "truth":
        return bool(subject)
    if operation == "next" and hasattr(type(subject), "__next__"):
        return list(islice(subject, 1 if _is_file(type(subject)) else _ITEMS))
    name, new = (value, None) if operation == "get" else value
    if operation not in ("get", "set") or type(name) is not str or name.startswith("_"):
        raise MalformedError("the operation or attribute is not allowed")
    if operation == "get":
        return getattr(subject, name)
    if callable(getattr(type(subject), name, None)):
        raise AttributeError(f"cannot replace the method {name}")
    setattr(subject, name, new)
    return None
