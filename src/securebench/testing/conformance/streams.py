"""Checks: input and output of processes."""

from __future__ import annotations

import hashlib
import threading

from securebench.sandboxes.base import MIB, Command, Stream
from securebench.testing.conformance.bench import (
    TIMEOUT_SECONDS,
    Bench,
    CheckRegistry,
    ConformanceError,
    probe_command,
    read_until,
    require,
    require_equal,
)

CHECKS = CheckRegistry()

ALL_BYTES = bytes(range(256))


@CHECKS
def stdout_and_stderr_stay_apart(bench: Bench) -> None:
    """The output on stdout and stderr is returned separately."""
    result = bench.run("emit", "to out", "to err", "0")
    require_equal((result.stdout, result.stderr), (b"to out", b"to err"), "the two streams")


@CHECKS
def no_output_is_empty(bench: Bench) -> None:
    """A process that writes nothing has empty output that is not truncated."""
    result = bench.run("emit", "", "", "0")
    require_equal((result.stdout, result.stderr), (b"", b""), "the output")
    require(not (result.stdout_truncated or result.stderr_truncated), "empty output is reported as truncated")


@CHECKS
def bytes_arrive_unchanged(bench: Bench) -> None:
    """Every byte passes in and out unchanged."""
    result = bench.sandbox().run(probe_command("cat", stdin=ALL_BYTES))
    require_equal(result.stdout, ALL_BYTES, "the bytes")


@CHECKS
def large_stdin_arrives_whole(bench: Bench) -> None:
    """Ten megabytes of stdin arrive completely."""
    data = ALL_BYTES * (10 * MIB // 256)
    result = bench.sandbox().run(probe_command("digest", stdin=data))
    expected = f"{len(data)} {hashlib.sha256(data).hexdigest()}"
    require_equal(result.stdout.decode().strip(), expected, "what stdin held")


@CHECKS
def large_echo_does_not_deadlock(bench: Bench) -> None:
    """A process that echoes ten megabytes while it reads them does not deadlock."""
    data = ALL_BYTES * (10 * MIB // 256)
    result = bench.sandbox().run(probe_command("cat", stdin=data, capture=len(data)))
    require(result.stdout == data, f"the echo ({len(result.stdout)} bytes) differs from the input ({len(data)} bytes)")


@CHECKS
def run_ends_stdin(bench: Bench) -> None:
    """A command that runs without stdin finds an empty stdin."""
    require_equal(bench.output("digest").split()[0], "0", "bytes of stdin")


@CHECKS
def stdin_need_not_be_read(bench: Bench) -> None:
    """A process that does not read a large stdin ends normally."""
    result = bench.sandbox().run(probe_command("emit", "done", "", "4", stdin=b"x" * (4 * MIB)))
    require_equal((result.exit_code, result.stdout), (4, b"done"), "exit code and output")


@CHECKS
def half_closing_leaves_output_open(bench: Bench) -> None:
    """After the end of its stdin, a process can still write."""
    process = bench.sandbox().open(probe_command("digest"))
    process.send(b"four")
    process.close_stdin()
    require(read_until(process, b"\n").startswith(b"4 "), "the process did not receive the four bytes that were sent")
    require_equal(process.wait().exit_code, 0, "exit code")


@CHECKS
def a_conversation_takes_turns(bench: Bench) -> None:
    """Input and output can alternate while the process runs."""
    process = bench.sandbox().open(probe_command("converse"))
    for word in (b"one", b"two", b"three"):
        process.send(word + b"\n")
        read_until(process, b"heard " + word + b"\n")
    process.close_stdin()
    require_equal(process.wait().exit_code, 0, "exit code")


@CHECKS
def initial_stdin_comes_before_what_is_sent(bench: Bench) -> None:
    """The initial stdin of a command arrives before data that is sent later."""
    process = bench.sandbox().open(probe_command("converse", stdin=b"first\n"))
    process.send(b"second\n")
    seen = read_until(process, b"second\n")
    require_equal(seen, b"heard first\nheard second\n", "the order")
    process.close_stdin()
    process.wait()


@CHECKS
def one_thread_may_send_while_another_receives(bench: Bench) -> None:
    """One thread can send while another receives."""
    data = ALL_BYTES * (2 * MIB // 256)
    process = bench.sandbox().open(probe_command("cat"))

    def feed() -> None:
        for start in range(0, len(data), 100_000):
            process.send(data[start : start + 100_000])
        process.close_stdin()

    sender = threading.Thread(target=feed)
    sender.start()
    received = bytearray()
    while (chunk := process.receive(TIMEOUT_SECONDS)) is not None:
        received += chunk[1]
    sender.join()
    require(bytes(received) == data, f"the echo ({len(received)} bytes) differs from the input ({len(data)} bytes)")
    process.wait()


@CHECKS
def sending_after_the_end_breaks_the_pipe(bench: Bench) -> None:
    """Sending to a process that has ended raises ``BrokenPipeError``."""
    process = bench.sandbox().open(probe_command("emit", "", "", "0"))
    while process.receive(TIMEOUT_SECONDS) is not None:
        pass
    try:
        process.send(b"anybody?\n")
    except BrokenPipeError:
        process.wait()
    else:
        raise ConformanceError("sending to an ended process did not raise BrokenPipeError")


@CHECKS
def sending_without_a_reader_ends_with_the_time_limit(bench: Bench) -> None:
    """Sending too much to a process that does not read raises ``BrokenPipeError`` at the time limit at the latest."""
    process = bench.sandbox().open(probe_command("deafen", "60", timeout=3))
    read_until(process, b"deaf\n")
    try:
        process.send(b"x" * (64 * MIB))
    except BrokenPipeError:
        pass
    else:
        raise ConformanceError("64 MiB were sent to a process that does not read")
    require(process.wait().timed_out, "the time limit did not end the process")


@CHECKS
def receiving_times_out(bench: Bench) -> None:
    """Receiving raises ``TimeoutError`` if nothing arrives in time, and works again afterwards."""
    process = bench.sandbox().open(probe_command("converse"))
    try:
        process.receive(0.2)
    except TimeoutError:
        process.send(b"still there\n")
    else:
        raise ConformanceError("something was received before anything was sent")
    require_equal(read_until(process, b"\n"), b"heard still there\n", "the answer")
    process.close_stdin()
    process.wait()


@CHECKS
def many_small_writes_keep_their_order(bench: Bench) -> None:
    """Thousands of small writes arrive in order, without loss."""
    result = bench.run("stutter", "3000")
    require(result.stdout == "".join(f"{n}\n" for n in range(3000)).encode(), "lines are missing or out of order")


@CHECKS
def capture_is_bounded(bench: Bench) -> None:
    """Only the first ``capture`` bytes of each stream are kept, and the result says that the stream was truncated."""
    result = bench.sandbox().run(probe_command("flood", str(MIB), capture=1000))
    require_equal((len(result.stdout), len(result.stderr)), (1000, 1000), "kept bytes")
    require(result.stdout_truncated and result.stderr_truncated, "a stream is not reported as truncated")
    require_equal(result.exit_code, 0, "exit code")


@CHECKS
def output_that_fits_is_not_truncated(bench: Bench) -> None:
    """Output of exactly ``capture`` bytes is not truncated."""
    result = bench.sandbox().run(probe_command("emit", "exact", "", "0", capture=5))
    require_equal((result.stdout, result.stdout_truncated), (b"exact", False), "the output")


@CHECKS
def on_output_sees_everything(bench: Bench) -> None:
    """The function ``on_output`` receives every chunk, including those beyond ``capture``."""
    seen = {Stream.STDOUT: 0, Stream.STDERR: 0}

    def count(chunk: tuple[Stream, bytes]) -> None:
        seen[chunk[0]] += len(chunk[1])

    bench.sandbox().run(probe_command("flood", str(MIB), capture=1), on_output=count)
    require_equal(seen, {Stream.STDOUT: MIB, Stream.STDERR: MIB}, "bytes seen")


@CHECKS
def output_at_once_is_never_lost(bench: Bench) -> None:
    """Output that a process writes right after its start is never lost, even in a persistent sandbox."""
    sandbox = bench.sandbox(persistent=True)
    for number in range(10):
        result = sandbox.run(Command(argv=("/bin/cat", "/etc/passwd"), timeout_seconds=TIMEOUT_SECONDS))
        require(result.stdout.startswith(b"root:"), f"unexpected output of run {number}: {result.stdout[:50]!r}")


@CHECKS
def persistent_commands_have_stdin(bench: Bench) -> None:
    """A command in a persistent sandbox receives its stdin, and then the end of it."""
    result = bench.sandbox(persistent=True).run(probe_command("digest", stdin=b"four"))
    require(result.stdout.startswith(b"4 "), f"the command did not read the four bytes of its stdin: {result.stdout!r}")
