"""Judges code in tests: on any driver, and on one that runs the real guests as local processes.

The local driver isolates nothing: it is for the project's own fixtures alone. Anything hostile goes to a real engine.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from securebench.candidates.artifact import CandidateArtifact
from securebench.dangerous_commands import VerificationPolicy
from securebench.progress import Reporter
from securebench.resources import Component, Resource, ResourceBundle, Visibility
from securebench.sandboxes.base import MIB, Limits
from securebench.tasks import CandidateKind, Environment, VerifierView
from securebench.testing.scripted_sandbox import ProgramKilled, ScriptedDriver
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.code_completion import CodeCompletionVerifier

if TYPE_CHECKING:
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.scripted_sandbox import ProgramContext
    from securebench.verifiers.base import VerificationResult

LIMITS = Limits(memory=128 * MIB, output=4 * MIB)
"""Small, so that a bomb goes off at once."""


def judge(
    driver: SandboxDriver,
    candidate: str | None,
    tests: str,
    *,
    timeout: float | None = None,
    image: str | None = None,
    starter: str | None = None,
    **more: JsonValue,
) -> VerificationResult:
    """Return the verdict on ``candidate``. ``more`` are further fields of ``eval.tests``."""
    view = view_of(
        {"source": "inline", "code": textwrap.dedent(tests), **more}, timeout=timeout, image=image, starter=starter
    )
    text = None if candidate is None else textwrap.dedent(candidate)
    return CodeCompletionVerifier().verify(view, artifact(text), context(driver))


def view_of(
    tests: JsonValue,
    *,
    timeout: float | None = None,
    image: str | None = None,
    language: str | None = None,
    starter: str | None = None,
    hidden: str = "",
) -> VerifierView:
    """Return the view of a task with these tests."""
    resources = [
        Resource("prompt", "Write it.", Visibility.PUBLIC),
        Resource("tests", tests, Visibility.EVALUATION_INPUTS),
        Resource("reference_solution", hidden, Visibility.HIDDEN),
    ]
    if language is not None:
        resources.append(Resource("language", language, Visibility.PUBLIC))
    if starter is not None:
        resources.append(Resource("starter_code", starter, Visibility.PUBLIC))
    bundle = ResourceBundle(tuple(resources))
    return VerifierView(
        task_id="task",
        family="code_completion",
        test_sandbox=bundle.visible_to(Component.TEST_SANDBOX),
        evaluator=bundle.visible_to(Component.EVALUATOR),
        environment=Environment(image=image, timeout_seconds=timeout),
    )


def artifact(text: str | None) -> CandidateArtifact:
    """Return a sealed candidate of ``text``."""
    data = (text or "").encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    return CandidateArtifact(CandidateKind.CODE, digest, len(data), Path("candidates") / digest, text)


def context(driver: SandboxDriver) -> VerifyContext:
    """Return what a run would lend to the verifier."""
    return VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter(), limits=LIMITS, scratch=Path("scratch")
    )


def local_driver() -> ScriptedDriver:
    """Return a scripted driver whose ``python3`` is this interpreter, in a process of its own."""
    driver = ScriptedDriver()
    driver.program("python3")(_run_locally)
    return driver


def _run_locally(context: ProgramContext) -> int:
    command = [sys.executable, *context.argv[1:]]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, cwd="/"
    ) as process:
        # Not joined: it ends with the scripted process, which is after this function.
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
    """Pass on stdin, and kill the process when the sandbox ends."""
    assert process.stdin is not None
    with suppress(ProgramKilled, BrokenPipeError, ValueError):  # ValueError: the process ended, its stdin is closed
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
