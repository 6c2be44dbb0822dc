"""Which restrictions the driver enforces on this machine: what its supervisor reports, and what test sandboxes prove.

The root file system of a test sandbox has the host's own programs, read-only, and no other files of the host, so no
image is needed. The test fails closed: a restriction counts as missing unless its effect is observed. There are three
exceptions: the CPU limit is not tested, restrictions that :func:`expected_isolation` lists as ``weaker`` are not
required, and some checks are left out in gVisor.
"""

from __future__ import annotations

import os
import platform
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import EngineError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import DriverInfo, Mount
from securebench.sandboxes.enforcement import ENFORCEABLE, DriverFeature
from securebench.sandboxes.oci import reaper
from securebench.sandboxes.oci.sandbox import OciSandbox
from securebench.sandboxes.self_test import inspect_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.base import SandboxSpec
    from securebench.sandboxes.oci.sandbox import OciContext

_PROGRAMS: Final = ("bin", "lib", "lib32", "lib64", "sbin", "usr")
_DIRECTORIES: Final = ("dev", "etc", "proc", "sys", "tmp")
_FILES: Final = ("dev/init", "etc/hosts", "etc/resolv.conf")
"""Mount points. They must exist, because a sandbox cannot create them in its read-only root."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Which restrictions of :data:`~securebench.sandboxes.enforcement.ENFORCEABLE` are enforced, and which are not."""

    enforced: tuple[str, ...]
    weaker: tuple[str, ...]


def expected_isolation(context: OciContext) -> Isolation:
    """Return what should be enforced for this user, given the supervisor's report. Raises :class:`EngineError`."""
    hello = context.hello
    weaker = {name for name in ("memory", "pids", "cpu") if name not in hello.controllers}
    if os.geteuid() != 0:
        weaker.add("file-owners")
        weaker.update(() if hello.drops_groups else ("groups",))
    enforced = tuple(name for name in ENFORCEABLE if name not in weaker)
    return Isolation(enforced, tuple(name for name in ENFORCEABLE if name in weaker))


def describe(context: OciContext) -> DriverInfo:
    """Describe the driver for records. Raises :class:`EngineError`."""
    hello, runtime = context.hello, context.runtime
    isolation = expected_isolation(context)
    details = {
        "kernel": platform.release(),
        "cgroups": ("2" if hello.unified else "1") if hello.controllers else "none",
        "rootless": "yes" if os.geteuid() else "no",
        "init": context.init.name,
    }
    return DriverInfo(
        "oci",
        runtime.name,
        runtime.version,
        details,
        isolation.enforced,
        isolation.weaker,
        lacks=() if runtime.has_forwarded_ports else (DriverFeature.FORWARDED_PORTS,),
    )


def prove(context: OciContext) -> Isolation:
    """Create sandboxes with the host's programs and check that the expected restrictions are enforced.

    Raises :class:`EngineError`, with the code ``sandbox-not-isolated`` if a restriction is not enforced.
    """
    expected = expected_isolation(context)
    image = ResolvedImage(reference="the host's programs", id="")
    with host_root() as (root, mounts):

        def create(spec: SandboxSpec) -> OciSandbox:
            return OciSandbox(context, replace(spec, mounts=mounts), root)

        found = inspect_sandbox(create, image, context.runtime.name)
    if problems := [problem for name, problem in found.items() if name not in expected.weaker]:
        raise EngineError(
            f"a test sandbox of {context.runtime.name} was not isolated as required: {'; '.join(problems)}",
            code="sandbox-not-isolated",
            hint="run 'securebench doctor', or use the docker driver ('sandbox.driver: docker')",
        )
    return expected


@contextmanager
def host_root(host: Path = Path("/")) -> Iterator[tuple[Path, tuple[Mount, ...]]]:
    """Yield a directory for use as a sandbox's root, and the mounts that it needs. Remove the directory afterwards.

    The host's root itself cannot be used: in a user namespace, it cannot be bind-mounted without the mounts below it.
    """
    with reaper.temporary_directory() as root:
        root.chmod(0o755)
        for directory in _DIRECTORIES:
            _make_directory(root / directory)
        for file in _FILES:
            (root / file).touch()
            (root / file).chmod(0o644)
        yield root, tuple(_programs(host, root))


def _programs(host: Path, root: Path) -> Iterator[Mount]:
    for part in _PROGRAMS:
        source = host / part
        if source.is_symlink():
            (root / part).symlink_to(source.readlink())
        elif source.is_dir():
            _make_directory(root / part)
            yield Mount(source, f"/{part}")


def _make_directory(path: Path) -> None:
    """Create a directory that all users in a sandbox can enter, whatever this process's umask is."""
    path.mkdir()
    path.chmod(0o755)
