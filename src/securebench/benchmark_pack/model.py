"""A loaded pack and its rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.benchmark_pack.assets import digest_asset
from securebench.errors import ConfigError, SourceLocation
from securebench.plurals import counted
from securebench.strict_input.faults import Fault, pointer
from securebench.strict_input.files import open_regular
from securebench.strict_input.json_text import JsonSource, UnfitJsonError, decode_json
from securebench.tasks import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.benchmark_pack.calibration import CalibrationItem
    from securebench.resources import FileReference

_ENVIRONMENT: Final = tuple(each.name for each in fields(Environment))


@dataclass(frozen=True, slots=True)
class RowSource:
    """The location of a row: its line and byte range. The text is read again only to locate a fault."""

    path: Path = Path()
    line: int = 1
    offset: int = 0
    length: int = 0

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the location of ``fault``, with its column if the file is unchanged."""
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
    """One row, with the manifest's defaults filled in: ``family``, ``environment`` and the options of a rubric.

    ``files`` are the public assets. ``eval_files`` maps eval fields to their file references. Every reference in
    these two has a mount.
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
    """The sha256 (hex) of the row, including hidden fields. Never publish it: hidden values could be guessed."""

    @cached_property
    def public_digest(self) -> str:
        """The digest (sha256, hex) of the row without ``eval``. It covers nothing hidden."""
        public = {
            "id": self.id,
            "family": self.family,
            "input": self.input,
            "assets": self.assets,
            "environment": {name: getattr(self.environment, name) for name in _ENVIRONMENT},
            "metadata": self.metadata,
        }
        return _json_digest(public)


@dataclass(frozen=True, slots=True)
class AssetRoots:
    """The directories of a pack's files, relative to its manifest, and whether files are read-only by default."""

    public: str = "assets/"
    eval: str = "hidden/"
    read_only: bool = True


@dataclass(frozen=True)
class BenchmarkPack:
    """An immutable pack. ``fingerprint`` contains the digest (sha256, hex) of each part of the pack.

    The parts are ``manifest``, ``tasks``, and each referenced file or directory as ``asset:PATH``.
    """

    id: str
    version: int
    directory: Path
    manifest_path: Path
    tasks_path: Path
    rows: tuple[BenchmarkRow, ...]
    fingerprint: Mapping[str, str]
    asset_roots: AssetRoots = field(default_factory=AssetRoots)
    calibration: tuple[CalibrationItem, ...] = ()
    """Responses with known grades, for the judge model of the run."""
    min_kappa: float | None = None
    """The agreement (Cohen's kappa) that a judge model must reach on the calibration set."""

    @property
    def asset_digests(self) -> Mapping[str, str]:
        """The digests of the referenced files and directories, by path in the pack."""
        assets = (item for item in self.fingerprint.items() if item[0].startswith("asset:"))
        return {name.partition(":")[2]: digest for name, digest in assets}

    @property
    def digest(self) -> str:
        """The digest of the whole pack, including hidden files and fields. Never publish it directly."""
        return _json_digest(dict(self.fingerprint))

    @cached_property
    def public_digest(self) -> str:
        """The digest (sha256, hex) of the public parts: what agents may see, and the metadata of rows."""
        root = f"asset:{self.asset_roots.public.rstrip('/')}/"
        assets = {name: digest for name, digest in self.fingerprint.items() if name.startswith(root)}
        return _json_digest([self.id, self.version, [row.public_digest for row in self.rows], assets])

    def verify_unchanged(self) -> None:
        """Read everything again. Raises :class:`ConfigError` (``pack-changed``) if any part differs."""
        changed = [name for name, digest in self.fingerprint.items() if self._current(name) != digest]
        if changed:
            message = f"{counted(len(changed), 'part')} of the pack changed since it was read (first: {changed[0]!r})"
            hint = "start a new run: results from before and after the change are not comparable"
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
