"""The breakout probe: every driver contains its attempts, and the probe detects a weaker sandbox.

Each attempt, with its entry in the catalogue of attacks, is defined in :mod:`securebench.testing.breakout.inside`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from securebench.limits import Limits
from securebench.sandboxes.base import Mount, SandboxDriver
from securebench.testing.breakout import ATTEMPTS, EVIDENCE, USERS, AttemptOutcome, AttemptResult, break_out
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE, ScriptedDriver
from weaker import has_all_memory

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.sandboxes.oci import OciDriver
    from securebench.testing.scripted_sandbox import ProgramContext

TEMPORARY = Path(tempfile.gettempdir()).resolve()
ROOT = (0, 0)

SURFACE = {attempt.name for attempt in ATTEMPTS.values() if attempt.surface}

SEES_THE_HOST: dict[str, Any] = {"mounts": (Mount(TEMPORARY, str(TEMPORARY), read_only=False),), "tmpfs": ()}


def may_be_reached(driver: SandboxDriver) -> set[str]:
    """Return the attempts that may have the outcome ``reached`` in a sandbox of ``driver``.

    With gVisor, they reach only gVisor's own kernel, not the host's. With other runtimes, no attempt may reach the
    kernel.
    """
    return SURFACE if driver.info().runtime == "runsc" else set()


def declared_of(driver: SandboxDriver) -> set[str]:
    """Return the attempts that may succeed if ``driver`` declares that it has no memory limit for a whole sandbox.

    Without this limit, only the resource limits of each process apply. They do not cover shared memory. With gVisor,
    they limit no memory at all.
    """
    if "memory" not in driver.info().weaker:
        return set()
    return {"use up shared memory", *(("use up memory", "fill `/dev`") if has_all_memory(driver) else ())}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", USERS)
@pytest.mark.every_driver
def test_a_candidate_cannot_get_out(who: str, driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """Every attempt is contained and the host is not harmed, whether the candidate is nobody or the sandbox's root.

    There are two exceptions. An attempt may reach gVisor's own kernel. An attempt to use up memory may succeed if the
    driver declares that it does not limit the memory of a whole sandbox.
    """
    found = break_out(driver, base_image, user=USERS[who])
    tolerated = may_be_reached(driver)
    bad = [
        finding
        for finding in found
        if finding.outcome is not AttemptOutcome.CONTAINED
        and not (finding.outcome is AttemptOutcome.REACHED and finding.name in tolerated)
        and finding.name not in declared_of(driver)
    ]
    assert not bad, bad
    assert [finding.name for finding in found] == sorted_as_made()


def sorted_as_made() -> list[str]:
    """Return the names of all attempts and all checks of the host, in the order of the results."""
    together = [attempt.name for attempt in ATTEMPTS.values() if attempt.staging == "together"]
    apart = [attempt.name for attempt in ATTEMPTS.values() if attempt.staging != "together"]
    return [*together, *apart, *(evidence.name for evidence in EVIDENCE)]


def escapes(found: list[AttemptResult]) -> set[str]:
    """Return the names of the results with the outcome ``escaped`` or ``reached``."""
    return {finding.name for finding in found if finding.outcome in {AttemptOutcome.ESCAPED, AttemptOutcome.REACHED}}


CAPABILITIES = ("SYS_ADMIN", "SYS_CHROOT", "NET_RAW", "SETUID")
KERNEL = (
    *(
        "mount a tmpfs",
        "bind `/` over `/tmp`",
        "`fsopen`: a file system through the kernel's newer mount calls",
        "rename the host",
    ),
    *("`unshare`: a new mount namespace", "`unshare` as a 32-bit call (`int 0x80`)", "open a raw socket"),
    *("become another user", "`chroot`"),
)
"""Attempts that succeed as root with :data:`CAPABILITIES` and without a seccomp filter."""


@pytest.mark.engine
def test_a_sandbox_with_capabilities_is_found_out(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """With more capabilities and no seccomp filter, the attempts succeed: the probe can detect an escape."""
    capable: dict[str, Any] = {"cap_add": CAPABILITIES, "security_opt": ("seccomp=unconfined",)}
    assert escapes(break_out(docker_driver, base_image, user=ROOT, names=KERNEL, **capable)) == set(KERNEL)


@pytest.mark.every_driver
def test_a_sandbox_that_sees_the_host_is_found_out(driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """If a directory of the host is mounted writable, reading and writing a file in it are reported as escapes.

    The check of the host afterwards reports the changed file.
    """
    names = ["read a file of the host by its absolute path", "write a file of the host by its absolute path"]
    found = break_out(driver, base_image, names=names, **SEES_THE_HOST)
    assert escapes(found) == {*names, "a file of the host, after all attempts"}


@pytest.mark.every_driver
def test_an_inherited_environment_is_found_out(driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """If a sandbox has the environment variables of the host, this is reported as an escape."""
    names = ["inherit the host's environment variables"]
    assert escapes(break_out(driver, base_image, names=names, environment=os.environ)) == set(names)
    assert escapes(break_out(driver, base_image, names=names)) == set()


@pytest.mark.every_driver
def test_limits_that_are_too_wide_are_found_out(driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """If the limit on open files is too high, the attempt to use up descriptors is reported as an escape."""
    names = ["use up descriptors"]
    assert escapes(break_out(driver, base_image, names=names, small=Limits(open_files=8192))) == set(names)


@pytest.mark.engine
def test_a_sandbox_with_a_network_is_found_out(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """In a sandbox with a network, the probe finds a route to the internet and an interface other than loopback."""
    names = ["find a route to the internet", "find an interface other than loopback"]
    assert escapes(break_out(docker_driver, base_image, names=names, network="bridge")) == set(names)


@pytest.mark.oci
def test_a_writable_root_is_found_out(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """With a writable root, the sandbox's root can add and overwrite files. With a read-only root, it cannot."""
    names = ["add a file to the image", "overwrite a program of the image"]
    assert escapes(break_out(oci_driver, base_image, user=ROOT, names=names, read_only=False)) == set(names)
    assert escapes(break_out(oci_driver, base_image, user=ROOT, names=names)) == set()


def answering(*answers: object) -> ScriptedDriver:
    """Return a driver whose probe prints each of ``answers`` as a line of JSON."""
    driver = ScriptedDriver()

    @driver.program("python3")
    def probe(context: ProgramContext) -> None:
        for answer in answers:
            context.stdout.write(json.dumps(answer) + "\n")

    return driver


def judged(driver: ScriptedDriver, name: str) -> AttemptResult:
    """Return the result of the attempt ``name``."""
    return break_out(driver, driver.resolve_image(DEFAULT_IMAGE), names=[name])[0]


@pytest.mark.parametrize(
    "name", ["`bpf`: load a program", "use up memory", "overwrite the program of a runtime that enters the sandbox"]
)
@pytest.mark.parametrize("outcome", ["contained", "reached", "escaped", "unknown"])
def test_the_answer_of_a_probe_is_taken(name: str, outcome: str) -> None:
    """The result of an attempt is what the probe printed for it."""
    assert judged(answering([name, outcome, "so"]), name) == AttemptResult(name, AttemptOutcome(outcome), "so")


@pytest.mark.parametrize("name", ["`bpf`: load a program", "use up memory"])
def test_no_answer_is_never_contained(name: str) -> None:
    """If the probe ends without an answer for an attempt, the attempt is unknown, not contained."""
    assert judged(answering(), name).outcome is AttemptOutcome.UNKNOWN
    assert judged(answering(["another", "contained", ""]), name).outcome is AttemptOutcome.UNKNOWN


def limited(*names: str) -> ScriptedDriver:
    """Return a driver whose probe begins these attempts if they are requested, and then exceeds the memory limit."""
    driver = ScriptedDriver()

    @driver.program("python3")
    def probe(context: ProgramContext) -> None:
        for name in json.loads(context.argv[-1])["names"]:
            if name in names:
                context.stdout.write(json.dumps([name]) + "\n")
        context.run_out_of_memory()

    return driver


def test_a_probe_that_a_limit_ends_is_contained() -> None:
    """An attempt to use up memory is contained if the memory limit ends it; the result names the limit (I09, I12)."""
    found = judged(limited("use up memory"), "use up memory")
    assert found == AttemptResult("use up memory", AttemptOutcome.CONTAINED, "memory limit")


@pytest.mark.parametrize(
    "name", ["`bpf`: load a program", "use up memory", "overwrite the program of a runtime that enters the sandbox"]
)
def test_a_limit_before_an_attempt_is_never_contained(name: str) -> None:
    """An attempt that was not begun when a limit ended its program is unknown."""
    assert judged(limited(), name) == AttemptResult(name, AttemptOutcome.UNKNOWN, "not made: memory limit")


@pytest.mark.parametrize(
    "name", ["`bpf`: load a program", "overwrite the program of a runtime that enters the sandbox"]
)
def test_a_limit_during_an_attempt_that_needs_none_is_never_contained(name: str) -> None:
    """If a limit ends an attempt that is not meant to exhaust a resource, the attempt is unknown."""
    assert judged(limited(name), name) == AttemptResult(name, AttemptOutcome.UNKNOWN, "memory limit")


def test_a_program_that_fails_in_a_leaked_directory_is_never_contained() -> None:
    """If a program in a directory that the runtime left open ends without an answer, the attempt is unknown."""
    name = "start in a directory that the runtime left open"
    assert judged(answering(), name).outcome is AttemptOutcome.UNKNOWN
    assert judged(limited(name), name).outcome is AttemptOutcome.UNKNOWN


def test_the_attempts_after_an_early_end_are_made_in_another_sandbox() -> None:
    """If one of several attempts ends their program, only that one is unknown. The rest are made in another sandbox."""
    driver = ScriptedDriver()
    names = [attempt.name for attempt in ATTEMPTS.values() if attempt.staging == "together"][:4]

    @driver.program("python3")
    def probe(context: ProgramContext) -> None:
        for name in json.loads(context.argv[-1])["names"]:
            context.stdout.write(json.dumps([name]) + "\n")
            if name == names[1]:
                context.run_out_of_memory()
            context.stdout.write(json.dumps([name, "contained", "EPERM"]) + "\n")

    found = break_out(driver, driver.resolve_image(DEFAULT_IMAGE), names=names)[:4]
    assert [(one.name, one.how) for one in found] == list(
        zip(names, ["EPERM", "memory limit", "EPERM", "EPERM"], strict=True)
    )
    assert found[1].outcome is AttemptOutcome.UNKNOWN


def test_the_host_is_looked_at_even_if_nothing_is_tried() -> None:
    """The host is checked even if no attempt is made.

    The checks cover a file, kernel settings, a process, leftover processes and SecureBench's memory.
    """
    driver = ScriptedDriver()
    found = break_out(driver, driver.resolve_image(DEFAULT_IMAGE), names=[])
    assert [(finding.name, finding.outcome) for finding in found] == [
        (evidence.name, AttemptOutcome.CONTAINED) for evidence in EVIDENCE
    ]


def test_every_attempt_is_described() -> None:
    """Each attempt and each check of the host names what an escape means, and an entry in the catalogue of attacks."""
    described = [(one.name, one.means, one.entry) for one in ATTEMPTS.values()]
    described += [(one.name, one.means, one.entry) for one in EVIDENCE]
    for name, means, entry in described:
        assert name
        assert means
        assert re.fullmatch(r"[A-O]\d\d", entry)
