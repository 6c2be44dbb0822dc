"""Checks of Python, disk space, workers, images, agent programs, build tools, the network and the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.doctor.fixes import as_root, install
from securebench.doctor.model import Finding, State
from securebench.errors import EngineError, ImageError, SecureBenchError
from securebench.limits import Limits
from securebench.plurals import counted
from securebench.tester_config.fields import MAX_WORKERS

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.doctor.model import Machine

_LITTLE: Final = 2_000_000_000
_NOTHING: Final = 300_000_000
"""With fewer free bytes, a check of disk space fails. One base image, packed and unpacked, has about this size."""

_SKEW: Final = 2.0
_JUMP: Final = 0.5
_DAY: Final = 86400.0


def python(machine: Machine) -> Finding:
    """Report the Python interpreter."""
    return Finding("python", State.OK, machine.python)


def room_for_images(machine: Machine) -> Finding:
    """Check whether this user can write to the image store, and whether it has space for another image."""
    fix = "securebench images prune, or set SECUREBENCH_IMAGES to another directory"
    return _room(machine, "room_for_images", machine.store(), "images are unpacked there", fix)


def room_here(machine: Machine) -> Finding:
    """Check whether runs can write below the current directory, and how much space it has."""
    fix = "securebench run --output-dir DIRECTORY"
    return _room(machine, "room_here", machine.here(), "runs write their results there", fix)


def workers(machine: Machine) -> Finding:
    """Report how many tasks ``--workers auto`` would run at once, with the default limits."""
    from securebench.tester_run.planning.capacity import choose_workers

    choice = choose_workers(machine.capacity(), Limits(), max_workers=MAX_WORKERS)
    return Finding("workers", State.OK, choice.describe(), "for tasks that use one sandbox, with the default limits")


def base_images(machine: Machine) -> Finding:
    """Check for SecureBench's own images, in the image store or Docker Engine."""
    lacking = [name for name in machine.base_images() if not (machine.is_stored(name) or _engine_has(machine, name))]
    if lacking:
        meaning, fix = "tasks that name no image cannot run", "securebench images build --install-tools"
        return Finding("base_images", State.MISSING, f"no {', '.join(lacking)}", meaning, fix)
    return Finding("base_images", State.OK, ", ".join(machine.base_images()), "for tasks that name no image")


def agents(machine: Machine) -> Finding:
    """Check for the agent programs, and if one is missing, for the npm registry."""
    lacking = [name for name in machine.agents() if not machine.has_agent(name)]
    if not lacking:
        return Finding("agents", State.OK, ", ".join(machine.agents()), "no download is needed")
    found = f"{', '.join(lacking)} not installed"
    try:
        answers = machine.npm_registry()
    except SecureBenchError as error:
        meaning, fix = "runs with a missing agent program cannot start", "securebench agents install --from FILE"
        return Finding("agents", State.MISSING, f"{found}, and {error.message}", meaning, fix)
    return Finding("agents", State.OK, f"{found}; {answers} answers", "a run installs the program that it needs")


def build_tools(machine: Machine) -> Finding:
    """Check for the tool that builds images without a registry."""
    meaning = "images can be built from Debian packages, without a registry"
    if machine.has("mmdebstrap"):
        return Finding("build_tools", State.OK, "mmdebstrap", meaning)
    fix = install(machine, "mmdebstrap", "debian-archive-keyring")
    return Finding("build_tools", State.MISSING, "no mmdebstrap", f"with it, {meaning}", fix)


def registry(machine: Machine) -> Finding:
    """Check whether images can be downloaded. Runs with existing images do not need a registry."""
    try:
        return Finding("registry", State.OK, f"{machine.registry()} answers", "images can be downloaded")
    except ImageError as error:
        meaning = "images must be built, or imported from files: securebench images import"
        return Finding("registry", State.MISSING, error.message, meaning, error.hint)


def package_mirror(machine: Machine) -> Finding:
    """Check whether Debian packages can be downloaded."""
    try:
        return Finding("package_mirror", State.OK, f"{machine.package_mirror()} answers", "images can be built")
    except (OSError, LookupError) as error:
        meaning, fix = "images cannot be built from packages", as_root(machine, "apt-get update")
        return Finding("package_mirror", State.MISSING, str(error), meaning, fix)


def clock(machine: Machine) -> Finding:
    """Compare the clock with the times of files and with the monotonic clock."""
    facts = machine.clock()
    fix = as_root(machine, "timedatectl set-ntp true")
    if facts.now < facts.installed - _DAY:
        days = (facts.installed - facts.now) / _DAY
        meaning = "times in records are wrong, and certificates are refused"
        return Finding(
            "clock", State.WEAKER, f"{counted(round(days), 'day')} before SecureBench was installed", meaning, fix
        )
    if abs(facts.jumped) > _JUMP:
        meaning = "durations in records may be wrong"
        return Finding("clock", State.WEAKER, f"jumped by {facts.jumped:.1f} s during this check", meaning, fix)
    if abs(facts.now - facts.written) > _SKEW:
        found = f"differs by {facts.now - facts.written:+.0f} s from the time of new files in this directory"
        return Finding("clock", State.WEAKER, found, "times of files and of records differ", fix)
    return Finding("clock", State.OK, "agrees with the times of new files and with the monotonic clock")


def _room(machine: Machine, name: str, path: Path, meaning: str, fix: str) -> Finding:
    if not machine.may_write(path):
        return Finding(name, State.MISSING, f"{path} is not writable for this user", meaning, fix)
    free = machine.free_bytes(path)
    found = f"{free / 1e9:.1f} GB free in {path}"
    if free >= _LITTLE:
        return Finding(name, State.OK, found, meaning)
    return Finding(name, State.WEAKER if free >= _NOTHING else State.MISSING, found, meaning, fix)


def _engine_has(machine: Machine, reference: str) -> bool:
    try:
        return machine.engine_has(reference)
    except EngineError:
        return False
