"""Controls: tests of ours inside the task's own test files, which must fail.

They are made new for each verification. Each lies in a file that the command runs anyway, beside a test that it is a
copy of, so it shares path, class, decorators, fixtures and parameters with real tests, and the command stays as it
is. What makes failures look like passes makes controls pass, too. A control counts where the test that it was copied
from has passed: if that one was skipped, or did not run, nothing is known about its copy.
"""

from __future__ import annotations

import ast
import hashlib
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeGuard

from securebench.python_text import parse_python
from securebench.verifiers.repo_patch.evidence.adapter import CasePlace
from securebench.verifiers.repo_patch.evidence.inversion import inversions
from securebench.verifiers.repo_patch.evidence.plain_tests import plain_test
from securebench.verifiers.repo_patch.evidence.source import Edit, ModuleSource, called_name, definitely_run
from securebench.verifiers.repo_patch.evidence.unplaced import places_of
from securebench.verifiers.repo_patch.evidence.words import NameMaker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from securebench.patches.model import FileTree, FileVersion
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.inversion import Inversion
    from securebench.verifiers.repo_patch.evidence.source import Function

MAX_FILES: Final = 6
MAX_COPIES: Final = 12
"""How many files get controls, and how many copies there are in all: the time of tests is the task's."""
MAX_COPIES_OF_ONE: Final = 3
MAX_PLAIN: Final = 2
"""How many groups of tests in a file, its functions or one of its classes, get a test that fails in any case.

Where nothing can be copied, each gets as many."""

_RANDOM = secrets.SystemRandom()
_TEST = re.compile(r"test\w*", re.IGNORECASE)
_UNFIT_TEXT: Final = """
xfail skip skipif skipIf skipUnless expectedFailure flaky repeat retry given fixture property overload
staticmethod incremental dependency benchmark XFAIL SKIP slow
"""
_UNFIT: Final = frozenset(_UNFIT_TEXT.split())
"""Decorators of tests that may pass in another way than by holding, or that must be there once only."""

_OWN_SOURCE = re.compile(r"getsource|lineno|currentframe|_getframe|linecache|inspect\.stack|stacklevel|__line__")
"""What a module that looks at its own lines has in it: nothing may be put before them."""


_DEFINED: Final = re.compile(rb"def\s+(\w+)")
_OWN_NAMES: Final = re.compile(rb"\b(?:globals|vars|dir)\(\)|modules\[__name__\]|getTestCaseNames|getmembers\(")
"""What a module that looks at the names of its own tests has in it: it gets no controls."""

_CLASS_ENDS: Final = ("tearDownClass", "teardown_class")

_LIBRARIES: Final = {
    "numpy.testing": b"numpy",
    "pandas.testing": b"pandas",
    "xarray.testing": b"xarray",
    "django.test.testcases": b"django",
}
"""Modules with assertions, and what a file that uses them holds."""


@dataclass(frozen=True, slots=True)
class Control:
    """A test that must fail. ``original`` is the function that it copies; empty for one that always fails."""

    place: CasePlace
    original: str
    style: str


@dataclass(slots=True)
class Controls:
    """``files`` by path in the repository, and the controls in them by the name of their function.

    ``libraries`` are modules with assertions of their own that the files use. ``places`` say where tests are defined
    whose expected ids do not: see ``unplaced.py``.
    """

    files: dict[bytes, FileVersion] = field(default_factory=dict)
    by_function: dict[str, Control] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    places: dict[str, frozenset[CasePlace]] = field(default_factory=dict)

    def digests(self, adapter: Adapter) -> list[str]:
        """Return digests of their names, where the reporter must select them because the command names other tests.

        Otherwise none: what runs beside the tests does not know which of them are controls.
        """
        return [digest(function) for function in self.by_function] if adapter.narrows else []


def digest(function: str) -> str:
    """Return what a reporter gets in the place of a name. It finds each control by it, and no name by looking."""
    return hashlib.sha256(function.encode("utf-8")).hexdigest()


def plant(tests: Sequence[bytes], tree: FileTree, wanted: Iterable[str], adapter: Adapter) -> Controls:
    """Return controls in the files ``tests``, the first of them first, as they are in ``tree``.

    ``wanted`` are ids of tests; those are copied first. A file that cannot be edited gets none.
    """
    planted = Controls()
    places = {place for test in wanted if (place := adapter.place(test)) is not None}
    versions = {path: version for path in tests if (version := tree.get(path)) is not None and not version.link}
    texts = [version.content for version in versions.values()]
    wanted = tuple(wanted)
    planted.places = places_of(wanted, zip(versions, texts, strict=True), adapter)
    names = NameMaker()
    names.avoid(b"\n".join([*tests, *(name for text in texts for name in _DEFINED.findall(text))]).decode("latin-1"))
    left = MAX_COPIES
    files = list(dict.fromkeys(tests))[:MAX_FILES]
    for index, path in enumerate(files):
        version = tree.get(path)
        if version is None or version.link or _OWN_NAMES.search(version.content):
            continue
        stem = adapter.stem(path.decode("utf-8", "replace"))
        try:
            new = _File(version.content, stem, names, functions=adapter.functions)
            new.plant(places, -(-left // (len(files) - index)))
            text = new.text()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        left -= sum(bool(control.original) for control in new.controls)
        if new.controls:
            planted.files[path] = replace(version, content=text)
            planted.by_function.update({control.place.function: control for control in new.controls})
    planted.libraries = tuple(name for name, use in _LIBRARIES.items() if any(use in text for text in texts))
    return planted


@dataclass(frozen=True, slots=True)
class _Test:
    """A test in a file, the classes around it, and what can be turned round in it."""

    classes: tuple[ast.ClassDef, ...]
    node: Function
    ways: tuple[_Way, ...]


@dataclass(frozen=True, slots=True)
class _Way:
    """One inversion; of an assertion in a helper where there is one, which is copied with it."""

    inversion: Inversion
    helper: Function | None = None
    calls: tuple[ast.expr, ...] = ()


class _File:
    """One test file, and the controls that are put into it."""

    def __init__(self, content: bytes, stem: str, names: NameMaker, *, functions: bool) -> None:
        self._source = ModuleSource(content)
        self._stem = stem
        self._names = names
        self._functions = functions
        names.avoid(self._source.text)
        self._tests = list(self._find(self._source.module.body, ()))
        self._insertions: list[tuple[int, float, bytes]] = []
        self._at_end = _OWN_SOURCE.search(self._source.text) is not None
        self.controls: list[Control] = []

    def plant(self, wanted: set[CasePlace], copies: int) -> None:
        """Add at most ``copies`` copies, of ``wanted`` tests first, and tests that fail in any case."""
        chosen = self._choose(wanted, copies)
        for test, way in chosen:
            self._add_copy(test, way)
        for beside in self._groups(wanted) * (1 if chosen else MAX_PLAIN):
            self._add_plain(beside)

    def text(self) -> bytes:
        """Return the file with its controls. Raises ``SyntaxError`` if it cannot hold them."""
        text = self._source.content
        if text and not text.endswith(b"\n"):
            text += self._source.newline.encode()
        for start, _, piece in sorted(self._insertions, reverse=True):
            text = text[:start] + piece + text[start:]
        parse_python(text)
        return text

    def _find(self, body: list[ast.stmt], classes: tuple[ast.ClassDef, ...]) -> Iterator[_Test]:
        helpers = {
            node.name: node
            for node in body
            if isinstance(node, ast.FunctionDef) and not _TEST.match(node.name) and not node.decorator_list
        }
        for node in body:
            if isinstance(node, ast.ClassDef):
                if not _counts_tests(node):
                    yield from self._find(node.body, (*classes, node))
            elif _is_test(node, classes) and (classes or self._functions):
                yield _Test(classes, node, tuple(self._ways(node, helpers, in_class=bool(classes))))

    def _ways(self, test: Function, helpers: dict[str, ast.FunctionDef], *, in_class: bool) -> Iterator[_Way]:
        module = {node.name for node in self._source.module.body if isinstance(node, ast.FunctionDef)}
        for found in inversions(test, self._source, local={*module, *helpers}):
            yield _Way(found)
        for statement in definitely_run(test.body):
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and called_name(call) in helpers:
                is_method = isinstance(call.func, ast.Attribute) and called_name(call.func.value) == "self"
                if is_method == in_class:
                    helper = helpers[called_name(call)]
                    for found in inversions(helper, self._source, local=module):
                        yield _Way(found, helper, (call.func,))

    def _choose(self, wanted: set[CasePlace], copies: int) -> list[tuple[_Test, _Way]]:
        """Return what is copied: wanted tests before others, each style of the file, and what catches most."""
        again = self._find(self._source.module.body, ())  # the same tests, with other values in their inversions
        pool = [(test, way) for test, other in zip(self._tests, again, strict=True) for way in test.ways + other.ways]
        homes: dict[str, set[int]] = {}
        for test, way in pool:
            homes.setdefault(way.inversion.style, set()).add(id(test))
        seen: set[str] = set()
        count: dict[int, int] = {}
        chosen: list[tuple[_Test, _Way]] = []

        def cost(pair: tuple[_Test, _Way]) -> float:
            test, way = pair
            style = way.inversion.style
            new = 0 if style in seen else 1.5 + 1 / len(homes[style])  # one test may be all that has a style
            base = 0.0 if self._place(test) in wanted else 3.0
            return base + 2 * count.get(id(test), 0) - new - way.inversion.strength / 10 + _RANDOM.random() / 2

        while len(chosen) < copies:
            fit = [pair for pair in pool if count.get(id(pair[0]), 0) < MAX_COPIES_OF_ONE and pair not in chosen]
            if not fit:
                break
            test, way = best = min(fit, key=cost)
            chosen.append(best)
            seen.add(way.inversion.style)
            count[id(test)] = count.get(id(test), 0) + 1
        return chosen

    def _place(self, test: _Test, name: str = "") -> CasePlace:
        return CasePlace(self._stem, tuple(node.name for node in test.classes), name or test.node.name)

    def _add_copy(self, test: _Test, way: _Way) -> None:
        edits = [*way.inversion.edits] if way.helper is None else []
        if way.helper is not None:
            name = self._names.like(way.helper.name, self._source.words)
            renamed = self._source.name_edit(way.helper, name)
            self._insert(way.helper, [renamed, *way.inversion.edits], in_class=bool(test.classes))
            edits = [_renaming(self._source, call, name) for call in way.calls]
        name = self._names.like(test.node.name, self._source.words)
        self._insert(test.node, [self._source.name_edit(test.node, name), *edits], in_class=bool(test.classes))
        style = way.inversion.style if way.helper is None else f"helper: {way.inversion.style}"
        self.controls.append(Control(self._place(test, name), test.node.name, style))

    def _insert(self, node: Function, edits: list[Edit], *, in_class: bool) -> None:
        """Put a copy of ``node`` with ``edits`` before or after it."""
        block = self._source.block(node)
        self._put(block, self._source.copy(block, edits), in_class=in_class)

    def _put(self, beside: tuple[int, int], copied: bytes, *, in_class: bool) -> None:
        gap = self._source.newline.encode() * (1 if in_class else 2)
        if self._at_end and not in_class:
            self._insertions.append((len(self._source.content) + 1, _RANDOM.random(), gap + copied))
        elif secrets.randbelow(2):
            self._insertions.append((beside[0], _RANDOM.random(), copied + gap))
        else:
            self._insertions.append((beside[1], _RANDOM.random(), gap + copied))

    def _groups(self, wanted: set[CasePlace]) -> list[_Test]:
        """Return one test of each of some groups: the functions of the module, and its classes; wanted ones first."""
        groups: dict[tuple[str, ...], list[_Test]] = {}
        for test in self._tests:
            if not _has_parameters(self._source.module) and not any(_has_parameters(node) for node in test.classes):
                groups.setdefault(self._place(test).classes, []).append(test)
        ordered = sorted(groups.values(), key=lambda group: not any(self._place(test) in wanted for test in group))
        return [_RANDOM.choice(group) for group in ordered[:MAX_PLAIN]]

    def _add_plain(self, beside: _Test) -> None:
        """Add a test that fails in any case, in the style of ``beside``."""
        name = self._names.like(beside.node.name, self._source.words)
        case = any(called_name(base).endswith("TestCase") for node in beside.classes for base in node.bases)
        used = {called_name(node) for node in ast.walk(self._source.module) if isinstance(node, ast.Call)}
        text = plain_test(name, used, method=bool(beside.classes), case=case)
        indent, newline = " " * beside.node.col_offset, self._source.newline
        lines = [indent + line if line else line for line in text.splitlines()]
        plain = "".join(line + newline for line in lines).encode()
        self._put(self._source.block(beside.node), plain, in_class=bool(beside.classes))
        self.controls.append(Control(self._place(beside, name), "", "plain"))


def _renaming(source: ModuleSource, function: ast.expr, name: str) -> Edit:
    start, end = source.span(function)
    return Edit(end - len(called_name(function).encode()), end, name) if end > start else Edit(start, end, name)


def _counts_tests(node: ast.ClassDef) -> bool:
    """Return whether a class asserts something when its tests have ended: that may be how many there were."""
    ends = [method for method in node.body if isinstance(method, ast.FunctionDef) and method.name in _CLASS_ENDS]
    return any("assert" in ast.unparse(method) for method in ends)


def _has_parameters(node: ast.Module | ast.ClassDef) -> bool:
    """Return whether the tests in ``node`` may all need to take parameters, which a plain test does not take."""
    marks = [*node.decorator_list] if isinstance(node, ast.ClassDef) else []
    assigned = [statement for statement in node.body if isinstance(statement, ast.Assign)]
    marks += [one.value for one in assigned if any(called_name(name) == "pytestmark" for name in one.targets)]
    parts = [part for mark in marks for part in (mark.elts if isinstance(mark, ast.List | ast.Tuple) else [mark])]
    return any(isinstance(part, ast.Name) or "parametrize" in ast.unparse(part) for part in parts)


def _is_test(test: ast.stmt, classes: tuple[ast.ClassDef, ...]) -> TypeGuard[Function]:
    """Return whether ``test`` is one whose copy runs as it does: an ``async`` one only where something awaits it."""
    if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) or not _TEST.match(test.name):
        return False
    decorators = {called_name(node) for node in test.decorator_list}
    if not _UNFIT.isdisjoint(decorators):
        return False
    if isinstance(test, ast.AsyncFunctionDef):
        bases = {called_name(base) for node in classes for base in node.bases}
        return "IsolatedAsyncioTestCase" in bases or not any(base.endswith("TestCase") for base in bases)
    return True
