"""Rendered patches: git and SecureBench both read back the changes that were rendered."""

from __future__ import annotations

import posixpath
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bounds import processor_seconds
from patches.trees import MemoryTree, after, git_apply, tree
from securebench.patches.apply import apply_patch
from securebench.patches.lines import changes, split_lines
from securebench.patches.model import DIFF_STEPS, FileVersion, Steps
from securebench.patches.names import parents
from securebench.patches.render import MAX_TEXT_BYTES, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.patches.model import Delta

_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c\r\n", b"\xc3\xa9\n", b"--- a/x\n", b"@@ -1 +1 @@\n"]))
_TEXT = st.builds(lambda lines, tail: b"".join(lines) + tail, _LINES, st.sampled_from([b"", b"end", b"\r"]))
_CONTENT = st.one_of(_TEXT, _TEXT, st.binary(max_size=200))
_ODD_NAMES = [
    b"a",
    b"b",
    b"c d",
    b'q"q',
    b"t\tt",
    b"n\nn",
    b"\xff\xfe",
    b" lead",
    b"trail ",
    b"caf\xc3\xa9",
    b"-rf",
    b"$(x)",
]
_NAME = st.one_of(
    st.sampled_from(_ODD_NAMES),
    st.binary(min_size=1, max_size=6).filter(lambda n: not set(n) & {0, 0x2F} and n not in (b".", b"..", b".git")),
)
_PATH = st.lists(_NAME, min_size=1, max_size=3).map(b"/".join)
_FILE = st.builds(FileVersion, _CONTENT, st.booleans())
_LINK = st.builds(lambda name: FileVersion(name, link=True), _NAME)
_VERSION = st.one_of(_FILE, _FILE, _LINK)


def _is_tree(files: dict[bytes, FileVersion]) -> bool:
    """Return whether ``files`` can be a tree: no path of a file is also the directory of another file."""
    return not any(
        b"/".join(path.split(b"/")[:depth]) in files for path in files for depth in range(1, path.count(b"/") + 1)
    )


_TREE = st.dictionaries(_PATH, _VERSION, max_size=5).filter(_is_tree)


@st.composite
def _changes(draw: st.DrawFn) -> tuple[MemoryTree, dict[bytes, FileVersion | None]]:
    """Draw a tree, and a change after which it is still a tree."""
    base = draw(_TREE)
    new = dict(base)
    for path in draw(st.lists(st.sampled_from(sorted(base)), unique=True)) if base else []:
        version = draw(st.one_of(st.none(), _VERSION))
        if version is None:
            del new[path]
        else:
            new[path] = version
    added = {path: version for path, version in draw(_TREE).items() if _is_tree({**new, path: version})}
    for path, version in added.items():
        if _is_tree({**new, path: version}):
            new[path] = version
    paths = sorted(base.keys() | new.keys())
    return MemoryTree(base), {path: new.get(path) for path in paths if base.get(path) != new.get(path)}


@given(_changes())
def test_what_is_rendered_is_read_back(change: tuple[MemoryTree, Delta]) -> None:
    """Applying a rendered patch gives the change that was rendered.

    The change may concern text, binary data, links and modes. Files may have any names.
    """
    base, delta = change
    text = render(delta, base)
    assert (apply_patch(text.encode(), base) if text else {}) == delta


def _is_loop(files: Mapping[bytes, FileVersion], path: bytes) -> bool:
    """Return whether following links from ``path`` never ends."""
    passed = set()
    while (version := files.get(path)) is not None and version.link and path not in passed:
        passed.add(path)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), version.content))
    return path in passed


@given(_changes())
def test_git_applies_what_is_rendered(change: tuple[MemoryTree, Delta]) -> None:
    """``git apply`` of a rendered patch gives exactly the changed tree.

    Changes below a link that leads back to itself are left out: git 2.39 cannot create a file in a directory that
    replaces such a link (ELOOP).
    """
    base, delta = change
    assume(not any(_is_loop(base.files, parent) for path in delta for parent in parents(path)))
    text = render(delta, base)
    if not text:
        return
    with tempfile.TemporaryDirectory() as directory:
        assert git_apply(Path(directory), base.files, text.encode()) == after(base, delta)


@pytest.mark.parametrize("path", [b" /a", b"c /a", b"c d /e f", b"c/ /d /a"])
def test_git_reads_names_of_directories_that_end_with_a_space(tmp_path: Path, path: bytes) -> None:
    """A path with a directory name that ends with a space is quoted.

    Otherwise, git cannot read the ``diff --git`` line of a binary change.
    """
    delta: Delta = {path: FileVersion(b"\0")}
    text = render(delta, MemoryTree({}))
    assert apply_patch(text.encode(), MemoryTree({})) == delta
    assert git_apply(tmp_path, {}, text.encode()) == after(MemoryTree({}), delta)


def test_a_change_reads_as_git_writes_it() -> None:
    """The header, three lines of context, counts, and mark of a missing line feed are those of ``git diff``."""
    old = b"".join(b"%d\n" % number for number in range(1, 13))
    new = old.replace(b"6\n", b"six\n").removesuffix(b"\n")
    lines = render({b"n.txt": FileVersion(new)}, MemoryTree({b"n.txt": FileVersion(old)})).splitlines()
    assert lines[0] == "diff --git a/n.txt b/n.txt"
    assert re.fullmatch(r"index [0-9a-f]{40}\.\.[0-9a-f]{40} 100644", lines[1])
    assert lines[2:] == [
        "--- a/n.txt",
        "+++ b/n.txt",
        "@@ -3,10 +3,10 @@",
        *(" 3", " 4", " 5", "-6", "+six", " 7", " 8", " 9", " 10", " 11"),
        *("-12", "+12", "\\ No newline at end of file"),
    ]


def test_new_removed_and_executable_files_say_so() -> None:
    """A new file, a removed file and a changed mode have the header lines that git writes for them."""
    base = MemoryTree({b"gone": FileVersion(b"x\n"), b"run": FileVersion(b"y\n")})
    text = render({b"gone": None, b"new": FileVersion(b""), b"run": FileVersion(b"y\n", executable=True)}, base)
    assert "deleted file mode 100644\n" in text
    assert "+++ /dev/null\n" in text
    assert "diff --git a/new b/new\nnew file mode 100644\nindex " in text
    assert text.endswith("diff --git a/run b/run\nold mode 100644\nnew mode 100755\n")


def test_nothing_is_rendered_of_what_does_not_change() -> None:
    """A path whose file does not change is not in the patch, and neither is a missing file that stays missing."""
    base = tree(a="x\n")
    assert render({b"a": FileVersion(b"x\n"), b"b": None}, base) == ""


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\n", b"x" * (MAX_TEXT_BYTES + 1)])
def test_what_is_no_text_is_data(content: bytes) -> None:
    """Content that has NUL bytes, is not UTF-8 or is very large is rendered as git's binary data, and is read back."""
    text = render({b"f": FileVersion(content)}, MemoryTree({}))
    assert f"GIT binary patch\nliteral {len(content)}\n" in text
    assert apply_patch(text.encode(), MemoryTree({})) == {b"f": FileVersion(content)}


@pytest.mark.parametrize("lines", [20_000, 200_000])
def test_a_large_difference_is_rendered_in_bounded_time(lines: int) -> None:
    """Rendering two large texts with the same lines in different orders does not take quadratic time."""
    old = b"".join(b"%d\n" % (number * 7919 % lines) for number in range(lines))
    new = b"".join(b"%d\n" % (number * 104_729 % lines) for number in range(lines))
    with processor_seconds(10):
        text = render({b"f": FileVersion(new)}, MemoryTree({b"f": FileVersion(old)}))
    assert text


def test_many_large_differences_share_one_bound() -> None:
    """One limit on comparisons covers all files of a patch: 300 very different files are rendered in bounded time."""
    base = {b"%d" % n: FileVersion(b"".join(b"%d\n" % (i * 7 % 997) for i in range(900))) for n in range(300)}
    delta = {name: FileVersion(b"".join(b"%d\n" % (i * 31 % 997) for i in range(900))) for name in base}
    with processor_seconds(20):
        assert render(delta, MemoryTree(base))


@given(_LINES, _LINES)
def test_changes_make_the_new_lines_of_the_old(old: list[bytes], new: list[bytes]) -> None:
    """Outside the changes, the old and the new lines are equal, up to the end of both texts."""
    at_old = at_new = 0
    for change in changes(old, new, Steps(DIFF_STEPS)):
        assert old[at_old : change.old_start] == new[at_new : change.new_start]
        at_old, at_new = change.old_end, change.new_end
    assert old[at_old:] == new[at_new:]


def test_a_small_difference_is_found_exactly() -> None:
    """If one line moved, only that line is removed and added."""
    old = [b"%d\n" % number for number in range(100)]
    new = [*old[1:50], old[0], *old[50:]]
    found = changes(old, new, Steps(DIFF_STEPS))
    assert [(c.old_end - c.old_start, c.new_end - c.new_start) for c in found] == [(1, 0), (0, 1)]


def test_lines_end_with_line_feeds_only() -> None:
    """Only a line feed ends a line, as in git. Other line separators are part of the line."""
    assert split_lines("a\r\u2028b\x0cc\nd".encode()) == ["a\r\u2028b\x0cc\n".encode(), b"d"]
