"""The tests' side: stand-ins for the candidate's classes and their objects.

For each class of the candidate, this side makes a class with the same name and bases, so that ``isinstance``,
``issubclass``, ``type`` and ``except`` are evaluated on this side. These classes contain no code of the candidate.
Comparisons use copied plain data. Other operators that a class of the candidate defines are forwarded to the candidate
if the tests use the name of the class or of one of its bases. Otherwise, these operators are refused, because they
could fake a comparison. The operators that a ``with`` statement uses always work.
"""

from __future__ import annotations

from itertools import islice

from securebench.verifiers.code_completion.guest.fields import (
    ORDER,
    DataclassFields,
    check_constructed,
    fields_equal,
    fields_hash,
    fields_ordered,
    settle_fields,
    subject_state,
)
from securebench.verifiers.code_completion.guest.flows import RemoteIterator
from securebench.verifiers.code_completion.guest.names import is_class_name
from securebench.verifiers.code_completion.guest.operators import OPERATORS
from securebench.verifiers.code_completion.guest.plain import KNOWN_TYPES, MalformedError
from securebench.verifiers.code_completion.guest.remote import (
    Remote,
    get_attribute,
    set_attribute,
)
from securebench.verifiers.code_completion.guest.shapes import CONTAINERS, FROZEN, read_signature
from securebench.verifiers.code_completion.guest.subclasses import plain_methods

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from securebench.verifiers.code_completion.guest.remote import Candidate

_NEVER_FORWARDED = frozenset(
    {"__eq__", *ORDER, "__str__", "__repr__", "__exit__", "__next__", "__aiter__", "__anext__"}
)
_BLOCKS = frozenset({"__enter__", "__aenter__", "__aexit__"})
"""Operators that a ``with`` statement uses. They work even if the tests do not name the object's class.

If the tests do not name the class, all other forwarded operators are refused, because they could fake a comparison. A
``with`` statement compares nothing.
"""
_MAX_NAMES = 1000


class RemoteType(type):
    """The metaclass of the stand-ins for classes.

    Calling such a class, or using its attributes, usually sends a request to the candidate's side.
    """

    def __new__(cls, _name: str, bases: tuple[type, ...], _namespace: dict[str, Any], **_: Any) -> Any:
        """Refuse a subclass that the tests define, because the candidate's side could not make its objects."""
        known: Any = next(base for base in bases if isinstance(base, RemoteType))
        raise known._securebench_peer.notes.unsupported("subclass")

    def __call__(cls: Any, *positional: Any, **named: Any) -> Any:
        """Request a new object. If the class is an exception class, make the object here, because it is only data."""
        if issubclass(cls, BaseException):
            return type.__call__(cls, *positional, **named)
        peer = cls._securebench_peer
        holds_data = bool(cls._securebench_fields) or cls._securebench_family in KNOWN_TYPES
        if holds_data:
            settle_fields(peer)
        known = len(peer.stand_ins)
        made = peer.request("make" if holds_data else "call", cls._securebench_number, (positional, named))
        added = islice(reversed(peer.stand_ins), len(peer.stand_ins) - known)
        is_new = getattr(made, "_securebench_number", None) in added
        check_constructed(cls, made, positional, named, is_new=is_new)
        return made

    def __getattr__(cls, name: str) -> Any:
        return get_attribute(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        set_attribute(cls, name, value)

    def __getitem__(cls, _: Any) -> RemoteType:
        """Return the class itself, because type arguments have no effect."""
        return cls

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return cls._securebench_peer.request("get", cls._securebench_number, "__doc__")

    @property
    def __signature__(cls) -> Any:
        return read_signature(cls._securebench_peer.request("signature", cls._securebench_number))


def make_class(peer: Candidate, parts: list[Any]) -> type:
    """Return the stand-in for a class of the candidate. Raises :class:`MalformedError` or ``TypeError``."""
    number, name, family, trait, *texts = parts[:8]
    bases = parts[8:]
    if type(number) is not int or not all(type(text) is str for text in (name, family, trait, *texts)):
        raise MalformedError("invalid description of a class")
    operators, fields, flags, names = ([part for part in text.split(",") if part] for text in texts)
    if len(operators + fields + flags + names) > _MAX_NAMES or not all(isinstance(base, type) for base in bases):
        raise MalformedError("invalid description of a class")
    if any(each.startswith("__") for each in (*fields, *names)):
        raise MalformedError("a name of a field or attribute begins with '__'")
    namespace: dict[str, Any] = {
        "__module__": "candidate",
        "__doc__": property(_doc),
        "_securebench_peer": peer,
        "_securebench_number": number,
        "_securebench_family": family,
        "_securebench_fields": tuple(fields),
        "_securebench_flags": frozenset(flags),
    }
    own = {"__iter__"} if trait == "iterator" else set()
    for operator in OPERATORS.intersection(operators) - _NEVER_FORWARDED - own:
        namespace[operator] = _forwarded(operator)
    if "__exit__" in operators:
        namespace["__exit__"] = _exit
    if family == "error":
        roots = tuple(base for base in bases if issubclass(base, Exception))
        return _class(name, roots or (Exception,), {**namespace, **_ERROR_METHODS})
    if family in FROZEN or family in CONTAINERS:
        usable = [each for each in bases if isinstance(each, RemoteType) and not issubclass(each, Exception)]
        return _class(name, _with_root(usable, KNOWN_TYPES[family]), plain_methods(family, namespace, names))
    if family != "object":
        raise MalformedError("the class extends an unknown type")
    namespace.update(_object_methods(operators, flags))
    root = RemoteIterator if trait == "iterator" else Remote
    return _class(name, _with_root([base for base in bases if issubclass(base, Remote)], root), namespace)


def _class(name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
    shown = name if is_class_name(name) else "Candidate"
    return type.__new__(RemoteType, shown, bases, namespace)


def _with_root(bases: list[type], root: type) -> tuple[type, ...]:
    """Return ``bases``, followed by ``root`` unless one of the bases is already a subclass of ``root``."""
    return tuple(bases) if any(issubclass(base, root) for base in bases) else (*bases, root)


def _doc(self: Any) -> Any:
    return self._securebench_peer.request("get", self._securebench_number, "__doc__")


# Operators.


def name_class(cls: type) -> None:
    """Allow operators on objects of ``cls`` to be sent to the candidate, because the tests use the name of ``cls``."""
    type.__setattr__(cls, "_securebench_is_named", True)


def is_named(cls: type) -> bool:
    """Return whether the tests use the name of ``cls`` or of one of its bases."""
    return any("_securebench_is_named" in vars(each) for each in cls.__mro__)


def _forwarded(name: str) -> Any:
    def operate(self: Any, *arguments: Any) -> Any:
        note_possible_change(self)
        if name not in _BLOCKS and not is_named(type(self)):
            raise self._securebench_peer.notes.unsupported("operator")
        return self._securebench_peer.operate(self._securebench_number, name, arguments)

    return operate


def _exit(self: Any, kind: Any, error: Any, _: Any) -> bool:
    """End a ``with`` block. Return whether the candidate suppresses the error.

    A failed assert and a ``NameError`` are never suppressed.
    """
    note_possible_change(self)
    peer, number = self._securebench_peer, self._securebench_number
    ordinary = isinstance(error, Exception)
    done = peer.request("exit", number, error if ordinary else None)
    return done is True and ordinary and not issubclass(kind, (AssertionError, NameError))


def _object_methods(operators: list[str], flags: list[str]) -> dict[str, Any]:
    """Return the methods for fields, comparisons, ``bool()`` and ``in``.

    They are for a class that does not extend a plain type such as ``list``.
    """
    methods: dict[str, Any] = {}
    if "dataclass" in flags:
        methods.update(__dataclass_fields__=DataclassFields(), __getattr__=_get_of_fields, __setattr__=_set_field)
    if "__len__" in operators and "__bool__" not in operators:
        methods["__bool__"] = _has_items
    if "__iter__" in operators and "__contains__" not in operators:
        methods["__contains__"] = lambda self, wanted: any(each is wanted or each == wanted for each in self)
    if "eq" in flags:
        methods.update(__eq__=fields_equal, __hash__=fields_hash if "frozen" in flags else None)
    elif "__eq__" in operators:
        methods.update(__eq__=_own_equal, __hash__=object.__hash__)
    if "order" in flags:
        methods.update({name: fields_ordered(name) for name in ORDER})
    else:
        methods.update({name: _refused for name in ORDER if name in operators})
    return methods


def _get_of_fields(self: Any, name: str) -> Any:
    """Return an attribute.

    An attribute that is not a field may be a method that changes the fields. So the fields are requested again when
    they are needed.
    """
    if name not in type(self)._securebench_fields:
        note_possible_change(self)
    return Remote.__getattr__(self, name)


def _set_field(self: Any, name: str, value: Any) -> None:
    """Set an attribute, and record that the tests chose its value, as if they had passed it to the constructor."""
    note_possible_change(self)
    state = subject_state(self)
    state["_securebench_given"] = (*state.get("_securebench_given", ()), name)
    Remote.__setattr__(self, name, value)


def _has_items(self: Any) -> bool:
    return len(self) != 0


def _refused(self: Any, *_: Any) -> Any:
    raise self._securebench_peer.notes.unsupported("operator")


def _own_equal(self: Any, other: Any) -> Any:
    """Compare by identity. Raises ``UnsupportedError`` for two different objects of the candidate.

    The candidate's own ``__eq__`` is not called, because it could return anything.
    """
    if self is other:
        return True
    if isinstance(other, Remote):
        raise self._securebench_peer.notes.unsupported("equality")
    self._securebench_peer.notes.hint = self._securebench_peer.notes.hint or "equality"
    return NotImplemented


def note_possible_change(value: Any) -> None:
    """Record that the candidate could now change the object ``value``.

    After candidate code has run again, the values of the object's fields are requested from the candidate.
    """
    if isinstance(type(value), RemoteType) and not isinstance(value, (tuple, BaseException)):
        subject_state(value).pop("_securebench_is_anchored", None)


def make_empty(cls: Any) -> Any:
    """Return a new object of the stand-in class ``cls``, without data. Raises :class:`MalformedError`."""
    if issubclass(cls, BaseException):
        raise MalformedError("an exception is described as an ordinary object")
    plain: Any = KNOWN_TYPES.get(cls._securebench_family, object)
    if cls._securebench_family in FROZEN:
        raise MalformedError("an object of an immutable type needs its value")
    return plain.__new__(cls)


def _ask_error(self: Any, name: str) -> Any:
    if name.startswith(("__", "_securebench")):
        raise AttributeError(name)
    return self._securebench_peer.request("get", self._securebench_own_number, name)


def _error_text(self: Any) -> str:
    number = vars(self).get("_securebench_own_number")
    return Exception.__str__(self) if number is None else self._securebench_peer.ask_text(number, "str")


_ERROR_METHODS = {"__getattr__": _ask_error, "__str__": _error_text}
