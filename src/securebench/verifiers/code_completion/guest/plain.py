"""How values cross from one side to the other: plain data as data, everything else as a stand-in or a reference.

============================  ======================================================================================
crosses as an equal value     None, bool, int, float, complex, str, bytes, range; builtin classes; values of the
                              standard library (``values.py``)
crosses with its identity     list, tuple, dict, set, frozenset, bytearray, deque, OrderedDict, Counter, defaultdict
                              (with its factory, if that is a common builtin type such as ``int``), dict views
crosses as a stand-in         exceptions; the candidate's own classes and their objects (``shapes.py``, ``twins.py``)
crosses by reference          everything else that the two sides allow (``peer.py``)
============================  ======================================================================================

A subclass of one of these types does not count as that type.
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
    try:  # importing all of collections takes a fifth of the run time of a guest program
        from _collections import OrderedDict, defaultdict, deque
    except ImportError:
        from collections import OrderedDict, defaultdict, deque


class UncrossableError(TypeError):
    """A value is not plain data, and no reference to it can be sent."""


class ValueTooLargeError(ValueError):
    """A value is too large, too long or too deeply nested for a message."""


class MalformedError(ValueError):
    """A message is invalid: the other side's codec would not write it."""


# Classes.

_TYPES: dict[str, type] = {
    each.__name__: each
    for each in (
        *(object, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range),
        *(type(None), OrderedDict, defaultdict, deque),
    )
}
_TYPES.update(
    # Exceptions that the other side may raise again: no exits, no interrupts, and no aliases such as IOError.
    (name, value)
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception) and value.__name__ == name
)
_TYPE_NAMES: dict[type, str] = {each: name for name, each in _TYPES.items()}
KNOWN_TYPES = _TYPES
"""The classes that both sides have, by name."""
_EXCEPTION_MODULES = ("dataclasses", "decimal", "json.decoder", "statistics", "struct")
"""Modules besides ``builtins`` whose exceptions keep their type.

Other exceptions, except the candidate's own, cross as their nearest base that both sides have.
"""


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
    """Return the class of a tag. Raises :class:`MalformedError` or ``KeyError`` for an invalid tag."""
    if not module:
        return _counter_class() if name == "Counter" else _TYPES[name]
    if module not in _EXCEPTION_MODULES:
        raise MalformedError("the module of the class is not allowed")
    __import__(module)
    found = vars(sys.modules[module])[name]
    if type(found) is not type or not issubclass(found, Exception):
        raise MalformedError("the class is not an exception class")
    return found


def _is_counter(value: type) -> bool:
    """Return whether ``value`` is :class:`collections.Counter`, without importing :mod:`collections`."""
    return value.__name__ == "Counter" and value is getattr(sys.modules.get("collections"), "Counter", None)


def _counter_class() -> type:
    from collections import Counter

    return Counter


def _empty_counter() -> Any:
    return _counter_class()()


# Values of the standard library.

_MODULES = frozenset(["array", "collections", "datetime", "decimal", "fractions", "pathlib", "uuid", "zoneinfo"])
_BUILTINS = frozenset(["ellipsis", "mappingproxy", "memoryview", "slice"])


def may_be_stdlib(kind: type) -> bool:
    """Return whether ``values.py``, which is loaded only on demand, may be able to encode objects of a class."""
    module = kind.__module__
    if module == "builtins":
        return kind.__name__ in _BUILTINS
    return type(module) is str and module.partition(".")[0] in _MODULES


# Containers. Mutable ones are made empty and filled later, so that a container can contain itself.

_FACTORIES = {each.__name__: each for each in (int, float, bool, str, list, tuple, dict, set)}
MUTABLE: dict[str, Callable[[], Any]] = {
    **{each.__name__: each for each in (list, set, bytearray, deque, dict, OrderedDict, defaultdict)},
    **{"defaultdict:" + name: defaultdict(each).copy for name, each in _FACTORIES.items()},
    "Counter": _empty_counter,
}
"""For each mutable kind, except a deque with a maximum length, the function that makes an empty container."""
_MAPPINGS = frozenset(name for name in MUTABLE if name.startswith(("dict", "OrderedDict", "Counter", "defaultdict")))
_LONGEST_DEQUE = 2**31


def empty_container(kind: str) -> Any:
    """Return an empty container of a mutable kind, or ``None`` if ``kind`` is not mutable."""
    if kind in MUTABLE:
        return MUTABLE[kind]()
    if kind.startswith("deque:"):
        longest = int(kind[len("deque:") :])
        return deque(maxlen=min(longest, _LONGEST_DEQUE))
    return None


IMMUTABLE: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "frozenset": frozenset,
    "dict_keys": lambda items: dict.fromkeys(items).keys(),
    "dict_values": lambda items: dict(enumerate(items)).values(),
    "dict_items": lambda items: dict(items).items(),
}
"""For each immutable kind, the function that makes a container from a list of items."""
_EMPTY: dict[Any, Any] = {}
_KINDS: dict[type, str] = {
    each: each.__name__
    for each in (
        *(list, tuple, dict, set, frozenset, bytearray, deque, OrderedDict),
        *(type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())),
    )
}


def kind_of(value: Any) -> str | None:
    """Return the kind of a container, by its exact type, or ``None`` for other values."""
    kind = _KINDS.get(type(value))
    if kind == "deque" and value.maxlen is not None:
        return "deque:" + str(value.maxlen)
    if kind is not None:
        return kind
    if type(value) is defaultdict:
        name = getattr(value.default_factory, "__name__", "")
        return "defaultdict:" + name if _FACTORIES.get(name, ...) is value.default_factory else "defaultdict"
    return "Counter" if _is_counter(type(value)) else None


def parts_of(value: Any, kind: str) -> Any:
    """Return the parts of a container: its items or, for a mapping, each key followed by its value."""
    return [part for pair in value.items() for part in pair] if kind in _MAPPINGS else value


def fill(target: Any, kind: str, parts: list[Any]) -> None:
    """Set the parts of a mutable container, in place."""
    if kind in ("list", "bytearray"):
        target[:] = parts
        return
    target.clear()
    if kind in _MAPPINGS:
        for key, value in zip(parts[::2], parts[1::2]):
            target[key] = value
    elif kind == "set":
        target.update(parts)
    else:
        target.extend(parts)
