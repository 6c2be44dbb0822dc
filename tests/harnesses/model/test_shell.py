"""One command of the model: its output, exit code and limits."""

from __future__ import annotations

import os
import select
import time

from securebench.harnesses.model.guest.shell import MAX_OUTPUT, run_command


def has_ended(pid: int) -> bool:
    """Wait up to ten seconds for the process ``pid`` to end, and return whether it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


def test_output_and_exit_code() -> None:
    """The output has stdout and stderr in the order in which they were written."""
    assert run_command("echo one; echo two >&2; exit 5", 10, os.environ) == ("one\ntwo\n", 5)


def test_a_command_is_killed_with_its_children() -> None:
    """A command that runs too long is killed with its children, and what it printed until then is kept."""
    began = time.monotonic()
    output, code = run_command("sleep 60 & echo $!; wait", 2, os.environ)
    assert code is None
    assert has_ended(int(output))
    assert time.monotonic() - began < 30


def test_a_background_process_does_not_hold_it() -> None:
    """A command ends while its background process keeps the output open and continues to run."""
    began = time.monotonic()
    output, code = run_command("sleep 60 & echo $!", 30, os.environ)
    assert code == 0
    assert time.monotonic() - began < 10
    os.kill(int(output), 9)


def test_long_output_is_shortened() -> None:
    """The beginning and the end of a long output are kept."""
    output, code = run_command("echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end", 30, os.environ)
    assert code == 0
    assert output.startswith("begin\nxxx")
    assert output.endswith("xxx\nend\n")
    assert len(output) < MAX_OUTPUT + 100
    assert "bytes left out]" in output


def test_what_cannot_be_run() -> None:
    """A command with a NUL, or longer than the system allows for an argument, has exit code 1."""
    assert run_command("echo \0", 10, os.environ)[1] == 1
    assert run_command("echo " + "x" * 3_000_000, 10, os.environ)[1] == 1
