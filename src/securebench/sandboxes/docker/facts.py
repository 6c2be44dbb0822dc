"""What a Docker Engine reports about itself: its versions, its runtimes and which limits it can enforce."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import EngineError
from securebench.sandboxes.base import DriverInfo
from securebench.sandboxes.enforcement import ENFORCEABLE, DriverFeature
from securebench.sandboxes.spec_rules import RUNSC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.engine.client import Engine

_LIMITS: Final[Mapping[str, str]] = {"memory": "MemoryLimit", "pids": "PidsLimit", "cpu": "CpuCfsQuota"}
"""The field of the engine's ``info`` for each limit. It is true if the engine can enforce the limit."""


def describe(engine: Engine, runtime: str | None) -> DriverInfo:
    """Describe ``engine`` and ``runtime`` (``None``: the default one) for records. Raises :class:`EngineError`."""
    with engine.doing("describe itself"):
        facts = engine.client.info()
        components = engine.client.version().get("Components") or ()
    weaker = tuple(name for name in ENFORCEABLE if name in set(_not_enforced(facts)))
    details = {
        "api": engine.api,
        "storage": str(facts.get("Driver", "")),
        "cgroups": str(facts.get("CgroupVersion", "1")),
        "kernel": str(facts.get("KernelVersion", "")),
        "security": ",".join(facts.get("SecurityOptions") or ()),
        **{str(one["Name"]): str(one["Version"]) for one in components if one["Name"] in {"containerd", "runc"}},
    }
    name = runtime or str(facts.get("DefaultRuntime", ""))
    return DriverInfo(
        "docker",
        name,
        engine.version,
        details,
        enforced=tuple(name for name in ENFORCEABLE if name not in weaker),
        weaker=weaker,
        lacks=(DriverFeature.FORWARDED_PORTS,) if name == RUNSC else (),
        foreign_files=True,  # root in a container is the host's root or, with user namespaces, another host user
    )


def require_runtime(engine: Engine, runtime: str) -> None:
    """Raise :class:`EngineError` (``runtime-unavailable``), with instructions, unless ``engine`` has ``runtime``."""
    with engine.doing("list its runtimes"):
        known = engine.client.info().get("Runtimes") or {}
    if runtime not in known:
        # Names with a dot are containerd shims, which users do not select by name.
        names = ", ".join(sorted(name for name in known if "." not in name)) or "none"
        raise EngineError(
            f"the Docker Engine at {engine.endpoint.url} has no runtime {runtime!r}; it has: {names}",
            code="runtime-unavailable",
            hint=_how_to_get(runtime),
        )


def _how_to_get(runtime: str) -> str:
    entry: dict[str, object] = {"path": f"/usr/bin/{runtime}"}
    if runtime == RUNSC:  # a container without a network has no interface that gVisor could take over
        entry["runtimeArgs"] = ["--network=none", "--oci-seccomp"]
    return (
        f"install it ('apt-get install {runtime}'), add it to /etc/docker/daemon.json "
        f"({json.dumps({'runtimes': {runtime: entry}})}) and restart the engine; or use the oci driver, "
        "which needs no engine"
    )


def _not_enforced(facts: Mapping[str, Any]) -> Iterator[str]:
    options = {option.split(",")[0] for option in facts.get("SecurityOptions") or ()}
    if not options & {"name=userns", "name=rootless"}:
        yield "user-namespace"
    if "name=seccomp" not in options:
        yield "seccomp"
    yield from (name for name, fact in _LIMITS.items() if not facts.get(fact))
