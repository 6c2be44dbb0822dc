"""The tests' side: stand-ins for subclasses of plain types, such as ``list`` and ``str``, with copies of the data."""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.fields import ORDER, subject_state
from securebench.verifiers.code_completion.guest.operators import OPERATORS
from securebench.verifiers.code_completion.guest.plain import KNOWN_TYPES, MalformedError
from securebench.verifiers.code_completion.guest.remote import Remote
from securebench.verifiers.code_completion.guest.shapes import CONTAINERS, FROZEN, MAPPINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COMPARISONS = ("__eq__", "__ne__", "__hash__", *ORDER)
_CHANGES = frozenset({"__setitem__", "__delitem__", *(name for name in OPERATORS if name.startswith("__i"))}) - {
    "__iter__",
    "__int__",
    "__index__",
    "__invert__",
}
"""Operators that change a container. They run on the candidate's side, and the contents are then requested again."""


def plain_methods(base: str, namespace: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the namespace of the stand-in for a subclass of the plain type ``base``.

    The stand-in compares its data on this side. Methods and attributes that the candidate defines send a request to the
    candidate's side. If ``base`` is a container, two other groups also send a request: the operators that change the
    container, and all methods that are not operators.
    """
    plain: Any = KNOWN_TYPES[base]
    own = dict(namespace)
    for operator in OPERATORS.intersection(dir(plain)) - set(own):
        own[operator] = getattr(plain, operator)
    for comparison in _COMPARISONS:
        own[comparison] = _plain_comparison(plain, comparison)
    if plain.__hash__ is None:
        own["__hash__"] = None
    own.update(__str__=Remote.__str__, __repr__=Remote.__repr__)
    own.update(__copy__=Remote.__copy__, __deepcopy__=Remote.__deepcopy__)
    methods = set(names)
    if base in CONTAINERS:
        methods |= {method for method in dir(plain) if not method.startswith("__")}
        for operator in _CHANGES.intersection(dir(plain)):
            own[operator] = _changing(operator)
    for method in methods:
        if not method.startswith("_securebench"):
            own[method] = _Asked(method)
    if base == "tuple":
        own.update({field: _item(index) for index, field in enumerate(namespace["_securebench_fields"])})
    own.update(__getattr__=Remote.__getattr__, __setattr__=Remote.__setattr__)
    if not hasattr(plain, "__bool__") and "__bool__" not in own:
        own["__bool__"] = lambda self: plain.__len__(self) != 0
    return own


def _plain_comparison(plain: Any, name: str) -> Any:
    compare = getattr(plain, name)

    def operate(self: Any, *other: Any) -> Any:
        both = [each for each in (self, *other) if isinstance(type(each), type(type(self)))]
        if len(both) > 1 and any(subject_state(each).get("_securebench_is_doubtful") for each in both):
            raise self._securebench_peer.notes.unsupported("constructor")
        return compare(self, *other)

    return operate


def _changing(name: str) -> Any:
    def operate(self: Any, *arguments: Any) -> Any:
        done = self._securebench_peer.operate(self._securebench_number, name, arguments)
        return self if name.startswith("__i") and done is not NotImplemented else done

    return operate


class _Asked:
    """A descriptor that requests an attribute of the candidate's object, or of its class if there is no object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, stand_in: Any, cls: Any) -> Any:
        subject = cls if stand_in is None else stand_in
        return cls._securebench_peer.request("get", subject._securebench_number, self._name)


def _item(index: int) -> property:
    return property(lambda self: tuple.__getitem__(self, index))


def make_frozen(cls: Any, value: Any) -> Any:
    """Return an object of ``cls``, a subclass of an immutable plain type. Raises :class:`MalformedError`."""
    plain: Any = KNOWN_TYPES[cls._securebench_family]
    if type(value) is not plain or cls._securebench_family not in FROZEN:
        raise MalformedError("an object of this class cannot have a value of this type")
    if plain is tuple and len(value) < len(cls._securebench_fields):
        raise MalformedError("the tuple is shorter than the fields of its class")
    return plain.__new__(cls, value)


def refill(stand_in: Any, parts: Any) -> None:
    """Replace the contents of a container's stand-in.

    Raises :class:`MalformedError` if ``parts`` is not a list. An item that the container refuses raises another error.
    """
    base = type(stand_in)._securebench_family
    plain: Any = KNOWN_TYPES[base]
    if type(parts) is not list:
        raise MalformedError("the contents are not a list")
    plain.clear(stand_in)
    if base in MAPPINGS:
        for key, value in zip(parts[::2], parts[1::2]):
            plain.__setitem__(stand_in, key, value)
    elif base == "set":
        plain.update(stand_in, parts)
    else:
        plain.extend(stand_in, parts)
