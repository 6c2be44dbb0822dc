"""The policy on the paths that a candidate may change.

It checks each changed path, and refuses links that are added or changed.
"""

from __future__ import annotations

import pytest

from patches.trees import MemoryTree
from securebench.patches.model import FileVersion
from securebench.patches.policy import PathPolicy, Violation, is_sensitive, matches, violations

FILE = FileVersion(b"x\n")
EMPTY = MemoryTree({})
EVERYTHING = PathPolicy(allow_sensitive_paths=("**",))


def _paths(delta: dict[bytes, FileVersion | None], policy: PathPolicy | None = None) -> list[str]:
    base = MemoryTree({b"src/l": FileVersion(b"a", link=True), b"src/f": FileVersion(b"b\n")})
    return [violation.path for violation in violations(delta, base, policy or PathPolicy())]


_SENSITIVE = """.github/workflows/ci.yml .gitlab/x ci/run securebench/x a/test/x tests/x src/pkg/tests/test_a.py
a/__pycache__/x.pyc conftest.py src/conftest.py pyproject.toml setup.py setup.cfg tox.ini pytest.ini .pytest.ini
pytest.toml requirements.txt requirements-dev.txt package.json package-lock.json yarn.lock poetry.lock Cargo.lock
Cargo.toml go.mod go.sum sitecustomize.py usercustomize.py noxfile.py build.sh x.bash x.zsh evil.pth
evil.egg-info/entry_points.txt evil-1.0.dist-info/METADATA Makefile build.rs .cargo/config.toml .npmrc .gitmodules
Tests/x CONFTEST.PY .venv/bin/pytest lib/site-packages/x.py node_modules/mocha/x.js"""
_ORDINARY = "src/a.py docs/ci/x src/testing.py latest/x README.md a/.github my.shx requirements.md"


@pytest.mark.parametrize("path", _SENSITIVE.split())
def test_paths_that_say_what_runs_are_denied_by_default(path: str) -> None:
    """By default, tests, scripts, lock files and configuration of runners and builds may not be changed.

    They may not be added or removed, either.
    """
    changed = violations({path.encode(): FILE}, MemoryTree({path.encode(): FileVersion(b"old\n")}), PathPolicy())
    assert [violation.path for violation in changed] == [path]
    assert _paths({path.encode(): FILE}) == [path]
    assert _paths({path.encode(): None}) == [path]
    assert _paths({path.encode(): FILE}, EVERYTHING) == []


@pytest.mark.parametrize("path", _ORDINARY.split())
def test_ordinary_paths_are_not_sensitive(path: str) -> None:
    """A path that only resembles a denied path is not sensitive."""
    assert not is_sensitive(path)


@pytest.mark.parametrize(
    "path",
    [b".git/hooks/x", b"src/.GIT/config", b".git", b"../x", b"/etc/passwd", b"a//b", b"git~1/x", b".git /x", b"a\0"],
)
def test_nothing_allows_paths_outside_or_into_git(path: bytes) -> None:
    """Invalid paths, such as absolute ones, and spellings of ``.git`` are violations even if all paths are allowed."""
    policy = PathPolicy(allow_paths=("**",), allow_sensitive_paths=("**", ".git/**"))
    assert len(violations({path: FILE}, EMPTY, policy)) == 1


def test_nothing_allows_links() -> None:
    """A new link, a link that replaces a file, and a link with a new target are violations.

    This holds even if all paths are allowed. A link may be removed or replaced by a file.
    """
    link = FileVersion(b"/etc/passwd", link=True)
    assert _paths({b"new": link, b"src/f": link, b"src/l": link}, EVERYTHING) == ["new", "src/f", "src/l"]
    assert _paths({b"src/l": None}) == []
    assert _paths({b"src/l": FILE}) == []


def test_allowed_paths_are_all_that_is_allowed() -> None:
    """With ``allow_paths``, every changed path must match one of them, and sensitive paths are still denied."""
    policy = PathPolicy(allow_paths=("src/**",))
    assert _paths({b"src/a": FILE, b"src/tests/x": FILE, b"README": None}, policy) == ["README", "src/tests/x"]


def test_a_violation_says_why() -> None:
    """A violation contains the path, on one line with odd bytes escaped, and the rule that it breaks."""
    assert violations({b"a\nb\xff": FILE}, EMPTY, PathPolicy(allow_paths=("src",))) == (
        Violation('"a\\nb\\377"', "is outside the paths that the task allows"),
    )


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("src/**", ["src/a", "src/a/b"], ["src", "srca", "x/src/a"]),
        ("src", ["src", "src/a/b"], ["srca", "a/src"]),
        ("src/", ["src/a"], ["srca"]),
        ("*.py", ["a.py", "a.py/b"], ["a/b.py", "a.pyc"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.txt"]),
        ("src/*/x?.c", ["src/a/x1.c"], ["src/a/b/x1.c", "src/a/x.c"]),
        ("a.b[c]", ["a.b[c]"], ["axb[c]", "a.bc"]),
        ("**", ["a", "a/b", "a\nb"], []),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a/xb"]),
    ],
)
def test_patterns_match_whole_paths(pattern: str, inside: list[str], outside: list[str]) -> None:
    """``*`` matches within one name, ``**`` any number of names, and a directory everything below it."""
    assert [path for path in inside if not matches(path, [pattern])] == []
    assert [path for path in outside if matches(path, [pattern])] == []
