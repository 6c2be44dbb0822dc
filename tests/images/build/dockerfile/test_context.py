"""The build context of a Dockerfile: which files are sent to the engine."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.images.build.dockerfile.context import DOCKERFILE, IGNORE_FILE, context_archive

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.errors import SecureBenchError


def sent(context: Path) -> dict[str, tarfile.TarInfo]:
    """Return the members of the context archive by name."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(context_archive(context, "FROM x\n")))) as archive:
        return {member.name: member for member in archive}


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """Return a directory with files, some of which the tests exclude."""
    top = tmp_path / "context"
    for name in ("a.txt", "a.log", "keep.log", "sub/a.log", "sub/b.txt", "node_modules/x/y", "tests/hidden.py"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    return top


def test_all_is_sent_with_the_dockerfile_that_is_built(context: Path) -> None:
    """The archive contains all files, and the Dockerfile and ignore file that SecureBench adds."""
    found = sent(context)
    assert {"a.txt", "a.log", "sub", "sub/b.txt", DOCKERFILE, IGNORE_FILE} <= set(found)


def test_what_is_ignored_stays(context: Path) -> None:
    """Patterns work as in Docker: relative to the top, with exceptions, comments and blank lines."""
    (context / IGNORE_FILE).write_text("# logs\n*.log\n!keep.log\n\n**/node_modules\ntests/\n")
    names = set(sent(context))
    assert {"a.txt", "keep.log", "sub/a.log"} <= names
    assert not names & {"a.log", "node_modules", "node_modules/x/y", "tests", "tests/hidden.py"}


def test_an_exception_brings_back_what_a_pattern_above_it_left_out(context: Path) -> None:
    """The last pattern that matches a path or a directory above it decides."""
    (context / IGNORE_FILE).write_text("**/node_modules\n!node_modules/x\nsub\n!sub/b.txt\n")
    (context / "node_modules" / "z").write_text("z")
    names = set(sent(context))
    assert {"node_modules/x/y", "sub/b.txt"} <= names
    assert not names & {"node_modules/z", "sub/a.log"}


def test_links_are_sent_as_links(context: Path, tmp_path: Path) -> None:
    """Links are sent as links, and their targets on this machine are not read."""
    (context / "out").symlink_to("/etc/passwd")
    (context / "dir").symlink_to(tmp_path)
    found = sent(context)
    assert found["out"].issym()
    assert found["dir"].issym()
    assert not [name for name in found if name.startswith("dir/")]


@pytest.mark.timeout(20)
def test_a_pipe_is_refused_and_not_waited_for(context: Path) -> None:
    """K15: a FIFO in the context, and a context that is itself a link, are refused without blocking."""
    (context.parent / "link").symlink_to(context)
    assert _refused(context.parent / "link").code == "recipe-invalid"
    os.mkfifo(context / "pipe")
    assert _refused(context).code == "recipe-invalid"


def _refused(context: Path) -> SecureBenchError:
    with pytest.raises(ConfigError) as caught:
        sent(context)
    return caught.value
