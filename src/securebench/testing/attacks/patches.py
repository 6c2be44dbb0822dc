"""Malicious patches. Each must be refused, either when it is applied or by the policy on paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from securebench.patches.binary import literal
from securebench.patches.model import MAX_CHANGED_BYTES, MAX_FILES, MAX_HUNKS, MAX_PATCH_BYTES, MAX_PATCH_LINES

FILES: Final = {
    b"f.txt": b"one\ntwo\nthree\n",
    b"src/ok.py": b"x = 1\n",
    b"tests/test_x.py": b"assert 0\n",
    b"Makefile": b"all:\n",
    b"big": bytes(1 << 20),
}
"""The files of the repository that the patches are applied to: content by path."""

HONEST: Final = b"--- a/src/ok.py\n+++ b/src/ok.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
"""A harmless patch, which must be accepted."""


@dataclass(frozen=True, slots=True)
class PatchAttack:
    """A patch that must not be accepted: its entry in the catalogue of attacks, a name, and its bytes."""

    entry: str
    name: str
    patch: bytes


def _new(path: str, *, mode: str = "100644", quoted: bool = False) -> bytes:
    """Return a patch that adds a file of one line."""
    a, b = (f'"a/{path}"', f'"b/{path}"') if quoted else (f"a/{path}", f"b/{path}")
    return f"diff --git {a} {b}\nnew file mode {mode}\n--- /dev/null\n+++ {b}\n@@ -0,0 +1 @@\n+x\n".encode()


def _link(path: str, target: str) -> bytes:
    """Return a patch that adds a link."""
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n"
        f"+{target}\n\\ No newline at end of file\n"
    ).encode()


_GITLINK: Final = (
    b"diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n"
    b"+Subproject commit 1234567890123456789012345678901234567890\n"
)
_HALF: Final = HONEST + b"--- a/f.txt\n+++ b/f.txt\n@@ -1 +1 @@\n-absent\n+present\n"
_BINARY: Final = b"diff --git a/z b/z\nnew file mode 100644\nGIT binary patch\n"

ATTACKS: Final = (
    PatchAttack("C09", "a changed Makefile", b"--- a/Makefile\n+++ b/Makefile\n@@ -1 +1,2 @@\n all:\n+\ttouch x\n"),
    *(
        PatchAttack("C09", f"a new {path}", _new(path))
        for path in ("setup.py", "build.rs", ".npmrc", ".github/workflows/ci.yml", "x.pth", "run.sh", "Cargo.lock")
    ),
    PatchAttack(
        "C10",
        "two names",
        b"diff --git a/src/ok.py b/src/ok.py\n--- a/src/ok.py\n+++ b/tests/test_x.py\n@@ -1 +1 @@\n-x = 1\n+y\n",
    ),
    PatchAttack("C10", "two plain names", b"--- a/tests/test_x.py\n+++ src/ok.py\n@@ -1 +1 @@\n-assert 0\n+y\n"),
    PatchAttack("C10", "no header", b"--- a/tests/test_x.py\n+++ b/tests/test_x.py\n@@ -1 +1 @@\n-assert 0\n+pass\n"),
    PatchAttack("C10", "a quoted name", _new("t\\145sts/test_y.py", quoted=True)),
    PatchAttack("C10", "carriage returns", _new("tests/test_y.py").replace(b"\n", b"\r\n")),
    PatchAttack("C10", "a copy", b"diff --git a/src/ok.py b/tests/c.py\ncopy from src/ok.py\ncopy to tests/c.py\n"),
    PatchAttack(
        "C10", "a rename", b"diff --git a/tests/test_x.py b/src/x.py\nrename from tests/test_x.py\nrename to src/x.py\n"
    ),
    PatchAttack(
        "C10", "a mode alone", b"diff --git a/tests/test_x.py b/tests/test_x.py\nold mode 100644\nnew mode 100755\n"
    ),
    PatchAttack("C10", "a set-id mode", _new("su", mode="104755")),
    *(
        PatchAttack("C11", name, _new(path, quoted="\\" in path))
        for name, path in {
            "a hook": ".git/hooks/pre-commit",
            "capital letters": ".GIT/config",
            "octal escapes": ".g\\151t/hooks/z",
            "a nested repository": "src/.git/config",
            "a short name": "git~1/config",
            "a letter of another script": ".gi\\357\\275\\224/config",
            "an ignorable character": ".g\\342\\200\\214it/config",
            "a final dot": ".git./config",
            "a stream": ".git::$INDEX_ALLOCATION/config",
            "a parent": "../outside/x",
            "an inner parent": "src/../../x",
            "an absolute path": "/etc/cron.d/x",
        }.items()
    ),
    PatchAttack("C12", "a link to the host", _link("l", "/etc/passwd")),
    PatchAttack("C12", "a link to evaluation inputs", _link("l", "securebench/evaluation_inputs")),
    PatchAttack("C12", "a link, then a file through it", _link("l", "/tmp") + _new("l/x")),
    PatchAttack(
        "C12", "a mode that turns a file into a link", b"diff --git a/f.txt b/f.txt\nold mode 100644\nnew mode 120000\n"
    ),
    PatchAttack("C13", "a submodule", _GITLINK),
    PatchAttack("C13", "a .gitmodules file", _new(".gitmodules")),
    PatchAttack("C15", "a patch that fits only one of two files", _HALF),
    PatchAttack("C15", "nothing is changed", b"I fixed it.\n"),
    PatchAttack("C15", "a hunk cut short", b"--- a/f.txt\n+++ b/f.txt\n@@ -1,5 +1,5 @@\n one\n-two\n"),
    PatchAttack(
        "C15", "a hunk longer than its header says", b"--- a/f.txt\n+++ b/f.txt\n@@ -1,2 +1,1 @@\n one\n two\n"
    ),
    PatchAttack("C16", "bytes", b"x" * (MAX_PATCH_BYTES + 1)),
    PatchAttack("C16", "lines", b"\n" * (MAX_PATCH_LINES + 2)),
    PatchAttack("C16", "files", b"".join(_new(f"f{number}") for number in range(MAX_FILES + 1))),
    PatchAttack("C16", "hunks", b"--- a/n\n+++ b/n\n" + b"@@ -1 +1 @@\n-1\n+1\n" * (MAX_HUNKS + 1)),
    PatchAttack("C16", "a long name", b"diff --git a/" + b" " * 1_000_000 + b"\n"),
    PatchAttack("C16", "a deep name", _new("d/" * 5000 + "x")),
    PatchAttack("C16", "a huge declared size", _BINARY + b"literal 9999999999\nAxxxxx\n\n"),
    PatchAttack(
        "C16",
        "more bytes than the header says",
        _BINARY + literal(bytes(MAX_CHANGED_BYTES)).replace(b"literal %d" % MAX_CHANGED_BYTES, b"literal 5"),
    ),
)
