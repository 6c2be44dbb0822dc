"""Runs a judgement: starts its sandboxes side by side, hands over the programs, and closes all of it in every case."""

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
    hear_candidate,
    load,
    read_verdict,
)
from securebench.verifiers.code_completion.request import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.sandboxes.base import Sandbox, SandboxDriver, SandboxSpec
    from securebench.verifiers.code_completion.relay import Verdict
    from securebench.verifiers.code_completion.request import CodeRequest

_T = TypeVar("_T")

KEPT_OUTPUT_BYTES: Final = 8 * 1024
"""How much is kept of what a candidate prints while it is loaded: enough for a traceback."""
START_SECONDS: Final = 60.0
"""How long Python may take to start, on a machine that does much else. It is not counted against the candidate."""


class JudgingSession:
    """One judgement in sandboxes of ``spec``. ``output`` is what the candidate printed before it knew anything."""

    def __init__(self, driver: SandboxDriver, spec: SandboxSpec, request: CodeRequest) -> None:
        self._driver = driver
        self._spec = spec
        self._request = request
        self._candidate: FrameChannel | None = None

    @property
    def output(self) -> str:
        """What the candidate printed while it was loaded, capped."""
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
            spoken = hear_candidate(channel, end, frozenset({VERDICT}))
            verdict = read_verdict(spoken)
            if spoken.fields().get("nonce") != nonce:
                raise JudgingEndedError(
                    FailureReason.PROTOCOL_VIOLATION, "the verdict is not that of the tests", "verdict"
                )
            return verdict

    @contextmanager
    def _sides(self, programs: Mapping[Program, str]) -> Iterator[list[FrameChannel]]:
        """Start these programs at once, each in a sandbox, with the code that it is to run; end them at once, too."""
        with ThreadPoolExecutor(len(programs), thread_name_prefix="securebench-judge") as pool, ExitStack() as closing:
            sandboxes: list[Sandbox] = []
            closing.callback(lambda: _all(pool, [sandbox.close for sandbox in sandboxes]))
            for _ in programs:
                sandboxes.append(self._driver.create(self._spec))  # noqa: PERF401 - each is to be closed, whatever the next does
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
        """Wait until a side runs. Nothing of the candidate has run before that: no trouble until then is its fault."""
        try:
            channel.receive(time.monotonic() + START_SECONDS, frozenset({HELLO}))
        except ChannelEndedError as ended:
            if ended.end is not End.EXITED:
                raise InfrastructureError(f"a sandbox ended before Python ran in it: {ended.end.value}") from ended
            raise ImageError(
                f"the image {self._request.image} cannot run python3 (exit code {ended.exit_code})",
                code="image-without-python",
                hint="name an image with Python 3.8 or later as python3 on the standard PATH",
            ) from ended


def _all(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], _T]]) -> list[_T]:
    """Make all calls at once and return their results when all are done. Raises the first error, after the last end."""
    futures = [pool.submit(call) for call in calls]
    wait(futures)
    return [future.result() for future in futures]
