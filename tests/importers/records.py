"""Small data for tests, in the formats that benchmark authors publish, and functions that encode or pack it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CSV = 'Is water wet?,yes,no,B\n"Which, of these, is two?",1,2,"0,1",B\n'


def record(task_id: str = "Demo/0", **changes: Any) -> dict[str, Any]:
    """Return a record in the format of HumanEval."""
    return {
        "task_id": task_id,
        "prompt": 'def double(x):\n    """Return twice x."""\n',
        "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
        **changes,
    }


def lines(*records: Any) -> bytes:
    """Return records as JSON Lines."""
    return "".join(f"{json.dumps(each)}\n" for each in records).encode()


def tar_of(path: Path, members: dict[str, bytes], *, packed: bool = False) -> Path:
    """Write a tar archive of regular files, compressed if ``packed``."""
    with tarfile.open(path, "w:gz" if packed else "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def zip_of(path: Path, members: dict[str, bytes]) -> Path:
    """Write a zip archive, such as a wheel."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def gzipped(data: bytes) -> bytes:
    """Return ``data``, compressed with gzip."""
    return gzip.compress(data, mtime=0)
