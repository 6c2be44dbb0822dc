"""``source.json``: where the pack of a run is on this machine, so that its candidates can be judged again.

It names paths of the tester's machine, so it is readable only by its owner and is never published.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.durable import write_durably
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from securebench.tester_config import BenchmarkPaths

SOURCE_FILE: Final = "source.json"

_MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class PackSource:
    """The absolute paths of a pack's manifest and tasks when a run was last started or resumed."""

    manifest: Path
    tasks: Path

    @classmethod
    def of(cls, benchmark: BenchmarkPaths) -> PackSource:
        """Return the absolute paths of the files in ``benchmark``."""
        return cls(benchmark.manifest.absolute(), benchmark.tasks.absolute())

    def write(self, directory: Path) -> None:
        """Write ``source.json`` into a run directory. Raises :class:`StorageError`."""
        content = json.dumps({"manifest": str(self.manifest), "tasks": str(self.tasks)}, indent=2) + "\n"
        write_durably(directory / SOURCE_FILE, content.encode("ascii"), mode=0o600)


def read_source(directory: Path) -> PackSource | None:
    """Return where the pack of a run was; ``None`` if there is no ``source.json``.

    Raises :class:`ConfigError` (``source-damaged``, ``file-not-regular``, ``file-unreadable``).
    """
    path = directory / SOURCE_FILE
    if not os.path.lexists(path):
        return None
    with open_regular(path, "pack source") as file:
        data = file.read(_MAX_BYTES)
    try:
        content = json.loads(data)
        return PackSource(*(_absolute(content[name]) for name in ("manifest", "tasks")))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"the file does not say where the pack is ({type(error).__name__})",
            code="source-damaged",
            hint="pass --pack PACK",
            location=SourceLocation(str(path)),
        ) from None


def _absolute(value: object) -> Path:
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise ValueError("not an absolute path")
    return Path(value)
