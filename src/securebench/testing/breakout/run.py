"""Making the attempts in sandboxes of a driver, and judging their results."""

from __future__ import annotations

import inspect
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import InfrastructureError
from securebench.sandboxes.base import MIB, UNPRIVILEGED_USER, Command, Limits, Mount, SandboxSpec
from securebench.testing.breakout.inside import base, exhaustion, files, kernel, main, mounts, network, processes
from securebench.testing.breakout.inside.base import ALONE, ATTEMPTS, ENDLESS, ENTERED, LEAKED, TOGETHER
from securebench.testing.breakout.target import EVIDENCE, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult, SandboxDriver
    from securebench.testing.breakout.inside.base import BreakoutAttempt, Host

ROOT: Final = (0, 0)
USERS: Final = {"nobody": UNPRIVILEGED_USER, "root": ROOT}
"""The users of the attempts, by name. Root is the sandbox's root."""

SMALL_LIMITS: Final = Limits(
    memory=64 * MIB, pids=64, tmpfs=16 * MIB, open_files=128, file_size=4 * MIB, output=MIB, cpus=1.0
)
"""The limits of sandboxes whose resources are exhausted on purpose."""

SHARED: Final = "/workspace"

_MODULES: Final = (base, kernel, mounts, processes, files, network, exhaustion, main)
"""The modules of the program, in the order in which they are executed: each after those that it imports."""

_TOGETHER_SECONDS: Final = 240.0
_ALONE_SECONDS: Final = 20.0
_ENDLESS_SECONDS: Final = 5.0
_LIKELY_DESCRIPTORS: Final = range(3, 11)

_BOOTSTRAP: Final = """\
import json, sys
for name, source in json.load(sys.stdin):
    module = sys.modules[name] = type(sys)(name)
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
module.main()
"""


class AttemptOutcome(StrEnum):
    """The outcome of an attempt.

    ``contained``: the attempt failed, does not apply to this machine, or was ended by a limit or a signal.
    ``reached``: the sandbox can call a part of the kernel that has often been used for escapes. This is not an escape.
    ``unknown``: the attempt was not begun, or it gave no answer and is not ``contained``.
    """

    CONTAINED = "contained"
    REACHED = "reached"
    ESCAPED = "escaped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of the attempt ``name`` or of a check of the host. ``how`` says what stopped it or what it reached."""

    name: str
    outcome: AttemptOutcome
    how: str


def break_out(
    driver: SandboxDriver,
    image: ResolvedImage,
    *,
    user: tuple[int, int] = UNPRIVILEGED_USER,
    names: Iterable[str] | None = None,
    small: Limits = SMALL_LIMITS,
    **weaker: Any,
) -> list[AttemptResult]:
    """Try to break out of sandboxes of ``driver``, and return the result of each attempt and of each check of the host.

    ``names`` are keys of :data:`ATTEMPTS`; ``None`` means all. ``small`` are the limits of sandboxes whose resources
    are exhausted. ``weaker`` are fields of :class:`SandboxSpec` that differ from the default. The image needs
    ``python3`` 3.8 or later, with ``ctypes``. Raises the driver's errors.
    """
    chosen = [ATTEMPTS[name] for name in (ATTEMPTS if names is None else names)]
    with Target() as target:
        host = target.host()
        mounts_ = (Mount(target.shared, SHARED, read_only=False),)
        spec = SandboxSpec(**{"image": image, "user": user, "mounts": mounts_, **weaker})
        stage = BreakoutStage(driver, spec, host, small)
        found = stage.together([attempt for attempt in chosen if attempt.staging == TOGETHER])
        found += [stage.apart(attempt) for attempt in chosen if attempt.staging != TOGETHER]
        return found + [
            _host_result(evidence.name, harm) for evidence, harm in zip(EVIDENCE, target.harm(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class BreakoutStage:
    """Makes attempts against ``host`` in sandboxes that ``driver`` creates from ``spec``.

    Attempts to exhaust resources or to end the sandbox are made in sandboxes with the limits ``small``.
    """

    driver: SandboxDriver
    spec: SandboxSpec
    host: Host
    small: Limits

    def together(self, attempts: list[BreakoutAttempt]) -> list[AttemptResult]:
        """Make ``attempts`` in one sandbox. If it ends too early, use another one for attempts not yet begun.

        This repeats until all attempts were begun, or until a sandbox ends before any attempt was begun in it.
        """
        found: dict[str, AttemptResult] = {}
        left = attempts
        while left:
            with self.driver.create(self.spec) as sandbox:
                result = sandbox.run(self._command(left, _TOGETHER_SECONDS))
            found |= {attempt.name: _judged(attempt, result) for attempt in left}
            made = dict(_answers(result))
            rest = [attempt for attempt in left if attempt.name not in made]
            if rest == left:
                break
            left = rest
        return [found[attempt.name] for attempt in attempts]

    def apart(self, attempt: BreakoutAttempt) -> AttemptResult:
        """Make ``attempt`` in its own sandbox."""
        if attempt.staging == LEAKED:
            return self._leaked(attempt)
        result = self._entered(attempt) if attempt.staging == ENTERED else self._alone(attempt)
        return _judged(attempt, result)

    def _alone(self, attempt: BreakoutAttempt) -> CommandResult:
        seconds = _ENDLESS_SECONDS if attempt.staging == ENDLESS else _ALONE_SECONDS
        with self.driver.create(replace(self.spec, limits=self.small)) as sandbox:
            return sandbox.run(self._command([attempt], seconds))

    def _entered(self, attempt: BreakoutAttempt) -> CommandResult:
        """Make the attempt while other commands run in its sandbox. Return the result of the attempt."""
        with self.driver.create(self.spec, persistent=True) as sandbox, ThreadPoolExecutor(1) as pool:
            attempted = pool.submit(sandbox.run, self._command([attempt], _ALONE_SECONDS))
            while not attempted.done():
                sandbox.run(Command(argv=("/bin/cat",), timeout_seconds=_ALONE_SECONDS))
            return attempted.result()

    def _leaked(self, attempt: BreakoutAttempt) -> AttemptResult:
        """Make the attempt in each directory that a runtime may have left open, until an attempt is not contained."""
        for number in _LIKELY_DESCRIPTORS:
            command = replace(self._command([attempt], _ALONE_SECONDS), workdir=f"/proc/self/fd/{number}")
            try:
                with self.driver.create(self.spec) as sandbox:
                    result = sandbox.run(command)
            except InfrastructureError:
                continue
            judged = _judged(attempt, result)
            if judged.outcome is not AttemptOutcome.CONTAINED:
                return judged
        return AttemptResult(attempt.name, AttemptOutcome.CONTAINED, "no descriptor reaches the host's files")

    def _command(self, attempts: list[BreakoutAttempt], seconds: float) -> Command:
        request = json.dumps({"host": self.host._asdict(), "names": [attempt.name for attempt in attempts]})
        argv = ("python3", "-I", "-B", "-c", _BOOTSTRAP, request)
        return Command(argv=argv, timeout_seconds=seconds, stdin=_program(), workdir="/tmp")  # noqa: S108 - inside


def _judged(attempt: BreakoutAttempt, result: CommandResult) -> AttemptResult:
    """Return the result of ``attempt``: its answer, or what the end of the program says about it.

    An attempt without an answer is contained if it was begun, its staging is ``ALONE`` or ``ENDLESS``, and a limit or
    signal ended the program. Otherwise, its outcome is unknown.
    """
    made = dict(_answers(result))
    if answer := made.get(attempt.name):
        return AttemptResult(attempt.name, *answer)
    limit = _limit_of(result)
    how = limit or f"exit code {result.exit_code}: {result.stderr[-200:].decode('utf-8', 'replace')}"
    if attempt.name not in made:
        return AttemptResult(attempt.name, AttemptOutcome.UNKNOWN, f"not made: {how}")
    contained = bool(limit) and attempt.staging in {ALONE, ENDLESS}
    return AttemptResult(attempt.name, AttemptOutcome.CONTAINED if contained else AttemptOutcome.UNKNOWN, how)


def _limit_of(result: CommandResult) -> str:
    """Return the limit or signal (SIGKILL or SIGXFSZ) that ended the program; empty if it ended in another way."""
    for flag, limit in (
        (result.out_of_memory, "memory limit"),
        (result.output_limit_exceeded, "output limit"),
        (result.timed_out, "time limit"),
    ):
        if flag:
            return limit
    number = result.exit_code - 128
    return signal.Signals(number).name if number in {signal.SIGKILL, signal.SIGXFSZ} else ""


def _answers(result: CommandResult) -> Iterator[tuple[str, tuple[AttemptOutcome, str] | None]]:
    """Yield the name of the attempt and the answer from each line of the output.

    The answer is ``None`` in the line that says that the attempt begins.
    """
    for line in result.stdout.splitlines():
        name, *answer = json.loads(line)
        yield name, (AttemptOutcome(answer[0]), answer[1]) if answer else None


def _host_result(name: str, harm: str) -> AttemptResult:
    return (
        AttemptResult(name, AttemptOutcome.ESCAPED, harm)
        if harm
        else AttemptResult(name, AttemptOutcome.CONTAINED, "unharmed")
    )


@cache
def _program() -> bytes:
    """Return the names and sources of the program's modules as JSON."""
    return json.dumps([(module.__name__, inspect.getsource(module)) for module in _MODULES]).encode("ascii")
