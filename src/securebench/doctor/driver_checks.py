"""Checks of the drivers and what they need: OCI runtimes, an init, Docker Engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.doctor.fixes import as_root, install
from securebench.doctor.model import Finding, State
from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.enforcement import in_words

if TYPE_CHECKING:
    from securebench.doctor.model import Machine


_AUTO: Final = "chosen by 'auto': as strong as Docker in every restriction"


def crun(machine: Machine) -> Finding:
    """Check for the preferred runtime."""
    return _runtime(machine, "crun", "the oci driver's first choice")


def runc(machine: Machine) -> Finding:
    """Check for runc. Its sandboxes share the host's kernel, as those of crun do."""
    return _runtime(machine, "runc", "the oci driver's second choice and Docker's default runtime")


def runsc(machine: Machine) -> Finding:
    """Check for gVisor, which is used only if the tester names it."""
    return _runtime(machine, "runsc", "a runtime with a separate kernel for each sandbox ('sandbox.runtime: runsc')")


def init(machine: Machine) -> Finding:
    """Check for the init program, which is the first process of a sandbox."""
    try:
        path = machine.init()
    except EngineError as error:
        meaning = "the oci driver cannot work"
        return Finding("init", State.MISSING, error.message, meaning, install(machine, "tini"))
    return Finding("init", State.OK, str(path), "reaps orphaned processes in sandboxes")


def oci_driver(machine: Machine) -> Finding:
    """Create a sandbox and check which restrictions are enforced in it."""
    try:
        isolation = machine.isolation()
    except InfrastructureError as error:
        return Finding("oci_driver", State.MISSING, error.message, "the oci driver cannot create sandboxes", error.hint)
    if isolation.weaker:
        found = "a test sandbox was created"
        return Finding(
            "oci_driver", State.WEAKER, found, f"not enforced: {in_words(isolation.weaker)}", "see the lines above"
        )
    return Finding("oci_driver", State.OK, "a test sandbox was created", "every restriction is enforced")


def docker_engine(machine: Machine) -> Finding:
    """Check whether Docker Engine answers, and which restrictions it does not enforce."""
    try:
        engine = machine.engine()
    except InfrastructureError as error:
        return Finding("docker_engine", State.MISSING, error.message, "the docker driver cannot be used", error.hint)
    version = f"{engine.info.version} at {engine.url}; cgroups v{engine.info.details.get('cgroups', '?')}"
    found = f"{version}; runtimes {', '.join(engine.runtimes)}"
    # By default, Docker uses no user namespace. This alone does not make the state 'weaker'.
    beyond = [name for name in engine.info.weaker if name != "user-namespace"]
    if beyond:
        return Finding("docker_engine", State.WEAKER, found, f"not enforced: {in_words(beyond)}")
    without = ", without a user namespace" if engine.info.weaker else ""
    return Finding("docker_engine", State.OK, found, f"the docker driver can be used{without}")


def chosen_driver(machine: Machine) -> Finding:
    """Choose a driver as a run with ``sandbox.driver: auto`` does."""
    try:
        info, why = machine.chosen()
    except InfrastructureError as error:
        return _no_driver(machine, error)
    found = " ".join(part for part in (info.name, f"({info.runtime} {info.version})" if info.runtime else "") if part)
    return Finding("driver", State.OK, found, why or _AUTO)


def strong_driver() -> Finding:
    """Return the ``driver`` finding of a machine on which the oci driver enforces everything: ``auto`` chooses it."""
    return Finding("driver", State.OK, "oci", _AUTO)


def weaker_driver(oci: Finding) -> Finding:
    """Return the ``driver`` finding of a machine whose only working driver, oci, is too weak for ``auto``."""
    meaning = f"{oci.meaning}. 'auto' does not choose a driver that is weaker than Docker"
    fix = "securebench run --driver oci, or 'sandbox.driver: oci' in the tester YAML"
    return Finding("driver", State.WEAKER, "only the oci driver works", meaning, fix)


def _no_driver(machine: Machine, error: InfrastructureError) -> Finding:
    if error.code == "driver-unavailable":  # the findings of both drivers say why
        found, fix = "neither the oci driver nor Docker Engine works", install(machine, "crun", "tini")
    else:
        found, fix = error.message, error.hint
    return Finding("driver", State.MISSING, found, "no run is possible on this machine", fix)


def _runtime(machine: Machine, name: str, meaning: str) -> Finding:
    try:
        runtime = machine.runtime(name)
    except EngineError as error:
        return Finding(name, State.MISSING, error.message, f"the runtime {name} is {meaning}", install(machine, name))
    if runtime.warning:
        found = f"{runtime.version}, {runtime.path}"
        fix = as_root(machine, f"apt-get install --only-upgrade {name}") if machine.has("apt-get") else ""
        return Finding(name, State.WEAKER, found, runtime.warning, fix)
    return Finding(name, State.OK, f"{runtime.version}, {runtime.path}", meaning)
