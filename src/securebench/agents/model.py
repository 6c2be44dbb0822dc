"""Data about agent programs: what identifies them, their labels in the image store, and installed programs."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOP: Final = "package"
"""The top directory of every npm package."""

_LABEL: Final = "securebench.agent."


def integrity_of(sha512: bytes) -> str:
    """Return a sha512 digest as npm writes it: ``sha512-`` and base64."""
    return f"sha512-{base64.b64encode(sha512).decode()}"


class ProgramKey(NamedTuple):
    """The name, version and platform of a program. All three are safe in file names."""

    name: str
    version: str
    platform: str

    def __str__(self) -> str:
        return " ".join(self)

    @property
    def reference(self) -> str:
        """The reference of the program's image in the image store."""
        return f"securebench/agents/{self.name}:{self.version}-{self.platform}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgram:
    """What the labels of a program's image say. ``source`` is ``registry``, ``file`` or ``declaration``.

    ``integrity`` is the hash of its archive (``sha512-...``, base64). For a program from PyPI, it is the hash of its
    requirements file. ``executable`` is a path below ``top``, the archive's only top-level directory.
    """

    name: str
    version: str
    platform: str
    integrity: str
    executable: str
    source: str
    top: str = TOP

    @property
    def key(self) -> ProgramKey:
        """The program's key."""
        return ProgramKey(self.name, self.version, self.platform)

    def labels(self) -> dict[str, str]:
        """Return the fields as labels of an image."""
        return {f"{_LABEL}{name}": value for name, value in asdict(self).items()}

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Self | None:
        """Return the program that these :meth:`labels` describe, or ``None`` if they are not a program's labels."""
        default = {"top": TOP}  # earlier versions of SecureBench did not set this label
        found = {field.name: labels.get(f"{_LABEL}{field.name}", default.get(field.name, "")) for field in fields(cls)}
        return cls(**found) if all(found.values()) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """An installed version of an agent program for one platform.

    ``name`` is the name of its declaration. ``platform`` is, for example, ``linux-x64`` or ``linux-x64-musl``.
    ``directory`` is the host directory to mount read-only, and ``executable`` a path below it. ``integrity`` is the
    hash of its archive or, for a program from PyPI, of its requirements file.
    """

    name: str
    version: str
    platform: str
    integrity: str
    directory: Path
    executable: str


class Removal(NamedTuple):
    """Which programs were removed, and which were kept because runs use them."""

    removed: tuple[ProgramKey, ...]
    in_use: tuple[ProgramKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed program. ``size_bytes`` is the size of its files. ``installed_at`` is a time in seconds since 1970.

    ``source`` is ``registry``, ``file`` or ``declaration``. ``pinned`` is true for the default version. A program
    that is not ``intact`` is unpacked or installed again when it is needed.
    """

    program: AgentProgram
    size_bytes: int
    installed_at: float
    source: str
    pinned: bool
    intact: bool
