"""A driver that runs the real guest programs of code tasks as local processes.

The driver isolates nothing. Use it only for the project's own code, and a real driver for hostile code.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from securebench.testing.scripted_sandbox import ProgramKilled, ScriptedDriver

if TYPE_CHECKING:
    from securebench.testing.scripted_sandbox import ProgramContext


def local_driver() -> ScriptedDriver:
    """Return a scripted driver whose ``python3`` runs this interpreter in a separate process."""
    driver = ScriptedDriver()
    driver.program("python3")(_run_locally)
    return driver


def _run_locally(context: ProgramContext) -> int:
    command = [sys.executable, *context.argv[1:]]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, cwd="/"
    ) as process:
        # This thread is not joined: it ends after the scripted process, which ends only after this function.
        threading.Thread(target=_feed, args=(context, process), daemon=True).start()
        errors = threading.Thread(target=_drain, args=(process.stderr, context.stderr))
        errors.start()
        try:
            _drain(process.stdout, context.stdout)
            return process.wait()
        finally:
            process.kill()
            errors.join()


def _feed(context: ProgramContext, process: subprocess.Popen[bytes]) -> None:
    """Forward stdin, and kill the process when the scripted process ends."""
    assert process.stdin is not None
    with suppress(ProgramKilled, BrokenPipeError, ValueError):  # ValueError: stdin is closed, as the process ended
        while chunk := context.stdin.read(65536):
            process.stdin.write(chunk)
            process.stdin.flush()
    context.process.is_over.wait()
    process.kill()


def _drain(source: IO[bytes] | None, sink: Any) -> None:
    assert source is not None
    try:
        while data := source.read1(65536):  # type: ignore[attr-defined]  # a pipe is a BufferedReader
            sink.write(data)
    except (ProgramKilled, ValueError):
        return
