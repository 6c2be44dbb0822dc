"""How the supervisor opens the sources of mounts: H01, H12."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.sandboxes.oci.supervisor.mounts import UnsafeSourceError, _open_plain


def open_descriptors() -> list[str]:
    """Return the numbers of this process's open descriptors."""
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_a_plain_source_is_opened(tmp_path: Path) -> None:
    """A regular file or directory can be opened by its real path."""
    file = tmp_path.resolve() / "file"
    file.touch()
    for path in (file, file.parent):
        descriptor = _open_plain(str(path))
        assert os.fstat(descriptor).st_ino == path.stat().st_ino
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["link", "below a link", "fifo", "missing", "below a file"])
def test_anything_else_is_refused(tmp_path: Path, kind: str) -> None:
    """Links, paths through links, FIFOs and missing files are refused, without blocking or leaving descriptors open."""
    base = tmp_path.resolve()
    (base / "real").mkdir()
    (base / "real/below").touch()
    (base / "link").symlink_to(base / "real")
    os.mkfifo(base / "fifo")
    paths = {
        "link": "link",
        "below a link": "link/below",
        "fifo": "fifo",
        "missing": "no",
        "below a file": "real/below/x",
    }
    before = open_descriptors()
    with pytest.raises(UnsafeSourceError, match=str(base)):
        _open_plain(str(base / paths[kind]))
    assert open_descriptors() == before
