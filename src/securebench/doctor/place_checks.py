"""What is around the sandboxes: the interpreter, room, images, what makes them, the network, the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.doctor.fixes import as_root, install
from securebench.doctor.model import Finding, State
from securebench.errors import EngineError, ImageError, SecureBenchError

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.doctor.model import Machine

_LITTLE: Final = 2_000_000_000
_NOTHING: Final = 300_000_000
"""Bytes: about what one base image takes, packed and unpacked."""

_SKEW: Final = 2.0
_JUMP: Final = 0.5
_DAY: Final = 86400.0


def python(machine: Machine) -> Finding:
    """Say which interpreter runs this."""
    return Finding("python", State.OK, machine.python)


def room_for_images(machine: Machine) -> Finding:
    """Look whether the image store can take another image."""
    fix = "securebench images prune, or set SECUREBENCH_IMAGES to a directory with room"
    return _room(machine, "room_for_images", machine.store(), "images are unpacked there", fix)


def room_here(machine: Machine) -> Finding:
    """Look whether runs can write below the current directory."""
    return _room(machine, "room_here", machine.here(), "runs write their results there", "--output-dir DIRECTORY")


def base_images(machine: Machine) -> Finding:
    """Look for the project's own images: in the store, else in the engine."""
    lacking = [name for name in machine.base_images() if not (machine.is_stored(name) or _engine_has(machine, name))]
    if lacking:
        meaning, fix = "tasks that run in it need it", "securebench images build --install-tools"
        return Finding("base_images", State.MISSING, f"no {', '.join(lacking)}", meaning, fix)
    return Finding("base_images", State.OK, ", ".join(machine.base_images()), "tasks can run in it")


def agents(machine: Machine) -> Finding:
    """Look for the agent programs, and for where they come from if they are not here."""
    lacking = [name for name in machine.agents() if not machine.has_agent(name)]
    if not lacking:
        return Finding("agents", State.OK, ", ".join(machine.agents()), "they can be run without a registry")
    found = f"{', '.join(lacking)} not installed"
    try:
        answers = machine.npm_registry()
    except SecureBenchError as error:
        meaning, fix = "runs of them need it", "securebench agents install --from FILE"
        return Finding("agents", State.MISSING, f"{found}, and {error.message}", meaning, fix)
    return Finding("agents", State.OK, f"{found}; {answers} answers", "a run that needs one installs it")


def build_tools(machine: Machine) -> Finding:
    """Look for what makes an image where no registry answers."""
    meaning = "images can be made from Debian's packages, without a registry"
    if machine.has("mmdebstrap"):
        return Finding("build_tools", State.OK, "mmdebstrap", meaning)
    fix = install(machine, "mmdebstrap", "debian-archive-keyring")
    return Finding("build_tools", State.MISSING, "no mmdebstrap", f"with it {meaning}", fix)


def registry(machine: Machine) -> Finding:
    """Say whether images can be downloaded. Nothing depends on it that is here already."""
    try:
        return Finding("registry", State.OK, f"{machine.registry()} answers", "images can be downloaded")
    except ImageError as error:
        meaning = "images have to be built, or brought as files: securebench images import"
        return Finding("registry", State.MISSING, error.message, meaning, error.hint)


def package_mirror(machine: Machine) -> Finding:
    """Say whether this machine's packages can be had."""
    try:
        return Finding("package_mirror", State.OK, f"{machine.package_mirror()} answers", "images can be built")
    except (OSError, LookupError) as error:
        meaning, fix = "images cannot be built from packages", as_root(machine, "apt-get update")
        return Finding("package_mirror", State.MISSING, str(error), meaning, f"{fix} says more")


def clock(machine: Machine) -> Finding:
    """Compare the clock with what else knows of time."""
    facts = machine.clock()
    fix = as_root(machine, "timedatectl set-ntp true")
    if facts.now < facts.installed - _DAY:
        days = (facts.installed - facts.now) / _DAY
        meaning = "records get wrong times, and certificates are refused"
        return Finding("clock", State.WEAKER, f"{days:.0f} days before SecureBench was installed", meaning, fix)
    if abs(facts.jumped) > _JUMP:
        meaning = "durations in records may be wrong"
        return Finding("clock", State.WEAKER, f"it jumped by {facts.jumped:.1f} s just now", meaning, fix)
    if abs(facts.now - facts.written) > _SKEW:
        found = f"files that are written here are {facts.now - facts.written:+.0f} s behind it"
        return Finding("clock", State.WEAKER, found, "times of files and of records differ", fix)
    return Finding("clock", State.OK, "agrees with files and with itself")


def _room(machine: Machine, name: str, path: Path, meaning: str, fix: str) -> Finding:
    if not machine.may_write(path):
        return Finding(name, State.MISSING, f"{path} cannot be written by this user", meaning, fix)
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
