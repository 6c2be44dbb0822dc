"""Checks: resource limits."""

from __future__ import annotations

from securebench.sandboxes.base import MIB, Mount
from securebench.testing.conformance.bench import (
    Bench,
    CheckRegistry,
    limits,
    probe_command,
    read_until,
    require,
    require_equal,
    workspace_path,
)

CHECKS = CheckRegistry()


@CHECKS.needing("memory")
def memory_is_limited(bench: Bench) -> None:
    """A process that exceeds its memory limit is ended, and the result gives the reason (I09)."""
    result = bench.run("allocate", str(256 * MIB), limits=limits(memory=64 * MIB))
    require_equal((result.exit_code, result.out_of_memory), (137, True), "exit code and out of memory")
    require(not result.timed_out, "the process is reported as timed out")


@CHECKS.needing("memory")
def memory_is_limited_in_a_persistent_sandbox(bench: Bench) -> None:
    """Running out of memory is also reported in a persistent sandbox."""
    sandbox = bench.sandbox(persistent=True, limits=limits(memory=64 * MIB))
    result = sandbox.run(probe_command("allocate", str(256 * MIB)))
    require_equal((result.exit_code, result.out_of_memory), (137, True), "exit code and out of memory")


@CHECKS
def memory_within_the_limit_is_available(bench: Bench) -> None:
    """A process can use the memory that its limit allows."""
    require_equal(bench.output("allocate", str(16 * MIB), limits=limits(memory=128 * MIB)), str(16 * MIB), "bytes")


@CHECKS
def an_exit_code_alone_is_not_out_of_memory(bench: Bench) -> None:
    """A process that exits with code 137 on its own is not reported as out of memory."""
    result = bench.run("emit", "", "", "137")
    require_equal((result.exit_code, result.out_of_memory), (137, False), "exit code and out of memory")


@CHECKS.needing("pids")
def processes_are_limited(bench: Bench) -> None:
    """The process limit stops a fork bomb (I08)."""
    count, stop = bench.output("spawn", "200", limits=limits(pids=32)).split()
    require_equal(stop, "EAGAIN", "what stopped the forks")
    require(16 <= int(count) < 32, f"{count} children were started under a limit of 32 processes, expected 16 to 31")


@CHECKS
def the_process_limit_is_per_sandbox(bench: Bench) -> None:
    """Processes in one sandbox do not count against the process limit of another (I08)."""
    for _ in range(3):
        spawning = bench.sandbox(persistent=True, limits=limits(pids=32)).open(probe_command("spawn", "10"))
        require_equal(read_until(spawning, b"\n"), b"10 ok\n", "the number of children, and why no more were started")


@CHECKS
def tmpfs_is_limited(bench: Bench) -> None:
    """``/tmp`` holds as much as its limit, and no more (I11)."""
    written, stop = bench.output("fill", "/tmp/big", str(64 * MIB), limits=limits(tmpfs=8 * MIB)).split()  # noqa: S108
    require_equal((written, stop), (str(8 * MIB), "ENOSPC"), "bytes written, and what stopped the writing")


@CHECKS.needing("memory")
def tmpfs_counts_as_memory(bench: Bench) -> None:
    """Filling a ``/tmp`` that is larger than the memory limit exhausts the sandbox's memory, not the host's (I09)."""
    result = bench.run("fill", "/tmp/big", str(128 * MIB), limits=limits(memory=48 * MIB, tmpfs=256 * MIB))  # noqa: S108
    require(result.out_of_memory, f"not out of memory: exit code {result.exit_code}, output {result.stdout!r}")


@CHECKS
def file_size_is_limited(bench: Bench) -> None:
    """A file cannot exceed its size limit, even in a mount of the host (I11, I17)."""
    mount = Mount(bench.shared(), workspace_path(), read_only=False)
    path = workspace_path("big")
    written, stop = bench.output("fill", path, str(8 * MIB), mounts=(mount,), limits=limits(file_size=MIB)).split()
    require_equal((written, stop), (str(MIB), "EFBIG"), "bytes written, and what stopped the writing")


@CHECKS
def resource_limits_are_set(bench: Bench) -> None:
    """Core dumps are disabled, and the limits of open files and file sizes are hard limits (I17)."""
    for persistent in (False, True):
        found = bench.facts(limits=limits(open_files=99, file_size=MIB), persistent=persistent)["limits"]
        require_equal(found, {"core": 0, "nofile": 99, "fsize": MIB}, "hard limits")
