"""Controls: tests that must fail, added by SecureBench to the task's own test files.

Controls are created for each verification. Most are copies of a test with inverted assertions, beside the test. If the
test may be renamed, the names of the test and its copies are shuffled. Then only the host knows which of these
functions is the task's own test. Other controls are new tests that always fail. Code that turns failures into passes
makes controls pass, too. A copy counts only if its test passed: the copies of a test that was skipped or did not run
prove nothing. A new test that always fails counts only if a test of the same class or module passed.

Some expected ids do not show where their test is defined: they are the first line of a docstring, or a function's name.
Code under test can remove the task's test and add another test with the same name. So if the task's own files define
tests with this name, one of those tests must have passed.
"""

from __future__ import annotations

import ast
import hashlib
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from securebench.python_text import parse_python
from securebench.verifiers.repo_patch.evidence.adapter import CasePlace
from securebench.verifiers.repo_patch.evidence.edited_file import EditedFile, Variants
from securebench.verifiers.repo_patch.evidence.source import called_name
from securebench.verifiers.repo_patch.evidence.words import NameMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from securebench.patches.model import FileTree, FileVersion
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.edited_file import AssertionWay, ControlGroup, TaskTest

MAX_FILES: Final = 6
"""The maximum number of files with controls."""
MAX_COPIES: Final = 24
"""The maximum number of copies of tests in all files together. Copies use up the task's time limit."""

ENOUGH_BITS: Final = 8.0
"""How hard it should be to guess which variants are the task's tests: with 8 bits, one guess in 256 is right."""

_RANDOM = secrets.SystemRandom()
_BASES: Final = re.compile(rb"class\s+\w+\s*\(([^)]*)\)")
_NAME: Final = re.compile(rb"[A-Za-z_]\w*")
_DEFINED: Final = re.compile(rb"def\s+(\w+)")
_OWN_NAMES: Final = re.compile(rb"\b(?:globals|vars|dir)\(\)|modules\[__name__\]|getTestCaseNames|getmembers\(")
"""Signs that a module inspects the names of its own tests. Such a module gets no controls."""

_LIBRARIES: Final = {
    "numpy.testing": b"numpy",
    "pandas.testing": b"pandas",
    "xarray.testing": b"xarray",
    "django.test.testcases": b"django",
}
"""Modules with assertions, each with a text that occurs in every file that uses the module."""


def places_of(
    ids: Iterable[str], files: Iterable[tuple[bytes, bytes]], adapter: Adapter
) -> dict[str, frozenset[CasePlace]]:
    """Return where the ``files`` (path and content) define the tests of ``ids``.

    An id that itself shows the place of its test is left out. Methods of classes without a base ``...TestCase`` are
    left out, too: the source does not show which class runs them.
    """
    wanted = {test for test in ids if adapter.place(test) is None}
    found: dict[str, set[CasePlace]] = {}
    for path, content in files if wanted else ():
        stem = adapter.stem(path.decode("utf-8", "replace"))
        for name, place in _tests(content, stem, adapter):
            if name in wanted:
                found.setdefault(name, set()).add(place)
    return {name: frozenset(places) for name, places in found.items()}


def _tests(content: bytes, stem: str, adapter: Adapter) -> Iterator[tuple[str, CasePlace]]:
    """Yield the names by which a task may list the tests of a file, each with the place of its test.

    A name is the name of a function or the first line of a method's docstring.
    """
    try:
        body = parse_python(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    gone = {name.id for one in body for name in ast.walk(one) if isinstance(name, ast.Name) and _is_bound(name)}
    for node in body:
        if isinstance(node, ast.FunctionDef) and adapter.functions and node.name not in gone:
            yield node.name, CasePlace(stem, (), node.name)
        is_case = isinstance(node, ast.ClassDef) and any(called_name(base).endswith("TestCase") for base in node.bases)
        if isinstance(node, ast.ClassDef) and is_case and node.name not in gone:
            for test in node.body:
                text = ast.get_docstring(test) if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) else None
                if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and text:
                    yield text.strip().split("\n")[0].strip(), CasePlace(stem, (node.name,), test.name)


def _is_bound(name: ast.Name) -> bool:
    """Return whether ``name`` is assigned or deleted here. If so, a test or class with this name might never run."""
    return isinstance(name.ctx, ast.Store | ast.Del)


@dataclass(slots=True)
class Controls:
    """The controls of one verification, and the test files to which they were added."""

    files: dict[bytes, FileVersion] = field(default_factory=dict)
    """The test files that contain controls. The keys are paths in the repository."""

    groups: list[ControlGroup] = field(default_factory=list)
    """The controls in ``files``, in groups."""

    libraries: tuple[str, ...] = ()
    """The modules with assertions, such as ``numpy.testing``, that the task's test files seem to use."""

    places: dict[str, frozenset[CasePlace]] = field(default_factory=dict)
    """The result of :func:`places_of` for the test ids that :func:`plant` received as ``wanted``."""

    @property
    def styles(self) -> list[str]:
        """The style of each control."""
        return [style for group in self.groups for style in group.controls.values()]

    def digests(self, adapter: Adapter) -> list[str]:
        """Return digests of the new functions' names, or an empty list if the command does not select single tests."""
        # If the command selects single tests, the reporter must also select the new functions. Digests that the
        # reporter does not need would only show code in the tests' process which functions are new.
        return [digest(function) for group in self.groups for function in group.new] if adapter.narrows else []


def digest(function: str) -> str:
    """Return the hexadecimal SHA-256 digest of ``function``, the name of a test function."""
    # The reporter receives the digests of the new functions' names instead of the names. It compares them with the
    # digests of the names of all collected functions.
    return hashlib.sha256(function.encode("utf-8")).hexdigest()


def plant(tests: Sequence[bytes], tree: FileTree, wanted: Iterable[str], adapter: Adapter) -> Controls:
    """Return controls for the first ``MAX_FILES`` of the test files.

    ``tests`` are the paths of the test files in ``tree``. ``wanted`` are ids of tests to copy first. A file that cannot
    be edited gets no controls.
    """
    wanted = tuple(wanted)
    places = {place for test in wanted if (place := adapter.place(test)) is not None}
    versions = {path: version for path in tests if (version := tree.get(path)) is not None and not version.link}
    texts = [version.content for version in versions.values()]
    unplaced = places_of(wanted, zip(versions, texts, strict=True), adapter)
    places |= {place for found in unplaced.values() for place in found}
    names = NameMaker()
    names.avoid(b"\n".join([*tests, *(name for text in texts for name in _DEFINED.findall(text))]).decode("latin-1"))
    bases = {path: _bases(version.content) for path, version in versions.items()}
    files: dict[bytes, EditedFile] = {}
    for path in list(versions)[:MAX_FILES]:
        content = versions[path].content
        inherited = frozenset(name for other, found in bases.items() if other != path for name in found)
        if not _OWN_NAMES.search(content):
            try:
                files[path] = EditedFile(path.decode("utf-8", "replace"), content, names, adapter, inherited)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    chosen = _Choice([test for file in files.values() for test in file.tests], places).all()
    planted = Controls(places=unplaced)
    for path, file in files.items():
        try:
            text = file.plant([variants for variants in chosen if variants.test in file.tests], places)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if file.groups:
            planted.files[path] = replace(versions[path], content=text)
            planted.groups += file.groups
    planted.libraries = tuple(name for name, use in _LIBRARIES.items() if any(use in text for text in texts))
    return planted


def _bases(content: bytes) -> set[str]:
    """Return the names of the base classes in a module."""
    return {name.decode() for bases in _BASES.findall(content) for name in _NAME.findall(bases)}


class _Choice:
    """Chooses how many variants each test gets, with at most ``MAX_COPIES`` copies in total.

    The variants of a test are the test itself and its copies with inverted assertions. The variants should cover the
    tests and make it hard to guess which functions are the task's own tests, with as few copies as possible.
    """

    def __init__(self, tests: list[TaskTest], wanted: set[CasePlace]) -> None:
        self._tests = [test for test in tests if test.ways]
        self._wanted = [test for test in self._tests if not test.places.isdisjoint(wanted)]
        self._chosen: dict[int, Variants] = {}

    def all(self) -> list[Variants]:
        """Choose tests to copy, and return the variants of each chosen test."""
        # A control counts only if its test passed. The wanted tests should pass, so they come first.
        self._cover(lambda _test, way: way.style, self._wanted)
        self._harden(self._wanted, MAX_COPIES * 2 // 3)  # leave some copies for the other tests
        self._cover(lambda _test, way: way.style, self._tests)
        self._cover(lambda test, _way: test.path, self._tests)
        self._cover(lambda test, _way: (test.path, test.classes), self._tests)
        self._harden([test for test in self._tests if test not in self._wanted], MAX_COPIES)
        return list(self._chosen.values())

    def _harden(self, tests: list[TaskTest], most: int) -> None:
        """Add variants of ``tests``, so that it is harder to guess which functions are the task's own tests.

        Variants are added only if the total number of copies does not exceed ``most`` afterwards.
        """
        while sum(chosen.spread for test in tests if (chosen := self._chosen.get(id(test)))) < ENOUGH_BITS:
            grown = [larger for test in tests for larger in self._grown(test)]
            fit = [larger for larger in grown if self._copies(larger) <= most]
            if not fit:
                return
            best = min(fit, key=lambda one: (one.size * one.test.rows, -one.bits, _RANDOM.random()))
            self._chosen[id(best.test)] = best

    def _grown(self, test: TaskTest) -> Iterator[Variants]:
        """Yield larger sets of variants of ``test``. Each adds one form of one assertion to the chosen set."""
        if test.movable:
            now = self._chosen.get(id(test), Variants(test))
            for way in test.ways:
                if len(way.inversion.choices) > 1 and (larger := now.larger(way)):
                    yield larger

    def _cover(self, kind: Callable[[TaskTest, AssertionWay], object], tests: list[TaskTest]) -> None:
        """Add a control for each kind of assertion in ``tests`` that has none yet. Rare kinds come first.

        ``kind`` returns the kind of an assertion, such as its style or its file. Of several possible controls, the one
        that needs the fewest copies is added. If all of them need too many copies, none is added.
        """
        found: dict[object, list[tuple[TaskTest, AssertionWay]]] = {}
        for test in tests:
            for way in test.ways:
                found.setdefault(kind(test, way), []).append((test, way))
        for name, pairs in sorted(found.items(), key=lambda item: len({id(test) for test, _ in item[1]})):
            if any(kind(each.test, way) == name for each in self._chosen.values() for way in each.ways):
                continue
            grown = (self._chosen.get(id(test), Variants(test)).larger(way) for test, way in pairs)
            fit = [larger for larger in grown if larger and self._copies(larger) <= MAX_COPIES * 5 // 6]
            if fit:
                best = min(fit, key=lambda one: (one.size * one.test.rows, one.test not in self._wanted, -one.bits))
                self._chosen[id(best.test)] = best

    def _copies(self, larger: Variants) -> int:
        """Return the total number of copies if ``larger`` replaces the variants of its test."""
        others = (each for each in self._chosen.values() if each.test is not larger.test)
        return sum((each.size - 1) * each.test.rows for each in [*others, larger])
