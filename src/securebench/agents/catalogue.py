"""The declared agent programs: their packages, executables and default versions."""

from __future__ import annotations

import hashlib
import platform as host
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, get_args

from securebench import plugins
from securebench.agents.declaration import AgentDeclaration, Platform, ProgramDeclaration, Runtime, read_declaration
from securebench.agents.model import integrity_of
from securebench.errors import ConfigError
from securebench.strict_input.files import open_regular

MAIN: Final = "__main__.py"
"""The start script of programs from PyPI. The installation adds it to their packages."""

LATEST: Final = "latest"
"""The npm tag that stands for the latest version in the registry."""

NODE: Final = "node"
"""The name of the program that runs agents with ``runtime: node``."""

_NODE: Final = Path(__file__).parent / "runtimes/node.yaml"

MUSL: Final = "-musl"
"""The platform suffix of programs that need musl."""

_VERSION: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){2}(?:-[0-9A-Za-z][0-9A-Za-z.]{0,31})?")

_PLATFORMS: Final[Mapping[str, Platform]] = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
"""Platforms by the kernel's machine name."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A program for one platform.

    ``package`` is the npm package, empty for a program that is not on npm. ``suffix`` is the end of the
    package's versions. ``executable`` is a path in the package. ``interpreter`` is the loader that an image must have,
    empty if the declaration names none. ``integrity`` is the digest (``sha512-`` and base64) of the pinned version's
    archive or, for a program from PyPI, of its requirements file.
    """

    platform: str
    package: str
    suffix: str
    executable: str
    interpreter: str
    integrity: str


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """A declared program.

    ``digest`` is the sha256 (hex) of its declaration. ``is_own`` is true for a program that comes with SecureBench.
    """

    name: str
    path: Path
    digest: str
    is_own: bool
    declared: ProgramDeclaration

    @property
    def package(self) -> str:
        """The main npm package, whose tags include ``latest``; empty for a program that is not on npm."""
        return self.declared.source.npm or ""

    @property
    def pinned(self) -> str:
        """The default version."""
        return self.declared.source.version

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the pinned version lists, if any. Each stands for all names that begin with it."""
        return self.declared.models

    @property
    def runtime(self) -> Runtime | None:
        """The runtime that the program needs, or ``None`` if it runs without one."""
        return self.declared.runtime

    @property
    def variants(self) -> tuple[Variant, ...]:
        """One variant of the program for each platform that it supports.

        For a program from PyPI, this reads its requirements file, and raises the errors of :func:`open_regular`.
        """
        source = self.declared.source
        if not source.platforms:
            integrity, executable = source.integrity or "", source.executable or MAIN
            if source.requirements is not None:
                integrity = _integrity_of_file(source.requirements)
            return tuple(Variant(name, self.package, "", executable, "", integrity) for name in _PLATFORMS.values())
        return tuple(
            Variant(name, one.package or self.package, one.suffix, one.executable, one.interpreter, one.integrity)
            for name in get_args(Platform)
            if (one := source.platforms.get(name)) is not None
        )

    def knows_model(self, version: str, model: str) -> bool:
        """Return whether :attr:`models` covers ``model``.

        Always ``True`` if :attr:`models` is empty, or if ``version`` is not the pinned one.
        """
        return version != self.pinned or not self.models or model.startswith(self.models)

    def variant(self, platform: str) -> Variant:
        """Return the variant for a platform.

        Raises :class:`ConfigError` (``agent-unknown``), and the errors of :attr:`variants`.
        """
        found = next((variant for variant in self.variants if variant.platform == platform), None)
        if found is None:
            platforms = ", ".join(variant.platform for variant in self.variants)
            raise ConfigError(
                f"{self.name} is not available for {platform!r}", code="agent-unknown", hint=f"use one of: {platforms}"
            )
        return found


class _Programs(Mapping[str, KnownProgram]):
    """The declared programs. A declaration is read when its program is looked up."""

    def __getitem__(self, name: str) -> KnownProgram:
        if name not in plugins.agent_names():
            raise KeyError(name)
        path = plugins.agent_file(name)
        return _read(name, path, AgentDeclaration, _state(path))

    def __iter__(self) -> Iterator[str]:
        return iter(plugins.agent_names())

    def __len__(self) -> int:
        return len(plugins.agent_names())


PROGRAMS: Final[Mapping[str, KnownProgram]] = _Programs()
"""All declared programs by name, SecureBench's own first. Look-ups raise :class:`ConfigError` for a bad declaration."""


@lru_cache(maxsize=64)
def _read(name: str, path: Path, model: type[ProgramDeclaration], _state: tuple[int, int]) -> KnownProgram:
    declared, data = read_declaration(path, model)
    is_own = path.is_relative_to(Path(__file__).parent)
    return KnownProgram(name, path, hashlib.sha256(data).hexdigest(), is_own, declared)


def _state(path: Path) -> tuple[int, int]:
    """Return the modification time (ns) and size of a file, which change with its content."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)  # reading it reports the problem
    return (stat.st_mtime_ns, stat.st_size)


def _integrity_of_file(path: Path) -> str:
    with open_regular(path, "requirements file", follow=True) as file:
        return integrity_of(hashlib.file_digest(file, "sha512").digest())


def find(name: str) -> KnownProgram:
    """Return the agent program ``name``, or Node, which some agent programs need.

    Raises :class:`ConfigError` if there is no such program (``agent-unknown``), or if its declaration is invalid.
    """
    if name == NODE:
        return _read(NODE, _NODE, ProgramDeclaration, _state(_NODE))
    known = PROGRAMS.get(name)
    if known is None:
        raise ConfigError(f"unknown agent program {name!r}", code="agent-unknown", hint=f"use {' or '.join(PROGRAMS)}")
    return known


def check_version(version: str) -> str:
    """Return ``version`` if it is valid. Raises :class:`ConfigError` (``agent-unknown-version``)."""
    if _VERSION.fullmatch(version) is None:
        raise ConfigError(
            f"{version!r} is not a version of an agent program",
            code="agent-unknown-version",
            hint=f"use an exact version such as 1.2.3, or {LATEST!r}",
        )
    return version


def machine_platform(machine: str | None = None) -> str:
    """Return the platform for ``machine``, a machine type such as ``x86_64``. The default is this machine's type.

    Raises :class:`ConfigError` (``agent-unfit``).
    """
    machine = machine or host.machine()
    if machine not in _PLATFORMS:
        raise ConfigError(
            f"no agent program supports the machine type {machine!r}",
            code="agent-unfit",
            hint=f"use a machine of one of these types: {', '.join(_PLATFORMS)}",
        )
    return _PLATFORMS[machine]
