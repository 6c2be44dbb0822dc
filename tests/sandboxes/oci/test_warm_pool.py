"""The warm pool: containers that are started early, used once for a spec of the same kind, or ended unused."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from leftovers import family_of
from securebench.errors import EngineError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import BASE_ENVIRONMENT, Command, ForwardedPort, Mount, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.warm_pool import ContainerKind, Started, WarmPool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.sandboxes.base import SandboxProcess

SPEC = SandboxSpec(image=ResolvedImage(reference="image", id="sha256:1"))
ARGV = ("python3", "-I", "-u", "-c", "for line in open(0): exec(line)")
WAITING = Command(argv=ARGV, timeout_seconds=60, waits=True)
NOTE = "import os; print(sorted(os.listdir('/tmp'))); open('/tmp/note', 'w').close()"


class FakeStarted:
    """A fake started container. It records whether it was ended."""

    def __init__(self, *, over: bool = False) -> None:
        self.handle = self
        self.over = over
        self.ended = False

    def is_over(self) -> bool:
        """Return the value that the constructor was given."""
        return self.over

    def end(self) -> None:
        """Record that the container was ended."""
        self.ended = True


def kind(**changes: Any) -> ContainerKind:
    """Return the kind for :data:`SPEC` with ``changes``."""
    found = ContainerKind.of(replace(SPEC, **changes), WAITING)
    assert found is not None
    return found


def started(*, over: bool = False) -> Started:
    """Return a fake container with the type of a real one."""
    return cast("Started", FakeStarted(over=over))


def ended(*those: Started) -> list[bool]:
    """Return for each fake container whether it was ended."""
    return [cast("FakeStarted", one).ended for one in those]


def test_one_is_taken_once() -> None:
    """A warm container is given out only once."""
    warm_pool, one = WarmPool(), started()
    warm_pool.take(kind())
    warm_pool.add(kind(), one)
    assert warm_pool.take(kind()) is one
    assert warm_pool.take(kind()) is None
    assert ended(one) == [False]


@pytest.mark.parametrize(
    "changes",
    [
        {"user": (0, 0)},
        {"read_only": False},
        {"image": ResolvedImage(reference="image", id="sha256:2")},
        {"environment": {**BASE_ENVIRONMENT, "A": "1"}},
        {"tmpfs": ()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_only_what_is_exactly_the_same_is_taken(changes: dict[str, Any]) -> None:
    """A warm container is not used for a spec that differs in anything except labels."""
    warm_pool = WarmPool()
    warm_pool.take(kind())
    warm_pool.add(kind(), started())
    assert warm_pool.take(kind(**changes)) is None
    assert kind() == kind(labels={"task": "another"})


def test_not_all_can_be_started_ahead(tmp_path: Path) -> None:
    """A container is started early only if its command waits for input.

    None is started early for a spec with mounts or forwarded ports.
    """
    assert ContainerKind.of(SPEC, replace(WAITING, waits=False)) is None
    assert ContainerKind.of(replace(SPEC, mounts=(Mount(tmp_path, "/workspace"),)), WAITING) is None
    assert (
        ContainerKind.of(
            replace(SPEC, forwarded_ports=(ForwardedPort(3128, lambda listener: listener.close()),)), WAITING
        )
        is None
    )


def test_there_are_never_more_than_were_in_use_at_once() -> None:
    """The pool keeps at most as many containers as were in use at once. The oldest are ended, whatever their kind."""
    warm_pool, ones = WarmPool(), [started() for _ in range(4)]
    for _ in range(2):
        warm_pool.take(kind())
    for number, one in enumerate(ones):
        warm_pool.give_back()
        warm_pool.add(kind(workdir=f"/{number}"), one)
    assert ended(*ones) == [True, True, False, False]
    warm_pool.clear()
    assert all(ended(*ones))


def test_one_that_has_ended_is_not_given() -> None:
    """A warm container that has exited is ended and not given out."""
    warm_pool, one = WarmPool(), started(over=True)
    warm_pool.take(kind())
    warm_pool.add(kind(), one)
    assert warm_pool.take(kind()) is None
    assert ended(one) == [True]


# --- tests with real sandboxes

real = pytest.mark.oci


@pytest.fixture
def own_driver(oci_driver: OciDriver, base_image: ResolvedImage) -> Iterator[OciDriver]:
    """Yield a driver that the test may close."""
    del oci_driver, base_image  # requested only to make sure that both are available
    driver = OciDriver()
    yield driver
    driver.close()


def spec_of(driver: OciDriver) -> SandboxSpec:
    """Return a spec with default settings, which are the strictest."""
    return SandboxSpec(image=driver.resolve_image("securebench/python:3.11"))


def ready(driver: OciDriver) -> list[tuple[ContainerKind, Started]]:
    """Return the warm containers of ``driver``."""
    return driver._context.warm_pool._ready


def say(process: SandboxProcess, line: str) -> bytes:
    """Send ``line``, close stdin, and return all output."""
    process.send(line.encode() + b"\n")
    process.close_stdin()
    output = b""
    while (chunk := process.receive()) is not None:
        output += chunk[1]
    return output


@real
def test_what_one_has_done_the_next_does_not_see(own_driver: OciDriver) -> None:
    """Each sandbox is a new container, without files of the one before (A24, F11)."""
    for number in range(3):
        before = [each for _, each in ready(own_driver)]
        with own_driver.create(spec_of(own_driver)) as sandbox:
            process = sandbox.open(WAITING)
            assert not set(before) & {each for _, each in ready(own_driver)}
            assert say(process, NOTE) == b"[]\n"
            assert process.wait().exit_code == 0
        assert len(ready(own_driver)) == 1, number


@real
def test_what_was_started_ahead_idles(own_driver: OciDriver) -> None:
    """A warm container runs only its init and the command, and its time limit begins when it is used."""
    short = replace(WAITING, timeout_seconds=1.0)
    with own_driver.create(spec_of(own_driver)) as sandbox:
        say(sandbox.open(short), "")
    time.sleep(1.5)
    with own_driver.create(spec_of(own_driver)) as sandbox:
        process = sandbox.open(short)
        assert ready(own_driver) == []
        begun = time.monotonic()
        process.send(b"import os; os.write(1, repr(sorted(filter(str.isdigit, os.listdir('/proc')))).encode())\n")
        assert process.receive() == ("stdout", b"['1', '2']")
        assert process.wait().timed_out
        assert 0.9 < time.monotonic() - begun < 40


@real
def test_what_ends_meanwhile_is_started_anew(own_driver: OciDriver) -> None:
    """If a warm container was killed, the next sandbox gets a new container."""
    with own_driver.create(spec_of(own_driver)) as sandbox:
        say(sandbox.open(WAITING), "")
    handle = ready(own_driver)[0][1].handle
    handle.kill()
    handle.await_end(10)
    with own_driver.create(spec_of(own_driver)) as sandbox:
        assert say(sandbox.open(WAITING), "print(1)") == b"1\n"


@real
def test_a_persistent_sandbox_runs_its_own_commands(own_driver: OciDriver) -> None:
    """A persistent sandbox runs commands that wait for input in its own container. No warm container is started."""
    with own_driver.create(spec_of(own_driver), persistent=True) as sandbox:
        assert say(sandbox.open(WAITING), NOTE) == b"[]\n"
        assert say(sandbox.open(WAITING), NOTE) == b"['note']\n"
    assert ready(own_driver) == []


@real
@pytest.mark.parametrize("end", ["kill_all", "close"])
def test_nothing_is_left_of_what_nobody_took(own_driver: OciDriver, end: str) -> None:
    """When a driver is stopped, its warm containers end, and no new ones are started."""
    pid = own_driver._context.connection._child.pid
    sandboxes = [own_driver.create(spec_of(own_driver)) for _ in range(2)]
    for process in [sandbox.open(WAITING) for sandbox in sandboxes]:
        say(process, "")
    sandboxes[0].close()
    assert len(ready(own_driver)) == 1
    getattr(own_driver, end)()
    sandboxes[1].close()
    assert ready(own_driver) == []
    deadline = time.monotonic() + 20
    while any("python3 -I -u" in command for command in family_of(pid).values()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(EngineError):
        own_driver.create(spec_of(own_driver))
