"""Ways to turn one assertion of a test round, so that the test must fail wherever it passed.

Two rules. It is *certain*: if the assertion holds, its inversion does not, whatever the values are. Where that cannot
be told from the text, there is no inversion. And it is *alike*: an ``assert ==`` stays one, ``assertEqual`` stays
``assertEqual``; with another expected value of the same type where the text shows the value. An object that lies about
equality, and a replaced assertion method, then make a test pass that must not.
"""

from __future__ import annotations

import ast
import re
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.verifiers.repo_patch.evidence.source import Edit, called_name, definitely_run, has_effects_after
from securebench.verifiers.repo_patch.evidence.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.verifiers.repo_patch.evidence.source import Function, ModuleSource

_RANDOM = secrets.SystemRandom()

STRONG: Final = 3
"""The strength of an inversion by another value of the same type, which a lying object takes for equal, too."""

_SWALLOWS_DOUBLING = re.compile(r"\binf|infinity|\bnan\b|\boo\b|[\d.]e\+?\d\d", re.IGNORECASE)
"""Where one of these is in a module, a number plus another, or times two, may be the same number."""

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
"""What becomes of the first two arguments of an assertion: each is still computed, and the assertion cannot hold.

``n`` is a number above 2, ``w`` and ``v`` are words of which none is part of the other.
"""

_EXACT: Final = frozenset({"assert ==", "assertEqual", "assertEquals", "assert_equal", "assert_equals", "eq_"})
"""Styles in which values are equal only if they are the same."""

_WORD = re.compile(r"[A-Za-z][a-z]{2,}|[A-Z]{3,}")
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
    """Edits that turn one assertion round. ``style`` names its kind; a greater ``strength`` catches more."""

    style: str
    strength: int
    edits: tuple[Edit, ...]


def inversions(function: Function, source: ModuleSource, *, local: Iterable[str] = ()) -> list[Inversion]:
    """Return the certain inversions of ``function``. Calls of the names ``local``, the module's own, are left."""
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return []
    return list(_Inverter(function, source, frozenset(local)).all())


class _Inverter:
    def __init__(self, function: Function, source: ModuleSource, local: frozenset[str]) -> None:
        self._source = source
        self._local = local
        self._function = function
        self._plain = {} if _SWALLOWS_DOUBLING.search(source.text) else _plain_names(function)
        self._words = source.words if len(source.words) > 1 else WORDS

    def all(self) -> Iterator[Inversion]:
        """Yield every inversion."""
        for statement in definitely_run(self._function.body):
            if has_effects_after(self._function, statement):
                continue  # a test that ends here may leave a state that others find
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
            for value in test.values:  # each of them holds
                yield from (found for found in self._condition(value) if found.strength == STRONG)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            yield from self._comparison(test)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield Inversion("assert not", 1, (self._replace(test, self._bracketed(test.operand)),))
        else:
            yield Inversion("assert", 1, (self._negate(test),))

    def _comparison(self, test: ast.Compare) -> Iterator[Inversion]:
        operator, right = test.ops[0], test.comparators[0]
        if isinstance(operator, ast.Eq):
            yield from self._equal("assert ==", test.left, right)
        elif type(operator) in _COMPLEMENT:
            sign, opposite = _COMPLEMENT[type(operator)]
            start, end = self._source.span(test.left)[1], self._source.span(right)[0]
            between = self._source.content[start:end].decode()
            if between.split() == sign.split():  # without brackets and comments
                edit = Edit(start, end, between.replace(between.strip(), opposite))
                yield Inversion(f"assert {sign}", 1, (edit,))
            else:
                yield Inversion(f"assert {sign}", 1, (self._negate(test),))

    def _equal(self, style: str, left: ast.expr, right: ast.expr) -> Iterator[Inversion]:
        """Yield inversions of ``left`` being equal to ``right``."""
        if "ANY" in self._source.segment(left) + self._source.segment(right):
            return
        nearly = "approx" in self._source.segment(left) + self._source.segment(right) or style not in _EXACT
        for side in (right, left):
            edit = self._other(side, nearly=nearly)
            if edit is not None:
                yield Inversion(style, STRONG, (edit,))
                return
        yield Inversion(style, 1, (self._replace(right, f"({self._source.segment(right)}, {_number()})"),))

    def _other(self, node: ast.expr, *, nearly: bool) -> Edit | None:
        """Return the edit that makes ``node`` a different value of the same type, if its text shows that it is one.

        ``nearly``: whether values may be equal that are only near to each other.
        """
        if isinstance(node, ast.Constant):
            text = self._other_constant(node.value, self._source.segment(node))
            return None if text is None else self._replace(node, text)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self._other(node.operand, nearly=nearly) if node.operand.value else None
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._first([item for item in node.elts if not isinstance(item, ast.Starred)], nearly=nearly)
        if isinstance(node, ast.Dict):
            return self._first(node.values, nearly=nearly)
        if isinstance(node, ast.Call) and called_name(node) == "approx" and node.args:
            return None if _loose(node) else self._other(node.args[0], nearly=True)
        return self._other_expression(node, nearly=nearly)

    def _first(self, nodes: list[ast.expr], *, nearly: bool) -> Edit | None:
        edits = [edit for node in nodes if (edit := self._other(node, nearly=nearly)) is not None]
        return _RANDOM.choice(edits) if edits else None

    def _other_expression(self, node: ast.expr, *, nearly: bool) -> Edit | None:
        """Return the edit of an expression of numbers, or of a name whose values the test itself shows."""
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        if not names or not names <= self._plain.keys():
            return None
        text = self._source.segment(node)
        if isinstance(node, ast.Name):
            others = [] if nearly else [name for name in self._plain if self._differ(node.id, name)]
            return self._replace(node, _RANDOM.choice(others) if others else f"{text} * 2")
        allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Load)
        if isinstance(node, ast.BinOp) and all(isinstance(inner, allowed) for inner in ast.walk(node)):
            turned = None if nearly else self._turned(node)
            return turned or self._replace(node, f"{text} + {_number()}")  # of no numbers: an error, which is a failure
        return None

    def _differ(self, name: str, other: str) -> bool:
        """Return whether the parameters ``name`` and ``other`` have different values wherever both have one."""
        first, second = self._plain[name], self._plain[other]
        if first.table is second.table:
            return all(one != two for one, two in zip(first.values, second.values, strict=True))
        return set(first.values).isdisjoint(second.values)

    def _turned(self, node: ast.BinOp) -> Edit | None:
        """Return the edit that makes a sum a difference, or the other way round, of what is no zero."""
        numbers = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
        values = [self._plain[inner.id].values for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        exact = all(type(value) is int for value in (*numbers, *(value for column in values for value in column)))
        some = isinstance(node.right, ast.Name) or (isinstance(node.right, ast.Constant) and node.right.value)
        start, end = self._source.span(node.left)[1], self._source.span(node.right)[0]
        between = self._source.content[start:end].decode()
        sign = "+" if isinstance(node.op, ast.Add) else "-"
        if not exact or not some or isinstance(node.op, ast.Mult) or between.strip() != sign:
            return None
        return Edit(start, end, between.replace(sign, "-" if sign == "+" else "+"))

    def _call(self, call: ast.Call) -> Iterator[Inversion]:
        """Yield inversions of an assertion that is a call."""
        name = called_name(call)
        if name in self._local or any(isinstance(value, ast.Starred) for value in call.args):
            return
        arguments = [self._source.segment(value) for value in call.args]
        if name in _TRUE and len(arguments) == 1:
            yield from (replace(found, style=name) for found in self._condition(call.args[0]))
        elif name in _FALSE and len(arguments) == 1:
            yield Inversion(name, 1, (self._negate(call.args[0]),))
        elif name in _FORMS and len(arguments) > _two(name):
            start, end = self._source.span(call.args[0])[0], self._source.span(call.args[_two(name)])[1]
            yield Inversion(name, 1, (Edit(start, end, self._form(name, arguments)),))
        elif name in _RAISES | _WARNS and len(arguments) > 1:
            yield from self._context(call)
        elif _EQUAL.fullmatch(name) and not _NOT_EQUAL.fullmatch(name) and len(arguments) > 1 and not _loose(call):
            yield from self._equal(name, call.args[0], call.args[1])

    def _context(self, call: ast.Call) -> Iterator[Inversion]:
        """Yield inversions of ``raises``, ``warns`` and their like: another class is expected."""
        name = called_name(call)
        if name == "assertLogs" and not call.keywords and len(call.args) <= 1:
            other = repr(f"{self._word()}.{self._word()}")
            start, end = self._source.span(call.args[0]) if call.args else (self._source.span(call)[1] - 1,) * 2
            yield Inversion(name, 1, (Edit(start, end, other),))
        if name not in _RAISES | _WARNS or name in self._local or not call.args:
            return
        classes = _EXCEPTIONS if name in _RAISES else _WARNINGS
        choice = [other for other in classes if other not in self._source.text]
        if choice and not _FATAL.search(self._source.segment(call.args[0])):
            yield Inversion(name, 1, (self._replace(call.args[0], _RANDOM.choice(choice)),))

    def _form(self, name: str, arguments: list[str]) -> str:
        """Return the arguments of the assertion ``name`` with which it does not hold."""
        word = self._word()
        other = _RANDOM.choice([other for other in WORDS if word not in other and other not in word])
        return _RANDOM.choice(_FORMS[name]).format(*arguments, n=_number(), w=repr(word), v=repr(other))

    def _other_constant(self, value: object, text: str) -> str | None:
        """Return the text of a constant of the same type that is not equal to ``value``, whose text is ``text``."""
        if isinstance(value, str):
            return _literal(self._other_text(value), text, value)
        if isinstance(value, bytes):
            return repr(self._other_text(value.decode("latin-1")).encode("latin-1"))
        return _other_number(value)

    def _other_text(self, text: str) -> str:
        """Return ``text`` with another word in the place of one, or else another letter or digit.

        The words are the file's own: nothing in two texts says which of them is the test's.
        """
        if words := list(_WORD.finditer(text)):
            old = _RANDOM.choice(words)
            new = _cased(self._word(but=old[0].lower()), old[0])
            return text[: old.start()] + new + text[old.end() :]
        places = [place for place, character in enumerate(text) if character.isascii() and character.isalnum()]
        if not places:
            return text + self._word()
        place = _RANDOM.choice(places)
        other = _RANDOM.choice([letter for letter in _alphabet(text[place]) if letter != text[place]])
        return text[:place] + other + text[place + 1 :]

    def _word(self, but: str = "") -> str:
        """Return a word of the file's, where it has some, that is not ``but``."""
        return _RANDOM.choice([word for word in self._words if word != but])

    def _negate(self, node: ast.expr) -> Edit:
        return self._replace(node, f"not {self._bracketed(node)}")

    def _bracketed(self, node: ast.expr) -> str:
        """Return the text of ``node`` in brackets, where it needs them to be turned round."""
        text = self._source.segment(node)
        plain = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript) and "\n" not in text
        return text if plain else f"({text})"

    def _replace(self, node: ast.expr, text: str) -> Edit:
        return Edit(*self._source.span(node), text)


@dataclass(frozen=True, slots=True)
class _Column:
    """The values of a parameter, in the order of the rows of its ``table``: truthy numbers or texts."""

    table: ast.expr
    values: tuple[Any, ...]


def _plain_names(function: Function) -> dict[str, _Column]:
    """Return the names in ``function`` that only ever stand for truthy numbers or texts, as its own text shows."""
    found: dict[str, _Column] = {}
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and called_name(decorator) == "parametrize" and len(decorator.args) > 1:
            found.update(_plain_parameters(decorator))
    stored = {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    return {name: column for name, column in found.items() if name not in stored}


def _plain_parameters(call: ast.Call) -> dict[str, _Column]:
    """Return those parameters of ``call``, of ``parametrize``, that have only truthy constants as values.

    There are none where an option may send the values through fixtures: ``indirect``.
    """
    names, values, *more = call.args
    if more or any(keyword.arg != "ids" for keyword in call.keywords):
        return {}
    try:
        listed, rows = ast.literal_eval(names), ast.literal_eval(values)
    except ValueError:
        return {}
    keys = [key.strip() for key in listed.split(",")] if isinstance(listed, str) else list(listed)
    table = [[row] for row in rows] if isinstance(listed, str) and len(keys) == 1 else [list(row) for row in rows]
    if not table or any(len(row) != len(keys) for row in table):
        return {}
    return {
        key: _Column(values, column)
        for key, column in zip(keys, zip(*table, strict=True), strict=True)
        if all(type(value) in (int, float, str) and value for value in column)
    }


def _two(name: str) -> int:
    """Return 1 for an assertion of two arguments, and 0 for one of a single argument."""
    return int("{1}" in _FORMS[name][0])


def _other_number(value: object) -> str | None:
    """Return the text of another number, truth value or nothing than ``value``."""
    if isinstance(value, bool):
        return str(not value)
    if value is None:
        return "False"
    if isinstance(value, int):
        return str(_other_whole(value))
    if isinstance(value, float):
        whole, _, rest = repr(value).partition(".")
        return f"{_other_whole(int(whole))}.{rest}" if whole.isdigit() and rest.isdigit() else None
    return None


def _other_whole(value: int) -> int:
    """Return another number with as many digits, and as many zeros at its end.

    ``value`` could as well be what comes of the other: of two functions that differ in a number, nothing in the
    numbers says which of them is the control. They differ by more than assertions of nearness allow.
    """
    text = str(value)
    zeros = len(text) - len(text.rstrip("0")) if value else 0
    digits = len(text) - zeros
    while True:
        head = secrets.randbelow(10**digits)
        other = int(str(head) + "0" * zeros)
        alike = digits == 1 or (head >= 10 ** (digits - 1) and head % 10 != 0)
        if alike and (head or not zeros) and abs(other - value) >= max(2, max(other, value) / 4):
            return other


def _cased(word: str, like: str) -> str:
    """Return ``word`` in capital letters, or with the first one, as ``like`` is."""
    return word.upper() if like.isupper() else word.title() if like[0].isupper() else word


def _literal(changed: str, text: str, value: str) -> str:
    """Return the literal of ``changed``, in the quotes of ``text``, which is that of ``value``."""
    return text[0] + changed + text[-1] if text[0] in "'\"" and text[1:-1] == value else repr(changed)


def _alphabet(character: str) -> str:
    if character.isdigit():
        return "0123456789"
    return "abcdefghijklmnopqrstuvwxyz" if character.islower() else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _loose(call: ast.Call) -> bool:
    """Return whether a comparison may allow a difference so large that another value is equal, too."""
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
