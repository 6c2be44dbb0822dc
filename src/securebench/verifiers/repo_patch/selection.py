"""Determine which tests a command runs, and which files of a repository influence them."""

from __future__ import annotations

import posixpath
import re
import secrets
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.patches.names import parents
from securebench.runner_commands import read_command
from securebench.verifiers.repo_patch.plan import Overlay
from securebench.verifiers.repo_patch.pytest_options import configuration_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.patches.model import Delta, FileTree
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.plan import PristineTree
    from securebench.verifiers.repo_patch.request import RepoPatchRequest

_READ_BY_PYTEST: Final = "pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini setup.cfg pyproject.toml"
_RUN: Final = "conftest.py sitecustomize.py usercustomize.py entry_points.txt"
_CONFIGURATION: Final = frozenset(f"{_READ_BY_PYTEST} {_RUN}".split())
"""Names of files that pytest reads or runs, or that Python runs before pytest starts."""

_OTHER_NAMES: Final = re.compile(rb"python_(?:functions|classes)")
"""Settings that change which names count as tests."""

_TEST_NAME = re.compile(rb"test_.*\.py|.*_test\.py|tests\.py", re.DOTALL)

_IMPORTABLE: Final = (b".py", b".pyc", b".so")


class Selection:
    """The test files of a command. ``tests`` are the files that the command or task names, as paths in the repository.

    ``control_files`` are the Python files that may get controls, most informative first: files of ``fail_to_pass``
    tests, files that the task changed, other files of expected tests and of the command, and test files in directories
    that the command names. If neither the command nor the task names existing files or directories, ``control_files``
    are the test files in or below the working directory. If the command names a single test in a way that keeps
    controls from running (:func:`selects_method`), ``control_files`` is empty.
    """

    def __init__(self, request: RepoPatchRequest, adapter: Adapter, pristine: PristineTree, tests: Delta) -> None:
        self._here = _working_directory(request)
        self._adapter = adapter
        self._request = request
        self._named = {pattern.encode("utf-8") for pattern in request.policy.allow_sensitive_paths}
        fixed = self._paths(adapter.file(test) for test in request.fail_to_pass)
        kept = self._paths(adapter.file(test) for test in request.pass_to_pass)
        named = self._paths(adapter.selected)
        paths = sorted({*fixed, *kept, *named})
        self.tests = [path for path in paths if _is_file(path, pristine, tests)]
        folders = [path for path in named if path not in self.tests and _has_files(path, pristine)]
        if not self.tests and not folders:
            folders = [self._here]
        below = {path for folder in folders for path in (*pristine.files(folder), *tests) if _is_below(path, folder)}
        inside = [path for path in below if is_test_file(path) and _is_file(path, pristine, tests)]
        first = [path for path in inside if path in tests]
        changed = [path for path in self.tests if path in tests]
        groups = (fixed, [*changed, *first], self.tests, inside)
        ordered = dict.fromkeys(path for group in groups for path in _shuffled(group))
        alone = selects_method(adapter, request, Overlay(pristine, tests))
        self.control_files = [] if alone else [path for path in ordered if path.endswith(b".py")]

    def _paths(self, names: Iterable[str | None]) -> list[bytes]:
        found = (_path(self._here, name) for name in names if name is not None)
        return list(dict.fromkeys(path for path in found if path is not None))

    def restored(self, candidate: Iterable[bytes], trusted: FileTree) -> list[bytes]:
        """Return which paths of ``candidate`` to restore from ``trusted``.

        Configuration files (:func:`is_configuration`) and the files in ``tests`` are always restored. The following
        files are restored unless ``allow_sensitive_paths`` contains their exact path:

        * files of the test runner
        * new files that Python would import instead of a test file or its package
        * files of the ``trusted`` tree that look like tests
        """
        return sorted(
            path
            for path in candidate
            if path in self.tests
            or is_configuration(path)
            or (path not in self._named and self._is_protected(path, trusted))
        )

    def _is_protected(self, path: bytes, trusted: FileTree) -> bool:
        known = is_test(path) and trusted.get(path) is not None
        return (
            known or owns(self._adapter, self._request, path) or (trusted.get(path) is None and self._hides_test(path))
        )

    def _hides_test(self, path: bytes) -> bool:
        """Return whether Python would import ``path`` instead of a test file or a package with a test file."""
        if not path.endswith(_IMPORTABLE):
            return False
        directory, _, name = path.rpartition(b"/")
        module = directory + b"/" + name.partition(b".")[0] if directory else name.partition(b".")[0]
        packages = {parent for test in self.tests for parent in parents(test)}
        modules = {test.removesuffix(b".py") for test in self.tests}
        return module in packages or module in modules or directory in modules


def selects_method(adapter: Adapter, request: RepoPatchRequest, tree: FileTree) -> bool:
    """Return whether the command names a single test in a way that keeps controls from running beside it.

    See :meth:`Adapter.selects_method`. ``tree`` is the repository with the task's patches, but without the candidate's
    changes.
    """
    here = _working_directory(request)

    def is_file(name: str) -> bool:
        path = _path(here, name)
        version = None if path is None else tree.get(path)
        return version is not None and not version.link

    return adapter.selects_method(is_file)


def configuration_directories(request: RepoPatchRequest) -> list[str]:
    """Return the directories that are searched for pytest's configuration, in pytest's order.

    These are the command's working directory and its parents, as paths in the repository.
    """
    here = PurePosixPath(request.workdir).relative_to(request.repository)
    return [directory.as_posix() for directory in (here, *here.parents)]


def has_usual_names(request: RepoPatchRequest, tree: FileTree) -> bool:
    """Return whether pytest recognizes tests by its default names.

    False if the command or a configuration file of ``tree`` changes which names count as tests.
    """
    command = read_command(request.command)
    arguments = command.arguments if command else ()
    names = filter(None, (*_CONFIGURATION, configuration_file(arguments)))
    places = configuration_directories(request)
    paths = {posixpath.normpath(posixpath.join(place, name)) for name in names for place in places}
    versions = (tree.get(path.encode("utf-8", "surrogateescape")) for path in paths)
    texts = [*(version.content for version in versions if version), " ".join(arguments).encode("utf-8", "replace")]
    return not any(map(_OTHER_NAMES.search, texts))


def _working_directory(request: RepoPatchRequest) -> bytes:
    """Return the command's working directory as a path in the repository. The repository itself is an empty path."""
    here = configuration_directories(request)[0].encode()
    return b"" if here == b"." else here


def _path(here: bytes, name: str) -> bytes | None:
    """Return the path in the repository that ``name`` means in the directory ``here``; ``None`` if it may be outside.

    ``name`` comes from a command or a test id. If it is empty, the result is ``None``, too.
    """
    path = PurePosixPath(name.removeprefix("./"))
    if not name or path.is_absolute() or ".." in path.parts:
        return None
    text = path.as_posix().encode("utf-8", "surrogatepass")
    whole = here + b"/" + text if here and text != b"." else (here if text == b"." else text)
    return whole or b""


def owns(adapter: Adapter, request: RepoPatchRequest, path: bytes) -> bool:
    """Return whether ``path``, in the repository, belongs to the command's runner: see :meth:`Adapter.owns`.

    The command can name a file by its absolute path, or relative to the working directory, as in ``../pytest.ini``.
    """
    absolute = posixpath.join(request.repository, path.decode("utf-8", "surrogateescape"))
    return adapter.owns(posixpath.relpath(absolute, request.workdir)) or adapter.owns(absolute)


def is_configuration(path: bytes) -> bool:
    """Return whether pytest, or Python before pytest starts, reads or runs ``path``."""
    name = path.rpartition(b"/")[2].decode("utf-8", "surrogateescape")
    return name in _CONFIGURATION or name.endswith(".pth") or b".egg-info/" in path or b".dist-info/" in path


def is_test(path: bytes) -> bool:
    """Return whether ``path`` is in a usual place for tests, or is named like a test."""
    names = path.split(b"/")
    return not {b"test", b"tests"}.isdisjoint(names[:-1]) or _TEST_NAME.fullmatch(names[-1]) is not None


def is_test_file(path: bytes) -> bool:
    """Return whether ``path`` is named like a test file."""
    return _TEST_NAME.fullmatch(path.rpartition(b"/")[2]) is not None


def _is_below(path: bytes, folder: bytes) -> bool:
    return not folder or path.startswith(folder + b"/")


def _shuffled(paths: list[bytes]) -> list[bytes]:
    return secrets.SystemRandom().sample(paths, len(paths))


def _is_file(path: bytes, pristine: PristineTree, tests: Delta) -> bool:
    version = tests[path] if path in tests else pristine.get(path)
    return version is not None and not version.link


def _has_files(path: bytes, pristine: PristineTree) -> bool:
    return any(True for _ in pristine.files(path))
