"""A patch that matches exactly is applied completely. A patch that does not match, or is dangerous, is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bounds import processor_seconds
from patches.trees import MemoryTree, after, git_apply, tree
from securebench.errors import FailureReason
from securebench.patches.apply import apply_patch
from securebench.patches.binary import literal
from securebench.patches.model import (
    MAX_CHANGED_BYTES,
    MAX_FILES,
    MAX_HUNKS,
    MAX_PATCH_BYTES,
    MAX_PATCH_LINES,
    FileVersion,
    PatchDoesNotApplyError,
    PatchError,
    PatchInvalidError,
)
from securebench.patches.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = "".join(f"{number}\n" for number in range(1, 31))
BASE = tree(f_dot_txt="one\ntwo\nthree\n", n=NUMBERS, src__ok_dot_py="x = 1\n", tests__test_x_dot_py="assert 0\n")


def _new(path: str, *, mode: str = "100644", quoted: bool = False) -> str:
    """Return a patch that creates a file with one line."""
    a, b = (f'"a/{path}"', f'"b/{path}"') if quoted else (f"a/{path}", f"b/{path}")
    return f"diff --git {a} {b}\nnew file mode {mode}\n--- /dev/null\n+++ {b}\n@@ -0,0 +1 @@\n+x\n"


REFUSED = {
    ".git/hooks": _new(".git/hooks/pre-commit"),
    ".GIT": _new(".GIT/config"),
    "octal .git": _new(".g\\151t/hooks/z", quoted=True),
    "nested .git": _new("src/.git/config"),
    "short .git": _new("git~1/config"),
    "spelled .git": _new(".gi\\357\\275\\224/config", quoted=True),
    "ignorable .git": _new(".g\\342\\200\\214it/config", quoted=True),
    ".git with a dot": _new(".git./config"),
    "stream of .git": _new(".git::$INDEX_ALLOCATION/config"),
    "..": _new("../outside/x"),
    "inner ..": _new("src/../../x"),
    "absolute": _new("/etc/cron.d/x"),
    "rename to ..": "diff --git a/f.txt b/../f.txt\nrename from f.txt\nrename to ../f.txt\n",
    "gitlink": "diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/sub\n"
    "@@ -0,0 +1 @@\n+Subproject commit 1234567890123456789012345678901234567890\n",
    "set-id mode": _new("su", mode="104755"),
    "two names": "diff --git a/src/ok.py b/src/ok.py\n--- a/src/ok.py\n+++ b/tests/test_x.py\n@@ -1 +1 @@\n-x = 1\n"
    "+y\n",
    "two plain names": "--- a/tests/test_x.py\n+++ src/ok.py\n@@ -1 +1 @@\n-assert 0\n+y\n",
    "nothing": "",
    "prose": "I fixed it.\n",
    "binary without data": "diff --git a/p b/p\nindex 1234567..89abcde 100644\nBinary files a/p and b/p differ\n",
    "merge": "diff --cc src/ok.py\nindex 1,2..3\n",
    "hunk of no file": "@@ -1 +1 @@\n-x\n+y\n",
    "cut short": "--- a/n\n+++ b/n\n@@ -1,5 +1,5 @@\n 1\n-2\n",
    "longer than it says": "--- a/n\n+++ b/n\n@@ -1,2 +1,1 @@\n 1\n 2\n",
    "bad escape": 'diff --git "a/\\9" "b/\\9"\nnew file mode 100644\n',
    "no prefix": "--- f.txt\n+++ f.txt\n@@ -1 +1 @@\n-one\n+1\n",
    "renamed and new": "diff --git a/f.txt b/g\nrename from f.txt\nrename to g\nnew file mode 100644\n",
    "half a rename": "diff --git a/f.txt b/f.txt\nrename from f.txt\n",
    "lines after the last": "--- a/f.txt\n+++ b/f.txt\n@@ -3 +3,2 @@\n-three\n+3\n\\ No newline at end of file\n+4\n",
    "mode that turns a file into a link": "diff --git a/f.txt b/f.txt\nold mode 100644\nnew mode 120000\n",
}
"""Patches that are refused, even if git or another tool would apply them."""


@pytest.mark.parametrize("patch", REFUSED.values(), ids=REFUSED.keys())
def test_what_no_repository_should_be_given_is_refused(patch: str) -> None:
    """Paths outside the tree or into ``.git``, submodules, set-id modes and malformed patches are refused."""
    with pytest.raises(PatchInvalidError):
        apply_patch(patch.encode(), BASE)


TAKEN = {
    "a link alone": (
        (
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n"
            "\\ No newline at end of file\n"
        ),
        {b"l": FileVersion(b"/etc/passwd", link=True)},
    ),
    ".gitmodules": (_new(".gitmodules"), {b".gitmodules": FileVersion(b"x\n")}),
    "no git header": (
        "--- /dev/null\n+++ b/tests/conftest.py\n@@ -0,0 +1 @@\n+x\n",
        {b"tests/conftest.py": FileVersion(b"x\n")},
    ),
    "copy without a hunk": (
        "diff --git a/f.txt b/tests/conftest.py\nsimilarity index 100%\ncopy from f.txt\ncopy to tests/conftest.py\n",
        {b"tests/conftest.py": BASE.files[b"f.txt"]},
    ),
    "rename": (
        (
            "diff --git a/f.txt b/g h\nsimilarity index 50%\nrename from f.txt\nrename to g h\n"
            "index 1234..5678 100644\n--- a/f.txt\n+++ b/g h\t\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n three\n"
        ),
        {b"f.txt": None, b"g h": FileVersion(b"1\ntwo\nthree\n")},
    ),
    "quoted line feed": (_new("a\\nb", quoted=True), {b"a\nb": FileVersion(b"x\n")}),
    "mail": (
        (
            "From: x\nSubject: [PATCH] y\n---\n f.txt | 2 +-\n\ndiff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n"
            "@@ -1,3 +1,3 @@ head\n-one\n+1\n two\n three\n-- \n2.39.5\n"
        ),
        {b"f.txt": FileVersion(b"1\ntwo\nthree\n")},
    ),
    "mode alone": (
        "diff --git a/f.txt b/f.txt\nold mode 100644\nnew mode 100755\n",
        {b"f.txt": FileVersion(b"one\ntwo\nthree\n", executable=True)},
    ),
    "empty file": (
        "diff --git a/e b/e\nnew file mode 100755\nindex 0000000..e69de29\n",
        {b"e": FileVersion(b"", executable=True)},
    ),
    "moved hunk": (
        "--- a/n\n+++ b/n\n@@ -4,7 +4,7 @@\n 10\n 11\n 12\n-13\n+thirteen\n 14\n 15\n 16\n",
        {b"n": FileVersion(NUMBERS.replace("13", "thirteen").encode())},
    ),
    "same file twice": (
        ("--- a/n\n+++ b/n\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n--- a/n\n+++ b/n\n@@ -1,3 +1,3 @@\n one\n-2\n+two\n 3\n"),
        {b"n": FileVersion(NUMBERS.replace("1\n2\n", "one\ntwo\n", 1).encode())},
    ),
    "file for a directory": (
        _new("tests") + "diff --git a/tests/test_x.py b/tests/test_x.py\ndeleted file mode 100644\n"
        "--- a/tests/test_x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-assert 0\n",
        {b"tests": FileVersion(b"x\n"), b"tests/test_x.py": None},
    ),
    "renames in a row": (
        (
            "diff --git a/n b/f.txt\nrename from n\nrename to f.txt\n"
            "diff --git a/f.txt b/n2\nrename from f.txt\nrename to n2\n"
        ),
        {b"n": None, b"f.txt": BASE.files[b"n"], b"n2": BASE.files[b"f.txt"]},
    ),
}
"""Patches that git applies, and the changes that each makes."""


@pytest.mark.parametrize(("patch", "expected"), TAKEN.values(), ids=TAKEN.keys())
def test_what_git_takes_is_taken_as_git_has_it(
    patch: str, expected: dict[bytes, FileVersion | None], tmp_path: Path
) -> None:
    """Patches with less common forms, such as renames and mails, result in the same tree as with ``git apply``."""
    delta = apply_patch(patch.encode(), BASE)
    assert delta == expected
    assert git_apply(tmp_path, BASE.files, patch.encode()) == after(BASE, delta)


def test_headers_may_end_in_carriage_returns() -> None:
    """A carriage return after a header is not part of a name; in a hunk it is part of the line."""
    patch = "diff --git a/f.txt b/f.txt\r\n--- a/f.txt\r\n+++ b/f.txt\r\n@@ -1,3 +1,3 @@\r\n-one\n+1\r\n two\n three\n"
    assert apply_patch(patch.encode(), BASE) == {b"f.txt": FileVersion(b"1\r\ntwo\nthree\n")}


def test_a_missing_last_line_feed_of_the_patch_is_forgiven() -> None:
    """A patch may lack its last line feed, which agents often forget. In the file, the line still ends with one."""
    patch = "--- a/f.txt\n+++ b/f.txt\n@@ -2,2 +2,2 @@\n two\n-three\n+3"
    assert apply_patch(patch.encode(), BASE) == {b"f.txt": FileVersion(b"one\ntwo\n3\n")}


def test_context_lines_may_lack_their_space() -> None:
    """An empty line in a hunk is an empty context line, because editors strip trailing white space."""
    patch = b"--- a/s\n+++ b/s\n@@ -1,4 +1,4 @@\n a\n\n-b\n+c\n d\n"
    base = MemoryTree({b"s": FileVersion(b"a\n\nb\nd\n")})
    assert apply_patch(patch, base) == {b"s": FileVersion(b"a\n\nc\nd\n")}


def test_files_that_diff_dates_to_the_beginning_of_time_are_new_or_gone() -> None:
    """``diff -N`` gives a missing file the time 1970-01-01, so the patch creates or removes the file."""
    patch = (
        "diff -ruN a/new b/new\n--- a/new\t1970-01-01 00:00:00.000000000 +0000\n+++ b/new\t2024-01-01 10:00:00 +0000\n"
        "@@ -0,0 +1 @@\n+x\ndiff -ruN a/f.txt b/f.txt\n--- a/f.txt\t2024-01-01 10:00:00 +0000\n"
        "+++ b/f.txt\t1970-01-01 00:00:00.000000000 +0000\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n"
    )
    assert apply_patch(patch.encode(), BASE) == {b"f.txt": None, b"new": FileVersion(b"x\n")}


UNFIT = {
    "other context": "--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,3 @@\n ONE\n-two\n+2\n three\n",
    "white space": "--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,3 @@\n one\n-two \n+2\n three\n",
    "no such file": "--- a/nope\n+++ b/nope\n@@ -1 +1 @@\n-x\n+y\n",
    "already there": _new("f.txt"),
    "below a file": _new("f.txt/x"),
    "link, then a file through it": (
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/tmp\n"
        "\\ No newline at end of file\n" + _new("l/x")
    ),
    "removed with other content": "--- a/f.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n",
    "a change that ends in none, not at the end": "--- a/n\n+++ b/n\n@@ -4,2 +4,2 @@\n 4\n-5\n+five\n",
    "the first line, elsewhere": "--- a/n\n+++ b/n\n@@ -1,2 +1,2 @@\n-5\n+five\n 6\n",
    "hunks that overlap": "--- a/n\n+++ b/n\n@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n"
    "@@ -5,3 +5,3 @@\n five\n-6\n+six\n 7\n",
    "second half does not fit": "--- a/n\n+++ b/n\n@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n"
    "@@ -9,3 +9,3 @@\n 9\n-x\n+y\n 11\n",
    "a link for a file": "diff --git a/f.txt b/f.txt\nindex 12345..67890 120000\n--- a/f.txt\n+++ b/f.txt\n"
    "@@ -1,3 +1,3 @@\n-one\n+1\n two\n three\n",
    "line feed in the file alone": "--- a/f.txt\n+++ b/f.txt\n@@ -3 +3 @@\n-three\n\\ No newline at end of file\n+3\n",
}


@pytest.mark.parametrize("patch", UNFIT.values(), ids=UNFIT.keys())
def test_what_does_not_fit_exactly_does_not_apply(patch: str, tmp_path: Path) -> None:
    """A patch that does not match the tree exactly is refused completely, as by git.

    The same holds for a patch that creates a file that exists, or a file below a path that is a file or a link.
    """
    with pytest.raises(PatchDoesNotApplyError) as caught:
        apply_patch(patch.encode(), BASE)
    assert caught.value.reason is FailureReason.PATCH_DOES_NOT_APPLY
    assert git_apply(tmp_path, BASE.files, patch.encode()) is None


def test_hunks_out_of_order_have_their_own_message() -> None:
    """A hunk that matches only before an earlier one is not reported as one that matches nowhere."""
    later, earlier = "@@ -20,3 +20,3 @@\n 20\n-21\n+x\n 22\n", "@@ -4,3 +4,3 @@\n 4\n-5\n+y\n 6\n"
    with pytest.raises(PatchDoesNotApplyError, match=r"hunk for line 4 matches before .* out of order"):
        apply_patch(f"--- a/n\n+++ b/n\n{later}{earlier}".encode(), BASE)
    assert apply_patch(f"--- a/n\n+++ b/n\n{earlier}{later}".encode(), BASE)


@pytest.mark.parametrize(
    ("is_link", "mode", "message"),
    [(False, "120000", "f is a file, but the patch expects a link"), (True, "100644", "f is a link, but the patch")],
)
def test_the_message_for_the_wrong_kind_says_which(is_link: bool, mode: str, message: str) -> None:
    """A file where the patch expects a link, and the reverse, have different messages."""
    patch = f"diff --git a/f b/f\nindex 12345..67890 {mode}\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n"
    with pytest.raises(PatchDoesNotApplyError, match=message):
        apply_patch(patch.encode(), MemoryTree({b"f": FileVersion(b"x\n", link=is_link)}))


def test_of_several_places_the_nearest_is_taken(tmp_path: Path) -> None:
    """A hunk that matches in many places is applied where git applies it."""
    base = tree(f="".join(f"a\nb\nc\n{n}\n" for n in range(20)))
    for line in (2, 18, 33, 50, 77):
        patch = f"--- a/f\n+++ b/f\n@@ -{line},3 +{line},3 @@\n a\n-b\n+B\n c\n".encode()
        root = tmp_path / str(line)
        root.mkdir()
        assert git_apply(root, base.files, patch) == after(base, apply_patch(patch, base))


def test_binary_deltas_of_git_apply() -> None:
    """A binary patch that git wrote as a delta of two files can be applied."""
    old, new = bytes(range(256)) * 8, bytes(range(256)) * 4 + b"new" + bytes(range(256)) * 4
    delta = _varint(len(old)) + _varint(len(new)) + b"\xb0\x00\x04" + b"\x03new" + b"\xb3\x00\x04\x00\x04"
    patch = b"diff --git a/b b/b\nindex 11111..22222 100644\nGIT binary patch\n" + _packed(b"delta", delta)
    assert apply_patch(patch, MemoryTree({b"b": FileVersion(old)})) == {b"b": FileVersion(new)}


DAMAGED = {
    "reserved": b"\x05\x05\x00",
    "beyond the old": b"\x05\x05\x90\x09",
    "cut short": b"\x05\x05\x03ab",
    "too long": b"\x05\x01\x02ab",
    "empty": b"\x05",
    "endless number": b"\x80" * 30,
    "another old": b"\x04\x01\x01a",
}


@pytest.mark.parametrize("delta", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_binary_deltas_are_refused(delta: bytes) -> None:
    """A damaged delta, such as one that is cut short or copies from beyond the old content, is refused."""
    patch = b"diff --git a/b b/b\nindex 11111..22222 100644\nGIT binary patch\n" + _packed(b"delta", delta)
    with pytest.raises(PatchError):
        apply_patch(patch, MemoryTree({b"b": FileVersion(b"12345")}))


def test_binary_content_is_for_the_file_it_was_made_for() -> None:
    """A binary patch that states the git id of the old content is refused for a file with other content."""
    patch = b"diff --git a/b b/b\nindex %s..%s 100644\nGIT binary patch\n" % (b"1" * 40, b"2" * 40) + literal(b"\0")
    with pytest.raises(PatchDoesNotApplyError):
        apply_patch(patch, MemoryTree({b"b": FileVersion(b"other")}))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _packed(kind: bytes, data: bytes) -> bytes:
    """Return ``data`` as a binary hunk of ``kind``."""
    return literal(data).replace(b"literal", kind, 1)


BOMBS = {
    "bytes": b"x" * (MAX_PATCH_BYTES + 1),
    "lines": b"\n" * (MAX_PATCH_LINES + 2),
    "files": b"".join(_new(f"f{n}").encode() for n in range(MAX_FILES + 1)),
    "hunks": b"--- a/n\n+++ b/n\n" + b"@@ -1 +1 @@\n-1\n+1\n" * (MAX_HUNKS + 1),
    "long name": b"diff --git a/" + b" " * 1_000_000 + b"\n",
    "deep name": _new("d/" * 5000 + "x").encode(),
    "more than it says": b"diff --git a/z b/z\nnew file mode 100644\nGIT binary patch\n"
    + literal(b"\0" * MAX_CHANGED_BYTES).replace(b"literal %d" % MAX_CHANGED_BYTES, b"literal 5"),
    "huge declared size": b"diff --git a/z b/z\nnew file mode 100644\nGIT binary patch\nliteral 9999999999\nAxxxxx\n\n",
    "copies": b"".join(b"diff --git a/big b/%d\ncopy from big\ncopy to %d\n" % (n, n) for n in range(100)),
}


@pytest.mark.parametrize("patch", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused_before_they_cost(patch: bytes) -> None:
    """A patch with too many bytes, lines, files or hunks, or too large a result, is refused within seconds."""
    base = MemoryTree({b"n": FileVersion(b"1\n"), b"big": FileVersion(b"x" * 1_000_000)})
    with processor_seconds(10), pytest.raises(PatchInvalidError):
        apply_patch(patch, base)


def test_hunks_that_fit_almost_everywhere_end_in_bounded_time() -> None:
    """A search among equal lines takes time linear in the size of the file, and the number of searches is limited."""
    base = MemoryTree({b"f": FileVersion(b"a\n" * 200_000)})
    hunk = "@@ -%d,5002 +%d,5001 @@\n" + " a\n" * 2500 + "-b\n" + " a\n" * 2501
    patch = "--- a/f\n+++ b/f\n" + "".join(hunk % (at, at) for at in range(2, 180))
    with processor_seconds(10), pytest.raises(PatchDoesNotApplyError):
        apply_patch(patch.encode(), base)


def test_many_moved_hunks_share_one_bound() -> None:
    """Each hunk that is not at the line in its header costs a search, and a patch has one limit for all searches."""
    base = MemoryTree({b"f": FileVersion(b"".join(b"%d\n" % n for n in range(100_000)))})
    hunks = "".join(f"@@ -2,3 +2,3 @@\n {n}\n-{n + 1}\n+x\n {n + 2}\n" for n in range(10, 60_000, 10))
    with processor_seconds(20), pytest.raises(PatchDoesNotApplyError, match="too many hunks"):
        apply_patch(f"--- a/f\n+++ b/f\n{hunks}".encode(), base)


def test_a_patch_that_names_what_is_there_already_changes_nothing() -> None:
    """A patch that sets the mode that a file already has makes no change."""
    assert apply_patch(b"diff --git a/n b/n\nold mode 100755\nnew mode 100644\n", BASE) == {}


def test_the_files_of_a_patch_are_known_without_a_tree() -> None:
    """Parsing a patch, without a tree, gives the kind of change and the paths of each file."""
    patch = TAKEN["rename"][0] + _new("x")
    assert [(str(p.kind), p.old, p.new) for p in parse(patch.encode())] == [
        ("rename", b"f.txt", b"g h"),
        ("create", b"x", b"x"),
    ]
