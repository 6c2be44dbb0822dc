"""Invert one assertion of a test, so that the test must fail if it passed before.

There are two rules:

* An inversion is certain. No value passes both the assertion and its inversion, and the source proves this.
* An inversion is similar to its assertion. So code that lets every assertion pass, such as objects that equal
  everything, also lets the inversion pass, and is found. An ``assert ==`` or ``assertEqual`` keeps its form. If the
  source shows the expected value, another value of the same type replaces it.
"""

from __future__ import annotations

import ast
import re
import secrets
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.verifiers.repo_patch.evidence.source import Edit, called_name, definitely_run, has_effects_after
from securebench.verifiers.repo_patch.evidence.values import Values
from securebench.verifiers.repo_patch.evidence.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.verifiers.repo_patch.evidence.source import Function, ModuleSource

_RANDOM = secrets.SystemRandom()

STRONG: Final = 3
"""The strength of an inversion that cannot be recognized: it uses another plausible expected value."""

SAME_TYPE: Final = 2
"""The strength of an inversion that expects another value of the same type.

Such an inversion detects objects that equal everything.
"""

_SWALLOWS_DOUBLING = re.compile(r"\binf|infinity|\bnan\b|\boo\b|[\d.]e\+?\d\d", re.IGNORECASE)
"""Signs that the module uses numbers, such as infinity, that stay the same when they are doubled or increased."""

_TRUE: Final = frozenset({"assertTrue", "assert_", "failUnless", "assert_true"})
_FALSE: Final = frozenset({"assertFalse", "failIf", "assert_false"})
_RAISES: Final = frozenset({"raises", "assertRaises", "assertRaisesRegex", "assertRaisesMessage", "assert_raises"})
_WARNS: Final = frozenset({"warns", "assertWarns", "assertWarnsRegex", "assertWarnsMessage", "assert_warns"})
_EQUAL = re.compile(
    r"(?:assert|fail)(?:_?\w*)(?:Equals?|equals?|Close|close|identical|Identical|_eq)(?:_nulp)?|failUnlessEqual|eq_"
)
_NOT_EQUAL = re.compile(r"\w*(?:Not|_not_|Unequal|unequal)\w*")
_FORMS: Final = {
    "assertNotEqual": ("({0}, {n})[1], ({1}, {n})[1]",),
    "assertNotAlmostEqual": ("({0}, {n})[1], ({1}, {n})[1]",),
    "assertIs": ("{0}, ({1}, {n})", "{0}, [{1}]"),
    "assertIsNot": ("None, ({0}, {1}, None)[2]",),
    "assertIsNone": ("[{0}]", "({0}, {n})", "str({0})"),
    "assertIsNotNone": ("({0}, None)[1]",),
    "assertIn": ("{0}, ({1}, ())[1]", "{0}, ({1}, [])[1]"),
    "assertNotIn": ("None, ({0}, {1}, None)", "{n}, [{0}, {1}, {n}]"),
    "assertGreater": ("{1}, {0}",),
    "assertLess": ("{1}, {0}",),
    "assertGreaterEqual": ("({0}, 2)[1], ({1}, {n})[1]",),
    "assertLessEqual": ("({0}, {n})[1], ({1}, 2)[1]",),
    "assertIsInstance": ("({0}, {1}, {n})[2], str", "[{0}, {1}], str"),
    "assertNotIsInstance": ("({0}, {1}, {n})[2], int", "[{0}, {1}], list"),
    "assertRegex": ("({0}, {w})[1], ({1}, {v})[1]",),
    "assertRegexpMatches": ("({0}, {w})[1], ({1}, {v})[1]",),
    "assertNotRegex": ("({0}, {w})[1], ({1}, {w})[1]",),
}
"""Replacements for the first one or two arguments of an assertion: with them, the assertion must fail.

The original arguments are still evaluated.

``n`` is a number above 2; ``w`` and ``v`` are words that do not contain each other.
"""

_EXACT: Final = frozenset({"assert ==", "assertEqual", "assertEquals", "assert_equal", "assert_equals", "eq_"})
"""Styles that compare exactly, without a tolerance."""

_TOKEN = re.compile(rb"\w+")
_COMPLEMENT: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
}
_EXCEPTIONS_TEXT: Final = """
BlockingIOError BufferError ChildProcessError ConnectionAbortedError FloatingPointError InterruptedError
IsADirectoryError ProcessLookupError StopAsyncIteration UnicodeTranslateError
"""
_EXCEPTIONS: Final = tuple(_EXCEPTIONS_TEXT.split())
_WARNINGS: Final = ["BytesWarning", "ImportWarning", "UnicodeWarning", "PendingDeprecationWarning"]
_FATAL = re.compile(r"KeyboardInterrupt|BaseException|GeneratorExit|\bExit\b|[Ss]kip|[Ff]ailed|xfail|outcomes")


@dataclass(frozen=True, slots=True)
class Inversion:
    """Ways to invert one assertion. Each of ``choices`` contains the edits for one way.

    ``style`` names the kind of assertion. A greater ``strength`` detects more tampering.
    """

    style: str
    strength: int
    choices: tuple[tuple[Edit, ...], ...]


def inversions(function: Function, source: ModuleSource, *, local: Iterable[str] = ()) -> list[Inversion]:
    """Return inversions of the assertions in ``function``. Calls of functions named in ``local`` are not inverted."""
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return []
    return list(_Inverter(function, source, frozenset(local)).all())


class _Inverter:
    def __init__(self, function: Function, source: ModuleSource, local: frozenset[str]) -> None:
        self._source = source
        self._local = local
        self._function = function
        plain = _plain_names(function)
        self._plain = {} if plain and _SWALLOWS_DOUBLING.search(source.text) else plain
        self._values = Values(source)
        self._uses = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name))

    def all(self) -> Iterator[Inversion]:
        """Yield all inversions."""
        for statement in definitely_run(self._function.body):
            if has_effects_after(self._function, statement):
                continue  # a test that stops here may leave a state that affects other tests
            if isinstance(statement, ast.Assert):
                yield from self._condition(statement.test)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                yield from self._call(statement.value)
            elif isinstance(statement, ast.With | ast.AsyncWith):
                for item in statement.items:
                    if isinstance(item.context_expr, ast.Call):
                        yield from self._context(item.context_expr)

    def _condition(self, test: ast.expr) -> Iterator[Inversion]:
        """Yield inversions of ``assert test``."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for value in test.values:  # every part of an ``and`` must hold
                yield from (found for found in self._condition(value) if found.strength >= SAME_TYPE)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            yield from self._comparison(test)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield _one("assert not", self._replace(test, self._bracketed(test.operand)))
        else:
            yield _one("assert", self._negate(test))

    def _comparison(self, test: ast.Compare) -> Iterator[Inversion]:
        operator, right = test.ops[0], test.comparators[0]
        if isinstance(operator, ast.Eq):
            yield from self._equal("assert ==", test.left, right)
        elif type(operator) in _COMPLEMENT:
            sign, opposite = _COMPLEMENT[type(operator)]
            start, end = self._source.span(test.left)[1], self._source.span(right)[0]
            between = self._source.content[start:end].decode()
            if between.split() == sign.split():  # no brackets or comments around the operator
                edit = Edit(start, end, between.replace(between.strip(), opposite))
                yield _one(f"assert {sign}", edit)
            else:
                yield _one(f"assert {sign}", self._negate(test))

    def _equal(self, style: str, left: ast.expr, right: ast.expr) -> Iterator[Inversion]:
        """Yield inversions of the assertion that ``left`` equals ``right``."""
        if "ANY" in self._source.segment(left) + self._source.segment(right):
            return
        apart = "approx" in self._source.segment(left) + self._source.segment(right) or style not in _EXACT
        for side in (right, left):
            if found := self._other(side, apart=apart):
                hidden = len(found) > 1 and self._is_hidden(found, left, right)
                yield Inversion(style, STRONG if hidden else SAME_TYPE, found)
                return
        for side in (right, left):
            if text := self._other_name(side):
                yield Inversion(style, SAME_TYPE, ((self._replace(side, text),),))
                return
        yield _one(style, self._replace(right, f"({self._source.segment(right)}, {_number()})"))

    def _is_hidden(self, found: tuple[tuple[Edit, ...], ...], left: ast.expr, right: ast.expr) -> bool:
        """Return whether the rest of the file seems not to reveal the expected value.

        The value must not be in the rest of the comparison, and the comparison must not occur twice in the file. If the
        expected values are in a table of parameters, the only condition is that none of them is a string.
        """
        start, end = self._source.span(left)[0], self._source.span(right)[1]
        first = found[0][0]
        if len(found[0]) > 1 or not start <= first.start <= end:  # a table of parameters
            cells = [self._source.content[edit.start : edit.end] for edit in found[0]]
            return not any(cell[-1:] in b"'\"" for cell in cells)
        value = set(_TOKEN.findall(self._source.content[first.start : first.end]))
        beside = self._source.content[start : first.start] + self._source.content[first.end : end]
        again = self._source.content.count(self._source.content[start:end]) > 1
        return not again and value.isdisjoint(_TOKEN.findall(beside))

    def _other(self, node: ast.expr, *, apart: bool) -> tuple[tuple[Edit, ...], ...]:
        """Return edits that change ``node`` to different values of the same type, if the source shows its value.

        ``apart`` is true if the comparison treats values that are close to each other as equal.
        """
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            node = node.operand
        if isinstance(node, ast.Constant):
            texts = self._values.others(node.value, self._source.segment(node), apart=apart)
            return tuple((self._replace(node, text),) for text in texts)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._one_of([item for item in node.elts if not isinstance(item, ast.Starred)], apart=apart)
        if isinstance(node, ast.Dict):
            return self._one_of(node.values, apart=apart)
        if isinstance(node, ast.Call) and called_name(node) == "approx" and node.args:
            return () if _loose(node) else self._other(node.args[0], apart=True)
        if isinstance(node, ast.Name) and node.id in self._plain and self._uses[node.id] == 1:
            cells = [self._other(cell, apart=apart) for cell in self._plain[node.id].cells]
            return tuple(tuple(edit for edits in row for edit in edits) for row in zip(*cells, strict=False))
        return self._other_number(node, apart=apart) if isinstance(node, ast.BinOp) else ()

    def _one_of(self, nodes: list[ast.expr], *, apart: bool) -> tuple[tuple[Edit, ...], ...]:
        """Choose one of ``nodes`` at random. Return edits that replace it with other values."""
        for node in _RANDOM.sample(nodes, len(nodes)):
            if found := self._other(node, apart=apart):
                return found
        return ()

    def _other_number(self, node: ast.BinOp, *, apart: bool) -> tuple[tuple[Edit, ...], ...]:
        """Return edits that change the integer in a sum, difference or product of an integer and a parameter."""
        sides = [(node.left, node.right), (node.right, node.left)]
        for side, other in sides:
            if (
                isinstance(side, ast.Constant)
                and type(side.value) is int
                and isinstance(other, ast.Name)
                and isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
                and other.id in self._plain
                and all(type(value) is int and value for value in self._plain[other.id].values)
                and not apart
            ):
                return self._other(side, apart=False)
        return ()

    def _other_name(self, node: ast.expr) -> str | None:
        """Return an expression whose value certainly differs from that of ``node``.

        Returns ``None`` if no such expression is known.
        """
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        if not names or any(name not in self._plain or not all(self._plain[name].values) for name in names):
            return None
        text = self._source.segment(node)
        if isinstance(node, ast.Name):
            return f"{text} * 2"
        allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Load)
        if isinstance(node, ast.BinOp) and all(isinstance(inner, allowed) for inner in ast.walk(node)):
            return f"{text} + {_number()}"  # raises an error if ``text`` is not a number, and an error is a failure too
        return None

    def _call(self, call: ast.Call) -> Iterator[Inversion]:
        """Yield inversions of an assertion that is a function call."""
        name = called_name(call)
        if name in self._local or any(isinstance(value, ast.Starred) for value in call.args):
            return
        arguments = [self._source.segment(value) for value in call.args]
        if name in _TRUE and len(arguments) == 1:
            yield from (replace(found, style=name) for found in self._condition(call.args[0]))
        elif name in _FALSE and len(arguments) == 1:
            yield _one(name, self._negate(call.args[0]))
        elif name in _FORMS and len(arguments) > _two(name):
            start, end = self._source.span(call.args[0])[0], self._source.span(call.args[_two(name)])[1]
            yield _one(name, Edit(start, end, self._form(name, arguments)))
        elif name in _RAISES | _WARNS and len(arguments) > 1:
            yield from self._context(call)
        elif _EQUAL.fullmatch(name) and not _NOT_EQUAL.fullmatch(name) and len(arguments) > 1 and not _loose(call):
            yield from self._equal(name, call.args[0], call.args[1])

    def _context(self, call: ast.Call) -> Iterator[Inversion]:
        """Yield inversions of ``raises``, ``warns``, ``assertLogs`` and similar calls.

        The inverted call expects a different exception, warning or logger.
        """
        name = called_name(call)
        if name == "assertLogs" and not call.keywords and len(call.args) <= 1:
            other = repr(f"{self._values.word()}.{self._values.word()}")
            start, end = self._source.span(call.args[0]) if call.args else (self._source.span(call)[1] - 1,) * 2
            yield _one(name, Edit(start, end, other))
        if name not in _RAISES | _WARNS or name in self._local or not call.args:
            return
        classes = _EXCEPTIONS if name in _RAISES else _WARNINGS
        choice = [other for other in classes if other not in self._source.text]
        if choice and not _FATAL.search(self._source.segment(call.args[0])):
            yield _one(name, self._replace(call.args[0], _RANDOM.choice(choice)))

    def _form(self, name: str, arguments: list[str]) -> str:
        """Return arguments with which the assertion ``name`` fails."""
        word = self._values.word()
        other = _RANDOM.choice([other for other in WORDS if word not in other and other not in word])
        return _RANDOM.choice(_FORMS[name]).format(*arguments, n=_number(), w=repr(word), v=repr(other))

    def _negate(self, node: ast.expr) -> Edit:
        return self._replace(node, f"not {self._bracketed(node)}")

    def _bracketed(self, node: ast.expr) -> str:
        """Return the text of ``node``, in brackets if needed for negation."""
        text = self._source.segment(node)
        plain = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript) and "\n" not in text
        return text if plain else f"({text})"

    def _replace(self, node: ast.expr, text: str) -> Edit:
        return Edit(*self._source.span(node), text)


def _one(style: str, edit: Edit) -> Inversion:
    """Return an inversion by a single edit. The form of the edited assertion may reveal that it is inverted."""
    return Inversion(style, 1, ((edit,),))


@dataclass(frozen=True, slots=True)
class _Column:
    """The constants of one parameter in a ``parametrize`` decorator, one for each row."""

    cells: tuple[ast.Constant, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(cell.value for cell in self.cells)


def _plain_names(function: Function) -> dict[str, _Column]:
    """Return the parameters of ``function`` that ``parametrize`` sets only to numbers or strings.

    Parameters that the function assigns or deletes are left out.
    """
    found: dict[str, _Column] = {}
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and called_name(decorator) == "parametrize" and len(decorator.args) > 1:
            found.update(_plain_parameters(decorator))
    stored = {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    return {name: column for name, column in found.items() if name not in stored}


def _plain_parameters(call: ast.Call) -> dict[str, _Column]:
    """Return the parameters of a ``parametrize`` ``call`` whose values are only numbers or strings.

    Returns no parameters if options other than ``ids`` are given: ``indirect`` passes the values to fixtures.
    """
    names, table, *more = call.args
    if more or any(keyword.arg != "ids" for keyword in call.keywords) or not isinstance(table, ast.List | ast.Tuple):
        return {}
    try:
        listed = ast.literal_eval(names)
    except ValueError:
        return {}
    keys = [key.strip() for key in listed.split(",")] if isinstance(listed, str) else list(listed)
    single = isinstance(listed, str) and len(keys) == 1
    rows = [[row] if single else row.elts if isinstance(row, ast.List | ast.Tuple) else [] for row in table.elts]
    if not rows or any(len(row) != len(keys) for row in rows):
        return {}
    columns = {key: [row[place] for row in rows] for place, key in enumerate(keys)}
    return {
        key: _Column(tuple(cell for cell in column if isinstance(cell, ast.Constant)))
        for key, column in columns.items()
        if all(isinstance(cell, ast.Constant) and type(cell.value) in (int, float, str) for cell in column)
    }


def _two(name: str) -> int:
    # the index of the last argument that is replaced when the assertion is inverted
    return int("{1}" in _FORMS[name][0])


def _loose(call: ast.Call) -> bool:
    """Return whether a comparison may allow such a large difference that another value counts as equal."""
    name = called_name(call)
    third = "rtol" if "close" in name else "places"
    options = [(third, value) for value in call.args[2:3] if name != "approx"]
    options += [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
    return any(
        option in _TOLERANCES and not (isinstance(value, ast.Constant) and _small(option, value.value))
        for option, value in options
    )


_TOLERANCES: Final = frozenset("** rel abs rtol atol delta places decimal nan_ok significant".split())  # noqa: SIM905


def _small(name: str, value: object) -> bool:
    if type(value) not in (int, float):
        return name == "nan_ok" and value is False
    assert isinstance(value, int | float)
    return value >= 0 if name in ("places", "decimal", "significant") else 0 <= value <= 0.1  # noqa: PLR2004 - a tenth


def _number() -> int:
    return 3 + secrets.randbelow(90)
