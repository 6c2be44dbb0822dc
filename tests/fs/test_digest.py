"""The digest of a directory changes with names, contents, executable bits and links, but not with times or its path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.fs.digest import source_digest, tree_digest
from securebench.fs.safe_open import TreeRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Return a directory with files and a link."""
    root = tmp_path / "agent"
    (root / "lib").mkdir(parents=True)
    (root / "agent.py").write_text("print('hello')\n")
    (root / "lib" / "tool.py").write_text("")
    (root / "link").symlink_to("agent.py")
    return root


def relink(path: Path, target: str) -> None:
    """Replace ``path`` with a link to ``target``."""
    path.unlink()
    path.symlink_to(target)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda root: (root / "agent.py").write_text("print('other')\n"),
    "name": lambda root: (root / "agent.py").rename(root / "other.py"),
    "a new file": lambda root: (root / "new").write_text(""),
    "a new directory": lambda root: (root / "new").mkdir(),
    "a file gone": lambda root: (root / "lib" / "tool.py").unlink(),
    "executable": lambda root: (root / "agent.py").chmod(0o755),
    "the target of a link": lambda root: relink(root / "link", "lib/tool.py"),
    "a link instead of a file": lambda root: relink(root / "agent.py", "lib/tool.py"),
    "a file moved": lambda root: (root / "lib" / "tool.py").rename(root / "tool.py"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_tree_has_another_digest(agent: Path, change: Callable[[Path], object]) -> None:
    """Each of ``CHANGES`` gives an agent's directory another digest (L05, F16)."""
    before = tree_digest(agent)
    change(agent)
    assert tree_digest(agent) != before


def test_the_same_tree_has_the_same_digest(agent: Path, tmp_path: Path) -> None:
    """Neither the times nor the path of a directory change its digest."""
    before = tree_digest(agent)
    os.utime(agent / "agent.py", (1, 1))
    assert tree_digest(agent.rename(tmp_path / "moved")) == before


def test_links_are_not_followed(agent: Path, tmp_path: Path) -> None:
    """The target of a link is not read: it may be any file of the host, and a loop would never end."""
    (agent / "loop").symlink_to(".")
    outside = tmp_path / "outside"
    outside.write_text("one")
    (agent / "out").symlink_to(outside)
    before = tree_digest(agent)
    outside.write_text("two")
    assert tree_digest(agent) == before


def test_odd_names(agent: Path) -> None:
    """A file whose name is not UTF-8 changes the digest, too."""
    before = tree_digest(agent)
    Path(os.fsdecode(os.fsencode(agent) + b"/\xff\n")).write_text("")
    assert tree_digest(agent) != before


def test_a_pipe_is_refused_and_not_opened(agent: Path) -> None:
    """A FIFO is refused. It must not be opened, because that would block."""
    os.mkfifo(agent / "pipe")
    with pytest.raises(TreeRefusedError, match="pipe: is a FIFO"):
        tree_digest(agent)


def test_bytecode_is_no_source(agent: Path) -> None:
    """A source digest leaves out ``__pycache__``, which Python writes when a package is imported."""
    before = source_digest(agent)
    (agent / "lib" / "__pycache__").mkdir()
    (agent / "lib" / "__pycache__" / "tool.pyc").write_text("")
    assert source_digest(agent) == before
    (agent / "lib" / "data.json").write_text("{}")
    assert source_digest(agent) != before


@pytest.mark.parametrize("through", ["file", "root"])
def test_the_source_behind_a_link_counts(agent: Path, tmp_path: Path, through: str) -> None:
    """A source digest includes linked files: some installers link a package, or its files, to a cache."""
    (tmp_path / "cache.py").write_text("one")
    (agent / "module.py").symlink_to(tmp_path / "cache.py")
    (tmp_path / "package").symlink_to(agent)
    root = agent if through == "file" else tmp_path / "package"
    before = source_digest(root)
    (tmp_path / "cache.py").write_text("two")
    assert source_digest(root) != before
    (agent / "dangling").symlink_to("nowhere")
    (agent / "loop").symlink_to(".")
    source_digest(root)
