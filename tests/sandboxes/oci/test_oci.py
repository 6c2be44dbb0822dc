"""The oci driver with real sandboxes: what the conformance suite, which all drivers must pass, does not check."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import securebench
from leftovers import host_traces
from securebench.errors import EngineError, InfrastructureError, MaterializationError
from securebench.images.store.ids import SHIFT
from securebench.sandboxes.base import MIB, Command, Limits, Mount, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.config import OciConfig, compile_config
from securebench.sandboxes.oci.reaper import runs_directory
from securebench.sandboxes.oci.supervisor.cgroups import find_hierarchies
from securebench.testing.conformance.bench import probe_command, read_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.images.model import ResolvedImage

pytestmark = pytest.mark.oci

TRUE = Command(argv=("true",), timeout_seconds=60)
SLEEP = probe_command("sleep", "60", timeout=90)


def shell(script: str, timeout: float = 60) -> Command:
    """Return the command that runs ``script``."""
    return Command(argv=("sh", "-c", script), timeout_seconds=timeout)


def until(condition: Callable[[], bool], timeout: float = 10) -> bool:
    """Wait until ``condition`` is true, for at most ``timeout`` seconds. Return whether it is."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def own_driver() -> Iterator[OciDriver]:
    """Yield a driver that a test may break."""
    driver = OciDriver()
    yield driver
    driver.close()


def supervisor_of(driver: OciDriver) -> int:
    """Return the pid, on the host, of a driver's supervisor."""
    return child_of(driver._context.connection._child.pid)


def child_of(pid: int) -> int:
    """Return the pid of the first child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def is_still(directory: Path) -> bool:
    """Return whether no file of a directory grows for 0.3 seconds."""
    before = sizes(directory)
    time.sleep(0.3)
    return sizes(directory) == before


# --- what a sandbox cannot reach


def test_a_sandbox_gets_three_descriptors(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """No descriptor of the supervisor or the driver is inherited: only stdin, stdout and stderr are open, all pipes."""
    code = (
        "import os\nfor n in range(256):\n try: print(n, os.readlink(f'/proc/self/fd/{n}')[:5])\n except OSError: pass"
    )
    kind = "host:" if oci_driver.info().runtime == "runsc" else "pipe:"  # gVisor's name for descriptors of the host
    for persistent in (False, True):
        with oci_driver.create(SandboxSpec(image=base_image), persistent=persistent) as sandbox:
            result = sandbox.run(Command(argv=("python3", "-I", "-c", code), timeout_seconds=60))
        assert result.stdout.decode().splitlines() == [f"{number} {kind}" for number in range(3)]


def test_a_sandbox_sees_nothing_of_its_supervisor(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """Not even root in a sandbox sees the supervisor's processes, its run directory or host paths (I01, J15)."""
    script = "cat /proc/mounts; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'; ls -R /run"
    with oci_driver.create(SandboxSpec(image=base_image, user=(0, 0))) as sandbox:
        seen = sandbox.run(shell(script)).stdout.decode()
    assert "overlay" in seen
    run = oci_driver._context.run
    for secret in (run.name, "supervisor", "securebench", str(Path(__file__).resolve().parents[3])):
        assert secret not in seen, secret


def test_a_sandbox_reaches_no_socket(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A sandbox has a network namespace of its own, which contains no Unix socket of the supervisor or the host."""
    with oci_driver.create(SandboxSpec(image=base_image)) as sandbox:
        seen = sandbox.run(shell("readlink /proc/self/ns/net && cat /proc/net/unix")).stdout.decode()
    namespace, _header, *sockets = seen.splitlines()
    for pid in (os.getpid(), supervisor_of(oci_driver)):
        assert namespace != str(Path(f"/proc/{pid}/ns/net").readlink())
    assert sockets == []


def test_a_stream_can_be_opened_again(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """The streams belong to the sandbox's user, so that programs may write to /dev/stderr."""
    with oci_driver.create(SandboxSpec(image=base_image)) as sandbox:
        result = sandbox.run(shell("echo out > /dev/stdout; echo err > /dev/stderr"))
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")


def test_a_user_may_have_a_shifted_id(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A sandbox's user may have an id to which, if root runs SecureBench, the id of another user is mapped."""
    with oci_driver.create(SandboxSpec(image=base_image, user=(SHIFT + 7, SHIFT))) as sandbox:
        result = sandbox.run(shell("id -u; id -g; echo err > /dev/stderr"))
    assert (result.stdout.decode().split(), result.stderr) == ([str(SHIFT + 7), str(SHIFT)], b"err\n")


def test_set_id_files_are_nothing_on_the_host(oci_driver: OciDriver, base_image: ResolvedImage, tmp_path: Path) -> None:
    """H06: a set-id file that root in a sandbox creates does not belong to root on the host."""
    tmp_path.chmod(0o777)
    mount = Mount(tmp_path.resolve(), "/workspace", read_only=False)
    with oci_driver.create(SandboxSpec(image=base_image, mounts=(mount,), user=(0, 0))) as sandbox:
        assert sandbox.run(probe_command("plant", "/workspace/trap")).stdout == b"0o6755\n"
    left = (tmp_path / "trap").stat()
    assert 0 not in (left.st_uid, left.st_gid)


def test_a_source_that_becomes_a_link_is_refused(
    oci_driver: OciDriver, base_image: ResolvedImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H12: a source that is replaced by a link after it was checked is refused when the supervisor mounts it."""
    tmp_path.chmod(0o755)
    source, secret = tmp_path.resolve() / "source", tmp_path.resolve() / "secret"
    source.mkdir()
    secret.mkdir()

    def swap(*arguments: Any) -> OciConfig:
        document = compile_config(*arguments)
        source.rmdir()
        source.symlink_to(secret)
        return document

    monkeypatch.setattr("securebench.sandboxes.oci.sandbox.compile_config", swap)
    spec = SandboxSpec(image=base_image, mounts=(Mount(source, "/workspace"),))
    with oci_driver.create(spec) as sandbox, pytest.raises(MaterializationError) as raised:
        sandbox.run(TRUE)
    assert raised.value.code == "mount-unsafe"


# --- how one sandbox affects others


def test_a_hostile_stdout_stalls_nobody(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """I12: neither endless output that nobody reads nor a command that closed its streams stalls other sandboxes."""
    with oci_driver.create(SandboxSpec(image=base_image)) as hostile:
        hostile.open(shell("yes"))
        hostile.open(shell("exec <&- >&- 2>&-; while :; do :; done"))
        for _ in range(5):
            with oci_driver.create(SandboxSpec(image=base_image)) as sandbox:
                result = sandbox.run(shell("echo here"))
            assert result.stdout == b"here\n"
            assert result.duration_seconds < 30


def test_time_limits_hold_while_the_driver_is_busy(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """I14: a time limit is enforced even while the driver neither reads output nor waits for the command."""
    started = time.monotonic()
    with oci_driver.create(SandboxSpec(image=base_image)) as sandbox:
        process = sandbox.open(shell("sleep 60", timeout=0.5))
        time.sleep(2)
        assert process.wait().timed_out
    assert time.monotonic() - started < 40


def test_documents_of_ended_commands_are_removed(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A persistent sandbox can run many commands with long arguments, because their OCI documents are removed."""
    spec = SandboxSpec(image=base_image, limits=Limits(memory=32 * MIB))
    with oci_driver.create(spec, persistent=True) as sandbox:
        for number in range(20):
            long = Command(argv=("true", *["x" * 100_000] * 18), timeout_seconds=60)  # together more than 33 MiB
            assert sandbox.run(long).exit_code == 0, number


# --- failures


def test_a_daemon_that_keeps_the_streams_holds_nobody_up(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A04: a command in a persistent sandbox is over when it exits, even if its daemon keeps the streams open."""
    with oci_driver.create(SandboxSpec(image=base_image), persistent=True) as sandbox:
        started = time.monotonic()
        result = sandbox.run(Command(argv=("sh", "-c", "sleep 60 & echo $!; exit 3"), timeout_seconds=30))
        assert (result.exit_code, result.timed_out) == (3, False)
        assert time.monotonic() - started < 28
        daemon = result.stdout.decode().strip()
        assert sandbox.run(Command(argv=("sh", "-c", f"kill -0 {daemon}"), timeout_seconds=30)).exit_code == 0


def test_commands_end_with_their_own_codes(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """Of many short commands that run at once in a persistent sandbox, each gets its own exit code."""
    with oci_driver.create(SandboxSpec(image=base_image), persistent=True) as sandbox:

        def run(code: int) -> int:
            return sandbox.run(Command(argv=("sh", "-c", f"exit {code}"), timeout_seconds=60)).exit_code

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(run, range(24))) == list(range(24))


def test_a_command_that_ends_its_sandbox_was_killed(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A18: a command that kills its own sandbox has the exit code 137. It is not an infrastructure error."""
    with oci_driver.create(SandboxSpec(image=base_image), persistent=True) as sandbox:
        result = sandbox.run(Command(argv=("sh", "-c", "kill -KILL -1; sleep 60"), timeout_seconds=30))
    assert (result.exit_code, result.timed_out) == (137, False)


def test_what_cannot_be_run_is_the_commands_fault(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A command whose program or working directory is missing or cannot be used has the exit code 126 or 127."""
    programs = ("no-such-program", "/no/such", "/etc/passwd", "/etc/passwd/x", "/etc", f"/{'x' * 300}")
    commands = [Command(argv=(program,), timeout_seconds=30) for program in programs]
    commands.append(Command(argv=("/bin/true",), timeout_seconds=30, workdir="/no/such"))
    with oci_driver.create(SandboxSpec(image=base_image), persistent=True) as sandbox:
        codes = [sandbox.run(command).exit_code for command in commands]
    assert set(codes) <= {126, 127}, codes


@pytest.mark.parametrize("persistent", [False, True])
def test_a_supervisor_that_is_killed_is_told(
    own_driver: OciDriver, base_image: ResolvedImage, tmp_path: Path, persistent: bool
) -> None:
    """If the supervisor is killed, its sandboxes end soon, and waiting for their commands raises an engine error."""
    tmp_path.chmod(0o777)
    mount = Mount(tmp_path.resolve(), "/workspace", read_only=False)
    image = own_driver.resolve_image(base_image.reference)
    sandbox = own_driver.create(SandboxSpec(image=image, mounts=(mount,)), persistent=persistent)
    process = sandbox.open(probe_command("tick", "/workspace/ticks", "wait"))
    read_until(process, b"ticking\n")
    os.kill(supervisor_of(own_driver), signal.SIGKILL)
    with pytest.raises(EngineError) as raised:
        process.wait()
    assert raised.value.code == "sandbox-supervisor-gone"
    time.sleep(1)  # the channel closes before the kernel has killed the last process
    assert is_still(tmp_path)
    with pytest.raises(InfrastructureError):
        own_driver.create(SandboxSpec(image=image)).run(TRUE)
    sandbox.close()


def test_spares_that_were_killed_are_not_needed(own_driver: OciDriver, base_image: ResolvedImage) -> None:
    """If the processes that wait to become runtimes are killed, sandboxes still start, and their limits hold."""
    own_driver.prove()
    supervisor = supervisor_of(own_driver)
    cgroup_pool = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    assert cgroup_pool or "pids" in own_driver.info().weaker
    for pid in cgroup_pool:
        os.kill(int(pid), signal.SIGKILL)
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in cgroup_pool))  # slow on a busy machine
    image = own_driver.resolve_image(base_image.reference)
    for _ in range(4):
        with own_driver.create(SandboxSpec(image=image, limits=Limits(pids=16))) as sandbox:
            result = sandbox.run(probe_command("spawn", "40"))
        assert result.exit_code == 0
        assert result.stdout.endswith(b"EAGAIN\n") or "pids" in own_driver.info().weaker


def test_nothing_starts_after_kill_all(own_driver: OciDriver, base_image: ResolvedImage) -> None:
    """After ``kill_all``, all calls that wait for a command return, and nothing more can be started."""
    image = own_driver.resolve_image(base_image.reference)
    sandboxes = [own_driver.create(SandboxSpec(image=image), persistent=kind) for kind in (False, True)]
    processes = [sandbox.open(SLEEP) for sandbox in sandboxes]
    for process in processes:
        read_until(process, b"asleep\n")
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(process.wait) for process in processes]
        started = time.monotonic()
        own_driver.kill_all()
        own_driver.kill_all()
        for wait in waits:
            assert wait.exception() is None or isinstance(wait.exception(), InfrastructureError)
    assert time.monotonic() - started < 40
    for call in (lambda: own_driver.create(SandboxSpec(image=image)), lambda: sandboxes[0].open(TRUE)):
        with pytest.raises(EngineError) as raised:
            call()
        assert raised.value.code == "run-stopped"


def test_closing_races_with_opening(own_driver: OciDriver, base_image: ResolvedImage) -> None:
    """Threads that run commands while another closes the driver get a result or an error, and leave nothing behind."""
    image = own_driver.resolve_image(base_image.reference)

    def work() -> int:
        done = 0
        try:
            while True:
                with own_driver.create(SandboxSpec(image=image)) as sandbox:
                    sandbox.run(TRUE)
                done += 1
        except InfrastructureError:
            return done

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work) for _ in range(4)]
        time.sleep(1)
        own_driver.close()
        assert sum(worker.result(30) for worker in workers) > 0


def test_a_runtime_that_fails_is_told(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """If a runtime fails, its message is part of the error, and is not returned as output of the command."""
    with (
        oci_driver.create(SandboxSpec(image=base_image, workdir="/etc/passwd")) as sandbox,
        pytest.raises(InfrastructureError) as raised,
    ):
        sandbox.run(TRUE)
    assert raised.value.code == "sandbox-failed"
    assert "directory" in raised.value.message.lower()


def test_a_sandbox_without_memory_to_start_is_out_of_memory(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """I09: if the memory limit is too low to start a sandbox, its command is reported as out of memory."""
    if "memory" in oci_driver.info().weaker:
        pytest.skip("this driver says that it cannot limit the memory of a sandbox")
    with oci_driver.create(SandboxSpec(image=base_image, limits=Limits(memory=64 * 1024))) as sandbox:
        assert sandbox.run(TRUE).out_of_memory


HOG = Command(argv=("python3", "-c", "b'x' * (300 << 20)"), timeout_seconds=60)


@pytest.mark.parametrize("persistent", [False, True])
def test_memory_that_a_group_above_lacks_is_no_fault_of_a_sandbox(
    *, oci_driver: OciDriver, base_image: ResolvedImage, persistent: bool
) -> None:
    """If a parent cgroup runs out of memory, the command that is killed has an infrastructure error.

    If the sandbox reaches its own limit, the command is reported as out of memory.
    """
    with closing(OciDriver(runtime=oci_driver.info().runtime)) as driver:
        if "memory" in driver.info().weaker:
            pytest.skip("this driver says that it cannot limit the memory of a sandbox")
        image = driver.resolve_image(base_image.reference)
        _limit_memory_of_all(driver, 200 * MIB)
        roomy, tight = (SandboxSpec(image=image, limits=Limits(memory=size * MIB)) for size in (1024, 64))
        with driver.create(roomy, persistent=persistent) as sandbox, pytest.raises(InfrastructureError, match="parent"):
            sandbox.run(HOG)
        for _ in range(3):  # cgroups are reused
            with driver.create(tight, persistent=persistent) as sandbox:
                assert sandbox.run(HOG).out_of_memory


def _limit_memory_of_all(driver: OciDriver, limit: int) -> None:
    """Limit the memory of all sandboxes of a driver together, as a service or container around a run may do."""
    name = driver._context.group
    for hierarchy in find_hierarchies():
        if "memory" in hierarchy.controllers:
            file = "memory.max" if hierarchy.unified else "memory.limit_in_bytes"
            Path(hierarchy.directory(name), file).write_text(str(limit))


# --- what an ended run leaves behind


VICTIM = """
import sys, time
from securebench.sandboxes.base import Mount, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.testing.conformance.bench import probe_command, read_until
from pathlib import Path
driver = OciDriver()
image = driver.resolve_image("securebench/python:3.11")
mounts = (Mount(Path(sys.argv[1]), "/workspace", read_only=False),)
kept = []
for persistent in (False, True, False):
    sandbox = driver.create(SandboxSpec(image=image, mounts=mounts), persistent=persistent)
    process = sandbox.open(probe_command("tick", f"/workspace/{len(kept)}", "wait"))
    read_until(process, b"ticking")
    kept.append((sandbox, process))
print(driver._context.run, flush=True)
time.sleep(60)
"""


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, Path]]:
    """Yield a process with several sandboxes, the directory that they write to, and the run directory of its driver."""
    shared = tmp_path.resolve() / "shared"
    tmp_path.chmod(0o755)
    shared.mkdir()
    shared.chmod(0o777)
    command = [sys.executable, "-c", VICTIM, str(shared)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, shared, Path(process.stdout.readline().strip())
        process.kill()


def sizes(directory: Path) -> list[int]:
    """Return the sizes of the files in a directory."""
    return [path.stat().st_size for path in sorted(directory.iterdir())]


def cgroups_of(run: Path) -> list[Path]:
    """Return the cgroups of the driver whose run directory is ``run``."""
    found = os.walk("/sys/fs/cgroup")  # unlike Path.glob, ignores directories that are removed meanwhile
    directories = (Path(parent, name) for parent, names, _ in found for name in names)
    return [path for path in directories if path.parent.name == "securebench" and path.name.startswith(f"{run.name}.")]


def test_a_killed_run_leaves_nothing(victim: tuple[subprocess.Popen[str], Path, Path], oci_driver: OciDriver) -> None:
    """I15, L01: two seconds after SIGKILL, a run has no process, mount or cgroup. Reaping removes its directory."""
    process, shared, run = victim
    assert cgroups_of(run) or os.geteuid()
    process.kill()
    process.wait()
    assert until(lambda: not cgroups_of(run), 2)
    assert is_still(shared)
    assert len(sizes(shared)) == 3
    oci_driver.reap()
    assert not run.exists()


def test_a_run_killed_with_its_supervisor_is_reaped(
    victim: tuple[subprocess.Popen[str], Path, Path], oci_driver: OciDriver
) -> None:
    """L10: if a run is killed together with its supervisor, reaping removes its run directory and its cgroups."""
    process, shared, run = victim
    starter = child_of(process.pid)
    os.kill(process.pid, signal.SIGSTOP)  # so that it cannot clean up
    os.kill(starter, signal.SIGKILL)
    assert until(lambda: is_still(shared))
    process.kill()
    process.wait()
    assert run.exists()
    assert oci_driver.reap() >= 1
    assert not run.exists()
    assert cgroups_of(run) == []


def test_a_live_run_is_not_reaped(victim: tuple[subprocess.Popen[str], Path, Path], oci_driver: OciDriver) -> None:
    """L10: reaping does not affect another run that is still active."""
    _, shared, run = victim
    before = sizes(shared)
    oci_driver.reap()
    assert until(lambda: all(now > then for now, then in zip(sizes(shared), before, strict=True)))
    assert run.exists()


def test_an_interpreter_that_ends_ends_its_sandboxes(tmp_path: Path) -> None:
    """A program that exits without closing its driver leaves no run directory and no cgroups behind."""
    code = VICTIM.replace("time.sleep(60)", "raise SystemExit(3)")
    tmp_path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path.resolve())],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (3, "")
    run = Path(done.stdout.strip())
    assert run.parent == runs_directory()
    assert not run.exists()
    assert cgroups_of(run) == []


def test_a_closed_driver_leaves_nothing(base_image: ResolvedImage, oci_driver: OciDriver) -> None:
    """Closing a driver, even from several threads at once, removes its processes, run directory and cgroups."""
    before = host_traces()
    driver = OciDriver()
    image = driver.resolve_image(base_image.reference)
    driver.create(SandboxSpec(image=image), persistent=True).open(SLEEP)
    threads = [threading.Thread(target=driver.close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not driver._context.run.exists()
    assert not {trace for trace in host_traces() - before if driver._context.run.name in trace}


# --- what a driver reports about itself


def test_a_driver_proves_what_it_enforces() -> None:
    """A driver proves, without an image, that its sandboxes have the restrictions that it reports."""
    driver = OciDriver()
    try:
        isolation, info = driver.prove(), driver.info()
    finally:
        driver.close()
    assert (info.enforced, info.weaker) == (isolation.enforced, isolation.weaker)
    assert {"network", "capabilities", "seccomp", "user-namespace"} <= set(isolation.enforced)
    if os.geteuid() == 0:
        assert isolation.weaker == ()


def test_a_driver_that_cannot_start_its_supervisor_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If ``unshare`` is missing or fails, the error gives the reason. If it fails, the hint mentions ``doctor``."""
    which, unshare = shutil.which, ""
    monkeypatch.setattr(shutil, "which", lambda name, **rest: unshare if name == "unshare" else which(name, **rest))
    with pytest.raises(EngineError, match="unshare") as raised:
        OciDriver()
    assert raised.value.code == "sandbox-unavailable"
    refuses = tmp_path / "unshare"
    refuses.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refuses.chmod(0o755)
    unshare = str(refuses)
    driver = OciDriver()
    try:
        with pytest.raises(EngineError, match="Operation not permitted") as raised:
            driver.prove()
        assert "doctor" in raised.value.hint
    finally:
        driver.close()


def test_a_supervisor_starts_with_the_standard_library_alone() -> None:
    """The supervisor imports only the standard library and a few of our modules, so that it starts fast."""
    code = (
        "import sys, json; sys.path.append(sys.argv[1]); import securebench.sandboxes.oci.supervisor.main; "
        "print(json.dumps([name for name in sys.modules if not name.startswith('_')]))"
    )
    root = str(Path(securebench.__file__).resolve().parents[1])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], check=True, capture_output=True)
    loaded = {name for name in json.loads(done.stdout) if name.partition(".")[0] not in sys.stdlib_module_names}
    ours = (
        "securebench.sandboxes.oci.supervisor",
        "securebench.sandboxes.oci.wire",
        "securebench.ipc",
        "securebench.faults",
    )
    packages = {"securebench", "securebench.lazy_names", "securebench.sandboxes", "securebench.sandboxes.oci"}
    assert all(name in packages or name.startswith(ours) for name in loaded), loaded
    assert "subprocess" not in json.loads(done.stdout), "what only a parent needs costs each sandbox driver time"
