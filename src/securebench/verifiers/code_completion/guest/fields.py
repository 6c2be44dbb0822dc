"""The tests' side: keeps the field values of the candidate's dataclass objects, and compares objects by them."""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.names import is_class_name
from securebench.verifiers.code_completion.guest.plain import KNOWN_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from securebench.verifiers.code_completion.guest.remote import Candidate

ORDER = ("__lt__", "__le__", "__gt__", "__ge__")


def fields_of(subject: Any) -> list[Any]:
    """Return the values of a dataclass object's fields, without the fields that its class does not compare."""
    kind = type(subject)
    values = zip(kind._securebench_fields, all_fields_of(subject))
    return [value for name, value in values if f"compare:{name}" in kind._securebench_flags]


def all_fields_of(subject: Any) -> list[Any]:
    """Return the values of all fields of a dataclass object. Raises :class:`UnsupportedError` if they are unreliable.

    At first, these are the values that came with the object, or those from which the tests built the object. Once the
    candidate may have changed the object, its values are requested from the candidate.
    """
    state = subject_state(subject)
    if state.get("_securebench_is_doubtful"):
        raise subject._securebench_peer.notes.unsupported("constructor")
    if state.get("_securebench_is_anchored") or state.get("_securebench_turns") == subject._securebench_peer.turns:
        values = state["_securebench_values"]
    else:
        values = _ask_fields(subject._securebench_peer, [subject._securebench_number])[0]
    if type(values) is not list or len(values) != len(type(subject)._securebench_fields):
        raise subject._securebench_peer.notes.unsupported("fields")
    return values


def settle_fields(peer: Candidate) -> None:
    """Request the fields of all dataclass objects that may have changed, before the tests build another object.

    In ``assert p == P(2)``, the expected value is built last. If the fields of ``p`` were requested after that, the
    candidate could return those of ``P(2)``.
    """
    doubtful = [
        stand_in
        for stand_in in peer.stand_ins.values()
        if "dataclass" in getattr(type(stand_in), "_securebench_flags", ())
        and "_securebench_is_anchored" not in subject_state(stand_in)
        and subject_state(stand_in).get("_securebench_turns") != peer.turns
    ]
    if doubtful:
        numbers = [stand_in._securebench_number for stand_in in doubtful]
        for stand_in, values in zip(doubtful, _ask_fields(peer, numbers)):
            remember_fields(stand_in, values)


def _ask_fields(peer: Candidate, numbers: list[int]) -> list[Any]:
    values = peer.request("fields", None, numbers)
    if type(values) is not list or len(values) != len(numbers):
        peer.abandon("protocol")
    return values


def give_state(stand_in: Any, number: int) -> Any:
    """Give a new stand-in its number and an empty state, and return it."""
    object.__setattr__(stand_in, "_securebench_number", number)
    object.__setattr__(stand_in, "_securebench_state", {})
    return stand_in


def remember_fields(stand_in: Any, values: Any) -> None:
    """Store the current values of the fields of a dataclass object."""
    state = subject_state(stand_in)
    state.update(_securebench_values=values, _securebench_turns=stand_in._securebench_peer.turns)


def subject_state(subject: Any) -> dict[str, Any]:
    """Return the dict in which the tests' side stores data about the stand-in ``subject``, such as its field values."""
    state: dict[str, Any] = object.__getattribute__(subject, "_securebench_state")
    return state


def fields_equal(self: Any, other: Any) -> Any:
    """Return whether two dataclass objects have equal fields. Raises :class:`UnsupportedError`.

    Returns ``NotImplemented`` if the objects have different classes.
    """
    if self is other and "_securebench_is_reused" not in subject_state(self):
        return True
    if type(self) is not type(other):
        return NotImplemented
    if tuple(fields_of(self)) != tuple(fields_of(other)):
        return False
    _require_given_fields(self, other)
    return True


def _require_given_fields(self: Any, other: Any, *, are_equal: bool = True) -> None:
    """Check the comparison of two objects if the tests gave values to fields of exactly one of them.

    A field is given if the tests passed its value as an argument or assigned it. The comparison must consider the given
    fields, but a class could exclude fields with wrong values from comparisons. So :class:`UnsupportedError` is raised
    in two cases:

    * The objects ``are_equal``, but a given field differs.
    * The objects are not equal, and the class does not compare any given field.
    """
    given = [subject_state(each).get("_securebench_given", ()) for each in (self, other)]
    if bool(given[0]) == bool(given[1]):
        return
    flags = type(self)._securebench_flags
    is_compared = any(f"compare:{name}" in flags for names in given for name in names)
    if _given_values(self, given) != _given_values(other, given) if are_equal else not is_compared:
        raise self._securebench_peer.notes.unsupported("constructor")


def _given_values(subject: Any, given: list[tuple[str, ...]]) -> list[Any]:
    """Return the values of those fields of ``subject`` whose names are in either of the two ``given`` tuples."""
    names = type(subject)._securebench_fields
    return [value for name, value in zip(names, all_fields_of(subject)) if name in given[0] or name in given[1]]


def fields_hash(self: Any) -> int:
    """Return the hash of an object of a frozen dataclass, computed from its fields."""
    return hash(tuple(fields_of(self)))


def fields_ordered(name: str) -> Any:
    """Return the method ``name``, one of :data:`ORDER`. It compares by fields, or raises ``UnsupportedError``."""

    def compare(self: Any, other: Any) -> Any:
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = tuple(fields_of(self)), tuple(fields_of(other))
        _require_given_fields(self, other, are_equal=mine == theirs)
        return getattr(tuple, name)(mine, theirs)

    return compare


class DataclassFields:
    """The attribute ``__dataclass_fields__`` of a stand-in for a dataclass: fields by name."""

    def __get__(self, _: Any, cls: Any) -> dict[str, Any]:
        import dataclasses

        if not all(map(is_class_name, cls._securebench_fields)):
            raise AttributeError("no fields")
        made: Any = dataclasses.make_dataclass("Fields", cls._securebench_fields)
        return dict(made.__dataclass_fields__)


def check_constructed(cls: Any, made: Any, positional: tuple[Any, ...], named: dict[str, Any], *, is_new: bool) -> None:
    """Check whether ``made``, which the tests got by calling ``cls``, contains the arguments of the call.

    * The fields of a dataclass object or named tuple must contain the arguments.
    * An object of a subclass of a plain type, such as ``list``, must equal the plain object built from the arguments.
    * Other objects are not checked.

    After a failed check, comparing ``made`` by value with another object of its class raises :class:`UnsupportedError`.
    ``is_new`` is false if the tests had the object ``made`` before the call.
    """
    if type(made) is not cls:
        return
    state = subject_state(made)
    if cls._securebench_fields or "eq" in cls._securebench_flags:
        given = [name[len("init:") :] for name in _sorted_flags(cls) if name.startswith("init:")]
        given = given or list(cls._securebench_fields)
        found: list[Any] = list(made) if isinstance(made, tuple) else state.get("_securebench_values", [])
        values = dict(zip(cls._securebench_fields, found))
        wanted = {**dict(zip(given, positional)), **named}
        state["_securebench_given"] = tuple(wanted)
        fits = len(positional) <= len(given) and all(
            name in values and _same(values[name], value) for name, value in wanted.items()
        )
    elif cls._securebench_family in KNOWN_TYPES and cls._securebench_family != "object":
        fits = _fits_plain(cls, made, positional, named)
    else:
        return
    # The fields of an anchored object are not requested until the candidate gets a chance to change the object.
    state["_securebench_is_anchored" if fits else "_securebench_is_doubtful"] = True
    if not fits and not is_new:
        # With this flag, even comparing a dataclass object with itself raises. Without the flag, a class that always
        # returns the same object could make P(3) == P(4) true.
        state["_securebench_is_reused"] = True


def _sorted_flags(cls: Any) -> list[str]:
    """Return the flags of a class. Its ``init:NAME`` flags are in the order of the fields."""
    fields = cls._securebench_fields
    return sorted(cls._securebench_flags, key=lambda flag: fields.index(name) if (name := flag[5:]) in fields else -1)


def _fits_plain(cls: Any, made: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> bool:
    plain: Any = KNOWN_TYPES[cls._securebench_family]
    try:
        return bool(plain.__eq__(made, plain(*positional, **named)))
    except Exception:  # noqa: BLE001 - the class takes other arguments
        return False


def _same(found: Any, given: Any) -> bool:
    return found is given or (type(found) is type(given) and bool(found == given))
