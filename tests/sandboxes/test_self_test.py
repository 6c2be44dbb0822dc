"""The self-test: a driver whose sandboxes are weaker than asked for is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError
from securebench.sandboxes.self_test import require_isolation, weaknesses
from securebench.testing.fake_sandbox import FakeDriver

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.docker import DockerDriver
    from securebench.testing.fake_process import FakeProcessContext

HEADINGS = "Inter-|   Receive\n face |bytes\n"
LOOPBACK = "    lo:       0       0\n"
STATUS = "Name:\tcat\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"


def test_a_sandbox_as_asked_for_has_no_weakness() -> None:
    """Loopback alone, no capability to be had, no new privileges, and a seccomp filter: nothing is wrong."""
    assert list(weaknesses(HEADINGS + LOOPBACK + STATUS)) == []


@pytest.mark.parametrize(
    ("seen", "trouble"),
    [
        (HEADINGS + LOOPBACK + "  eth0:       0\n" + STATUS, "lo, eth0"),
        (HEADINGS + STATUS, "not even its own"),
        (
            HEADINGS + LOOPBACK + STATUS.replace("CapBnd:\t0000000000000000", "CapBnd:\t00000000a80425fb"),
            "capabilities",
        ),
        (HEADINGS + LOOPBACK + STATUS.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"), "privileges can be gained"),
        (HEADINGS + LOOPBACK + STATUS.replace("Seccomp:\t2", "Seccomp:\t0"), "no seccomp filter"),
        (HEADINGS + LOOPBACK + "Name:\tcat\n", "Seccomp is not there"),
        ("", "not even its own"),
    ],
)
def test_each_weakness_is_named(seen: str, trouble: str) -> None:
    """Each thing that a sandbox should not see, or lacks, is said."""
    assert any(trouble in weakness for weakness in weaknesses(seen))


def test_gvisor_need_not_say_what_it_always_does() -> None:
    """Its kernel has no line for new privileges, as there are none. What a line says, and any other line, counts."""
    without = HEADINGS + LOOPBACK + STATUS.replace("NoNewPrivs:\t1\n", "")
    assert list(weaknesses(without, "runsc")) == []
    assert any("NoNewPrivs is not there" in weakness for weakness in weaknesses(without, "runc"))
    for worse in (STATUS.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"), "Name:\tcat\nCapBnd:\t0000000000000000\n"):
        assert list(weaknesses(HEADINGS + LOOPBACK + worse, "runsc"))


def test_a_weak_driver_is_refused() -> None:
    """A driver whose sandbox has a network of its own raises ``sandbox-not-isolated``."""
    driver = FakeDriver()
    image = driver.add_image("weak:1")

    @driver.program("/bin/cat")
    def cat(context: FakeProcessContext) -> int:
        context.stdout.write((HEADINGS + LOOPBACK + "  eth0: 0\n" + STATUS).encode())
        return 0

    with pytest.raises(EngineError, match="eth0") as caught:
        require_isolation(driver, image)
    assert caught.value.code == "sandbox-not-isolated"


def test_what_cannot_be_told_is_refused() -> None:
    """An image without the program that looks is refused too: unknown is not isolated."""
    driver = FakeDriver()
    with pytest.raises(EngineError, match="could not be looked at"):
        require_isolation(driver, driver.add_image("empty:1"))


@pytest.mark.engine
def test_the_engine_passes(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """The sandboxes of the engine at hand are as asked for."""
    docker_driver.self_test(base_image)
