"""Isolation of the oci driver: its self-test finds missing restrictions, and sandboxes share nothing with the host."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import EngineError
from securebench.sandboxes import self_test
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.isolation import host_root
from securebench.sandboxes.self_test import inspect_sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Sandbox

pytestmark = pytest.mark.oci

DEVICES = """
import os, stat
modes = {name: os.lstat('/dev/' + name).st_mode for name in os.listdir('/dev')}
print(sorted(name for name, mode in modes.items() if stat.S_ISCHR(mode) or stat.S_ISBLK(mode)))
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no cgroups: see test_rootless")


@pytest.fixture(autouse=True)
def _on_the_hosts_kernel(oci_driver: OciDriver) -> None:
    if oci_driver.info().runtime == "runsc":
        pytest.skip("gVisor has its own kernel; the conformance suite checks it")


@as_root
def test_everything_is_enforced(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """As root, every restriction is enforced, in sandboxes with the host's programs and in sandboxes of an image."""
    isolation = oci_driver.prove()
    assert (isolation.enforced, isolation.weaker) == (tuple(ENFORCEABLE), ())
    assert inspect_sandbox(oci_driver.create, base_image, oci_driver.info().runtime) == {}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("read-only-root", {"read_only": False}),
        ("tmpfs", {"tmpfs": ()}),
        ("no-new-privileges", {"security_opt": ()}),
        ("capabilities", {"cap_add": ("SYS_CHROOT",)}),
    ],
)
def test_a_weaker_sandbox_is_detected(
    oci_driver: OciDriver, base_image: ResolvedImage, name: str, change: dict[str, Any]
) -> None:
    """The self-test finds a real sandbox that lacks one restriction."""

    def create(spec: SandboxSpec) -> Sandbox:
        return oci_driver.create(replace(spec, **change))

    assert name in inspect_sandbox(create, base_image, oci_driver.info().runtime)


@as_root
@pytest.mark.parametrize(("name", "plenty"), [("memory", 1 << 30), ("pids", 1 << 20)])
def test_a_missing_limit_is_detected(oci_driver: OciDriver, base_image: ResolvedImage, name: str, plenty: int) -> None:
    """I08, I09: if a sandbox gets a much higher limit than requested, the self-test reports that it is not enforced."""

    def create(spec: SandboxSpec) -> Sandbox:
        return oci_driver.create(replace(spec, limits=replace(spec.limits, **{name: plenty})))

    assert inspect_sandbox(create, base_image, oci_driver.info().runtime)[name] == f"the {name} limit is not enforced"


@as_root
def test_a_failed_proof_is_an_error(oci_driver: OciDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does not enforce a limit cannot be used: the proof fails closed."""
    monkeypatch.setattr(self_test, "_TOO_LITTLE", {"pids": {"pids": 100}})
    with pytest.raises(EngineError, match="the pids limit is not enforced") as caught:
        oci_driver.prove()
    assert caught.value.code == "sandbox-not-isolated"


@as_root
def test_limits_are_hit_once(base_image: ResolvedImage, oci_driver: OciDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits do not depend on the image, so after a proof, the self-test of an image skips them."""
    monkeypatch.setattr(self_test, "_TOO_LITTLE", {"pids": {"pids": 100}})
    with closing(OciDriver(runtime=oci_driver.info().runtime)) as fresh:
        image = fresh.resolve_image(base_image.reference)
        with pytest.raises(EngineError, match="the pids limit is not enforced"):
            fresh.self_test(image)
        monkeypatch.undo()
        fresh.prove()
        monkeypatch.setattr(self_test, "_TOO_LITTLE", {"pids": {"pids": 100}})
        fresh.self_test(image)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        # In the host's network namespace, a sandbox could connect to the host's abstract sockets.
        ("import socket; socket.socket(socket.AF_UNIX).connect({name!r})", "ConnectionRefusedError"),
        # In the host's ipc namespace, a sandbox would see the host's message queues and shared memory segments.
        ("import os; print(os.listdir('/dev/mqueue'), len(open('/proc/sysvipc/shm').readlines()))", "[] 1"),
        # Most kernel settings belong to no namespace: a change would affect the host.
        ("open('/proc/sys/kernel/hostname', 'w')", "OSError: [Errno 30]"),
        ("open('/proc/sys/vm/overcommit_memory', 'w')", "OSError: [Errno 30]"),
        ("open('/sys/kernel/mm/ksm/run', 'w')", "OSError: [Errno 30]"),
        # Setting the clock, and creating a time namespace.
        ("import time; time.clock_settime(time.CLOCK_REALTIME, 0)", "PermissionError"),
        ("import ctypes; c = ctypes.CDLL(None); print(c.unshare(0x80))", "-1"),
        # Devices: only harmless ones.
        (DEVICES, "['full', 'null', 'random', 'tty', 'urandom', 'zero']"),
    ],
    ids=["abstract socket", "ipc", "host name", "memory setting", "sysfs", "clock", "time namespace", "devices"],
)
def test_nothing_of_the_kernel_is_shared(
    oci_driver: OciDriver, base_image: ResolvedImage, program: str, expected: str
) -> None:
    """I18, I19, I20: not even root can use the abstract sockets, queues, settings, clock or devices of the host."""
    name = f"\0securebench-test-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as listener,
        oci_driver.create(SandboxSpec(image=base_image, user=(0, 0))) as sandbox,
    ):
        listener.bind(name)
        listener.listen()
        argv = ("python3", "-I", "-c", program.replace("{name!r}", repr(name)))
        result = sandbox.run(Command(argv=argv, timeout_seconds=60))
    assert expected in (result.stdout + result.stderr).decode()


def test_the_root_of_a_proof_has_only_programs(tmp_path: Path) -> None:
    """The root of a proof shows only the host's program directories. Links stay links. Later the root is removed."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "sbin").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "lib").touch()
    with host_root(tmp_path) as (root, mounts):
        assert [(str(mount.source), mount.target, mount.read_only) for mount in mounts] == [
            (f"{tmp_path}/sbin", "/sbin", True),
            (f"{tmp_path}/usr", "/usr", True),
        ]
        assert (root / "bin").readlink().as_posix() == "usr/bin"
        assert {path.name for path in root.iterdir()} == {
            *("bin", "dev", "etc", "proc", "sbin", "sys", "tmp", "usr"),
        }
        assert root.stat().st_mode & 0o777 == 0o755
    assert not root.exists()
