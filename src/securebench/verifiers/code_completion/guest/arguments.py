"""The tests' side: finds comparisons and ``except`` clauses that could let a wrong candidate pass.

A comparison may compute its expected value from an argument that the tested call changes: ``assert tidy(xs) ==
sorted(xs)`` passes for a ``tidy`` that empties ``xs`` and returns ``[]``. So the expected value is computed twice:
before the call's changes are applied, and after that. If the two results differ, the comparison says nothing about
the candidate. A bare ``xs`` as the expected value is accepted, because it may mean the changed list.
"""

from __future__ import annotations

import builtins
import sys

from securebench.verifiers.code_completion.guest.names import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST: importing ast takes too long
_FUNCTIONS = frozenset(
    [
        "abs",
        "all",
        "any",
        "bool",
        "dict",
        "enumerate",
        "float",
        "frozenset",
        "int",
        "len",
        "list",
        "max",
        "min",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
    ]
)
_METHODS = frozenset(
    [
        "copy",
        "count",
        "endswith",
        "find",
        "get",
        "index",
        "items",
        "join",
        "keys",
        "lower",
        "split",
        "startswith",
        "strip",
        "upper",
        "values",
    ]
)
_CATCHERS = frozenset({"assertRaises", "assertRaisesRegex", "raises", "suppress"})
_ORDERS = frozenset({"Lt", "LtE", "Gt", "GtE"})
_EFFECTS = frozenset(["Await", "Yield", "YieldFrom", "NamedExpr"])


class Comparisons:
    """Finds the expression with which the tests compare a call's result, in a comparison or by an assert method."""

    def __init__(self, source: str) -> None:
        self._tree = compile(source, FILE, "exec", _ONLY_AST, True)

    def expected_of(self, frame: Any) -> Any:
        """Return the expression that the result of the current call in ``frame`` is compared with.

        Returns ``None`` if there is no such expression or more than one, or if it is only a name.
        """
        place = _place(frame)
        found = [expected for call, expected in _compared_calls(self._tree) if _covers(call, place)]
        return found[0] if len(found) == 1 else None


def catches_unknown_classes(source: str) -> bool:
    """Return whether the tests catch exceptions of a class that may come from the candidate.

    Classes that the tests import or define do not come from the candidate. A plain name that the tests do not define is
    ignored here, because its value is checked when the running tests look it up.
    """
    nodes = list(_walk(compile(source, FILE, "exec", _ONLY_AST, True)))
    own = {node.name for node in nodes if type(node).__name__ == "ClassDef"}
    own |= {(node.asname or node.name).partition(".")[0] for node in nodes if type(node).__name__ == "alias"}
    stored = {node.id for node in nodes if type(getattr(node, "ctx", None)).__name__ == "Store" and hasattr(node, "id")}
    stored |= {node.arg for node in nodes if type(node).__name__ == "arg"}
    return not all(_is_known_class(caught, own, stored) for node in nodes for caught in _caught_by(node))


def orders_without_assert(source: str) -> bool:
    """Return whether the tests use ``<``, ``>``, ``<=`` or ``>=`` in a comparison that no assert requires to be True.

    An assert fails if its comparison is False. Elsewhere, a test may pass because a comparison is False.
    """
    nodes = list(_walk(compile(source, FILE, "exec", _ONLY_AST, True)))
    asserted = {id(each) for node in nodes for each in _asserted_by(node)}
    return any(id(node) not in asserted and _ORDERS & _kinds(node.ops) for node in nodes if hasattr(node, "ops"))


def _asserted_by(node: Any) -> list[Any]:
    """Return the comparisons that the assert ``node`` requires to be True.

    With ``or`` and ``any()``, it is enough if one of these comparisons is True. The list is empty if ``node`` is not an
    assert.
    """
    kind, found, pending = type(node).__name__, [], []
    if kind == "Assert":
        pending = [node.test]
    elif kind == "Call" and getattr(node.func, "attr", "") == "assertTrue":
        pending = node.args[:1]
    while pending:
        node = pending.pop()
        kind = type(node).__name__
        if kind == "Compare":
            found.append(node)
        elif kind == "BoolOp":
            pending += node.values
        elif kind == "Call" and getattr(node.func, "id", "") in ("all", "any", "bool"):
            pending += node.args
        elif kind in ("GeneratorExp", "ListComp"):
            pending.append(node.elt)
    return found


def _kinds(nodes: list[Any]) -> set[str]:
    return {type(node).__name__ for node in nodes}


def _caught_by(node: Any) -> list[Any]:
    kind = type(node).__name__
    if kind == "ExceptHandler":
        return [node.type] if node.type is not None else []
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if kind == "Call" else ""
    return list(node.args[: None if name == "suppress" else 1]) if name in _CATCHERS else []


def _is_known_class(node: Any, own: set[str], stored: set[str]) -> bool:
    kind = type(node).__name__
    if kind == "Tuple":
        return all(_is_known_class(each, own, stored) for each in node.elts)
    if kind == "Name":
        return node.id not in stored
    root = node
    while type(root).__name__ == "Attribute":
        root = root.value
    return getattr(root, "id", "") in own - stored


def tests_frame() -> Any:
    """Return the innermost running frame of the tests, or ``None``."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    return frame


def evaluate(expected: Any, frame: Any) -> str:
    """Return the value of the expression ``expected`` in ``frame`` as text, or the type of the error that it raises.

    Returns an empty string if computing the value could have side effects.
    """
    scope = {**frame.f_globals, **frame.f_locals}
    if not _is_harmless(expected, scope):
        return ""
    try:
        tree: Any = compile("0", FILE, "eval", _ONLY_AST, True)
        tree.body = expected
        value = eval(compile(tree, FILE, "eval"), {**scope, "__builtins__": vars(builtins)})  # noqa: S307 - trusted code
        return repr(sorted(map(repr, value)) if isinstance(value, (set, frozenset)) else value)
    except Exception as error:  # noqa: BLE001 - the type of the error serves as the value: only changes matter
        return type(error).__name__


def _place(frame: Any) -> tuple[int, ...]:
    """Return the position of the code that ``frame`` executes: line, end line, column and end column.

    If the rest is unknown, as before Python 3.11, this is only the line.
    """
    positions = getattr(frame.f_code, "co_positions", None)
    found = list(positions())[frame.f_lasti // 2] if positions else ()
    return found if found and None not in found else (frame.f_lineno,)


def _covers(call: Any, place: tuple[int, ...]) -> bool:
    if len(place) == 1:
        return bool(call.lineno <= place[0] <= (call.end_lineno or call.lineno))
    return (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) == place


def _compared_calls(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each call on the left side of a comparison (``==``, ``is`` or ``in``), together with the right side.

    The first two arguments of an assert method count as the two sides. Comparisons whose right side is a name are left
    out.
    """
    for node in _walk(tree):
        kind = type(node).__name__
        if kind == "Compare" and [type(each).__name__ for each in node.ops] in (["Eq"], ["Is"], ["In"]):
            sides = (node.left, node.comparators[0])
        elif kind == "Call" and getattr(node.func, "attr", "").startswith("assert") and len(node.args) > 1:
            sides = (node.args[0], node.args[1])
        else:
            continue
        if type(sides[1]).__name__ != "Name":
            yield from ((call, sides[1]) for call in _walk(sides[0]) if type(call).__name__ == "Call")


def _walk(node: Any) -> Iterator[Any]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            pending += [each for each in (value if type(value) is list else [value]) if hasattr(each, "_fields")]


def _is_harmless(expected: Any, scope: dict[str, Any]) -> bool:
    """Return whether ``expected`` assigns, awaits and yields nothing, and calls only functions without side effects."""
    for node in _walk(expected):
        kind = type(node).__name__
        if kind in _EFFECTS or (kind == "Call" and not _is_pure(node.func, scope)):
            return False
    return True


def _is_pure(function: Any, scope: dict[str, Any]) -> bool:
    if type(function).__name__ == "Attribute":
        return function.attr in _METHODS
    name = getattr(function, "id", "")
    return name in _FUNCTIONS and name not in scope
