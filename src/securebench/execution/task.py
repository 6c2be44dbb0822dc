"""One task, straight through: workspace, agent, sealed candidate, verdict, record."""

from __future__ import annotations

import errno
import logging
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import (
    CandidateError,
    ConfigError,
    FailurePhase,
    FailureReason,
    InfrastructureError,
    MaterializationError,
    StorageError,
)
from securebench.execution.context import RunStoppedError
from securebench.execution.history import History, agent_result_before
from securebench.execution.observed import ObservedDriver
from securebench.execution.outcome import TaskOutcome, build_record
from securebench.execution.task_files import file_texts
from securebench.execution.trail import Trail
from securebench.execution.verifier_output import VerifierOutput, keep_output, output_file
from securebench.fs.durable import discard
from securebench.fs.rmtree import make_fresh_directory, remove_tree
from securebench.harnesses.base import ProduceContext, Spent
from securebench.progress import ProducerDone, ProducerStart, TaskStart, VerifierDone, VerifierStart
from securebench.resources import Visibility
from securebench.results.record import Failure
from securebench.results.redaction import Redactor
from securebench.results.trajectory import keep_trajectory, trajectory_file
from securebench.results.usage import Usage, read_usage
from securebench.tasks import task_directory_name
from securebench.verifiers.base import VerifyContext
from securebench.workspaces.materialization import ASSET_CHANGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.execution.context import TaskContext
    from securebench.harnesses.base import AgentResult
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.results.record import TaskRecord
    from securebench.tasks import AgentView, SecureBenchTask, VerifierView
    from securebench.verifiers.base import VerificationResult, Verifier

_log = logging.getLogger(__name__)

_DISK_TROUBLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})


def execute_task(task: SecureBenchTask, context: TaskContext, history: History | None = None) -> TaskRecord:
    """Run the agent on ``task``, judge what it left, and return the record, redacted.

    Where the ``history`` of the task holds a sealed candidate that only could not be judged, that is judged, and no
    agent runs.

    Whatever the agent, its candidate or the machine did is in the record; a verdict is a pass only if a verifier said
    so. Raises :class:`StorageError` when the run directory cannot be written, and :class:`RunStoppedError` when the run
    was stopped meanwhile: an agent whose sandbox was taken away looks like one that crashed.
    """
    redactor = Redactor.for_task(task, context.secrets)
    report = context.report.task(task.id, scrub=redactor.mapping)
    history = history or History()
    report.emit(TaskStart(family=task.task_type, attempt=history.attempt))
    trail = Trail(history.attempt)
    outcome = TaskOutcome(verifier=context.verifier_for(task.task_type), history=history)
    if context.verifier_output is not None:
        discard(output_file(context.verifier_output, task_directory_name(task.id)))
    try:
        if history.unverified is not None:
            outcome.agent_result = agent_result_before(task, context.store, history.unverified)
            outcome.is_verified_again = outcome.agent_result is not None
        if not outcome.is_verified_again:
            _check_task(task.verifier_view(), outcome, context, report, trail)
            _produce(task, context, outcome, _Told(report, redactor, trail))
        context.checkpoint("produced")
        outcome.verdict = _verify(task.verifier_view(), outcome, context, report, trail, redactor)
        context.checkpoint("verified")
    except (StorageError, RunStoppedError):
        context.control.check()
        raise
    except CandidateError as error:
        outcome.refusal = error
    except Exception as error:  # noqa: BLE001 - whatever went wrong here is a record without a verdict, never a pass
        context.control.check()
        outcome.fault = _fault(error, trail.phase)
        if isinstance(error, MaterializationError) and error.code == ASSET_CHANGED:
            context.note_problem(f"task {task.id}: {error.message}")
    context.control.check()
    return build_record(task, context, outcome, trail, redactor)


def _check_task(view: VerifierView, outcome: TaskOutcome, context: TaskContext, report: Reporter, trail: Trail) -> None:
    """Let the verifier refuse a task that cannot be judged, before its agent is run and paid."""
    verifier = outcome.verifier
    if verifier is None:
        return

    def check() -> None:
        with _lent(view, context, report, None, make_scratch=False) as lent:
            verifier.check_task(view, lent)

    trail.try_phase(FailurePhase.PREFLIGHT, check, context.control)


@dataclass(frozen=True, slots=True)
class _Told:
    """To whom, and how, it is told what becomes of a task."""

    report: Reporter
    redactor: Redactor
    trail: Trail


def _produce(task: SecureBenchTask, context: TaskContext, outcome: TaskOutcome, told: _Told) -> None:
    """Run the agent, again where the infrastructure failed it, and note what came of every try in ``outcome``."""
    view, directory = task.agent_view(), task_directory_name(task.id)

    def once() -> AgentResult:
        outcome.agent_result = None
        outcome.trajectory = {}
        number = len(outcome.failed_tries) + 1
        file = trajectory_file(context.trajectories, directory, outcome.history.attempt, number)
        discard(file)
        try:
            agent_result = context.producer.produce(view, _lent_to_agent(view, context, outcome, told.report))
        except InfrastructureError as error:
            outcome.failed_tries.append({"error": error.code, "message": error.message})
            raise
        outcome.agent_result = agent_result
        outcome.spent += read_usage(agent_result.metadata.get("usage")) or Usage()
        if agent_result.trajectory:
            outcome.trajectory = keep_trajectory(file, agent_result.trajectory, told.redactor)
        if agent_result.fault is not None:
            outcome.failed_tries.append(_failed_try(agent_result.fault, agent_result, outcome.trajectory))
            raise agent_result.fault
        return agent_result

    told.report.emit(ProducerStart())
    agent_result = told.trail.try_phase(FailurePhase.PRODUCE, once, context.control)
    reason = agent_result.failure.reason.value if agent_result.failure else None
    told.report.emit(ProducerDone(reason=reason, duration_seconds=agent_result.duration_seconds))


def _lent_to_agent(view: AgentView, context: TaskContext, outcome: TaskOutcome, report: Reporter) -> ProduceContext:
    spent = outcome.history.spent + outcome.spent
    return ProduceContext(
        driver=ObservedDriver(context.driver, report, show_output=True),
        store=context.store,
        workspace=context.workspaces / task_directory_name(view.task_id),
        report=report,
        limits=context.limits,
        environment=context.environment,
        gateway=context.gateway,
        pause=context.control.pause,
        spent=Spent(max(0, spent.requests - spent.forgiven), spent.input_tokens + spent.output_tokens, spent.bytes),
        labels={"task": task_directory_name(view.task_id)},
    )


def _failed_try(
    error: InfrastructureError, agent_result: AgentResult, trajectory: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return what a record says of a try that the infrastructure ended while the agent worked."""
    said = {name: agent_result.metadata[name] for name in ("outcome", "usage") if name in agent_result.metadata}
    where = {"trajectory": dict(trajectory)} if trajectory else {}
    return {"error": error.code, "message": error.message, **said, **where}


def _verify(
    view: VerifierView, outcome: TaskOutcome, context: TaskContext, report: Reporter, trail: Trail, redactor: Redactor
) -> VerificationResult | None:
    """Judge what was sealed, hashed again, unless the agent failed or nobody can judge it."""
    candidate, verifier = outcome.judged, outcome.verifier
    if candidate is None or verifier is None:
        return None
    sealed = context.store.load(candidate.kind, candidate.digest)
    report.emit(VerifierStart(verifier=verifier.family, version=verifier.version))
    verdict = trail.try_phase(
        FailurePhase.VERIFY, lambda: _verify_once(verifier, view, sealed, context, report, redactor), context.control
    )
    reason = verdict.reason.value if verdict.reason else None
    report.emit(VerifierDone(passed=verdict.passed, reason=reason))
    return verdict


def _verify_once(
    verifier: Verifier,
    view: VerifierView,
    candidate: CandidateArtifact,
    context: TaskContext,
    report: Reporter,
    redactor: Redactor,
) -> VerificationResult:
    wanted = context.verifier_output is not None or context.show_verifier_output is not None
    printed = VerifierOutput() if wanted else None
    try:
        with _lent(view, context, report, printed) as lent:
            return verifier.verify(view, candidate, lent)
    finally:
        text = printed.text(_with_files(redactor, view)) if printed is not None else ""
        if text and context.verifier_output is not None:
            keep_output(output_file(context.verifier_output, task_directory_name(view.task_id)), text)
        if text and context.show_verifier_output is not None:
            context.show_verifier_output(view.task_id, text)


def _with_files(redactor: Redactor, view: VerifierView) -> Redactor:
    """Return a redactor that also knows what the files say that the verifier has and the agent has not."""
    resources = [*view.test_sandbox, *view.evaluator]
    public = [resource for resource in resources if resource.visibility is Visibility.PUBLIC]
    hidden = [resource for resource in resources if resource.visibility is not Visibility.PUBLIC]
    return redactor.with_files(file_texts(hidden, view.eval_assets), file_texts(public, view.public_assets))


@contextmanager
def _lent(
    view: VerifierView,
    context: TaskContext,
    report: Reporter,
    printed: VerifierOutput | None,
    *,
    make_scratch: bool = True,
) -> Iterator[VerifyContext]:
    """Give what a verifier works with, and a scratch directory that did not exist before and does not after.

    Without ``make_scratch`` it is the verifier's to make, if it needs one: most checks of tasks do not.
    """
    scratch = context.scratch / task_directory_name(view.task_id)
    if make_scratch:
        make_fresh_directory(scratch)
    try:
        yield VerifyContext(
            driver=ObservedDriver(context.driver, report, show_output=False, printed=printed),
            policy=context.policy,
            report=report,
            limits=context.limits,
            scratch=scratch,
            probe=context.probe,
            labels={"task": scratch.name},
        )
    finally:
        remove_tree(scratch)


def _fault(error: Exception, phase: FailurePhase) -> Failure:
    """Return the failure that ``error`` is. Raises :class:`StorageError` for trouble with our own disk."""
    match error:
        case InfrastructureError():
            return Failure(error.reason, phase, str(error))
        case MaterializationError() | ConfigError():
            return Failure(FailureReason.TASK_UNUSABLE, phase, str(error))
        case OSError(errno=code) if code in _DISK_TROUBLE:
            raise StorageError(f"cannot write to the run directory: {error.strerror}") from error
    return _defect(error, phase)


def _defect(error: Exception, phase: FailurePhase) -> Failure:
    """Return the failure that a defect of ours is: its type and place, not its text, which may hold anything."""
    frames = traceback.extract_tb(error.__traceback__)
    _log.debug("a defect: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    message = f"{type(error).__name__} at {place}: a defect of SecureBench; please report it"
    return Failure(FailureReason.INTERNAL_ERROR, phase, message)
