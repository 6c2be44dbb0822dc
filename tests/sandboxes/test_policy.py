"""The command policy: what it refuses, what it records, and that containment does not depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import CandidateError, FailurePhase, FailureReason
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.policy import (
    CommandAttempt,
    CommandDeniedError,
    CommandPolicy,
    PolicySandbox,
    executable_name,
)
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE, ScriptedDriver

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Sandbox
    from securebench.sandboxes.docker.driver import DockerDriver


@pytest.fixture
def scripted() -> Sandbox:
    """Return a sandbox in which every command succeeds."""
    driver = ScriptedDriver()
    driver.program(lambda _argv: True)(lambda _context: 0)
    return driver.create(SandboxSpec(image=driver.resolve_image(DEFAULT_IMAGE)))


def command(*argv: str) -> Command:
    """Return a command with the arguments ``argv``."""
    return Command(argv=argv, timeout_seconds=20)


@pytest.mark.parametrize(
    ("allow", "deny", "argv", "admitted"),
    [
        ((), (), ("anything",), True),
        ((), (), ("sh", "-c", "anything"), True),
        (("git",), (), ("git", "status"), True),
        (("git",), (), ("/usr/bin/git",), True),
        (("git",), (), ("python3",), False),
        (("git",), ("git",), ("git",), False),
        ((), ("chroot",), ("ls",), True),
        ((), ("chroot",), ("chroot", "/"), False),
        ((), ("chroot",), ("/bin/../usr/sbin/chroot",), False),
        ((), ("chroot",), ("/usr/sbin/./chroot/.",), False),
        ((), ("*",), ("ls",), False),
        (("ls",), ("*",), ("ls",), False),
        ((), ("chroot",), ("sh", "-c", "chroot /"), False),
        ((), ("chroot",), ("/bin/bash", "-ec", "true"), False),
        ((), ("chroot",), ("bash", "--noprofile", "-euo", "pipefail", "-c", "true"), False),
        ((), ("chroot",), ("bash", "script.sh"), True),
        (("sh",), ("chroot",), ("sh", "-c", "true"), True),
        ((), ("chroot",), (), False),
        ((), ("chroot",), ("",), False),
        ((), ("chroot",), ("/",), False),
    ],
)
def test_rules(allow: tuple[str, ...], deny: tuple[str, ...], argv: tuple[str, ...], admitted: bool) -> None:
    """A policy admits a command according to the base name of its executable.

    Deny takes precedence over allow, a non-empty ``allow`` permits only its names, and ``*`` in ``deny`` denies all.
    A shell with a script string is refused unless ``allow`` contains the shell. An empty policy admits everything.
    """
    assert (CommandPolicy(allow, deny).refusal(argv) is None) is admitted


@given(st.lists(st.text(max_size=12), max_size=4).map(tuple))
def test_deny_all_admits_nothing(argv: tuple[str, ...]) -> None:
    """If ``deny`` contains ``*``, every command is refused."""
    assert CommandPolicy(allow=("sh",), deny=("*",)).refusal(argv) is not None


@given(st.lists(st.sampled_from(["a", ".", "..", ""]), max_size=6))
def test_a_name_has_no_directory(parts: list[str]) -> None:
    """The name of an executable never contains a slash."""
    assert "/" not in executable_name("/".join(parts))


def test_a_refused_command_does_not_run() -> None:
    """A refused command is not run. It raises ``CommandDeniedError``, which counts as a failure of the candidate."""
    driver = ScriptedDriver()
    beneath = driver.create(SandboxSpec(image=driver.resolve_image(DEFAULT_IMAGE)))
    sandbox = PolicySandbox(beneath, CommandPolicy(deny=("chroot",)))
    with pytest.raises(CommandDeniedError) as raised:
        sandbox.run(command("chroot", "/"))
    assert driver.commands == []
    assert isinstance(raised.value, CandidateError)
    assert raised.value.code == "command-denied"
    assert (raised.value.reason, raised.value.phase) == (
        FailureReason.DANGEROUS_COMMAND_DENIED,
        FailurePhase.POLICY,
    )


def test_every_attempt_is_recorded(scripted: Sandbox) -> None:
    """Admitted and refused commands are recorded in order, with the executable's name and the reason for a refusal."""
    sandbox = PolicySandbox(scripted, CommandPolicy(deny=("chroot",)))
    assert sandbox.run(command("/bin/ls", "-l")).exit_code == 0
    with pytest.raises(CommandDeniedError):
        sandbox.run(command("/usr/sbin/chroot", "/"))
    assert sandbox.attempts == (
        CommandAttempt(("/bin/ls", "-l"), "ls", None),
        CommandAttempt(("/usr/sbin/chroot", "/"), "chroot", "'chroot' is denied"),
    )


def test_closing_closes_the_sandbox_beneath() -> None:
    """Closing a ``PolicySandbox`` closes the sandbox that it wraps."""
    driver = ScriptedDriver()
    sandbox = driver.create(SandboxSpec(image=driver.resolve_image(DEFAULT_IMAGE)))
    PolicySandbox(sandbox, CommandPolicy()).close()
    assert driver.open_sandboxes == set()


CHROOT = "import os; os.chroot('/tmp'); print('escaped')"

BYPASSES = {
    "plain": ("chroot", "/tmp", "/bin/true"),
    "dots": ("/usr/bin/../sbin/chroot", "/tmp", "/bin/true"),
    "shell": ("sh", "-c", "chroot /tmp /bin/true && echo escaped"),
    "link": ("sh", "-c", "ln -s /usr/sbin/chroot /tmp/harmless && /tmp/harmless /tmp /bin/true && echo escaped"),
    "copy": ("sh", "-c", "cp /usr/sbin/chroot /tmp/harmless && /tmp/harmless /tmp /bin/true && echo escaped"),
    "interpreter": ("python3", "-c", CHROOT),
    "subprocess": ("python3", "-c", "import os; os.system('chroot /tmp /bin/true && echo escaped')"),
    "wrapper": ("env", "chroot", "/tmp", "/bin/true"),
}


@pytest.mark.engine
@pytest.mark.parametrize("argv", BYPASSES.values(), ids=BYPASSES)
@pytest.mark.parametrize("user", [(0, 0), (65534, 65534)], ids=["root", "nobody"])
def test_the_container_stops_what_a_name_does_not(
    docker_driver: DockerDriver, base_image: ResolvedImage, argv: tuple[str, ...], user: tuple[int, int]
) -> None:
    """A22: a sandbox lacks the capability for ``chroot``, so each way to call it fails, even without a policy."""
    with docker_driver.create(SandboxSpec(image=base_image, user=user)) as sandbox:
        result = sandbox.run(command(*argv))
    assert b"escaped" not in result.stdout
    assert b"Operation not permitted" in result.stderr or b"ermission" in result.stderr, result
