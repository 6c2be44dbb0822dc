"""The seccomp filter of a sandbox, in the two forms that runtimes take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Seccomp:
    """One profile: ``bpf``, the program that the kernel runs, and ``document``, the same as an OCI ``seccomp``."""

    bpf: bytes
    document: Mapping[str, Any]
