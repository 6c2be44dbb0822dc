"""The tree to be judged is computed without a sandbox: from the commit, the trusted tree, the changes and the tests."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from patches.trees import MemoryTree
from securebench.errors import FailureReason, MaterializationError
from securebench.patches.model import FileVersion
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.repo_patch.layout import NO_WORKDIR, PatchLayout
from securebench.verifiers.repo_patch.plan import carried_over, require_tree, task_patch
from securebench.verifiers.repo_patch.repository import head_commit, require_commit
from securebench.verifiers.repo_patch.selection import is_configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SHA = "0123456789abcdef" * 2 + "01234567"


class Pristine(MemoryTree):
    """A tree that also lists its files."""

    def files(self, top: bytes = b"") -> Iterator[bytes]:  # type: ignore[override] # a field in the base class
        """Yield paths below ``top``."""
        return (path for path in self.all if path == top or not top or path.startswith(top + b"/"))

    def __init__(self, files: Mapping[bytes, FileVersion]) -> None:
        object.__setattr__(self, "all", dict(files))

    all: dict[bytes, FileVersion]

    def get(self, path: bytes) -> FileVersion | None:
        """Return the file at ``path``."""
        return self.all.get(path)


def _tree(**files: str) -> Pristine:
    return Pristine({name.replace("__", "/").encode(): FileVersion(text.encode()) for name, text in files.items()})


HEADS = {
    "detached": {".git/HEAD": f"{SHA}\n"},
    "branch": {".git/HEAD": "ref: refs/heads/x\n", ".git/refs/heads/x": f"{SHA}\n"},
    "packed": {
        ".git/HEAD": "ref: refs/heads/a/b\n",
        ".git/packed-refs": f"# pack-refs with: peeled\n{'f' * 40} refs/heads/a\n{SHA} refs/heads/a/b\n^{'e' * 40}\n",
    },
    "two steps": {".git/HEAD": "ref: refs/x\n", ".git/refs/x": "ref: refs/y\n", ".git/refs/y": SHA},
}


@pytest.mark.parametrize("files", HEADS.values(), ids=HEADS.keys())
def test_head_is_read_without_git(files: dict[str, str]) -> None:
    """The commit is found if HEAD is detached, on a branch, in packed refs, or refers to another reference.

    A short commit matches if the full commit begins with it.
    """
    tree = _tree(**files)
    assert head_commit(tree) == SHA
    require_commit(tree, SHA[:7].upper())
    with pytest.raises(MaterializationError):
        require_commit(tree, "f" * 7)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {".git/HEAD": "ref: refs/heads/none\n"},
        {".git/HEAD": "ref: refs/a\n", ".git/refs/a": "ref: refs/a\n"},
        {".git/HEAD": "ref: refs/../../etc/passwd\n", ".git/refs/../../etc/passwd": SHA},
        {".git": "gitdir: /elsewhere\n"},
        {".git/HEAD": "nonsense"},
    ],
)
def test_a_head_that_cannot_be_read_is_no_commit(files: dict[str, str]) -> None:
    """HEAD has no commit if it is missing, invalid or a loop, or if its reference is missing or outside of ``.git``."""
    tree = _tree(**files)
    assert head_commit(tree) is None
    with pytest.raises(MaterializationError):
        require_commit(tree, "0")


def test_a_patch_of_the_task_that_does_not_fit_is_the_tasks_fault() -> None:
    """A task's patch that does not apply is an error without the patch's text, which is an evaluation input."""
    with pytest.raises(MaterializationError) as caught:
        task_patch(b"--- a/secret\n+++ b/secret\n@@ -1 +1 @@\n-x\n+y\n", _tree(), "test_patch")
    assert caught.value.code == "patch-does-not-apply"
    assert "secret" not in str(caught.value)
    assert task_patch(b"", _tree(), "test_patch") == {}


def test_changes_of_other_files_are_carried_over_as_they_are() -> None:
    """A candidate's version of a file is used as it is, unless the setup changed the same file.

    Then the candidate's difference is applied, and a conflict is a failure.
    """
    pristine = _tree(a="1\n2\n3\n4\n5\n6\n7\n8\n9\n", b="b\n")
    setup = {b"a": FileVersion(b"1\n2\n3\n4\n5\n6\n7\n8\nnine\n")}
    mine = {b"a": FileVersion(b"one\n2\n3\n4\n5\n6\n7\n8\n9\n"), b"b": None, b"c": FileVersion(b"c")}
    assert carried_over(mine, pristine, setup) == {
        b"a": FileVersion(b"one\n2\n3\n4\n5\n6\n7\n8\nnine\n"),
        b"b": None,
        b"c": FileVersion(b"c"),
    }
    with pytest.raises(CandidateFailedError) as caught:
        carried_over({b"a": None}, pristine, setup)
    assert caught.value.reason is FailureReason.PATCH_DOES_NOT_APPLY


@pytest.mark.parametrize(
    "delta", [{b"f/x": FileVersion(b"")}, {b"d": FileVersion(b"")}, {b"n": FileVersion(b""), b"n/x": FileVersion(b"")}]
)
def test_a_tree_with_a_file_below_a_file_is_none(delta: dict[bytes, FileVersion | None]) -> None:
    """A change is refused if a file would be below a file, or in the place of a directory with files."""
    pristine = _tree(f="f", d__x="x")
    with pytest.raises(CandidateFailedError):
        require_tree(delta, pristine)
    require_tree({b"f": None, b"f/x": FileVersion(b""), b"d": FileVersion(b""), b"d/x": None}, pristine)


def test_what_is_laid_out_is_what_was_computed(tmp_path: Path) -> None:
    """The script removes, creates and replaces exactly the given paths, and writes through no existing link."""
    repository, outside = tmp_path / "re'po $x", tmp_path / "outside"
    outside.write_text("untouched")
    (repository / "gone/deep").mkdir(parents=True)
    (repository / "kept").mkdir()
    (repository / "package/empty").mkdir(parents=True)
    for name in ("gone/deep/f", "kept/f", "kept/g", "-rf", "swap", "package/f"):
        (repository / name).write_text("old")
    (repository / "link").symlink_to(outside)
    delta = {
        b"gone/deep/f": None,
        b"kept/f": None,
        b"-rf": FileVersion(b"new", executable=True),
        b"link": FileVersion(b"file"),
        b"package": FileVersion(b"module"),
        b"package/f": None,
        b"swap": None,
        b"swap/x\ny": FileVersion(b"inner"),
        b"'$(touch x)'": FileVersion(b"odd"),
        b"l2": FileVersion(b"kept/g", link=True),
    }
    layout = PatchLayout(tmp_path / "changes", delta, str(repository), str(repository / "kept"))
    script = (
        (tmp_path / "changes/apply.sh").read_bytes().replace(b"/opt/securebench/changes", bytes(tmp_path / "changes"))
    )
    done = subprocess.run(["/bin/sh", "-s"], input=script, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = sorted(str(path.relative_to(repository)) for path in repository.rglob("*"))
    assert found == sorted(["-rf", "kept", "kept/g", "link", "package", "swap", "swap/x\ny", "'$(touch x)'", "l2"])
    assert (repository / "-rf").stat().st_mode & 0o111 == 0o111
    assert not (repository / "link").is_symlink()
    assert (repository / "l2").is_symlink()
    assert outside.read_text() == "untouched"
    assert (repository / "package").read_text() == "module"
    layout.remove()
    assert list((tmp_path / "changes").iterdir()) == []


@pytest.mark.parametrize("missing", ["nothing", "all files", "one file", "its content", "the repository"])
def test_a_tree_that_cannot_be_laid_out_is_said_to_be(missing: str, tmp_path: Path) -> None:
    """The script ends with an error if files or the repository are missing, and changes nothing elsewhere."""
    for name in ("repo", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("old")
    changes = tmp_path / "changes"
    PatchLayout(changes, {b"file": FileVersion(b"x")}, str(tmp_path / "repo"), str(tmp_path))
    match missing:
        case "all files":
            (changes / "files").rename(changes / "other")
        case "one file":
            (changes / "files/file").unlink()
        case "its content":
            (changes / "files/file").write_bytes(b"")
        case "the repository":
            (tmp_path / "repo").rename(tmp_path / "other")
    script = (changes / "apply.sh").read_bytes().replace(b"/opt/securebench/changes", bytes(changes))
    done = subprocess.run(["/bin/sh", "-s"], input=script, check=False, capture_output=True, cwd=tmp_path / "elsewhere")
    assert (done.returncode == 0) is (missing == "nothing"), done
    assert done.returncode != NO_WORKDIR
    assert (tmp_path / "elsewhere/file").read_text() == "old"


def test_a_sandbox_can_read_changes_whatever_the_umask(tmp_path: Path) -> None:
    """The changes are readable for all users, because root in a sandbox may not be the user who wrote them."""
    before = os.umask(0o077)
    try:
        PatchLayout(tmp_path / "changes", {b"a/file": FileVersion(b"x")}, str(tmp_path / "repo"), str(tmp_path))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "changes").rglob("*")}
    assert modes == {"apply.sh": 0o644, "files": 0o755, "a": 0o755, "file": 0o644}


@pytest.mark.parametrize("workdir", ["repo/file", "repo/not there", "repo/link"])
def test_a_working_directory_that_is_none_is_told_apart(workdir: str, tmp_path: Path) -> None:
    """The script exits with ``NO_WORKDIR`` if the working directory is a file, a link to a file, or missing.

    It applies all changes before that.
    """
    (tmp_path / "repo").mkdir()
    delta = {b"file": FileVersion(b""), b"link": FileVersion(b"file", link=True)}
    PatchLayout(tmp_path / "changes", delta, str(tmp_path / "repo"), str(tmp_path / workdir))
    script = (tmp_path / "changes/apply.sh").read_bytes()
    script = script.replace(b"/opt/securebench/changes", bytes(tmp_path / "changes"))
    assert subprocess.run(["/bin/sh", "-s"], input=script, check=False).returncode == NO_WORKDIR
    assert (tmp_path / "repo/link").is_file()


@pytest.mark.parametrize("gone", [b"cp -RP", b"rm -rf"])
def test_what_is_not_as_it_should_be_is_noticed(gone: bytes, tmp_path: Path) -> None:
    """The script verifies its result: it ends with an error if a copy or a removal did nothing."""
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/old").write_text("old")
    PatchLayout(tmp_path / "changes", {b"new": FileVersion(b"x"), b"old": None}, str(tmp_path / "repo"), str(tmp_path))
    script = (tmp_path / "changes/apply.sh").read_bytes().replace(gone, b": ") + b"true\n"
    script = script.replace(b"/opt/securebench/changes", bytes(tmp_path / "changes"))
    assert subprocess.run(["/bin/sh", "-s"], input=script, check=False, capture_output=True).returncode != 0


@pytest.mark.parametrize("path", [b"conftest.py", b"a/conftest.py", b"setup.cfg", b"x.pth", b"e.egg-info/PKG-INFO"])
def test_what_pytest_reads_on_its_way_is_put_back(path: bytes) -> None:
    """Files that pytest or Python reads at start-up, and metadata of distributions, count as configuration."""
    assert is_configuration(path)
    assert not is_configuration(b"src/code.py")
