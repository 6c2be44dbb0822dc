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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.verifiers.repo_patch.evidence.source import Edit, called_name, definitely_run, has_effects_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.verifiers.repo_patch.evidence.source import Function, Source

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
    "assertNotEqual": "({0}, 7)[1], ({1}, 7)[1]",
    "assertNotAlmostEqual": "({0}, 7)[1], ({1}, 7)[1]",
    "assertIs": "{0}, ({1}, 7)",
    "assertIsNot": "None, ({0}, {1}, None)[2]",
    "assertIsNone": "({0}, 7)",
    "assertIsNotNone": "({0}, None)[1]",
    "assertIn": "{0}, ({1}, ())[1]",
    "assertNotIn": "None, ({0}, {1}, None)",
    "assertGreater": "{1}, {0}",
    "assertLess": "{1}, {0}",
    "assertGreaterEqual": "({0}, 2)[1], ({1}, 7)[1]",
    "assertLessEqual": "({0}, 7)[1], ({1}, 2)[1]",
    "assertIsInstance": "({0}, {1}, 7)[2], str",
    "assertNotIsInstance": "({0}, {1}, 7)[2], int",
    "assertRegex": "({0}, 'x')[1], ({1}, 'y')[1]",
    "assertRegexpMatches": "({0}, 'x')[1], ({1}, 'y')[1]",
    "assertNotRegex": "({0}, 'x')[1], ({1}, 'x')[1]",
}
"""What becomes of the first two arguments of an assertion: each is still computed, and the assertion cannot hold."""

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


def inversions(function: Function, source: Source, *, local: Iterable[str] = ()) -> list[Inversion]:
    """Return the certain inversions of ``function``. Calls of the names ``local``, the module's own, are left."""
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return []
    return list(_Inverter(function, source, frozenset(local)).all())


class _Inverter:
    def __init__(self, function: Function, source: Source, local: frozenset[str]) -> None:
        self._source = source
        self._local = local
        self._function = function
        self._plain = set() if _SWALLOWS_DOUBLING.search(source.text) else _plain_names(function)

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
            yield Inversion("assert not", 1, (self._replace(test, f"({self._source.segment(test.operand)})"),))
        else:
            yield Inversion("assert", 1, (self._replace(test, f"not ({self._source.segment(test)})"),))

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
                yield Inversion(f"assert {sign}", 1, (self._replace(test, f"not ({self._source.segment(test)})"),))

    def _equal(self, style: str, left: ast.expr, right: ast.expr) -> Iterator[Inversion]:
        """Yield inversions of ``left`` being equal to ``right``."""
        if "ANY" in self._source.segment(left) + self._source.segment(right):
            return
        for side in (right, left):
            edit = self._other(side)
            if edit is not None:
                yield Inversion(style, STRONG, (edit,))
                return
        yield Inversion(style, 1, (self._replace(right, f"({self._source.segment(right)}, {_number()})"),))

    def _other(self, node: ast.expr) -> Edit | None:
        """Return the edit that makes ``node`` a different value of the same type, if its text shows that it is one."""
        if isinstance(node, ast.Constant):
            text = _other_constant(node.value, self._source.segment(node))
            return None if text is None else self._replace(node, text)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self._other(node.operand) if node.operand.value else None
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._first([item for item in node.elts if not isinstance(item, ast.Starred)])
        if isinstance(node, ast.Dict):
            return self._first(node.values)
        if isinstance(node, ast.Call) and called_name(node) == "approx" and node.args:
            return None if _loose(node) else self._other(node.args[0])
        return self._other_expression(node)

    def _first(self, nodes: list[ast.expr]) -> Edit | None:
        edits = [edit for node in nodes if (edit := self._other(node)) is not None]
        return _RANDOM.choice(edits) if edits else None

    def _other_expression(self, node: ast.expr) -> Edit | None:
        """Return the edit of an expression of numbers, or of a name whose values the test itself shows."""
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        if not names or not names <= self._plain:
            return None
        text = self._source.segment(node)
        if isinstance(node, ast.Name):
            return self._replace(node, f"{text} * 2")
        allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Load)
        if isinstance(node, ast.BinOp) and all(isinstance(inner, allowed) for inner in ast.walk(node)):
            return self._replace(node, f"{text} + {_number()}")  # of anything but numbers: an error, which is a failure
        return None

    def _call(self, call: ast.Call) -> Iterator[Inversion]:
        """Yield inversions of an assertion that is a call."""
        name = called_name(call)
        if name in self._local or any(isinstance(value, ast.Starred) for value in call.args):
            return
        arguments = [self._source.segment(value) for value in call.args]
        if name in _TRUE | _FALSE and len(arguments) == 1:
            yield Inversion(name, 1, (self._replace(call.args[0], f"not ({arguments[0]})"),))
        elif name in _FORMS and len(arguments) > _FORMS[name].count("{1}"):
            last = call.args[min(len(call.args), _FORMS[name].count("{1}") + 1) - 1]
            start, end = self._source.span(call.args[0])[0], self._source.span(last)[1]
            yield Inversion(name, 1, (Edit(start, end, _FORMS[name].format(*arguments, "")),))
        elif name in _RAISES | _WARNS and len(arguments) > 1:
            yield from self._context(call)
        elif _EQUAL.fullmatch(name) and not _NOT_EQUAL.fullmatch(name) and len(arguments) > 1 and not _loose(call):
            yield from self._equal(name, call.args[0], call.args[1])

    def _context(self, call: ast.Call) -> Iterator[Inversion]:
        """Yield inversions of ``raises``, ``warns`` and their like: another class is expected."""
        name = called_name(call)
        if name == "assertLogs" and not call.keywords and len(call.args) <= 1:
            other = repr(f"{_word()}.{_word()}")
            start, end = self._source.span(call.args[0]) if call.args else (self._source.span(call)[1] - 1,) * 2
            yield Inversion(name, 1, (Edit(start, end, other),))
        if name not in _RAISES | _WARNS or name in self._local or not call.args:
            return
        classes = _EXCEPTIONS if name in _RAISES else _WARNINGS
        choice = [other for other in classes if other not in self._source.text]
        if choice and not _FATAL.search(self._source.segment(call.args[0])):
            yield Inversion(name, 1, (self._replace(call.args[0], _RANDOM.choice(choice)),))

    def _replace(self, node: ast.expr, text: str) -> Edit:
        return Edit(*self._source.span(node), text)


def _plain_names(function: Function) -> set[str]:
    """Return the names in ``function`` that only ever stand for truthy numbers or texts, as its own text shows."""
    found: set[str] = set()
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and called_name(decorator) == "parametrize" and len(decorator.args) > 1:
            found |= _plain_parameters(*decorator.args[:2])
    stored = [
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    ]
    return found - set(stored)


def _plain_parameters(names: ast.expr, values: ast.expr) -> set[str]:
    """Return which of the parameters ``names`` have only truthy constants in ``values``."""
    try:
        listed, rows = ast.literal_eval(names), ast.literal_eval(values)
    except ValueError:
        return set()
    keys = [key.strip() for key in listed.split(",")] if isinstance(listed, str) else list(listed)
    table = [[row] for row in rows] if isinstance(listed, str) and len(keys) == 1 else [list(row) for row in rows]
    if not table or any(len(row) != len(keys) for row in table):
        return set()
    return {
        key
        for key, column in zip(keys, zip(*table, strict=True), strict=True)
        if all(type(value) in (int, float, str) and value for value in column)
    }


def _other_constant(value: object, text: str) -> str | None:
    """Return the text of a constant of the same type that is not equal to ``value``, whose text is ``text``."""
    if isinstance(value, bool):
        return str(not value)
    if value is None:
        return "False"
    if isinstance(value, int):
        return str(_other_whole(value))
    if isinstance(value, float):
        whole, _, rest = repr(value).partition(".")
        return f"{_other_whole(int(whole))}.{rest}" if whole.isdigit() and rest.isdigit() else None
    if isinstance(value, str | bytes):
        return _other_text(value, text)
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


def _other_text(value: str | bytes, text: str) -> str:
    """Return a literal that differs from ``value`` in one letter or digit; the literal ``text`` is kept otherwise."""
    if not value:
        return repr(_word() if isinstance(value, str) else _word().encode())
    characters = value if isinstance(value, str) else value.decode("latin-1")
    places = [place for place, character in enumerate(characters) if character.isascii() and character.isalnum()]
    if not places:
        return repr(value + (_word() if isinstance(value, str) else _word().encode()))  # type: ignore[operator]
    place = _RANDOM.choice(places)
    other = _RANDOM.choice([letter for letter in _alphabet(characters[place]) if letter != characters[place]])
    changed = characters[:place] + other + characters[place + 1 :]
    if text[0] in "'\"" and text[1:-1] == characters:
        return text[0] + changed + text[-1]
    return repr(changed) if isinstance(value, str) else repr(changed.encode("latin-1"))


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


def _word() -> str:
    return _RANDOM.choice(
        [
            "amber",
            "basin",
            "cedar",
            "delta",
            "ember",
            "fjord",
            "grove",
            "heath",
            "inlet",
            "joist",
            "knoll",
            "ledge",
            "maple",
        ]
    )
