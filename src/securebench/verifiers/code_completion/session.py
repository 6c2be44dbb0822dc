"""Runs a judgement: starts its sandboxes side by side, hands over the programs, and closes all of it in every case."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from securebench.errors import FailureReason
from securebench.sandboxes.base import Command
from securebench.verifiers.code_completion.channel import Channel, frame
from securebench.verifiers.code_completion.guest.wire import FAILED, READY, SOURCE, VERDICT
from securebench.verifiers.code_completion.programs import ARGV, Program, program_bytes
from securebench.verifiers.code_completion.relay import (
    CANDIDATE_MAY_SEND,
    TESTS_MAY_SEND,
    FaultError,
    Relay,
    hear_candidate,
    load,
    read_verdict,
)
from securebench.verifiers.code_completion.request import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from securebench.sandboxes.base import Sandbox, SandboxDriver, SandboxProcess, SandboxSpec
    from securebench.verifiers.code_completion.relay import Verdict
    from securebench.verifiers.code_completion.request import Request

_T = TypeVar("_T")

KEPT_OUTPUT_BYTES: Final = 8 * 1024
"""How much is kept of what a candidate prints while it is loaded: enough for a traceback."""
_GRACE_SECONDS: Final = 15.0
"""How much longer a sandbox may live than its judgement: enough to start the other; an end if this process hangs."""


class Session:
    """One judgement in sandboxes of ``spec``. ``output`` is what the candidate printed before it knew anything."""

    def __init__(self, driver: SandboxDriver, spec: SandboxSpec, request: Request) -> None:
        self._driver = driver
        self._spec = spec
        self._request = request
        self._candidate: Channel | None = None

    @property
    def output(self) -> str:
        """What the candidate printed while it was loaded, capped."""
        return self._candidate.output.decode("utf-8", "replace") if self._candidate else ""

    def run(self) -> Verdict:
        """Return the verdict. Raises :class:`FaultError` without one, and :class:`InfrastructureError`."""
        return self._run_shared() if self._request.isolation == SHARED else self._run_split()

    def _run_split(self) -> Verdict:
        with self._processes(2) as (candidate, tests):
            self._candidate = Channel(candidate, CANDIDATE_MAY_SEND, keep_output=KEPT_OUTPUT_BYTES)
            tests_channel = Channel(tests, TESTS_MAY_SEND)
            tests_channel.send(program_bytes(Program.TESTS) + frame(SOURCE, code=self._request.tests).encode())
            self._candidate.send(program_bytes(Program.CANDIDATE) + self._program_frame())
            return Relay(self._candidate, tests_channel, self._request.deadlines).run()

    def _run_shared(self) -> Verdict:
        with self._processes(1) as (process,):
            channel = self._candidate = Channel(
                process, frozenset({READY, FAILED, VERDICT}), keep_output=KEPT_OUTPUT_BYTES
            )
            end = time.monotonic() + self._request.deadlines.total
            channel.send(program_bytes(Program.SHARED) + self._program_frame())
            load(channel, min(end, time.monotonic() + self._request.deadlines.call))
            channel.stop_keeping()
            nonce = secrets.token_hex()
            channel.send(frame(SOURCE, code=self._request.tests, nonce=nonce).encode())
            spoken = hear_candidate(channel, end, "tests")
            verdict = read_verdict(spoken)
            if spoken.kind != VERDICT or spoken.fields().get("nonce") != nonce:
                raise FaultError(FailureReason.PROTOCOL_VIOLATION, "the verdict is not that of the tests", "verdict")
            return verdict

    def _program_frame(self) -> bytes:
        return frame(SOURCE, code=self._request.program).encode()

    @contextmanager
    def _processes(self, count: int) -> Iterator[list[SandboxProcess]]:
        """Start so many sandboxes at once, each with a process that waits for its program; end them at once, too."""
        command = Command(argv=ARGV, timeout_seconds=self._request.deadlines.total + _GRACE_SECONDS)
        with ThreadPoolExecutor(count, thread_name_prefix="securebench-judge") as pool, ExitStack() as closing:
            sandboxes: list[Sandbox] = []
            closing.callback(lambda: _all(pool, [sandbox.close for sandbox in sandboxes]))
            sandboxes += [self._driver.create(self._spec) for _ in range(count)]
            yield _all(pool, [partial(sandbox.open, command) for sandbox in sandboxes])


def _all(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], _T]]) -> list[_T]:
    """Make all calls at once and return their results when all are done. Raises the first error, after the last end."""
    futures = [pool.submit(call) for call in calls]
    wait(futures)
    return [future.result() for future in futures]
