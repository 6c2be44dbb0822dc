"""The tests' side: makes stand-ins of what the candidate describes (``shapes.py``), and serves what it is lent."""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.enums import make_enum
from securebench.verifiers.code_completion.guest.fields import give_state, remember_fields, subject_state
from securebench.verifiers.code_completion.guest.plain import MalformedError
from securebench.verifiers.code_completion.guest.shapes import CONTAINERS
from securebench.verifiers.code_completion.guest.subclasses import make_frozen, refill
from securebench.verifiers.code_completion.guest.twins import RemoteType, make_class, make_empty, take_anchor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from securebench.verifiers.code_completion.guest.codec import Exchange
    from securebench.verifiers.code_completion.guest.notes import Notes
    from securebench.verifiers.code_completion.guest.tests import JudgingPeer

_DATA = 2
"""Where the data of an object stands, after its number and class."""


def begin(peer: JudgingPeer, kind: str, contents: list[Any], exchange: Exchange) -> Any:
    """Return the stand-in for a class, or for an object without its data."""
    if kind == "class":
        return peer.keep(contents[0], make_class(peer, exchange.read_description(contents)))
    number: Any = contents[0]
    cls = exchange.read(contents[1])
    if not isinstance(cls, RemoteType):
        raise MalformedError("no object")
    if number not in peer.stand_ins:
        return peer.keep(number, give_state(make_empty(cls), number))
    known = peer.stand_ins[number]
    if id(type(known)) != id(cls):
        raise MalformedError("an object of two classes")
    return known


def finish(peer: JudgingPeer, kind: str, contents: list[Any], exchange: Exchange) -> Any:
    """Return the stand-in for an enumeration, a member of one, or an object that cannot change."""
    parts = exchange.read_all(contents)
    if kind == "enum":
        return peer.keep(parts[0], make_enum(peer, parts))
    if kind == "member":
        cls, name, value = parts
        if id(cls) not in peer.numbers or not hasattr(cls, "__members__"):
            raise MalformedError("no enumeration")
        return cls(value) if name is None else cls.__members__[name]
    number, cls, value = parts
    if kind != "frozen" or not isinstance(cls, RemoteType):
        raise MalformedError("no such kind")
    known = peer.stand_ins.get(number)
    return peer.keep(number, give_state(make_frozen(cls, value), number)) if known is None else known


def fill(peer: JudgingPeer, kind: str, stand_in: Any, contents: list[Any], exchange: Exchange) -> None:
    """Give a stand-in its data, and an exception of the candidate's own the number to ask for more."""
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
    """Return the tag of what stands for something of the candidate's."""
    if id(value) in numbers:
        take_anchor(value)
        return ["yours", numbers[id(value)]]
    kind = type(value)
    name = value._name_ if value._name_ in kind.__members__ else None
    return ["member", numbers[id(kind)], name, value._value_ if name is None else None]


def use_lent(notes: Notes, operation: str, subject: Any, value: Any) -> Any:
    """Read or set an attribute of an object of the tests, but none of Python's own and no method."""
    if operation == "refuse":
        raise notes.unsupported("own_operator")
    if operation == "text":
        return str(subject)
    if operation == "truth":
        return bool(subject)
    name, new = (value, None) if operation == "get" else value
    if operation not in ("get", "set") or type(name) is not str or name.startswith("_"):
        raise MalformedError("not an attribute")
    if operation == "get":
        return getattr(subject, name)
    if callable(getattr(type(subject), name, None)):
        raise AttributeError(f"{name} is a method")
    setattr(subject, name, new)
    return None
