"""Which files of a repository say what pytest runs, and which it is to run."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.patches.model import Delta, Tree
    from securebench.verifiers.repo_patch.commands import PytestCommand
    from securebench.verifiers.repo_patch.plan import PristineTree
    from securebench.verifiers.repo_patch.request import Request

_READ_BY_PYTEST: Final = "pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini setup.cfg pyproject.toml"
_RUN: Final = "conftest.py sitecustomize.py usercustomize.py entry_points.txt"
CONFIGURATION: Final = frozenset(f"{_READ_BY_PYTEST} {_RUN}".split())
"""Names of files that pytest, or Python on its way to it, reads or runs."""


_TEST_NAME = re.compile(rb"test_.*\.py|.*_test\.py|tests\.py", re.DOTALL)


class Selection:
    """What pytest is to run, as paths in the repository: ``tests`` are files, ``directories`` hold tests."""

    def __init__(self, request: Request, pytest: PytestCommand, pristine: PristineTree, tests: Delta) -> None:
        here = PurePosixPath(request.workdir).relative_to(request.repository).as_posix().encode()
        self._here = b"" if here == b"." else here
        named = [self._path(name) for name in pytest.selected]
        named += [self._path(test.partition("::")[0]) for test in request.expected]
        paths = sorted({path for path in named if path is not None})
        self.tests = [path for path in paths if _is_file(path, pristine, tests)]
        folders = [path for path in paths if path not in self.tests and _has_files(path, pristine)]
        beside = [path.rpartition(b"/")[0] for path in self.tests]
        self.directories = sorted({*folders, *beside}) or [self._here]

    def restored(self, candidate: Iterable[bytes], trusted: Tree) -> list[bytes]:
        """Return which paths of ``candidate`` are put back, even where it may change them.

        Configuration, tests that are named, and whatever else looks like a test and is in the ``trusted`` tree.
        """
        return sorted(
            path
            for path in candidate
            if path in self.tests or is_configuration(path) or (is_test(path) and trusted.get(path) is not None)
        )

    def _path(self, name: str) -> bytes | None:
        """Return the path in the repository of what a command, or an id, names; ``None`` where that is not in it."""
        path = PurePosixPath(name.removeprefix("./"))
        if not name or path.is_absolute() or ".." in path.parts:
            return None
        text = path.as_posix().encode("utf-8", "surrogatepass")
        whole = self._here + b"/" + text if self._here and text != b"." else (self._here if text == b"." else text)
        return whole or b""


def is_configuration(path: bytes) -> bool:
    """Return whether ``path`` is a file that pytest, or Python on its way to it, reads or runs."""
    name = path.rpartition(b"/")[2].decode("utf-8", "surrogateescape")
    return name in CONFIGURATION or name.endswith(".pth") or b".egg-info/" in path or b".dist-info/" in path


def is_test(path: bytes) -> bool:
    """Return whether ``path`` lies where tests usually do, or is named like one."""
    names = path.split(b"/")
    return not {b"test", b"tests"}.isdisjoint(names[:-1]) or _TEST_NAME.fullmatch(names[-1]) is not None


def _is_file(path: bytes, pristine: PristineTree, tests: Delta) -> bool:
    version = tests[path] if path in tests else pristine.get(path)
    return version is not None and not version.link


def _has_files(path: bytes, pristine: PristineTree) -> bool:
    return any(True for _ in pristine.files(path))
