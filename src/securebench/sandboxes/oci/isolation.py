"""What the driver holds a sandbox to on this machine: what follows from what its supervisor found, proved by sandboxes.

The sandboxes that prove it show the host's own programs, read-only, so that no image is needed for it. It fails closed:
what cannot be seen is not there.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.errors import EngineError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import DriverInfo
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.oci.host_root import host_root
from securebench.sandboxes.oci.sandbox import OciSandbox
from securebench.sandboxes.self_test import look

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxSpec
    from securebench.sandboxes.oci.container import OciContext


@dataclass(frozen=True, slots=True)
class Isolation:
    """Names out of :data:`~securebench.sandboxes.enforcement.ENFORCEABLE`: what is enforced, and what is weaker."""

    enforced: tuple[str, ...]
    weaker: tuple[str, ...]


def expected_isolation(context: OciContext) -> Isolation:
    """Return what follows from what the supervisor found. Raises :class:`EngineError`."""
    hello = context.hello
    weaker = {name for name in ("memory", "pids", "cpu") if name not in hello.controllers}
    if os.geteuid() != 0:
        weaker.add("file-owners")
        weaker.update(() if hello.drops_groups else ("groups",))
    enforced = tuple(name for name in ENFORCEABLE if name not in weaker)
    return Isolation(enforced, tuple(name for name in ENFORCEABLE if name in weaker))


def describe(context: OciContext) -> DriverInfo:
    """Return what a record says of the driver. Raises :class:`EngineError`."""
    hello, runtime = context.hello, context.runtime
    isolation = expected_isolation(context)
    details = {
        "kernel": platform.release(),
        "cgroups": ("2" if hello.unified else "1") if hello.controllers else "none",
        "rootless": "yes" if os.geteuid() else "no",
        "init": context.init.name,
    }
    return DriverInfo("oci", runtime.name, runtime.version, details, isolation.enforced, isolation.weaker)


def prove(context: OciContext) -> Isolation:
    """Make sandboxes of the host's root, and see that they are held to what is expected. Raises :class:`EngineError`.

    The code is ``sandbox-not-isolated`` where something does not hold that should.
    """
    expected = expected_isolation(context)
    image = ResolvedImage(reference="the host's programs", id="")
    with host_root() as (root, mounts):

        def create(spec: SandboxSpec) -> OciSandbox:
            return OciSandbox(context, replace(spec, mounts=mounts), root)

        found = look(create, image, context.runtime.name)
    troubles = [trouble for name, trouble in found.items() if name not in expected.weaker]
    if troubles:
        raise EngineError(
            f"a sandbox of {context.runtime.name} is not what was asked for: {'; '.join(troubles)}",
            code="sandbox-not-isolated",
            hint="run 'securebench doctor', or use the docker driver (sandbox.driver: docker)",
        )
    return expected
