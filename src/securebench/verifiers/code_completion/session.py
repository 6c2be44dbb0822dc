"""Run a judgement: start its sandboxes in parallel, send the programs, and close the sandboxes afterwards.

The sandboxes are closed after an error, too. Only the sandbox of the tests may be kept for another task.
"""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from securebench.errors import FailureReason
from securebench.verifiers.code_completion.channel import frame
from securebench.verifiers.code_completion.guest.wire import SOURCE, VERDICT
from securebench.verifiers.code_completion.programs import Program
from securebench.verifiers.code_completion.relay import (
    FrameRelay,
    JudgingEndedError,
    load,
    read_verdict,
    receive_from_candidate,
)
from securebench.verifiers.code_completion.request import SHARED
from securebench.verifiers.code_completion.sides import CandidateSide, JudgingSide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from securebench.sandboxes.base import SandboxDriver, SandboxSpec
    from securebench.sandboxes.kept import KeptSandboxes
    from securebench.verifiers.code_completion.channel import FrameChannel
    from securebench.verifiers.code_completion.relay import Verdict
    from securebench.verifiers.code_completion.request import CodeRequest
    from securebench.verifiers.code_completion.sides import Side

_T = TypeVar("_T")


class JudgingSession:
    """One judgement, in sandboxes that ``spec`` describes.

    The tests may also run in a sandbox of ``kept``, in which earlier tests have run.
    """

    def __init__(
        self, driver: SandboxDriver, spec: SandboxSpec, request: CodeRequest, kept: KeptSandboxes[Any] | None = None
    ) -> None:
        self._driver = driver
        self._kept = kept
        self._spec = spec
        self._request = request
        self._candidate: FrameChannel | None = None

    @property
    def output(self) -> str:
        """The candidate's output while it was loaded, up to 8 KiB."""
        return self._candidate.output.decode("utf-8", "replace") if self._candidate else ""

    def run(self) -> Verdict:
        """Return the verdict.

        Raises :class:`JudgingEndedError` if there is no verdict. Also raises :class:`InfrastructureError`.
        """
        return self._run_shared() if self._request.isolation == SHARED else self._run_split()

    def _run_split(self) -> Verdict:
        request = self._request
        tests = JudgingSide(self._driver, self._spec, request, self._kept)
        with self._started(tests, Program.CANDIDATE) as (candidate, channel):
            self._candidate = candidate
            verdict = FrameRelay(candidate, channel, request.deadlines).run()
            tests.is_intact = verdict.outcome in {"passed", "failed"}
            return verdict

    def _run_shared(self) -> Verdict:
        request = self._request
        with self._started(None, Program.SHARED) as (channel,):
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
    def _started(self, tests: JudgingSide | None, program: Program) -> Iterator[list[FrameChannel]]:
        """Start the sides in parallel, the candidate's with ``program``, and close them in parallel.

        ``tests`` is ``None`` if ``program`` runs both sides.
        """
        with ThreadPoolExecutor(2, thread_name_prefix="securebench-judge") as pool, ExitStack() as closing:
            sides: list[Side] = [tests] if tests else []
            closing.callback(lambda: _all(pool, [side.close for side in sides]))
            sides.insert(0, CandidateSide(self._driver, self._spec, program, self._request))
            yield _all(pool, [side.start for side in sides])


def _all(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], _T]]) -> list[_T]:
    """Run all calls in parallel and return their results. Raises the first error, after all calls have finished."""
    futures = [pool.submit(call) for call in calls]
    wait(futures)
    return [future.result() for future in futures]
