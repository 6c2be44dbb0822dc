"""The drivers and what they stand on: runtimes, an init, a Docker Engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.doctor.fixes import as_root, install
from securebench.doctor.model import Finding, State
from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.enforcement import ENFORCEABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.doctor.model import Machine


def crun(machine: Machine) -> Finding:
    """Look for the runtime that is preferred."""
    return _runtime(machine, "crun", "the oci driver's first choice")


def runc(machine: Machine) -> Finding:
    """Look for the other runtime that shares the kernel."""
    return _runtime(machine, "runc", "the oci driver's second choice, and what Docker uses")


def runsc(machine: Machine) -> Finding:
    """Look for gVisor, which is used only where it is asked for by name."""
    return _runtime(machine, "runsc", "a kernel of its own for each sandbox, with sandbox.runtime: runsc")


def init(machine: Machine) -> Finding:
    """Look for the first process of a sandbox, which ends what others leave behind."""
    try:
        path = machine.init()
    except EngineError as error:
        meaning = "the oci driver cannot work"
        return Finding("init", State.MISSING, error.message, meaning, install(machine, "tini"))
    return Finding("init", State.OK, str(path), "processes that a command leaves behind are ended")


def oci_driver(machine: Machine) -> Finding:
    """Make a sandbox, and let it say what it is held to."""
    try:
        isolation = machine.isolation()
    except InfrastructureError as error:
        return Finding("oci_driver", State.MISSING, error.message, "it makes no sandboxes here", error.hint)
    if isolation.weaker:
        found = f"a sandbox was made; it lacks {', '.join(isolation.weaker)}"
        return Finding("oci_driver", State.WEAKER, found, _in_words(isolation.weaker), "see the lines above")
    return Finding("oci_driver", State.OK, "a sandbox was made and looked at", "all of it is enforced")


def docker_engine(machine: Machine) -> Finding:
    """Ask the Docker Engine what it is."""
    try:
        engine = machine.engine()
    except InfrastructureError as error:
        return Finding("docker_engine", State.MISSING, error.message, "the docker driver cannot be used", error.hint)
    version = f"{engine.info.version} at {engine.url}; cgroups v{engine.info.details.get('cgroups', '?')}"
    found = f"{version}; runtimes {', '.join(engine.runtimes)}"
    # Docker's own defaults leave the user namespace out: what auto compares the oci driver with.
    beyond = [name for name in engine.info.weaker if name != "user-namespace"]
    if beyond:
        return Finding("docker_engine", State.WEAKER, found, _in_words(beyond))
    without = "; without a user namespace" if engine.info.weaker else ""
    return Finding("docker_engine", State.OK, found, f"the docker driver can be used{without}")


def chosen_driver(machine: Machine) -> Finding:
    """Choose as a run with ``sandbox.driver: auto`` does."""
    try:
        info, why = machine.chosen()
    except InfrastructureError as error:
        return _no_driver(machine, error)
    found = " ".join(part for part in (info.name, f"({info.runtime} {info.version})" if info.runtime else "") if part)
    return Finding("driver", State.OK, found, why or "what 'auto' takes: nothing about it is weaker than Docker is")


def strong_driver() -> Finding:
    """Return what is to be said where the oci driver lacks nothing: no choice has to be made to know that one."""
    return Finding("driver", State.OK, "oci", "what 'auto' takes: nothing about it is weaker than Docker is")


def weaker_driver(oci: Finding) -> Finding:
    """Return what is to be said where ``auto`` takes nothing, and the oci driver can still be asked for by name."""
    meaning = "'auto' takes no driver that is weaker than Docker is; this one has to be asked for"
    fix = "securebench run --driver oci, or sandbox.driver: oci in the tester YAML"
    return Finding("driver", State.WEAKER, f"only the oci driver, where {oci.found}", meaning, fix)


def _no_driver(machine: Machine, error: InfrastructureError) -> Finding:
    if error.code == "driver-unavailable":  # its message has both reasons, which have lines of their own here
        found, fix = "neither the oci driver nor a Docker Engine can be used", install(machine, "crun", "tini")
    else:
        found, fix = error.message, error.hint
    return Finding("driver", State.MISSING, found, "nothing can run here", fix)


def _runtime(machine: Machine, name: str, meaning: str) -> Finding:
    try:
        runtime = machine.runtime(name)
    except EngineError as error:
        return Finding(name, State.MISSING, error.message, f"it would be {meaning}", install(machine, name))
    if runtime.warning:
        found = f"{runtime.version}, {runtime.path}"
        fix = as_root(machine, f"apt-get install --only-upgrade {name}") if machine.has("apt-get") else ""
        return Finding(name, State.WEAKER, found, runtime.warning, fix)
    return Finding(name, State.OK, f"{runtime.version}, {runtime.path}", meaning)


def _in_words(names: Iterable[str]) -> str:
    return "not enforced: " + ", ".join(ENFORCEABLE[name] for name in names)
