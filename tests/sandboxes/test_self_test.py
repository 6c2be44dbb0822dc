"""The self-test: a driver whose sandboxes are weaker than required is rejected."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError
from securebench.sandboxes.base import DriverInfo, Limits
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.self_test import View, inspect_sandbox, port_problems, require_isolation, weaknesses
from securebench.sandboxes.spec_rules import serve_forwarded_ports
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver, SandboxSpec
    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedSandbox

CGROUP = "1073741824\n256\n"
NETWORK = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0       0
"""
ETHERNET = "  eth0:    1000       9    0    0    0     0          0         0        0       0    0    0    0     0\n"
USERS = """\
         0 1879048192      65534
     65534      65534          1
     65535 1879113727          1
"""
HOST_USERS = "         0          0 4294967295\n"
MOUNTS = """\
overlay / overlay ro,nosuid,nodev,relatime,lowerdir=a:b,upperdir=c,workdir=d 0 0
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
tmpfs /tmp tmpfs rw,nosuid,nodev,relatime,size=262144k,uid=1879048192 0 0
proc /proc/sys proc ro,relatime 0 0
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max file size             1073741824           1073741824           bytes
Max core file size        0                    0                    bytes
Max open files            1024                 1024                 files
Max nice priority         0                    0
"""
STATUS = """\
Name:\tcat
Uid:\t65533\t65533\t65533\t65533
Groups:\t65533
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t0000000000000000
CapAmb:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
"""
WELL = NETWORK + USERS + MOUNTS + LIMITS + STATUS


def of_gvisor() -> str:
    """Return the kernel's files as gVisor shows them.

    They contain no limits. Some lines of the status file are missing, and the user ids look like those of the host.
    """
    status = STATUS.replace("NoNewPrivs:\t1\n", "").replace("CapAmb:\t0000000000000000\n", "")
    mounts = "none / 9p ro,trans=fd,cache=fscache 0 0\nnone /tmp tmpfs rw,mode=1777,size=268435456 0 0\n"
    return NETWORK + HOST_USERS + mounts + status


@pytest.mark.parametrize(
    ("seen", "runtime"),
    [(WELL, ""), (CGROUP + WELL, "crun"), (WELL.replace("Groups:\t65533", "Groups:\t "), ""), (of_gvisor(), "runsc")],
)
def test_a_fully_isolated_sandbox_has_no_weakness(seen: str, runtime: str) -> None:
    """I17, I18: no problem is found in the files of a fully isolated sandbox, including one of gVisor."""
    assert weaknesses(View.parse(seen), Limits(), runtime) == {}


@pytest.mark.parametrize(
    ("seen", "name", "problem"),
    [
        (NETWORK + ETHERNET + USERS + MOUNTS + LIMITS + STATUS, "network", "lo, eth0"),
        (USERS + MOUNTS + LIMITS + STATUS, "network", "none, not even loopback"),
        (WELL.replace("CapBnd:\t0000000000000000", "CapBnd:\t00000000a80425fb"), "capabilities", "CapBnd is 0"),
        (WELL.replace("CapAmb:\t0000000000000000", "CapAmb:\t0000000000000001"), "capabilities", "CapAmb is 0"),
        (WELL.replace("CapBnd:\t0000000000000000\n", ""), "capabilities", "CapBnd is missing"),
        (WELL.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"), "no-new-privileges", "privileges can be gained"),
        (WELL.replace("NoNewPrivs:\t1\n", ""), "no-new-privileges", "NoNewPrivs is missing"),
        (WELL.replace("Seccomp:\t2", "Seccomp:\t0"), "seccomp", "no seccomp filter"),
        (WELL.replace(USERS, HOST_USERS), "user-namespace", "users are the same as those of the host"),
        (WELL.replace(USERS, ""), "user-namespace", "uid_map is missing"),
        (WELL.replace(USERS, "     65533       1000          1\n"), "file-owners", "only 1 user ids"),
        (WELL.replace("Groups:\t65533", "Groups:\t65533 65534 "), "groups", "65534"),
        (WELL.replace("/ overlay ro", "/ overlay rw"), "read-only-root", "is writable"),
        (WELL.replace(USERS, HOST_USERS).replace("/proc/sys proc ro", "/proc/sys proc rw"), "kernel-settings", "/proc"),
        (NETWORK + HOST_USERS + LIMITS + STATUS, "kernel-settings", "/proc/sys"),
        (WELL.replace("size=262144k", "size=12334460k"), "tmpfs", "not limited"),
        (WELL.replace("/tmp tmpfs", "/tmp ext4"), "tmpfs", "not limited"),
        (WELL.replace("1024                 1024 ", "1024                 1048576 "), "rlimits", "open files"),
        (WELL.replace(LIMITS, ""), "rlimits", "missing"),
        ("9223372036854771712\n256\n" + WELL, "memory", "not limited"),
        ("1073741824\nmax\n" + WELL, "pids", "not limited"),
    ],
)
def test_each_weakness_is_named(seen: str, name: str, problem: str) -> None:
    """Each problem is reported under the name of the restriction that is not enforced."""
    found = weaknesses(View.parse(seen), Limits())
    assert problem in found[name]


def test_an_empty_view_fails_every_check() -> None:
    """A restriction that cannot be checked counts as missing.

    The memory and process limits are tested separately, by exceeding them. The CPU limit is not visible.
    """
    found = weaknesses(View.parse(""), Limits())
    assert set(found) == {*ENFORCEABLE, "kernel-settings"} - {"memory", "pids", "cpu"}


def test_gvisor_may_lack_some_lines() -> None:
    """With gVisor, lines that its status file never contains may be missing.

    Other missing lines and wrong values are problems. With another runtime, each missing line is a problem.
    """
    assert {"no-new-privileges", "rlimits"} <= set(weaknesses(View.parse(of_gvisor()), Limits(), "runc"))
    worse = of_gvisor() + "NoNewPrivs:\t0\n"
    assert set(weaknesses(View.parse(worse), Limits(), "runsc")) == {"no-new-privileges"}
    assert set(weaknesses(View.parse(of_gvisor().replace("Seccomp:\t2\n", "")), Limits(), "runsc")) == {"seccomp"}


class Machine(ScriptedDriver):
    """A driver whose sandboxes read ``seen`` as the kernel's files. It enforces only the limits in ``enforced``."""

    def __init__(
        self, seen: str, *, enforced: tuple[str, ...] = ("memory", "pids"), weaker: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self._weaker = weaker
        self.image = self.add_image("some:1")

        @self.program("/bin/cat")
        def cat(context: ProgramContext) -> int:
            limits = context.spec.limits
            if (limits.pids == 1 and "pids" in enforced) or (limits.memory < 1 << 20 and "memory" in enforced):
                return 1
            context.stdout.write(seen.encode())
            return 0

    def info(self) -> DriverInfo:
        """Return a description with the weaker restrictions."""
        return DriverInfo("scripted", weaker=self._weaker)


def test_a_machine_that_enforces_everything_passes() -> None:
    """If everything is enforced, no error is raised.

    If the limits can be read from the cgroup, the self-test does not exceed them on purpose.
    """
    machine = Machine(WELL)
    require_isolation(machine, machine.image)
    assert len(machine.commands) == 3
    seen = Machine(CGROUP + WELL, enforced=())
    require_isolation(seen, seen.image)
    assert len(seen.commands) == 1


def test_a_weak_driver_is_rejected() -> None:
    """A driver whose sandbox has a network interface raises ``sandbox-not-isolated``."""
    machine = Machine(NETWORK + ETHERNET + USERS + MOUNTS + LIMITS + STATUS)
    with pytest.raises(EngineError, match="eth0") as caught:
        require_isolation(machine, machine.image)
    assert caught.value.code == "sandbox-not-isolated"


@pytest.mark.parametrize("name", ["memory", "pids"])
def test_an_unenforced_limit_is_reported(name: str) -> None:
    """I08, I09: if a sandbox still runs with a limit that is far too low, the limit is reported as not enforced."""
    machine = Machine(WELL, enforced=tuple({"memory", "pids"} - {name}))
    assert inspect_sandbox(machine.create, machine.image) == {name: f"the {name} limit is not enforced"}


def test_gvisors_thread_limit_is_not_tested() -> None:
    """With gVisor, only the memory limit is tested, which shows whether cgroups apply. The process limit is not."""
    machine = Machine(of_gvisor(), enforced=("memory",))
    assert inspect_sandbox(machine.create, machine.image, "runsc") == {}
    loose = Machine(of_gvisor(), enforced=())
    assert set(inspect_sandbox(loose.create, loose.image, "runsc")) == {"memory"}


def test_only_declared_weaknesses_are_accepted() -> None:
    """A problem is accepted if the driver declares the restriction weaker. Any other problem is an error."""
    seen = WELL.replace(USERS, HOST_USERS).replace("Seccomp:\t2", "Seccomp:\t0")
    honest = Machine(seen, weaker=("user-namespace", "file-owners", "seccomp"))
    require_isolation(honest, honest.image)
    dishonest = Machine(seen, weaker=("user-namespace",))
    with pytest.raises(EngineError, match="seccomp") as caught:
        require_isolation(dishonest, dishonest.image)
    assert "users" not in caught.value.message


def test_a_sandbox_that_cannot_be_inspected_is_rejected() -> None:
    """An image without ``/bin/cat`` fails the self-test, because its sandbox cannot be inspected."""
    driver = ScriptedDriver()
    with pytest.raises(EngineError, match="could not be inspected"):
        require_isolation(driver, driver.add_image("empty:1"))


LISTENING = "   0: 0100007F:0C38 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 {} 1 0 100"
QUESTION = "   1: 0B00007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 9 2 0 0"
ROUTE = "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0"


@pytest.mark.parametrize(
    ("lines", "inodes", "problem"),
    [
        ([LISTENING.format(17)], [17], ""),
        ([], [17], "listening sockets: ()"),
        ([LISTENING.format(18)], [17], "listening sockets"),
        ([LISTENING.format(17).replace("0C38", "0C39")], [17], "listening sockets"),
        ([LISTENING.format(17).replace("0100007F", "00000000")], [17], "listening sockets"),
        ([LISTENING.format(17), LISTENING.format(18).replace("0C38", "0016")], [17], "listening sockets"),
        ([LISTENING.format(17)], [], "0 sockets were opened"),
        ([LISTENING.format(17)], [17, 18], "2 sockets were opened"),
        ([LISTENING.format(17), QUESTION], [17], "0B00007F:0035"),
        ([LISTENING.format(17), ROUTE], [17], "eth0"),
    ],
)
def test_a_wrong_forwarded_port_is_reported(lines: list[str], inodes: list[int], problem: str) -> None:
    """J03: a forwarded port must be the socket that was opened for it, and the only socket in its namespace."""
    found = "; ".join(port_problems("\n".join(lines), inodes))
    assert problem in found if problem else not found


class WithPorts(Machine):
    """A driver whose sandboxes look isolated. When the self-test checks a forwarded port, they also read ``beside``."""

    def __init__(self, beside: str) -> None:
        super().__init__(WELL)

        @self.program(lambda argv: "/proc/net/tcp" in argv)
        def cat(context: ProgramContext) -> None:
            context.stdout.write(beside + "\n" + WELL)

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> ScriptedSandbox:
        """Open a socket for each forwarded port."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in spec.forwarded_ports]
        serve_forwarded_ports(spec.forwarded_ports, sockets)
        return super().create(spec, persistent=persistent)


@pytest.mark.parametrize(("beside", "why"), [("", "listening sockets"), (ETHERNET, "eth0")])
def test_a_driver_with_wrong_ports_is_rejected(beside: str, why: str) -> None:
    """J01, J03: a driver is rejected if its sandbox lacks the forwarded port, or has a network with it.

    A run that needs no forwarded port accepts the same driver.
    """
    machine = WithPorts(beside)
    require_isolation(machine, machine.image)
    with pytest.raises(EngineError, match=why) as caught:
        require_isolation(machine, machine.image, forwarded_ports=True)
    assert caught.value.code == "sandbox-not-isolated"


@pytest.mark.every_driver
@pytest.mark.usefixtures("_with_ports")
def test_every_driver_passes_with_ports(driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """Every driver that supports forwarded ports passes the self-test with one."""
    driver.self_test(base_image, forwarded_ports=True)


@pytest.mark.engine
def test_the_engine_passes(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """The sandboxes of this machine's engine are isolated."""
    docker_driver.self_test(base_image)


@pytest.mark.engine
def test_the_engine_declares_all_its_weaknesses(docker_driver: DockerDriver, base_image: ResolvedImage) -> None:
    """The problems found in the engine's sandboxes are exactly the restrictions that the driver declares weaker."""
    assert tuple(inspect_sandbox(docker_driver.create, base_image)) == docker_driver.info().weaker
