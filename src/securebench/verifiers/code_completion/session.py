"""Run a judgement: start its sandboxes in parallel, send the programs, and always close everything."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from securebench.errors import FailureReason, ImageError, InfrastructureError
from securebench.sandboxes.base import Command
from securebench.verifiers.code_completion.channel import ChannelEndedError, End, FrameChannel, frame
from securebench.verifiers.code_completion.guest.wire import HELLO, SOURCE, VERDICT
from securebench.verifiers.code_completion.programs import ARGV, Program, program_bytes
from securebench.verifiers.code_completion.relay import (
    FrameRelay,
    JudgingEndedError,
    load,
    read_verdict,
    receive_from_candidate,
)
from securebench.verifiers.code_completion.request import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.sandboxes.base import Sandbox, SandboxDriver, SandboxSpec
    from securebench.verifiers.code_completion.relay import Verdict
    from securebench.verifiers.code_completion.request import CodeRequest

_T = TypeVar("_T")

KEPT_OUTPUT_BYTES: Final = 8 * 1024
"""How much of the candidate's output during loading is kept: enough for a traceback."""
START_SECONDS: Final = 60.0
"""How long Python may take to start, on a busy machine. It does not count against the candidate's time."""


class JudgingSession:
    """One judgement in sandboxes of ``spec``. ``output`` is the candidate's output from before the first call."""

    def __init__(self, driver: SandboxDriver, spec: SandboxSpec, request: CodeRequest) -> None:
        self._driver = driver
        self._spec = spec
        self._request = request
        self._candidate: FrameChannel | None = None

    @property
    def output(self) -> str:
        """The candidate's output while it was loaded, up to :data:`KEPT_OUTPUT_BYTES`."""
        return self._candidate.output.decode("utf-8", "replace") if self._candidate else ""

    def run(self) -> Verdict:
        """Return the verdict. Raises :class:`JudgingEndedError` without one, and :class:`InfrastructureError`."""
        return self._run_shared() if self._request.isolation == SHARED else self._run_split()

    def _run_split(self) -> Verdict:
        request = self._request
        with self._sides({Program.CANDIDATE: request.program, Program.TESTS: request.tests}) as (candidate, tests):
            self._candidate = candidate
            return FrameRelay(candidate, tests, request.deadlines).run()

    def _run_shared(self) -> Verdict:
        request = self._request
        with self._sides({Program.SHARED: request.program}) as (channel,):
            self._candidate = channel
            end = time.monotonic() + request.deadlines.total
            load(channel, min(end, time.monotonic() + request.deadlines.call))
            nonce = secrets.token_hex()
            channel.send(frame(SOURCE, code=request.tests, starter=request.starter, nonce=nonce).encode())
            message = receive_from_candidate(channel, end, frozenset({VERDICT}))
            verdict = read_verdict(message)
            if message.fields().get("nonce") != nonce:
                raise JudgingEndedError(
                    FailureReason.PROTOCOL_VIOLATION, "the verdict does not come from the tests", "verdict"
                )
            return verdict

    @contextmanager
    def _sides(self, programs: Mapping[Program, str]) -> Iterator[list[FrameChannel]]:
        """Start the programs in parallel, each in a sandbox with its code, and close the sandboxes in parallel."""
        with ThreadPoolExecutor(len(programs), thread_name_prefix="securebench-judge") as pool, ExitStack() as closing:
            sandboxes: list[Sandbox] = []
            closing.callback(lambda: _all(pool, [sandbox.close for sandbox in sandboxes]))
            for _ in programs:
                sandboxes.append(self._driver.create(self._spec))  # noqa: PERF401 - closed even if the next one fails
            starts = zip(sandboxes, programs.items(), strict=True)
            channels = _all(pool, [partial(self._start, sandbox, *program) for sandbox, program in starts])
            for channel in channels:
                self._await_hello(channel)
            yield channels

    def _start(self, sandbox: Sandbox, program: Program, code: str) -> FrameChannel:
        limit = START_SECONDS + self._request.deadlines.total
        process = sandbox.open(Command(argv=ARGV, timeout_seconds=limit, waits=True))
        channel = FrameChannel(process, keep_output=KEPT_OUTPUT_BYTES)
        more = {"starter": self._request.starter} if program is Program.TESTS else {}
        channel.send(program_bytes(program) + frame(SOURCE, code=code, **more).encode())
        return channel

    def _await_hello(self, channel: FrameChannel) -> None:
        """Wait until a side runs. No code of the candidate runs before that, so an earlier failure is not its fault."""
        try:
            channel.receive(time.monotonic() + START_SECONDS, frozenset({HELLO}))
        except ChannelEndedError as ended:
            if ended.end is not End.EXITED:
                raise InfrastructureError(f"a sandbox ended before Python started: {ended.end.value}") from ended
            raise ImageError(
                f"the image {self._request.image} cannot run python3 (exit code {ended.exit_code})",
                code="image-without-python",
                hint="use an image with Python 3.8 or later as python3 on the standard PATH",
            ) from ended


def _all(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], _T]]) -> list[_T]:
    """Run all calls in parallel and return their results. Raises the first error, after all calls have finished."""
    futures = [pool.submit(call) for call in calls]
    wait(futures)
    return [future.result() for future in futures]
