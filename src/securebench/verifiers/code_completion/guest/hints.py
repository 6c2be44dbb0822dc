"""The tests' side: finds the unsupported feature that may explain a failure of the tests."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

    from securebench.verifiers.code_completion.guest.notes import Notes

_NAMES = {
    "source": ("getsource", "getsourcelines"),
    "patch": ("patch",),
    "printed": ("redirect_stdout", "redirect_stderr"),
    "kind": ("isfunction", "isgeneratorfunction", "iscoroutinefunction", "isasyncgenfunction"),
    "process": ("seed", "setstate", "environ", "putenv", "chdir", "catch_warnings", "setrecursionlimit"),
    "files": (
        *("open", "write_text", "write_bytes", "mkdir", "makedirs", "mkstemp", "mkdtemp"),
        *("NamedTemporaryFile", "TemporaryDirectory"),
    ),
}
BY_NAME = {name: feature for feature, names in _NAMES.items() for name in names}
"""For each name that the tests may use, the unsupported feature that it suggests."""
_CONTAINERS = frozenset({list, dict, set})
_MAX_OUTLINED = 100
_MAX_WATCHED = 100


def outline(value: Any, depth: int = 2) -> Any:
    """Return the lengths of a container and of its inner containers. Return ``None`` for other values."""
    if type(value) not in _CONTAINERS:
        return None
    parts = value.values() if type(value) is dict else value
    inner = [outline(each, depth - 1) for each in parts] if depth and len(value) <= _MAX_OUTLINED else []
    return len(value), inner


def watch(notes: Notes, value: Any) -> None:
    """Remember a container that the tests got from an attribute. It is a copy: changes do not reach the original."""
    if len(notes.watched) < _MAX_WATCHED:
        notes.watched.append((value, outline(value)))


def explain_failure(notes: Notes, code: CodeType) -> str:
    """Return the short name of the unsupported feature that may explain a failure, or an empty string."""
    if any(outline(value) != before for value, before in notes.watched):
        return "attribute"
    return hint_of(code)


def hint_of(code: CodeType) -> str:
    """Return the unsupported feature that a name in ``code`` suggests, or an empty string."""
    found = [BY_NAME[name] for name in code.co_names if name in BY_NAME]
    found += [hint for inner in code.co_consts if hasattr(inner, "co_names") for hint in [hint_of(inner)] if hint]
    return found[0] if found else ""
