"""Execute one task: run the agent, seal its candidate, verify it, build the record."""

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
)
from securebench.execution.context import RunStoppedError
from securebench.execution.history import History, agent_result_before
from securebench.execution.observed import ObservedDriver
from securebench.execution.outcome import TaskOutcome, build_record
from securebench.execution.task_files import file_texts
from securebench.execution.trail import Trail
from securebench.execution.verifier_output import VerifierOutput, keep_output, output_file
from securebench.faults import FaultPoint, reached
from securebench.fs.durable import discard
from securebench.fs.rmtree import make_fresh_directory
from securebench.harnesses.base import ProduceContext, Spent
from securebench.money import micro_usd
from securebench.progress import ProducerDone, ProducerStart, TaskStart, VerifierDone, VerifierStart
from securebench.resources import Visibility
from securebench.results.records.record import Failure, VerificationStatus
from securebench.results.records.redaction import Redactor
from securebench.results.records.trajectory import keep_trajectory, trajectory_file
from securebench.results.records.usage import Usage, read_usage
from securebench.tester_config import KeepWorkspaces
from securebench.trials import TrialId
from securebench.verifiers.base import VerifyContext
from securebench.workspaces.materialization import ASSET_CHANGED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.execution.context import TaskContext
    from securebench.harnesses.base import AgentResult
    from securebench.progress import Reporter
    from securebench.results.records.record import TaskRecord
    from securebench.tasks import SecureBenchTask, VerifierView
    from securebench.verifiers.base import VerificationResult, Verifier
    from securebench.verifiers.model_graded.session import JudgeSession

_log = logging.getLogger(__name__)

_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})


def execute_task(task: SecureBenchTask, context: TaskContext, history: History | None = None) -> TaskRecord:
    """Run the agent on ``task``, verify its candidate, and return the redacted record of this trial.

    If ``history`` has a sealed candidate that was not verified and is still intact, the agent does not run again.

    Failures of the agent, the candidate or the machine are in the record and raise no error. This includes errors when
    writing to the run directory, so that the record still says what the agent used. Raises :class:`RunStoppedError` if
    the run was stopped meanwhile: stopping closes sandboxes, so a record could wrongly say that the agent crashed.
    """
    history = history or History()
    trial = TrialId(task.id, history.trial)
    redactor = Redactor.for_task(task, context.secrets)
    outcome = TaskOutcome(verifier=context.verifier_for(task.task_type), history=history)
    execution = _TaskExecution(
        task=task,
        trial=trial,
        context=context,
        outcome=outcome,
        redactor=redactor,
        report=context.report.task(trial, scrub=redactor.mapping),
        trail=Trail(history.attempt),
        judge=context.judge(trial) if context.judge else None,
    )
    execution.report.emit(TaskStart(family=task.task_type, attempt=history.attempt))
    try:
        if context.verifier_output is not None:
            discard(output_file(context.verifier_output, execution.directory))
        execution.run()
    except RunStoppedError:
        raise
    except CandidateError as error:
        outcome.refusal = error
    except Exception as error:  # noqa: BLE001 - any other error makes a record without a verdict, never a pass
        context.control.check()
        outcome.fault = _failure_of(error, execution.trail.phase)
        if isinstance(error, MaterializationError) and error.code == ASSET_CHANGED:
            context.note_problem(f"task {task.id}: {error.message}")
    finally:
        outcome.judge_usage = read_usage(execution.judge.close() if execution.judge else None) or Usage()
    context.control.check()
    record = build_record(task, context, outcome, execution.trail, redactor)
    if not context.keep_workspaces.keeps(passed=record.status is VerificationStatus.PASSED):
        context.removals.remove(context.workspaces / trial.directory)
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskExecution:
    """One attempt at a trial of a task. Its results go into ``outcome``."""

    task: SecureBenchTask
    trial: TrialId
    context: TaskContext
    outcome: TaskOutcome
    redactor: Redactor
    report: Reporter
    trail: Trail
    judge: JudgeSession | None = None

    @property
    def directory(self) -> str:
        """The name of the trial's own directories and files in the run directory."""
        return self.trial.directory

    def run(self) -> None:
        """Run all phases, or only the verification of an earlier attempt's candidate."""
        outcome, context = self.outcome, self.context
        if outcome.history.unverified is not None:
            outcome.agent_result = agent_result_before(self.task, context.store, outcome.history.unverified)
            outcome.is_verified_again = outcome.agent_result is not None
        if not outcome.is_verified_again:
            self._check_task()
            self._produce()
        reached(FaultPoint.AGENT_DONE, self.task.id)
        self._verify()
        reached(FaultPoint.VERDICT_DONE, self.task.id)

    def _check_task(self) -> None:
        """Let the verifier reject a task that cannot be judged, before its agent runs and costs money."""
        verifier, view = self.outcome.verifier, self.task.verifier_view()
        if verifier is None:
            return

        def check() -> None:
            # Most of these checks need no scratch directory. A verifier that needs one creates it itself.
            with self._verify_context(None, make_scratch=False) as context:
                verifier.check_task(view, context)

        self.trail.try_phase(FailurePhase.PREFLIGHT, check, self.context.control)

    def _produce(self) -> None:
        """Run the agent, and retry it on infrastructure failures. The results of all tries go into ``outcome``."""
        self.report.emit(ProducerStart())
        agent_result = self.trail.try_phase(FailurePhase.PRODUCE, self._run_agent, self.context.control)
        reason = agent_result.failure.reason.value if agent_result.failure else None
        self.report.emit(ProducerDone(reason=reason, duration_seconds=agent_result.duration_seconds))

    def _run_agent(self) -> AgentResult:
        """Run the agent once and return its result. Raises the infrastructure failure that ended it, if any."""
        outcome, context, view = self.outcome, self.context, self.task.agent_view()
        outcome.agent_result = None
        outcome.trajectory = {}
        number = len(outcome.failed_tries) + 1
        file = trajectory_file(context.trajectories, self.directory, outcome.history.attempt, number)
        discard(file)
        spent = outcome.history.spent + outcome.spent
        produce_context = ProduceContext(
            driver=ObservedDriver(context.driver, self.report, show_output=True),
            store=context.store,
            workspace=context.workspaces / self.directory,
            keep_workspace=context.keep_workspaces is not KeepWorkspaces.NONE,
            report=self.report,
            limits=context.limits,
            environment=context.environment,
            gateway=context.gateway,
            pause=context.control.pause,
            spent=Spent(
                max(0, spent.requests - spent.forgiven),
                spent.input_tokens + spent.output_tokens + spent.unreported_tokens,
                spent.bytes,
                micro_usd((spent.cost_usd or 0.0) + spent.unreported_usd),
            ),
            trial=self.trial.trial,
            labels={"task": self.directory},
        )
        try:
            agent_result = context.producer.produce(view, produce_context)
        except InfrastructureError as error:
            outcome.failed_tries.append({"error": error.code, "message": error.message})
            raise
        outcome.agent_result = agent_result
        outcome.spent += read_usage(agent_result.metadata.get("usage")) or Usage()
        if agent_result.trajectory:
            outcome.trajectory = keep_trajectory(file, agent_result.trajectory, self.redactor)
        if agent_result.fault is not None:
            reported = {name: value for name, value in agent_result.metadata.items() if name in {"outcome", "usage"}}
            stored = {"trajectory": dict(outcome.trajectory)} if outcome.trajectory else {}
            fault = agent_result.fault
            outcome.failed_tries.append({"error": fault.code, "message": fault.message, **reported, **stored})
            raise fault
        return agent_result

    def _verify(self) -> None:
        """Verify the sealed candidate, unless the agent failed or the family has no verifier."""
        candidate, verifier = self.outcome.judged, self.outcome.verifier
        if candidate is None or verifier is None:
            return
        self.report.emit(VerifierStart(verifier=verifier.family, version=verifier.version))
        verdict = self.trail.try_phase(
            FailurePhase.VERIFY, lambda: self._verify_once(verifier, candidate), self.context.control
        )
        reason = verdict.reason.value if verdict.reason else None
        self.report.emit(VerifierDone(passed=verdict.passed, reason=reason))
        self.outcome.verdict = verdict

    def _verify_once(self, verifier: Verifier, candidate: CandidateArtifact) -> VerificationResult:
        context, view = self.context, self.task.verifier_view()
        sealed = context.store.load(candidate.kind, candidate.digest)  # load() hashes it again: it must be unchanged
        wanted = context.verifier_output is not None or context.show_verifier_output is not None
        printed = VerifierOutput() if wanted else None
        try:
            with self._verify_context(printed) as verify_context:
                return verifier.verify(view, sealed, verify_context)
        finally:
            if printed is not None and self.judge is not None:
                printed.replies += [reply.text or reply.trouble for reply in self.judge.replies]
            text = printed.text(_with_files(self.redactor, view)) if printed is not None else ""
            if text and context.verifier_output is not None:
                keep_output(output_file(context.verifier_output, self.directory), text)
            if text and context.show_verifier_output is not None:
                context.show_verifier_output(self.trial, text)

    @contextmanager
    def _verify_context(self, printed: VerifierOutput | None, *, make_scratch: bool = True) -> Iterator[VerifyContext]:
        """Yield a verifier's context, and remove its scratch directory afterwards.

        With ``make_scratch``, the directory exists and is empty. Otherwise, the verifier creates it if it needs one.
        """
        context = self.context
        scratch = context.scratch / self.directory
        if make_scratch:
            make_fresh_directory(scratch)
        try:
            yield VerifyContext(
                driver=ObservedDriver(context.driver, self.report, show_output=False, printed=printed),
                policy=context.policy,
                report=self.report,
                limits=context.limits,
                scratch=scratch,
                probe=context.probe,
                judge=self.judge,
                kept=context.kept if printed is None else None,  # a kept sandbox mixes the output of several tasks
                labels={"task": scratch.name},
            )
        finally:
            context.removals.remove(scratch)


def _with_files(redactor: Redactor, view: VerifierView) -> Redactor:
    """Return a redactor that also redacts the text of the files that the task hides from its agent."""
    resources = [*view.test_sandbox, *view.evaluator]
    public = [resource for resource in resources if resource.visibility is Visibility.PUBLIC]
    hidden = [resource for resource in resources if resource.visibility is not Visibility.PUBLIC]
    return redactor.with_files(file_texts(hidden, view.eval_assets), file_texts(public, view.public_assets))


def _failure_of(error: Exception, phase: FailurePhase) -> Failure:
    """Return ``error`` as a failure."""
    match error:
        case InfrastructureError():
            return Failure(error.reason, phase, str(error))
        case MaterializationError() | ConfigError():
            return Failure(FailureReason.TASK_UNUSABLE, phase, str(error))
        case OSError(errno=code) if code in _DISK_ERRORS:
            problem = f"cannot read or write in the run directory: {error.strerror}"
            return Failure(FailureReason.STORAGE_FAILED, phase, problem)
    return _internal_error(error, phase)


def _internal_error(error: Exception, phase: FailurePhase) -> Failure:
    """Return an unexpected error as a failure: its type and place, but not its text, which may contain anything."""
    frames = traceback.extract_tb(error.__traceback__)
    _log.debug("internal error: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    message = f"internal error in SecureBench ({type(error).__name__} at {place}); please report it"
    return Failure(FailureReason.INTERNAL_ERROR, phase, message)
