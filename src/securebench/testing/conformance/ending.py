"""Checks: how processes end, on their own or because they are stopped."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

from securebench.sandboxes.base import TIMEOUT_EXIT_CODE, Command, Mount
from securebench.sandboxes.enforcement import DriverFeature
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

_SHORT = 1.5
"""A time limit that a check can wait for. It is long enough for an interpreter to start and write."""

_STILL_SECONDS = 0.3


@CHECKS
def exit_codes_are_reported(bench: Bench) -> None:
    """The exit code of the command is reported."""
    for code in (0, 1, 3, 42, 255):
        require_equal(bench.run("emit", "", "", str(code)).exit_code, code, "exit code")


@CHECKS
def signals_are_reported(bench: Bench) -> None:
    """If a signal ends a process, the exit code is 128 plus the signal's number, and no time-out is reported."""
    result = bench.run("die", str(signal.SIGTERM.value))
    require_equal((result.exit_code, result.timed_out), (128 + signal.SIGTERM, False), "exit code and time-out")


@CHECKS
def a_missing_program_is_reported(bench: Bench) -> None:
    """A missing program gives exit code 126 or 127, not an error, in persistent and ephemeral sandboxes."""
    for persistent in (False, True):
        command = Command(argv=("/no/such/program",), timeout_seconds=20)
        code = bench.sandbox(persistent=persistent).run(command).exit_code
        require(code in {126, 127}, f"exit code of a missing program: got {code}, expected 126 or 127")


@CHECKS
def a_time_limit_ends_it(bench: Bench) -> None:
    """A time limit ends a command with exit code 124 within seconds, and the result gives no other reason."""
    result = bench.sandbox().run(probe_command("sleep", "60", timeout=_SHORT))
    require_equal((result.exit_code, result.timed_out), (TIMEOUT_EXIT_CODE, True), "exit code and time-out")
    require(not (result.out_of_memory or result.output_limit_exceeded), "a memory or output limit is also reported")
    require(_SHORT <= result.duration_seconds < _SHORT + 10, f"the command took {result.duration_seconds:.1f} s")


@CHECKS
def a_waiting_command_has_its_whole_time(bench: Bench) -> None:
    """The time limit of a command that waits for input begins at ``open``, even if its process was started earlier."""
    for _ in range(2):
        waiting = bench.sandbox()
        process = waiting.open(probe_command("converse", timeout=_SHORT, waits=True))
        process.send(b"one\n")
        read_until(process, b"heard one\n")
        require(process.wait().timed_out, "the time limit did not end the command")
        waiting.close()
        time.sleep(_SHORT * 1.5)  # a process started in advance is now older than its time limit


@CHECKS
def output_before_a_time_limit_is_kept(bench: Bench) -> None:
    """Output before the time limit is kept."""
    result = bench.sandbox().run(probe_command("sleep", "60", timeout=_SHORT))
    require_equal(result.stdout, b"asleep\n", "the output")


@CHECKS.needing(DriverFeature.HOST_MOUNTS)
def a_time_limit_ends_its_children(bench: Bench) -> None:
    """A time limit also ends child processes, even daemons in their own sessions (A05, I14)."""
    bench.sandbox(**_shared_mount(bench)).run(probe_command("tick", workspace_path("ticks"), "wait", timeout=_SHORT))
    _require_still(bench)


@CHECKS.needing(DriverFeature.HOST_MOUNTS)
def a_time_limit_ends_a_persistent_sandbox(bench: Bench) -> None:
    """In a persistent sandbox a time limit ends all processes, including those of earlier commands."""
    sandbox = bench.sandbox(persistent=True, **_shared_mount(bench))
    sandbox.run(probe_command("tick", workspace_path("ticks"), "leave"))
    result = sandbox.run(probe_command("sleep", "60", timeout=_SHORT))
    require_equal((result.exit_code, result.timed_out), (TIMEOUT_EXIT_CODE, True), "exit code and time-out")
    _require_still(bench)


@CHECKS.needing(DriverFeature.HOST_MOUNTS)
def daemons_end_with_an_ephemeral_command(bench: Bench) -> None:
    """When a command in an ephemeral sandbox ends, the daemons that it started end too (A04)."""
    bench.sandbox(**_shared_mount(bench)).run(probe_command("tick", workspace_path("ticks"), "leave"))
    _require_still(bench)


@CHECKS.needing(DriverFeature.HOST_MOUNTS)
def closing_ends_running_processes(bench: Bench) -> None:
    """When ``close`` returns, no process of the sandbox is running (A05)."""
    for persistent in (False, True):
        directory = f"shared-{persistent}"
        sandbox = bench.sandbox(persistent=persistent, **_shared_mount(bench, directory))
        process = sandbox.open(probe_command("tick", workspace_path("ticks"), "wait"))
        read_until(process, b"ticking\n")
        sandbox.close()
        _require_still(bench, directory)


@CHECKS
def closing_does_not_wait_for_unread_output(bench: Bench) -> None:
    """A sandbox with unread output closes promptly."""
    sandbox = bench.sandbox()
    sandbox.open(probe_command("flood", str(32 * 1024 * 1024)))
    time.sleep(_SHORT)
    started = time.monotonic()
    sandbox.close()
    require(time.monotonic() - started < 10, "closing took longer than ten seconds")


@CHECKS
def kill_works_from_another_thread(bench: Bench) -> None:
    """A kill ends a process for which another thread waits, and is not reported as a time-out."""
    process = bench.sandbox().open(probe_command("sleep", "60"))
    read_until(process, b"asleep\n")
    threading.Thread(target=process.kill).start()
    state = process.wait()
    require_equal((state.exit_code, state.timed_out), (128 + signal.SIGKILL, False), "exit code and time-out")


@CHECKS
def kill_after_the_end_changes_nothing(bench: Bench) -> None:
    """Killing a process that has ended raises nothing and changes nothing."""
    process = bench.sandbox().open(probe_command("emit", "", "", "5"))
    require_equal(process.wait().exit_code, 5, "exit code")
    process.kill()
    require_equal(process.wait().exit_code, 5, "exit code after the kill")


@CHECKS
def waiting_twice_returns_the_same(bench: Bench) -> None:
    """Waiting a second time for the same process returns the same state."""
    process = bench.sandbox().open(probe_command("emit", "unread", "", "5"))
    require_equal(process.wait(), process.wait(), "the two states")


@CHECKS
def closing_its_output_does_not_end_a_process(bench: Bench) -> None:
    """A process that closes its output continues, and its exit code is reported."""
    result = bench.run("hush", "1")
    require_equal(result.exit_code, 7, "exit code")


@CHECKS
def a_time_limit_holds_without_output(bench: Bench) -> None:
    """A process that closed its output is ended by its time limit too."""
    result = bench.sandbox().run(probe_command("hush", "60", timeout=_SHORT))
    require_equal((result.exit_code, result.timed_out), (TIMEOUT_EXIT_CODE, True), "exit code and time-out")


@CHECKS
def a_flood_of_output_ends_it(bench: Bench) -> None:
    """A process that writes more than its output limit is ended, and the result gives the reason (I12)."""
    result = bench.run("flood", str(512 * 1024 * 1024), limits=limits(output=1024 * 1024))
    require(result.output_limit_exceeded, "the output limit is not reported as the reason")
    require(not result.timed_out, "the process is reported as timed out")
    require(result.exit_code != 0, "the exit code is 0, although the process exceeded its output limit")
    require(len(result.stdout) + len(result.stderr) <= 1024 * 1024, "more output than the limit was returned")


@CHECKS
def output_up_to_the_limit_is_allowed(bench: Bench) -> None:
    """A process that writes exactly its output limit is not ended."""
    result = bench.run("flood", str(512 * 1024), limits=limits(output=1024 * 1024))
    require_equal((result.exit_code, result.output_limit_exceeded), (0, False), "exit code and output limit")


def _shared_mount(bench: Bench, name: str = "shared") -> dict[str, Any]:
    return {"mounts": (Mount(bench.shared(name), workspace_path(), read_only=False),)}


def _require_still(bench: Bench, name: str = "shared") -> None:
    ticks = bench.directory / name / "ticks"
    before = ticks.stat().st_size
    time.sleep(_STILL_SECONDS)
    require_equal(ticks.stat().st_size, before, "bytes written by a process of an ended sandbox")
    require(before > 0, "the daemon wrote nothing")
