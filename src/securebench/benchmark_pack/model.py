"""A pack and its rows, as they were read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.benchmark_pack.assets import digest_asset
from securebench.errors import ConfigError, SourceLocation
from securebench.strict_input.faults import Fault, pointer
from securebench.strict_input.files import open_regular
from securebench.strict_input.json_text import JsonSource, UnfitJsonError, decode_json
from securebench.tasks import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.resources import FileReference


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where a row stands: a line of a file, and its bytes. The text is read again only to place a fault."""

    path: Path = Path()
    line: int = 1
    offset: int = 0
    length: int = 0

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the place of ``fault``: with its column if the row still stands where it stood."""
        try:
            with open_regular(self.path, "tasks file") as file:
                file.seek(self.offset)
                text = file.read(self.length).decode("utf-8")
            decode_json(text)
        except (ConfigError, OSError, UnicodeDecodeError, UnfitJsonError):
            return SourceLocation(str(self.path), self.line, None, pointer(fault.path))
        return JsonSource(str(self.path), text, self.line).locate(fault)


@dataclass(frozen=True)
class BenchmarkRow:
    """One row. ``environment`` is merged over the manifest's defaults; the rest is as the row has it.

    ``files`` are the public assets, ``eval_files`` the file references of eval fields, by field; every mount is set.
    """

    id: str
    family: str
    input: dict[str, Any] = field(default_factory=dict)
    eval: dict[str, Any] = field(default_factory=dict)
    assets: tuple[dict[str, Any], ...] = ()
    environment: Environment = field(default_factory=Environment)
    metadata: dict[str, Any] = field(default_factory=dict)
    files: tuple[FileReference, ...] = ()
    eval_files: Mapping[str, tuple[FileReference, ...]] = field(default_factory=dict)
    source: RowSource = field(default_factory=RowSource, compare=False)
    digest: str = ""
    """Of the whole row, its hidden fields too: never to be published as it is."""

    @cached_property
    def public_digest(self) -> str:
        """The digest (sha256, hex) of what the row has outside of ``eval``: nothing hidden goes into it."""
        public = {
            "id": self.id,
            "family": self.family,
            "input": self.input,
            "assets": self.assets,
            "environment": asdict(self.environment),
            "metadata": self.metadata,
        }
        return _json_digest(public)


@dataclass(frozen=True, slots=True)
class AssetRoots:
    """The directories of a pack that files come from, relative to it, and whether files are read-only."""

    public: str = "assets/"
    eval: str = "hidden/"
    read_only: bool = True


@dataclass(frozen=True)
class BenchmarkPack:
    """A pack: immutable, with the digest (sha256, hex) of everything that it was read from.

    ``fingerprint`` holds the digest of each part: ``manifest``, ``tasks``, and each file or directory referred to.
    """

    id: str
    version: int
    directory: Path
    manifest_path: Path
    tasks_path: Path
    rows: tuple[BenchmarkRow, ...]
    fingerprint: Mapping[str, str]
    asset_roots: AssetRoots = field(default_factory=AssetRoots)

    @property
    def asset_digests(self) -> Mapping[str, str]:
        """The digests of the files and directories that rows refer to, by their paths in the pack."""
        assets = (item for item in self.fingerprint.items() if item[0].startswith("asset:"))
        return {name.partition(":")[2]: digest for name, digest in assets}

    @property
    def digest(self) -> str:
        """The digest of the whole pack, its hidden files and fields too: never to be published as it is."""
        return _json_digest(dict(self.fingerprint))

    @cached_property
    def public_digest(self) -> str:
        """The digest (sha256, hex) of what agents may see of the pack."""
        root = f"asset:{self.asset_roots.public.rstrip('/')}/"
        assets = {name: digest for name, digest in self.fingerprint.items() if name.startswith(root)}
        return _json_digest([self.id, self.version, [row.public_digest for row in self.rows], assets])

    def verify_unchanged(self) -> None:
        """Read everything again. Raises :class:`ConfigError` (``pack-changed``) with each part that differs."""
        changed = [name for name, digest in self.fingerprint.items() if self._current(name) != digest]
        if changed:
            message = f"{len(changed)} parts of the pack changed since it was read, first {changed[0]!r}"
            hint = "records made before and after the change cannot be compared: start a new run"
            raise ConfigError(message, code="pack-changed", hint=hint)

    def _current(self, name: str) -> str:
        files = {"manifest": self.manifest_path, "tasks": self.tasks_path}
        try:
            if name in files:
                with open_regular(files[name], name) as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            return digest_asset(self.directory, name.partition(":")[2])
        except (ConfigError, OSError):
            return ""


def _json_digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
