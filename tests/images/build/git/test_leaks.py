"""Finding history that the repository of a task must not contain."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from git_repositories import commit, git, repository
from securebench.images.build.git.leaks import image_leaks, repository_leaks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """Return a repository with only three commits, all in the history of HEAD."""
    top = repository(tmp_path / "root" / "testbed")
    for number in range(3):
        (top / "file").write_text(f"{number}\n")
        commit(top)
    _forget(top)
    return top


def _forget(top: Path) -> None:
    git(top, "reflog", "expire", "--expire=now", "--all")
    git(top, "gc", "--quiet", "--prune=now")


def _places(top: Path) -> set[str]:
    return {leak.place for leak in repository_leaks(top)}


def _future(top: Path) -> None:
    """Commit the answer on the branch ``hidden``, and reset the current branch to the commit before it."""
    (top / "file").write_text("the answer\n")
    commit(top)
    git(top, "update-ref", "refs/heads/hidden", "HEAD")
    git(top, "reset", "--quiet", "--hard", "HEAD~1")


def _branch(top: Path) -> str:
    _future(top)
    _without_logs(top)
    return "refs/heads/hidden"


def _packed_branch(top: Path) -> str:
    _future(top)
    _forget(top)
    assert not (top / ".git" / "refs" / "heads" / "hidden").exists()
    return "refs/heads/hidden"


def _tag(top: Path) -> str:
    git(top, "tag", "v1")
    return "refs/tags/v1"


def _reflog(top: Path) -> str:
    _future(top)
    return "logs/HEAD"


def _unreachable(top: Path) -> str:
    _future(top)
    git(top, "update-ref", "-d", "refs/heads/hidden")
    _without_logs(top)
    return "objects"


def _unreachable_in_a_pack(top: Path) -> str:
    _future(top)
    git(top, "repack", "-adq")
    git(top, "update-ref", "-d", "refs/heads/hidden")
    _without_logs(top)
    return "objects"


def _orig_head(top: Path) -> str:
    _future(top)
    git(top, "update-ref", "-d", "refs/heads/hidden")
    return "ORIG_HEAD"


def _fetch_head(top: Path) -> str:
    git(top, "fetch", "--quiet", str(top))
    return "FETCH_HEAD"


def _stash(top: Path) -> str:
    (top / "file").write_text("the answer\n")
    git(top, "stash")
    return "refs/stash"


def _notes(top: Path) -> str:
    git(top, "notes", "add", "-m", "the answer")
    return "refs/notes/commits"


def _alternates(top: Path) -> str:
    (top / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (top / ".git" / "objects" / "info" / "alternates").write_text("/elsewhere/objects\n")
    return "objects/info/alternates"


def _remote(top: Path) -> str:
    git(top, "remote", "add", "origin", "https://example.org/x.git")
    return "config"


def _remote_branch(top: Path) -> str:
    git(top, "update-ref", "refs/remotes/origin/main", "HEAD")
    return "refs/remotes/origin/main"


def _without_logs(top: Path) -> None:
    git(top, "reflog", "expire", "--expire=now", "--all")


LEAKS = [
    *(_branch, _packed_branch, _tag, _reflog, _unreachable, _unreachable_in_a_pack, _orig_head, _fetch_head),
    *(_stash, _notes, _alternates, _remote, _remote_branch),
]


@pytest.mark.parametrize("plant", LEAKS)
def test_each_leak_is_found(clean: Path, plant: Callable[[Path], str]) -> None:
    """F01, C22: each kind of leak is reported with its place, and a repository without leaks has no findings."""
    assert _places(clean) == set()
    assert plant(clean) in _places(clean)


def test_the_commits_that_lead_to_head_are_no_leak(clean: Path) -> None:
    """The whole history of HEAD is allowed, including merged branches, and also with a detached HEAD."""
    git(clean, "checkout", "--quiet", "-b", "side", "HEAD~1")
    (clean / "other").write_text("other")
    commit(clean)
    git(clean, "checkout", "--quiet", "main")
    git(clean, "merge", "--quiet", "--no-edit", "side")
    git(clean, "branch", "--quiet", "-D", "side")
    git(clean, "checkout", "--quiet", "--detach")
    (clean / ".git" / "ORIG_HEAD").unlink(missing_ok=True)
    _forget(clean)
    assert repository_leaks(clean) == []


def test_the_repositories_of_an_image_are_found_wherever_they_lie(clean: Path) -> None:
    """All repositories in an image are checked. Each leak contains the path of its repository in the image."""
    git(clean, "tag", "v1")
    inner = repository(clean.parent / "opt" / "deep" / "inner")
    commit(inner)
    git(inner, "tag", "v2")
    assert {str(leak).split(": ")[0] for leak in image_leaks(clean.parent)} == {"/testbed", "/opt/deep/inner"}


def test_a_directory_without_a_repository_leaks_nothing(tmp_path: Path) -> None:
    """A directory without a repository has no leaks."""
    assert repository_leaks(tmp_path) == []


def test_a_repository_that_is_elsewhere_is_said(tmp_path: Path) -> None:
    """A ``.git`` that is a file or a link is reported, and not followed."""
    (tmp_path / ".git").write_text("gitdir: /elsewhere")
    assert _places(tmp_path) == {".git"}
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").symlink_to("/")
    assert _places(tmp_path) == {".git"}


def test_a_hostile_repository_is_said_to_be_unreadable(clean: Path) -> None:
    """Damaged objects are reported as a leak, and raise no error."""
    (pack,) = (clean / ".git" / "objects" / "pack").glob("*.idx")
    pack.chmod(0o644)
    pack.write_bytes(b"rubbish!" * 1000)
    assert "objects" in _places(clean)


def test_a_repository_with_other_ids_is_said_to_be_unchecked(tmp_path: Path) -> None:
    """A repository with SHA-256 ids is reported, because its commits are not checked and may contain the answer."""
    tmp_path.joinpath("file").write_text("1")
    git(tmp_path, "init", "--quiet", "--object-format=sha256")
    commit(tmp_path)
    _forget(tmp_path)
    assert "objects" in _places(tmp_path)


def _other_pack(top: Path) -> None:
    for path in (top / ".git" / "objects" / "pack").glob("pack-*"):
        path.rename(path.with_stem("pack-x"))


def _linked_objects(top: Path) -> None:
    (top / ".git" / "objects").rename(top.parent / "objects")
    (top / ".git" / "objects").symlink_to("/testbed/objects")


def _linked_commit(top: Path) -> None:
    (top / "file").write_text("the answer\n")
    name = commit(top)
    git(top, "update-ref", "refs/heads/main", "HEAD~1")
    _without_logs(top)
    path = top / ".git" / "objects" / name[:2] / name[2:]
    path.rename(top.parent / "object")
    path.symlink_to(top.parent / "object")


def _linked_name_of_any_bytes(top: Path) -> None:
    (top / ".git" / "objects" / os.fsdecode(b"\xff")).symlink_to("pack")


def _no_head(top: Path) -> None:
    (top / ".git" / "refs" / "heads" / "main").write_text("1" * 40 + "\n")


@pytest.mark.parametrize("hide", [_other_pack, _linked_objects, _linked_commit, _linked_name_of_any_bytes, _no_head])
def test_objects_that_cannot_be_listed_are_said(clean: Path, hide: Callable[[Path], None]) -> None:
    """Objects in places that only git reads, and a HEAD without its commit, are reported."""
    hide(clean)
    assert "objects" in _places(clean)


def test_the_usual_ids_may_be_named(clean: Path) -> None:
    """A repository whose configuration names SHA-1, the default, as the format of its ids has no leaks."""
    git(clean, "config", "core.repositoryformatversion", "1")
    git(clean, "config", "extensions.objectformat", "sha1")
    assert _places(clean) == set()


def test_an_unborn_head_with_other_ids_is_said(tmp_path: Path) -> None:
    """A repository with SHA-256 ids is reported even if it has no commit."""
    git(tmp_path, "init", "--quiet", "--object-format=sha256")
    assert "objects" in _places(tmp_path)
