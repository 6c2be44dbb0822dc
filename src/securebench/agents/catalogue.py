"""The known agent programs: their packages, executables and tested versions."""

from __future__ import annotations

import platform as host
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

LATEST: Final = "latest"
"""Use the version that has this tag in the registry."""

MUSL: Final = "-musl"
"""The platform suffix of programs that need musl."""

_VERSION: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){2}(?:-[0-9A-Za-z][0-9A-Za-z.]{0,31})?")
_OF_CODEX: Final = """
gpt-5.5 gpt-5.6-luna gpt-5.6-sol gpt-5.6-terra gpt-6-astra gpt-6-luna gpt-6-sol gpt-6.1-sol gpt-6.1-terra
"""
"""The models that the pinned Codex lists."""
_OF_CLAUDE_CODE: Final = """
best default fable haiku opus sonnet claude-haiku-4-5 claude-opus-4-1 claude-opus-4-5 claude-opus-4-6 claude-opus-4-7
claude-opus-4-8 claude-sonnet-4-5 claude-sonnet-4-6 claude-sonnet-5
"""
"""The names and models that the pinned Claude Code has."""

_PLATFORMS: Final[Mapping[str, str]] = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
"""Platforms by the kernel's machine name."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A program for one platform: the npm package ``package``, whose version ends in ``suffix``.

    ``executable`` is a path in the package. ``interpreter`` is the loader that an image must have, empty for a static
    program. ``integrity`` is that of the pinned version's archive.
    """

    platform: str
    package: str
    suffix: str
    executable: str
    interpreter: str
    integrity: str


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """A program. ``package`` is its main npm package, whose tags name versions. ``pinned`` is the default version.

    ``models`` are those that the pinned version lists. It treats a name that begins with one as that model.
    """

    name: str
    package: str
    pinned: str
    models: tuple[str, ...]
    version_line: re.Pattern[str]
    """The output of ``--version``, with the version as the only group."""
    variants: tuple[Variant, ...]

    def knows_model(self, version: str, model: str) -> bool:
        """Return whether ``version`` knows ``model``. Only the models of the pinned version are known."""
        return version != self.pinned or model.startswith(self.models)

    def variant(self, platform: str) -> Variant:
        """Return the variant for a platform. Raises :class:`ConfigError` (``agent-unknown``)."""
        found = next((variant for variant in self.variants if variant.platform == platform), None)
        if found is None:
            platforms = ", ".join(variant.platform for variant in self.variants)
            raise ConfigError(
                f"{self.name} is not known for the platform {platform!r}", code="agent-unknown", hint=f"for {platforms}"
            )
        return found


_CODEX: Final = KnownProgram(
    name="codex",
    package="@openai/codex",
    pinned="0.169.0",
    models=tuple(_OF_CODEX.split()),
    version_line=re.compile(r"codex-cli (\S+)"),
    variants=(
        Variant(
            platform="linux-x64",
            package="@openai/codex",
            suffix="-linux-x64",
            executable="vendor/x86_64-unknown-linux-musl/bin/codex",
            interpreter="",
            integrity="sha512-o05NyAOCDygSPRo1yinzxvkRSdmsZyBD9E7mbpmjRanSfM8lypqWtQgEo4XfNkwhuCR2aFu8mlGOsQGFXVbVww==",
        ),
        Variant(
            platform="linux-arm64",
            package="@openai/codex",
            suffix="-linux-arm64",
            executable="vendor/aarch64-unknown-linux-musl/bin/codex",
            interpreter="",
            integrity="sha512-NZ/DaQUpcQmxmqee7Z9uC1rzw3GhSbooawcaTe1LN5Yk+WlinUKGdTXJgClRT/9ogQEEM9TWxYzvxPfj5G/xFg==",
        ),
    ),
)

_CLAUDE_CODE: Final = KnownProgram(
    name="claude_code",
    package="@anthropic-ai/claude-code",
    pinned="2.1.197",
    models=tuple(_OF_CLAUDE_CODE.split()),
    version_line=re.compile(r"(\S+) \(Claude Code\)"),
    variants=(
        Variant(
            platform="linux-x64",
            package="@anthropic-ai/claude-code-linux-x64",
            suffix="",
            executable="claude",
            interpreter="/lib64/ld-linux-x86-64.so.2",
            integrity="sha512-rIlKmrY0QMyHgPRX/MYWNj039vbypICvI9jVe3rs9Xy2RnNklySjyPxqh62QadznzoftEO23uYQ1tFePcQ//bg==",
        ),
        Variant(
            platform="linux-arm64",
            package="@anthropic-ai/claude-code-linux-arm64",
            suffix="",
            executable="claude",
            interpreter="/lib/ld-linux-aarch64.so.1",
            integrity="sha512-sx6SoGj3MNR5CV+YDkNtbLHXa1tn3G8qcYFgm1gnvOi9ODQUKbhiPfankJfkTMDVekOvnKJhm6i9hGFIPzp7cQ==",
        ),
        Variant(
            platform=f"linux-x64{MUSL}",
            package="@anthropic-ai/claude-code-linux-x64-musl",
            suffix="",
            executable="claude",
            interpreter="/lib/ld-musl-x86_64.so.1",
            integrity="sha512-/Ij3+inZf96Lb1BLnO0rWArRi1HqIMh6HeGrQoykrp7a8Yj0SA1EQIO42kpNeVxM9z3o3xUaiIf0FRMzLIp6oQ==",
        ),
        Variant(
            platform=f"linux-arm64{MUSL}",
            package="@anthropic-ai/claude-code-linux-arm64-musl",
            suffix="",
            executable="claude",
            interpreter="/lib/ld-musl-aarch64.so.1",
            integrity="sha512-r3taVK9rDaMahHkrCGV8wF1Sjphs7fqXy2ZEznyDGxUqeW6HxgkbG7dPplXnwwGiMTdYLrtQTQMN21ZTxcVHBA==",
        ),
    ),
)

PROGRAMS: Final[Mapping[str, KnownProgram]] = {known.name: known for known in (_CODEX, _CLAUDE_CODE)}
"""All known programs by name."""


def find(name: str) -> KnownProgram:
    """Return a program. Raises :class:`ConfigError` (``agent-unknown``)."""
    known = PROGRAMS.get(name)
    if known is None:
        raise ConfigError(f"unknown agent program {name!r}", code="agent-unknown", hint=" or ".join(PROGRAMS))
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
    """Return the platform for the kernel's machine name, by default that of this machine.

    Raises :class:`ConfigError` (``agent-unfit``).
    """
    machine = machine or host.machine()
    if machine not in _PLATFORMS:
        raise ConfigError(
            f"no agent program is known for machines of the kind {machine!r}",
            code="agent-unfit",
            hint=f"run it on one of these: {', '.join(_PLATFORMS)}",
        )
    return _PLATFORMS[machine]
