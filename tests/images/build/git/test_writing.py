"""Repositories of one commit, which SecureBench writes itself, checked with git."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from git_repositories import commit, git, repository
from securebench.images.build.git.leaks import repository_leaks
from securebench.images.build.git.model import EXECUTABLE, FILE, LINK, SourceFile, SourceTree
from securebench.images.build.git.reading import read_commit
from securebench.images.build.git.writing import FreshRepository, fresh_repository

if TYPE_CHECKING:
    from pathlib import Path

TREE = SourceTree(
    {
        b"b.txt": SourceFile(FILE, b"b\n"),
        b"b/inner": SourceFile(FILE, bytes(range(256)) * 500),
        b"b-": SourceFile(EXECUTABLE, b"#!/bin/sh\n"),
        b"link": SourceFile(LINK, b"b.txt"),
        b"\xffname with\nnewline": SourceFile(FILE, b""),
        b"x" * 200 + b"/" + b"y" * 200: SourceFile(FILE, b"deep"),
        b"a/b/c/d": SourceFile(FILE, b"d"),
    }
)


def _laid_out(top: Path, tree: SourceTree, made: FreshRepository) -> Path:
    """Write the files of ``tree`` and the repository ``made`` below ``top``, as in an image, and return ``top``."""
    for path, file in tree.files.items():
        target = top / os.fsdecode(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.mode == LINK:
            target.symlink_to(os.fsdecode(file.data))
        else:
            target.write_bytes(file.data)
            target.chmod(file.mode & 0o777)
    for path, data in made.files.items():
        target = top / ".git" / os.fsdecode(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return top


def test_git_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    """A strict fsck reports nothing, the files are unmodified, and HEAD is on main, at the only commit."""
    made = fresh_repository(TREE, "The state")
    top = _laid_out(tmp_path / "top", TREE, made)
    assert git(top, "fsck", "--full", "--strict", "--unreachable") == ""
    assert git(top, "status", "--porcelain") == ""
    assert git(top, "diff", "HEAD") == ""
    assert git(top, "rev-list", "--all", "--reflog") == made.commit == git(top, "rev-parse", "HEAD")
    assert git(top, "symbolic-ref", "HEAD") == "refs/heads/main"


def test_there_is_nothing_beside_the_one_commit(tmp_path: Path) -> None:
    """F01: the only branch is main. There is no tag, reflog, remote or alternate. The commit needs every object."""
    top = _laid_out(tmp_path / "top", TREE, fresh_repository(TREE, "The state"))
    objects = git(top, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    needed = git(top, "rev-list", "--objects", "HEAD", "--no-object-names").split()
    assert sorted(objects) == sorted(needed)
    assert git(top, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(top, "reflog") == ""
    assert git(top, "remote") == ""
    assert repository_leaks(top) == []


def test_the_same_files_are_the_same_commit() -> None:
    """The order of the files does not change the commit's id; a changed file does."""
    turned = SourceTree(dict(reversed(list(TREE.files.items()))))
    assert fresh_repository(turned, "m") == fresh_repository(TREE, "m")
    other = SourceTree({**TREE.files, b"b.txt": SourceFile(EXECUTABLE, b"b\n")})
    assert fresh_repository(other, "m").commit != fresh_repository(TREE, "m").commit


def test_the_tree_of_a_commit_that_was_read_keeps_its_id(tmp_path: Path) -> None:
    """A commit's tree has the same id after it is read and written again: no file is added, lost or converted."""
    clone = repository(tmp_path / "clone")
    (clone / "a.txt").write_text("a\n")
    (clone / "sub").mkdir()
    (clone / "sub" / "b").write_bytes(b"\r\n\0")
    wanted = commit(clone)
    tree = read_commit(clone, wanted)
    made = _laid_out(tmp_path / "made", tree, fresh_repository(tree, "m"))
    assert git(made, "rev-parse", "HEAD^{tree}") == git(clone, "rev-parse", f"{wanted}^{{tree}}")


def test_a_repository_can_be_worked_in(tmp_path: Path) -> None:
    """Git can stash and commit in a written repository."""
    top = _laid_out(tmp_path / "top", TREE, fresh_repository(TREE, "m"))
    (top / "b.txt").write_text("changed\n")
    git(top, "stash")
    git(top, "stash", "pop")
    commit(top)
    assert len(git(top, "rev-list", "HEAD").split()) == 2


@pytest.mark.parametrize("count", [0, 1, 300])
def test_any_number_of_files_will_do(tmp_path: Path, count: int) -> None:
    """A repository with no file, one file or 300 files is valid. With 300, some ids begin with the same byte."""
    tree = SourceTree({b"f%d" % number: SourceFile(FILE, b"%d" % number) for number in range(count)})
    top = _laid_out(tmp_path / "top", tree, fresh_repository(tree, "m"))
    assert git(top, "fsck", "--full", "--strict") == ""
    assert git(top, "ls-files").split() == sorted(f"f{number}" for number in range(count))
