"""What the driver holds a sandbox to on this machine: what follows from what its keeper found, proved by sandboxes.

The sandboxes that prove it show the host's own root file system, read-only, so that no image is needed for it. It fails
closed: what cannot be seen is not there.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import EngineError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import MIB, Command, CommandResult, DriverInfo, Limits, SandboxSpec
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.oci.sandbox import OciSandbox
from securebench.sandboxes.self_test import weaknesses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.oci.container import Surroundings

_SECONDS: Final = 60.0
_SEE: Final = ("/bin/cat", "/proc/net/dev", "/proc/self/status")
_LOOK: Final = ("/bin/cat", "/proc/self/limits", "/proc/self/mounts", "/proc/self/uid_map")
_HOARD: Final = ("/bin/sh", "-c", "head -c 128M /dev/zero | tail")
"""Uses memory: without a line's end, tail keeps all of it."""
_BREED: Final = ("/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 1 & done; wait")

_SMALL: Final = replace(Limits(), memory=48 * MIB, pids=8, open_files=123)
_ROOMY: Final = replace(_SMALL, pids=256)
_WHOLE_MAP: Final = ["0", "0", "4294967295"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """Names out of :data:`~securebench.sandboxes.enforcement.ENFORCEABLE`: what is enforced, and what is weaker."""

    enforced: tuple[str, ...]
    weaker: tuple[str, ...]


def expected_isolation(surroundings: Surroundings) -> Isolation:
    """Return what follows from what the keeper found. Raises :class:`EngineError`."""
    hello = surroundings.hello
    weaker = {name for name in ("memory", "pids", "cpu") if name not in hello.controllers}
    if os.geteuid() != 0:
        weaker.add("file-owners")
        weaker.update(() if hello.drops_groups else ("groups",))
    enforced = tuple(name for name in ENFORCEABLE if name not in weaker)
    return Isolation(enforced, tuple(name for name in ENFORCEABLE if name in weaker))


def describe(surroundings: Surroundings) -> DriverInfo:
    """Return what a record says of the driver. Raises :class:`EngineError`."""
    hello, runtime = surroundings.hello, surroundings.runtime
    isolation = expected_isolation(surroundings)
    details = {
        "kernel": platform.release(),
        "cgroups": ("2" if hello.unified else "1") if hello.controllers else "none",
        "rootless": "yes" if os.geteuid() else "no",
        "init": surroundings.init.name,
    }
    return DriverInfo("oci", runtime.name, runtime.version, details, isolation.enforced, isolation.weaker)


def prove(surroundings: Surroundings) -> Isolation:
    """Make sandboxes of the host's root, and see that they are held to what is expected. Raises :class:`EngineError`.

    The code is ``sandbox-not-isolated`` where something does not hold that should.
    """
    expected = expected_isolation(surroundings)
    troubles = list(_troubles(surroundings, expected))
    if troubles:
        raise EngineError(
            f"a sandbox of {surroundings.runtime.name} is not what was asked for: {'; '.join(troubles)}",
            code="sandbox-not-isolated",
            hint="run 'securebench doctor', or use the docker driver (sandbox.driver: docker)",
        )
    return expected


def _troubles(surroundings: Surroundings, expected: Isolation) -> Iterator[str]:
    seen = _run(surroundings, _SEE, _ROOMY)
    yield from weaknesses(seen.stdout.decode("utf-8", "replace"))
    yield from _unlike(_run(surroundings, _LOOK, _ROOMY).stdout.decode("utf-8", "replace").splitlines())
    if "memory" in expected.enforced and not _run(surroundings, _HOARD, _ROOMY).out_of_memory:
        yield "its limit of memory does not hold"
    if "pids" in expected.enforced and b"fork" not in _run(surroundings, _BREED, _SMALL).stderr:
        yield "its limit of processes does not hold"


def _unlike(lines: list[str]) -> Iterator[str]:
    """Yield what is wrong with a sandbox that sees these limits, mounts and id maps."""
    fields = [line.split() for line in lines]
    if ["Max", "open", "files", "123", "123", "files"] not in fields:
        yield "its resource limits are not set"
    mounts = {words[1]: words for words in fields if len(words) == 6 and words[1].startswith("/")}
    if "ro" not in _options(mounts, "/"):
        yield "its root can be written"
    if not any(option.startswith("size=") for option in _options(mounts, "/tmp")):  # noqa: S108 - a path inside it
        yield "its /tmp has no limit"
    if not fields or fields[-1] == _WHOLE_MAP:
        yield "it has no user namespace of its own"


def _options(mounts: dict[str, list[str]], target: str) -> list[str]:
    return mounts[target][3].split(",") if target in mounts else []


def _run(surroundings: Surroundings, argv: tuple[str, ...], limits: Limits) -> CommandResult:
    spec = SandboxSpec(image=ResolvedImage(reference="the host's root", id=""), limits=limits)
    with OciSandbox(surroundings, spec, Path("/")) as sandbox:
        return sandbox.run(Command(argv=argv, timeout_seconds=_SECONDS))
