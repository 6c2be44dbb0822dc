"""The tests' side: decides whether a name in the tests refers to the tests, to a builtin or to the candidate."""

from __future__ import annotations

import builtins
import symtable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

FILE = "<tests>"
_LONGEST_NAME = 200


class Names(dict):  # type: ignore[type-arg]  # dict[...] cannot be a base class before Python 3.9
    """The ``__builtins__`` of the tests, where Python looks up each name that the tests do not define.

    For a name in ``free``, Python gets the candidate's object from ``lookup``. Any other name refers to a builtin.
    """

    def __init__(self, free: frozenset[str], lookup: Callable[[str], Any]) -> None:
        super().__init__(vars(builtins))
        self._free = free
        self._lookup = lookup
        for name in free:
            self.pop(name, None)

    def __missing__(self, name: str) -> Any:
        if name not in self._free:  # a candidate must not define any other name of the tests
            raise KeyError(name)
        return self._lookup(name)


def undefined_names(source: str) -> frozenset[str]:
    """Return the names that the tests use as globals and do not define, including builtins.

    Names that begin with two underscores are left out.
    """
    used: set[str] = set()
    defined: set[str] = set()
    tables = [symtable.symtable(source, FILE, "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() != "module" and not symbol.is_global():
                continue
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                defined.add(symbol.get_name())
            elif symbol.is_referenced():
                used.add(symbol.get_name())
    return frozenset(name for name in used - defined if not name.startswith("__"))


class Ownership:
    """Decides which undefined names in the tests refer to the candidate. ``free`` holds these names.

    * Names that are not builtins refer to the candidate, unless they begin with two underscores.
    * Names of builtins refer to the candidate if the row's starter code defines them.
    * If the tests use no name of these two kinds, and the candidate defines exactly one of the builtins that the tests
      use, the name of this builtin refers to the candidate.
    """

    def __init__(self, source: str, starter: Sequence[str], defined: Callable[[list[str]], Sequence[str]]) -> None:
        undefined = undefined_names(source)
        shared = undefined & frozenset(vars(builtins))
        named = shared & frozenset(starter)
        # Other names of builtins are left out, because a candidate that defines ``sorted`` could decide what its own
        # result is compared with.
        self.free = (undefined - shared) | named
        self._shared = sorted(shared - named)
        self._defined = defined
        if not self.free and self._shared:
            taken = self._taken()
            self.free = frozenset(taken) if len(taken) == 1 else self.free

    def is_disputed(self) -> bool:
        """Return whether the tests use a builtin whose name the candidate also defines."""
        return bool(set(self._taken()) - self.free)

    def _taken(self) -> list[str]:
        """Return the builtin names that the tests use and the candidate claims to define.

        Names in starter code are left out.
        """
        try:
            reported = self._defined(self._shared)
            return [name for name in self._shared if name in reported]
        except Exception:  # noqa: BLE001 - an invalid answer contains no names
            return []


def catches_failures(value: Any) -> bool:
    """Return whether ``except value`` would catch an ``AssertionError``."""
    if type(value) is tuple:
        return any(map(catches_failures, value))
    return isinstance(value, type) and issubclass(value, BaseException) and issubclass(AssertionError, value)


def is_class_name(name: Any) -> bool:
    """Return whether ``name`` is valid as the name of a class, a field or a member."""
    import keyword

    return type(name) is str and len(name) <= _LONGEST_NAME and name.isidentifier() and not keyword.iskeyword(name)
