"""What the driver enforces on this machine: expected from what its supervisor found, and proved with test sandboxes.

The test sandboxes contain the host's own programs, read-only, so no image is needed. The test fails closed: a
restriction that cannot be seen counts as missing.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.errors import EngineError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import DriverInfo
from securebench.sandboxes.enforcement import ENFORCEABLE, DriverFeature
from securebench.sandboxes.oci.host_root import host_root
from securebench.sandboxes.oci.sandbox import OciSandbox
from securebench.sandboxes.self_test import inspect_sandbox

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxSpec
    from securebench.sandboxes.oci.container import OciContext


@dataclass(frozen=True, slots=True)
class Isolation:
    """Names from :data:`~securebench.sandboxes.enforcement.ENFORCEABLE`: what is enforced, and what is weaker."""

    enforced: tuple[str, ...]
    weaker: tuple[str, ...]


def expected_isolation(context: OciContext) -> Isolation:
    """Return what should be enforced, given what the supervisor found. Raises :class:`EngineError`."""
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

    Raises :class:`EngineError`, with the code ``sandbox-not-isolated`` if one is not.
    """
    expected = expected_isolation(context)
    image = ResolvedImage(reference="the host's programs", id="")
    with host_root() as (root, mounts):

        def create(spec: SandboxSpec) -> OciSandbox:
            return OciSandbox(context, replace(spec, mounts=mounts), root)

        found = inspect_sandbox(create, image, context.runtime.name)
    if problems := [problem for name, problem in found.items() if name not in expected.weaker]:
        raise EngineError(
            f"sandboxes of {context.runtime.name} are not isolated as required: {'; '.join(problems)}",
            code="sandbox-not-isolated",
            hint="run 'securebench doctor', or use the docker driver (sandbox.driver: docker)",
        )
    return expected
