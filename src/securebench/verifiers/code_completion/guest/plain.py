"""What is plain data: by exact type, and nothing that carries behaviour.

============================  ======================================================================================
crosses as an equal value     None, bool, int, float, complex, str, bytes, range; builtin types and exceptions;
                              Decimal, Fraction, date, time, datetime (these two without a zone), timedelta
crosses with its identity     list, tuple, dict, set, frozenset, bytearray, deque (without ``maxlen``), OrderedDict,
                              Counter, defaultdict (its factory too, where that is a builtin type), dict views
crosses by reference          whatever the two ends of a channel make of the rest (``peer.py``)
============================  ======================================================================================

A subclass of any of these is not one of these.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import OrderedDict, defaultdict, deque
    from collections.abc import Callable
    from typing import Any
else:
    try:  # importing the package around them takes a guest a fifth of its time
        from _collections import OrderedDict, defaultdict, deque
    except ImportError:
        from collections import OrderedDict, defaultdict, deque


class UncrossableError(TypeError):
    """A value is not plain data, and no reference to it can be given."""


class TooLargeError(ValueError):
    """A value is deeper, longer or larger than a message may be."""


class MalformedError(ValueError):
    """A message is not one that the other side's codec writes."""


# Classes.

_TYPES: dict[str, type] = {
    each.__name__: each
    for each in (
        *(object, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range),
        *(type(None), OrderedDict, defaultdict, deque),
    )
}
_TYPES.update(
    # Exceptions that may be raised again: an exit or an interrupt is not one of them, nor is an alias like IOError.
    (name, value)
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception) and value.__name__ == name
)
_TYPE_NAMES: dict[type, str] = {each: name for name, each in _TYPES.items()}
_EXCEPTION_MODULES = ("dataclasses", "decimal", "json.decoder", "statistics", "struct")
"""Whose exceptions keep their own type; those of any other module cross as their nearest builtin base."""


def class_tag(value: type) -> list[Any] | None:
    """Return the tag of a class that both sides have, or ``None``."""
    if value in _TYPE_NAMES:
        return ["type", "", _TYPE_NAMES[value]]
    if _is_counter(value):
        return ["type", "", "Counter"]
    module, name = value.__module__, value.__name__
    home = sys.modules.get(module) if module in _EXCEPTION_MODULES else None
    return ["type", module, name] if home is not None and vars(home).get(name) is value else None


def read_class(module: str, name: str) -> type:
    """Return the class of a tag. Raises :class:`MalformedError` or ``KeyError`` if :func:`class_tag` never names it."""
    if not module:
        return _counter_class() if name == "Counter" else _TYPES[name]
    if module not in _EXCEPTION_MODULES:
        raise MalformedError("no such module")
    __import__(module)
    found = vars(sys.modules[module])[name]
    if type(found) is not type or not issubclass(found, Exception):
        raise MalformedError("not an exception")
    return found


def _is_counter(value: type) -> bool:
    """Whether this is :class:`collections.Counter`: there is none before that module is loaded."""
    return value.__name__ == "Counter" and value is getattr(sys.modules.get("collections"), "Counter", None)


def _counter_class() -> type:
    from collections import Counter

    return Counter


def _empty_counter() -> Any:
    return _counter_class()()


# Values of the standard library that never change.

_STDLIB: dict[tuple[str, str], Callable[[Any], list[Any] | None]] = {
    ("decimal", "Decimal"): lambda x: [str(x)],
    ("fractions", "Fraction"): lambda x: [x.numerator, x.denominator],
    ("datetime", "date"): lambda x: [x.year, x.month, x.day],
    ("datetime", "time"): lambda x: None if x.tzinfo or x.fold else [x.hour, x.minute, x.second, x.microsecond],
    ("datetime", "datetime"): lambda x: None if x.tzinfo or x.fold else [*x.timetuple()[:6], x.microsecond],
    ("datetime", "timedelta"): lambda x: [x.days, x.seconds, x.microseconds],
}
"""The arguments that make an equal value, or ``None`` where none do."""


def stdlib_parts(value: Any) -> tuple[str, str, list[Any]] | None:
    """Return module, name and arguments of such a value, or ``None``. Looks only at modules that are loaded already."""
    for (module, name), arguments in _STDLIB.items():
        if type(value).__name__ == name and type(value) is getattr(sys.modules.get(module), name, None):
            found = arguments(value)
            return (module, name, found) if found is not None else None
    return None


def make_stdlib(module: str, name: str, arguments: list[Any]) -> Any:
    """Return the value that :func:`stdlib_parts` took apart."""
    if (module, name) not in _STDLIB:
        raise MalformedError("no such value")
    __import__(module)
    return getattr(sys.modules[module], name)(*arguments)


# Containers. Mutable ones are made empty and filled later, which is what lets a cycle close.

_FACTORIES = {each.__name__: each for each in (int, float, bool, str, list, tuple, dict, set)}
_MAPPINGS = ("dict", "OrderedDict", "Counter")
MUTABLE: dict[str, Callable[[], Any]] = {
    **{each.__name__: each for each in (list, set, bytearray, deque, dict, OrderedDict, defaultdict)},
    **{"defaultdict:" + name: defaultdict(each).copy for name, each in _FACTORIES.items()},
    "Counter": _empty_counter,
}
"""How an empty container of each mutable kind is made."""
IMMUTABLE: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "frozenset": frozenset,
    "dict_keys": lambda items: dict.fromkeys(items).keys(),
    "dict_values": lambda items: dict(enumerate(items)).values(),
    "dict_items": lambda items: dict(items).items(),
}
"""How a container of each immutable kind is made of its items."""
_EMPTY: dict[Any, Any] = {}
_KINDS: dict[type, str] = {
    each: each.__name__
    for each in (
        *(list, tuple, dict, set, frozenset, bytearray, deque, OrderedDict),
        *(type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())),
    )
}


def kind_of(value: Any) -> str | None:
    """Return the kind of a container, by its exact type, or ``None`` for what is none."""
    if type(value) is defaultdict:
        name = getattr(value.default_factory, "__name__", "")
        return "defaultdict:" + name if _FACTORIES.get(name, ...) is value.default_factory else "defaultdict"
    if type(value) is deque and value.maxlen is not None:
        return None
    return _KINDS.get(type(value)) or ("Counter" if _is_counter(type(value)) else None)


def parts_of(value: Any, kind: str) -> Any:
    """Return the parts of a container: its items, or keys and values in turn."""
    return [part for pair in value.items() for part in pair] if _is_mapping(kind) else value


def fill(target: Any, kind: str, parts: list[Any]) -> None:
    """Give a mutable container its parts, in place."""
    if kind in ("list", "bytearray"):
        target[:] = parts
        return
    target.clear()
    if _is_mapping(kind):
        for key, value in zip(parts[::2], parts[1::2]):  # noqa: B905 - "strict" came with Python 3.10
            target[key] = value
    elif kind == "set":
        target.update(parts)
    else:
        target.extend(parts)


def _is_mapping(kind: str) -> bool:
    return kind in _MAPPINGS or kind.startswith("defaultdict")
