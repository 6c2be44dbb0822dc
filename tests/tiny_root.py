"""A root file system of a few megabytes: this machine's shell, the libraries that it needs, and empty directories."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from functools import cache
from pathlib import Path


@cache
def tiny_root() -> bytes:
    """Return the root file system as a tar archive."""
    shell = Path("/bin/sh")
    listed = subprocess.run(["ldd", shell], check=True, capture_output=True, text=True).stdout
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        for path in (shell, *map(Path, re.findall(r"(/\S+)", listed))):
            archive.add(path.resolve(), arcname=str(path))
        for name in ("tmp", "dev", "proc", "sys", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
    return buffer.getvalue()
