"""Checks: the life cycle of sandboxes, and what a driver rejects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from securebench.errors import ConfigError, ImageError, InfrastructureError, MaterializationError
from securebench.sandboxes.base import Command, Mount
from securebench.testing.conformance.bench import (
    Bench,
    CheckRegistry,
    probe_command,
    read_until,
    require,
    require_equal,
    require_raises,
    workspace_path,
)

CHECKS = CheckRegistry()

_WAITING = probe_command("converse", waits=True)
_PATH = "/tmp/note"  # noqa: S108 - a path inside the sandbox


@CHECKS
def a_persistent_sandbox_keeps_its_files(bench: Bench) -> None:
    """In a persistent sandbox a command sees the files of earlier commands."""
    sandbox = bench.sandbox(persistent=True)
    sandbox.run(probe_command("write", _PATH, "kept"))
    require_equal(sandbox.run(probe_command("read", _PATH)).stdout, b"kept\nok\n", "the file")


@CHECKS
def an_ephemeral_sandbox_forgets_its_files(bench: Bench) -> None:
    """In an ephemeral sandbox each command starts with a clean file system (F11)."""
    sandbox = bench.sandbox()
    sandbox.run(probe_command("write", _PATH, "forgotten"))
    require_equal(sandbox.run(probe_command("read", _PATH)).stdout, b"ENOENT\n", "the file")


@CHECKS
def commands_run_concurrently(bench: Bench) -> None:
    """A persistent sandbox runs several commands concurrently."""
    sandbox = bench.sandbox(persistent=True)
    first = sandbox.open(probe_command("converse"))
    first.send(b"one\n")
    read_until(first, b"heard one\n")
    require_equal(sandbox.run(probe_command("emit", "beside", "", "0")).stdout, b"beside", "the second command")
    first.close_stdin()
    require_equal(first.wait().exit_code, 0, "exit code of the first command")


@CHECKS
def a_waiting_command_belongs_to_its_caller(bench: Bench) -> None:
    """A command that waits for input may be started in advance, but receives input only from its own caller (F11)."""
    for round_number in range(3):
        processes = [bench.sandbox() for _ in range(2)]
        for number, process in enumerate([sandbox.open(_WAITING) for sandbox in processes]):
            word = f"{round_number} {number}"
            process.send(f"{word}\n".encode())
            process.close_stdin()
            output = b""
            while (chunk := process.receive()) is not None:
                output += chunk[1]
            require_equal(output, f"heard {word}\n".encode(), "the command's complete output")
            require_equal(process.wait().exit_code, 0, "the command's exit code")
        for sandbox in processes:
            sandbox.close()


@CHECKS
def a_driver_serves_many_threads(bench: Bench) -> None:
    """Eight threads use one driver concurrently, and each gets its own output."""

    def one(number: int) -> bytes:
        return bench.run("emit", str(number), "", "0").stdout

    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(one, range(8)))
    require_equal(outputs, [str(number).encode() for number in range(8)], "outputs")


@CHECKS
def closing_twice_is_harmless(bench: Bench) -> None:
    """Closing a sandbox twice is harmless."""
    for persistent in (False, True):
        sandbox = bench.sandbox(persistent=persistent)
        sandbox.run(probe_command("emit", "", "", "0"))
        sandbox.close()
        sandbox.close()


@CHECKS
def a_closed_sandbox_runs_nothing(bench: Bench) -> None:
    """Running a command in a closed sandbox raises ``InfrastructureError``."""
    for persistent in (False, True):
        sandbox = bench.sandbox(persistent=persistent)
        sandbox.close()
        require_raises(partial(sandbox.run, probe_command("cat")), InfrastructureError)


@CHECKS
def an_ended_sandbox_runs_nothing(bench: Bench) -> None:
    """After a time limit ended a persistent sandbox, running a command raises ``InfrastructureError``."""
    sandbox = bench.sandbox(persistent=True)
    require(sandbox.run(probe_command("sleep", "60", timeout=1)).timed_out, "the time limit did not end the command")
    require_raises(lambda: sandbox.run(probe_command("cat")), InfrastructureError)


@CHECKS
def a_context_closes_its_sandbox(bench: Bench) -> None:
    """A sandbox is closed at the end of its ``with`` block."""
    with bench.sandbox() as sandbox:
        sandbox.run(probe_command("emit", "", "", "0"))
    require_raises(lambda: sandbox.run(probe_command("cat")), InfrastructureError)


@CHECKS
def reaping_spares_live_processes(bench: Bench) -> None:
    """``reap`` does not remove sandboxes whose SecureBench process is still running (L10)."""
    sandbox = bench.sandbox(persistent=True)
    process = sandbox.open(probe_command("converse"))
    bench.driver.reap()
    process.send(b"alive\n")
    read_until(process, b"heard alive\n")
    process.close_stdin()
    require_equal(process.wait().exit_code, 0, "exit code")


@CHECKS
def a_driver_describes_itself(bench: Bench) -> None:
    """A driver has a name and a version. Records contain both."""
    info = bench.driver.info()
    require(info.name and info.version, f"the name or the version is empty: {info}")


@CHECKS
def an_image_is_resolved_once(bench: Bench) -> None:
    """A driver resolves a reference to the same image each time, and the image's id is a digest (I06)."""
    first, second = (bench.driver.resolve_image(bench.image.reference) for _ in range(2))
    require_equal(first, second, "the image")
    require(first.id.startswith("sha256:"), f"the image's id is not a digest: {first.id!r}")


@CHECKS
def a_missing_image_is_reported(bench: Bench) -> None:
    """A missing image raises ``ImageError`` with a hint."""
    error = require_raises(lambda: bench.driver.resolve_image("securebench/no-such-image:0"), ImageError)
    require(getattr(error, "hint", ""), "the error has no hint")


@CHECKS
def a_mount_of_a_link_is_refused(bench: Bench) -> None:
    """A mount whose source is a symbolic link, or has one in its path, is rejected (H01)."""
    target = bench.shared()
    (target / "below").mkdir()
    link = bench.directory / "link"
    link.symlink_to(target)
    for source in (link, link / "below"):
        mounts = (Mount(source, workspace_path()),)
        require_raises(partial(bench.run, "cat", mounts=mounts), MaterializationError)


@CHECKS
def a_mount_of_nothing_is_refused(bench: Bench) -> None:
    """A mount whose source is missing is rejected, and the source is not created on the host."""
    source = bench.directory / "missing"
    require_raises(lambda: bench.run("cat", mounts=(Mount(source, workspace_path()),)), MaterializationError)
    require(not source.exists(), "the source was created")


@CHECKS
def a_mount_over_the_kernels_files_is_refused(bench: Bench) -> None:
    """A mount target is rejected if it is ``/``, is relative, is in a kernel file system or has ``..`` (I02, I18)."""
    source = bench.shared()
    for target in ("/", "/proc", "/sys/fs/cgroup", "/dev/shm", "relative", "/a/../etc"):  # noqa: S108 - refused anyway
        mounts = (Mount(source, target),)
        require_raises(partial(bench.run, "cat", mounts=mounts), MaterializationError)


@CHECKS
def unrepresentable_arguments_are_rejected(bench: Bench) -> None:
    """Arguments and variables that could not arrive unchanged are rejected."""
    for argument in ("nul\0", "\udcff"):
        command = Command(argv=("cat", argument), timeout_seconds=20)
        require_raises(partial(bench.sandbox().run, command), ConfigError)
    for name in ("", "A=B", "A\0"):
        command = Command(argv=("cat",), timeout_seconds=20, environment={name: "x"})
        require_raises(partial(bench.sandbox().run, command), ConfigError)
