"""Edit a test file: add variants of its tests."""

from __future__ import annotations

import ast
import itertools
import math
import re
import secrets
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeGuard

from securebench.python_text import parse_python
from securebench.verifiers.repo_patch.evidence.adapter import CasePlace
from securebench.verifiers.repo_patch.evidence.inversion import STRONG, inversions
from securebench.verifiers.repo_patch.evidence.plain_tests import plain_test
from securebench.verifiers.repo_patch.evidence.source import Edit, ModuleSource, called_name, definitely_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.inversion import Inversion
    from securebench.verifiers.repo_patch.evidence.source import Function
    from securebench.verifiers.repo_patch.evidence.words import NameMaker

MAX_PLAIN: Final = 2
"""Tests that always fail are added to at most this many classes of a file.

All functions outside of classes count as one class.
"""

_RANDOM = secrets.SystemRandom()
_TEST = re.compile(r"test\w*", re.IGNORECASE)
_UNFIT_TEXT: Final = """
xfail skip skipif skipIf skipUnless expectedFailure flaky repeat retry given fixture property overload
staticmethod incremental dependency benchmark XFAIL SKIP slow
"""
_UNFIT: Final = frozenset(_UNFIT_TEXT.split())
"""Decorators of tests that may pass for reasons other than their assertions, or that must not be duplicated."""

_RENAMED: Final = frozenset(("expand", "parameterized", "data", "file_data"))
"""Decorators of tests that do not run under the names of their functions. Such tests get no variants."""

_OWN_SOURCE = re.compile(r"getsource|lineno|currentframe|_getframe|linecache|inspect\.stack|stacklevel|__line__")
"""Signs that a module inspects its own source lines. New functions outside of classes are then added at its end."""

_OWN_LINE = re.compile(r"currentframe|_getframe|inspect\.stack|__line__")
"""Signs that a test compares its own line number.

Such a test gets no control, because an inverted copy on another line could pass.
"""

_OWN_TEST_NAMES = re.compile(r"_testMethodName|nodeid|node\.name|self\.id\(\)|PYTEST_CURRENT_TEST|co_name")
"""Signs that a module inspects the names of running tests. The tests of such a module are not renamed."""

_KEEPS_NAME = re.compile(r"snapshot|regression|regtest|cassette|vcr|datadir|image_compare|golden|approv")
"""Signs, in parameters and decorators, that a test reads files named after it. Such a test keeps its name."""

_RENAMING = re.compile(r"param|ddt|expand", re.IGNORECASE)
"""Class decorators that rename tests. The marks of pytest do not rename tests, although their names may match."""

_CLASS_ENDS: Final = ("tearDownClass", "teardown_class")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The controls of one test of the task. An added test that always fails is a group of its own."""

    place: CasePlace
    """The original place of the task's test. For an added test, this is the class or module to which it was added."""

    real: str
    """The name of the function that now contains the task's test, or an empty string if the group is an added test."""

    controls: Mapping[str, str]
    """The style of each control, by the name of the control's function."""

    homes: frozenset[CasePlace]
    """The classes that run the test, or the module if the test has no class. Each place has an empty ``function``."""

    bits: float = 0.0
    """How hard it is to guess which function is the task's test. One in ``2 ** bits`` guesses is right."""

    @property
    def new(self) -> list[str]:
        """The names of the new functions. One variant of the test has the test's old name, which is left out."""
        return [name for name in (self.real, *self.controls) if name not in ("", self.place.function)]


@dataclass(frozen=True, slots=True)
class AssertionWay:
    """An assertion to invert. If it is in a ``helper`` function, the helper is copied, too."""

    inversion: Inversion
    helper: Function | None = None
    calls: tuple[ast.expr, ...] = ()

    @property
    def style(self) -> str:
        """The style of the control."""
        return self.inversion.style if self.helper is None else f"helper: {self.inversion.style}"


@dataclass(frozen=True, slots=True, eq=False)
class TaskTest:
    """A test in a file, its enclosing classes, and its assertions that can be inverted.

    ``homes`` are the places where the test runs: its class and the subclasses of that class, or its module if it has no
    class. ``movable`` is true if the test may be renamed. ``rows`` is how often it runs, judging by its tables of
    parameters.
    """

    path: str
    classes: tuple[ast.ClassDef, ...]
    node: Function
    ways: tuple[AssertionWay, ...]
    homes: frozenset[CasePlace]
    movable: bool
    rows: int

    @property
    def places(self) -> set[CasePlace]:
        """The places to which ids of this test may refer: one for each of ``homes``."""
        return {home._replace(function=self.node.name) for home in self.homes}


@dataclass(frozen=True, slots=True)
class Variants:
    """The variants of a test. Some of its assertions have several forms: the task's own, and edited ones.

    There is one variant for each combination of forms. ``ways`` are the assertions that have several forms. ``counts``
    has the number of forms of each, including the task's own. If an assertion has two forms, each is in half of the
    variants, so no majority reveals the task's test.
    """

    test: TaskTest
    ways: tuple[AssertionWay, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of variants, including the test itself."""
        return math.prod(self.counts)

    @property
    def bits(self) -> float:
        """How hard it is to guess which variant is the test: see :attr:`ControlGroup.bits`."""
        strong = [count for way, count in zip(self.ways, self.counts, strict=True) if _is_strong(way)]
        return math.log2(math.prod(strong)) if self.test.movable else 0.0

    @property
    def spread(self) -> float:
        """Like ``bits``, but also counts assertions whose original form is easy to recognize."""
        return math.log2(self.size) if self.test.movable else 0.0

    def larger(self, way: AssertionWay) -> Variants | None:
        """Return a larger set of variants, in which the assertion ``way`` has one more edited form.

        Returns ``None`` if no form of ``way`` can be added.
        """
        if way in self.ways:
            place = self.ways.index(way)
            counts = list(self.counts)
            counts[place] += 1
            fits = counts[place] <= len(way.inversion.choices) + 1
            return replace(self, counts=tuple(counts)) if fits else None
        spans = [_span(each) for each in self.ways if each.helper is None and way.helper is None]
        start, end = _span(way)
        if any(first < end and start < last for first, last in spans) or (way.helper and self.ways):
            return None
        if any(each.helper for each in self.ways):
            return None
        return Variants(self.test, (*self.ways, way), (*self.counts, 2))

    def controls(self) -> Iterator[tuple[str, list[Edit]]]:
        """Yield the style and edits of each control."""
        for numbers in itertools.product(*(range(count) for count in self.counts)):
            turned = [(way, number - 1) for way, number in zip(self.ways, numbers, strict=True) if number]
            if turned:
                yield turned[0][0].style, [edit for way, at in turned for edit in way.inversion.choices[at]]


def _is_strong(way: AssertionWay) -> bool:
    return way.inversion.strength == STRONG


def _span(way: AssertionWay) -> tuple[int, int]:
    edits = [edit for choice in way.inversion.choices for edit in choice]
    return min(edit.start for edit in edits), max(edit.end for edit in edits)


class EditedFile:
    """A test file and the controls added to it.

    ``inherited`` are names of classes from which classes in other files inherit. Raises ``ValueError``,
    ``SyntaxError``, ``RecursionError`` or ``MemoryError`` for a file that cannot be edited.
    """

    def __init__(
        self, path: str, content: bytes, names: NameMaker, adapter: Adapter, inherited: frozenset[str]
    ) -> None:
        self._path = path
        self._source = ModuleSource(content)
        self._stem = adapter.stem(path)
        self._names = names
        self._functions = adapter.functions
        self._narrows = adapter.narrows
        self._inherited = inherited
        names.avoid(self._source.text)
        self._at_end = _OWN_SOURCE.search(self._source.text) is not None
        self._keeps_names = self._at_end or _OWN_TEST_NAMES.search(self._source.text) is not None
        self._used = Counter(re.findall(r"\w+", self._source.text))
        self._defined = Counter(re.findall(r"\bdef\s+(\w+)", self._source.text))
        self._edits: list[tuple[int, bool, float, int, bytes]] = []
        self.tests = list(self._find(self._source.module.body, ()))
        self.groups: list[ControlGroup] = []

    def plant(self, chosen: list[Variants], wanted: set[CasePlace]) -> bytes:
        """Return the file with the ``chosen`` variants, and with tests that always fail.

        Raises ``SyntaxError`` if the edited file would be invalid.
        """
        groups = [self._add(variants) for variants in chosen]
        # Each chosen class gets one test that always fails, or MAX_PLAIN of them if the file has no other controls.
        groups += [self._add_plain(beside) for beside in self._beside(wanted) * (1 if chosen else MAX_PLAIN)]
        text = self._source.content
        if text and not text.endswith(b"\n"):
            text += self._source.newline.encode()
        for start, _, _, end, piece in sorted(self._edits, reverse=True):
            text = text[:start] + piece + text[end:]
        parse_python(text)
        self.groups = groups
        return text

    def _find(self, body: list[ast.stmt], classes: tuple[ast.ClassDef, ...]) -> Iterator[TaskTest]:
        helpers = {
            node.name: node
            for node in body
            if isinstance(node, ast.FunctionDef) and not _TEST.match(node.name) and not node.decorator_list
        }
        names = [getattr(node, "name", "") for node in body]
        for node in body:
            if isinstance(node, ast.ClassDef):
                if not _counts_tests(node):
                    yield from self._find(node.body, (*classes, node))
            elif _is_test(node, classes) and (classes or self._functions) and names.count(node.name) == 1:
                renamed = not _RENAMED.isdisjoint(called_name(each) for each in node.decorator_list)
                unfit = renamed or _OWN_LINE.search(ast.unparse(node))
                ways = () if unfit else tuple(self._ways(node, helpers, in_class=bool(classes)))
                rows, movable = _rows(node), self._is_movable(node, classes)
                yield TaskTest(self._path, classes, node, ways, self._homes(classes, node), movable, rows)

    def _ways(self, test: Function, helpers: dict[str, ast.FunctionDef], *, in_class: bool) -> Iterator[AssertionWay]:
        module = {node.name for node in self._source.module.body if isinstance(node, ast.FunctionDef)}
        for found in inversions(test, self._source, local={*module, *helpers}):
            in_table = any(edit.start < self._source.line(test.lineno) for edit in found.choices[0])
            if not (self._narrows and in_table):  # the command may name a test with its parameters
                yield AssertionWay(found)
        for statement in definitely_run(test.body):
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and called_name(call) in helpers:
                is_method = isinstance(call.func, ast.Attribute) and called_name(call.func.value) == "self"
                if is_method == in_class:
                    helper = helpers[called_name(call)]
                    for found in inversions(helper, self._source, local=module):
                        # The copy of the helper reveals which variants are controls.
                        weak = replace(found, strength=1, choices=found.choices[:1])
                        yield AssertionWay(weak, helper, (call.func,))

    def _homes(self, classes: tuple[ast.ClassDef, ...], test: Function) -> frozenset[CasePlace]:
        """Return where a test runs: its module, or its class and the subclasses of that class.

        Subclasses in other files, and subclasses that override the test, are left out.
        """
        homes = {CasePlace(self._stem, tuple(node.name for node in classes), "")}
        if len(classes) == 1:
            heirs = (node for node in self._heirs(classes[0]) if not _has(node, test))
            homes |= {CasePlace(self._stem, (node.name,), "") for node in heirs}
        return frozenset(homes)

    def _heirs(self, base: ast.ClassDef) -> list[ast.ClassDef]:
        """Return the classes of the module that inherit from ``base``, directly or indirectly."""
        found = [base]
        for node in self._source.module.body:
            if isinstance(node, ast.ClassDef) and {called_name(each) for each in node.bases} & {n.name for n in found}:
                found.append(node)
        return found[1:]

    def _is_movable(self, test: Function, classes: tuple[ast.ClassDef, ...]) -> bool:
        """Return whether ``test`` may be renamed and moved, as far as the file shows."""
        if (
            self._keeps_names or self._used[test.name] != self._defined[test.name]
        ):  # the file inspects its lines or test names, or another part of it refers to the test
            return False
        family: list[ast.Module | ast.ClassDef] = [*classes, *(self._heirs(classes[0]) if classes else [])]
        if sum(_has(node, test) for node in family) > 1 or any(_renames(node) for node in family):
            return False
        header = [*test.decorator_list, test.args]
        keeps = any(_KEEPS_NAME.search(ast.unparse(part)) for part in header)
        return not keeps and self._inherited.isdisjoint(node.name for node in classes)

    def _place(self, test: TaskTest, name: str) -> CasePlace:
        return CasePlace(self._stem, tuple(node.name for node in test.classes), name)

    def _add(self, variants: Variants) -> ControlGroup:
        """Insert the controls of a test beside it, under new names.

        If the test is movable, the names are shuffled: a control may get the name of the test, and the test a new name.
        """
        test = variants.test
        forms: list[tuple[str, list[Edit]]] = [("", []), *variants.controls()]
        names = [test.node.name, *(self._names.like(test.node.name, self._source.words) for _ in forms[1:])]
        if test.movable:
            _RANDOM.shuffle(names)
        block = self._source.block(test.node)
        for name, (_, edits) in zip(names, forms, strict=True):
            way = variants.ways[0]
            own = self._with_helper(way, edits, in_class=bool(test.classes)) if way.helper and edits else edits
            copy = self._source.copy(block, [self._source.name_edit(test.node, name), *own])
            self._put(block, copy, replaces=name == test.node.name, in_class=bool(test.classes))
        styles = {name: style for name, (style, _) in zip(names, forms, strict=True) if style}
        return ControlGroup(self._place(test, test.node.name), names[0], styles, test.homes, variants.bits)

    def _with_helper(self, way: AssertionWay, edits: list[Edit], *, in_class: bool) -> list[Edit]:
        """Insert an edited copy of a helper beside it. Return the edits that make a test call the copy."""
        assert way.helper is not None
        name = self._names.like(way.helper.name, self._source.words)
        block = self._source.block(way.helper)
        copy = self._source.copy(block, [self._source.name_edit(way.helper, name), *edits])
        self._put(block, copy, in_class=in_class)
        return [_renaming(self._source, call, name) for call in way.calls]

    def _put(self, block: tuple[int, int], piece: bytes, *, in_class: bool, replaces: bool = False) -> None:
        """Insert ``piece`` before or after ``block`` or at the end of the file, or replace ``block``."""
        start, end = block
        gap = self._source.newline.encode() * (1 if in_class else 2)
        if replaces:
            self._edits.append((start, True, 0.0, end, piece))
        elif self._at_end and not in_class:
            end = len(self._source.content) + 1
            self._edits.append((end, False, _RANDOM.random(), end, gap + piece))
        elif secrets.randbelow(2):
            self._edits.append((start, False, _RANDOM.random(), start, piece + gap))
        else:
            self._edits.append((end, False, _RANDOM.random(), end, gap + piece))

    def _beside(self, wanted: set[CasePlace]) -> list[TaskTest]:
        """Return one test of each group (the module's functions, or a class). Groups of ``wanted`` tests come first.

        At most ``MAX_PLAIN`` groups are used.
        """
        groups: dict[tuple[str, ...], list[TaskTest]] = {}
        for test in self.tests:
            if not _has_parameters(self._source.module) and not any(_has_parameters(node) for node in test.classes):
                groups.setdefault(self._place(test, "").classes, []).append(test)
        ordered = sorted(groups.values(), key=lambda group: all(test.places.isdisjoint(wanted) for test in group))
        return [_RANDOM.choice(group) for group in ordered[:MAX_PLAIN]]

    def _add_plain(self, beside: TaskTest) -> ControlGroup:
        """Add a test that always fails, in the style of ``beside``."""
        name = self._names.like(beside.node.name, self._source.words)
        case = any(called_name(base).endswith("TestCase") for node in beside.classes for base in node.bases)
        used = {called_name(node) for node in ast.walk(self._source.module) if isinstance(node, ast.Call)}
        text = plain_test(name, used, method=bool(beside.classes), case=case)
        indent, newline = " " * beside.node.col_offset, self._source.newline
        lines = [indent + line if line else line for line in text.splitlines()]
        plain = "".join(line + newline for line in lines).encode()
        self._put(self._source.block(beside.node), plain, in_class=bool(beside.classes))
        return ControlGroup(self._place(beside, ""), "", {name: "plain"}, beside.homes)


def _renaming(source: ModuleSource, function: ast.expr, name: str) -> Edit:
    _, end = source.span(function)
    return Edit(end - len(called_name(function).encode()), end, name)


def _has(node: ast.Module | ast.ClassDef, test: Function) -> bool:
    """Return whether a class or module defines ``test``, or another function with its name."""
    functions = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(each.name == test.name for each in functions)


def _renames(node: ast.Module | ast.ClassDef) -> bool:
    """Return whether a decorator may rename the tests of a class."""
    texts = [ast.unparse(each) for each in node.decorator_list] if isinstance(node, ast.ClassDef) else []
    return any(_RENAMING.search(text) and "mark" not in text for text in texts)


def _rows(test: Function) -> int:
    """Return how often a test runs, judging by its tables of parameters."""
    calls = [each for each in test.decorator_list if isinstance(each, ast.Call) and called_name(each) == "parametrize"]
    tables = [call.args[1] for call in calls if len(call.args) > 1]
    return math.prod(len(table.elts) for table in tables if isinstance(table, ast.List | ast.Tuple))


def _counts_tests(node: ast.ClassDef) -> bool:
    """Return whether a class makes assertions after its tests have run. Such an assertion may count the tests."""
    ends = [method for method in node.body if isinstance(method, ast.FunctionDef) and method.name in _CLASS_ENDS]
    return any("assert" in ast.unparse(method) for method in ends)


def _has_parameters(node: ast.Module | ast.ClassDef) -> bool:
    """Return whether marks may give parameters to all tests in ``node``.

    If they do, an added test would fail, because it takes no parameters.
    """
    marks = [*node.decorator_list] if isinstance(node, ast.ClassDef) else []
    assigned = [statement for statement in node.body if isinstance(statement, ast.Assign)]
    marks += [one.value for one in assigned if any(called_name(name) == "pytestmark" for name in one.targets)]
    parts = [part for mark in marks for part in (mark.elts if isinstance(mark, ast.List | ast.Tuple) else [mark])]
    return any(isinstance(part, ast.Name) or "parametrize" in ast.unparse(part) for part in parts)


def _is_test(test: ast.stmt, classes: tuple[ast.ClassDef, ...]) -> TypeGuard[Function]:
    """Return whether a copy of ``test`` would run like the original.

    An ``async`` test in a unittest case is accepted only in an ``IsolatedAsyncioTestCase``, which awaits it.
    """
    if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) or not _TEST.match(test.name):
        return False
    decorators = {called_name(node) for node in test.decorator_list}
    if not _UNFIT.isdisjoint(decorators):
        return False
    if isinstance(test, ast.AsyncFunctionDef):
        bases = {called_name(base) for node in classes for base in node.bases}
        return "IsolatedAsyncioTestCase" in bases or not any(base.endswith("TestCase") for base in bases)
    return True
