"""The worker of a run: turns assignments into records, in the process of the run or in another one."""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import threading
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.execution import RunControl, RunStoppedError, TaskContext, execute_task
from securebench.execution.assignment import Assignment
from securebench.execution.removal import Removals
from securebench.executors.base import Worker
from securebench.faults import FaultPoint, reached
from securebench.progress import Reporter, TaskStart
from securebench.results.records.commitment import Commitment
from securebench.results.records.provenance import driver_provenance, extension_provenance, json_digest
from securebench.results.records.redaction import Redactor
from securebench.results.records.strict_record import read_task_record
from securebench.results.records.trajectory import TRAJECTORIES
from securebench.results.run_directory.header import RunHeader, read_header
from securebench.sandboxes.copying import adapted
from securebench.sandboxes.kept import KeptSandboxes
from securebench.sandboxes.optimisations import Optimisations
from securebench.tester_run.agents import prepare_agents, run_egress
from securebench.tester_run.options import RunOptions, RunParts, requested_sandbox
from securebench.tester_run.planning import directory as places
from securebench.tester_run.planning.plan import Plan, make_plan
from securebench.tester_run.remote.delivery import Receiver
from securebench.tester_run.remote.shipment import CANDIDATE, Shipment
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from securebench.executors.base import RemoteWorker
    from securebench.resources import JsonValue
    from securebench.results.records.record import TaskRecord
    from securebench.sandboxes.base import DriverInfo, SandboxDriver
    from securebench.tasks import CandidateKind
    from securebench.tester_config import TesterConfig
    from securebench.tester_run.agents import RunEgress


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that can execute tasks: its plan, and what was created and checked for it on this machine."""

    plan: Plan
    options: RunOptions
    parts: RunParts
    driver: SandboxDriver
    info: DriverInfo
    header: RunHeader
    commitment: Commitment

    @property
    def worker_options(self) -> RunOptions:
        """The options of a worker in another process. They contain secrets."""
        return replace(
            self.options,
            handle_signals=False,
            show_agent_output=False,
            show_verifier_output=None,
            sign=None,
            notify=_ignore,
        )

    @cached_property
    def worker_settings(self) -> bytes:
        """What a worker in another process needs to prepare the same run. It contains secrets."""
        return pickle.dumps((self.plan.config, self.worker_options))

    @cached_property
    def shipment(self) -> Shipment:
        """What workers on other machines need. They send the output of verifiers back if this run keeps or shows it."""
        wanted = self.options.keep_verifier_output or self.options.show_verifier_output is not None
        return Shipment(self, replace(self.worker_options, keep_verifier_output=wanted))

    @cached_property
    def digest(self) -> str:
        """The digest of ``decisive`` in ``run.json``. Every assignment contains it."""
        return json_digest(dict(self.header.decisive))

    def context(
        self,
        *,
        report: Reporter,
        egress: RunEgress,
        control: RunControl | None = None,
        note_problem: Callable[[str], None] | None = None,
    ) -> TaskContext:
        """Return what the tasks of this run share."""
        plan, directory, control = self.plan, self.plan.directory, control or RunControl()
        provenance: dict[str, JsonValue] = {
            "run": self.header.run_digest,
            "pack": plan.pack_provenance(self.commitment),
            "harness": dict(plan.harness),
            "framework": dict(plan.framework),
            "driver": {**driver_provenance(self.info), **extension_provenance(self.driver)},
            **plan.executor_provenance(),
            **({"agent": self.header.decisive["agent"]} if "agent" in self.header.decisive else {}),
        }
        return TaskContext(
            run_id=plan.config.run.id,
            producer=plan.producer,
            verifier_for=plan.verifiers.get,
            driver=self.driver,
            store=places.candidate_store(directory),
            workspaces=directory / places.WORKSPACES,
            scratch=directory / places.SCRATCH,
            trajectories=directory / TRAJECTORIES,
            verifier_output=directory / places.VERIFIER_OUTPUT if self.options.keep_verifier_output else None,
            show_verifier_output=self.options.show_verifier_output,
            report=report,
            limits=plan.config.sandbox.limits,
            policy=plan.config.verification,
            provenance=provenance,
            commitment=self.commitment,
            environment=plan.environment,
            credentials=plan.credentials,
            gateway=egress.gateway,
            judge=partial(plan.judge.session, egress.judge_gateway, pause=control.pause) if plan.judge else None,
            control=control,
            keep_workspaces=plan.keep_workspaces,
            removals=Removals(directory / places.SCRATCH),
            note_problem=note_problem or _ignore,
            kept=KeptSandboxes(self.driver) if Optimisations.from_environment().kept_tests else None,
        )


class TrialWorker(Worker):
    """Executes trials of the tasks of ``run``.

    ``on_record`` is called in the thread that made or received a record. It gets the record and the name of the node
    that executed the trial, which is empty for this machine. ``distrusts`` returns why a node should get no more
    tasks, or an empty string. ``log_egress`` is called with each line of the egress logs of other machines.
    """

    def __init__(
        self,
        run: PreparedRun,
        context: TaskContext,
        on_record: Callable[[TaskRecord, str], None] | None = None,
        *,
        distrusts: Callable[[str], str] = lambda _node: "",
        log_egress: Callable[[Mapping[str, JsonValue]], None] | None = None,
    ) -> None:
        self._run = run
        self._context = context
        self._on_record = on_record
        self._distrusts = distrusts
        self._receiver = Receiver(context=context, log_egress=log_egress)
        self._tasks = {task.id: task for task in run.plan.all_tasks}

    @staticmethod
    def entry(settings: bytes, assignment: bytes) -> bytes:
        """See :func:`work`."""
        return work(settings, assignment)

    @staticmethod
    def remote(settings: bytes) -> RemoteWorker:
        """See :class:`Worker`."""
        from securebench.tester_run.remote.worker import RemoteTrialWorker  # that module imports this one

        return RemoteTrialWorker(settings)

    @property
    def settings(self) -> bytes:
        """See :class:`Worker`."""
        return self._run.worker_settings

    @property
    def remote_settings(self) -> bytes:
        """See :class:`Worker`."""
        return self._run.shipment.settings

    @property
    def is_stopped(self) -> bool:
        """See :class:`Worker`."""
        return self._context.control.stopping

    def __call__(self, assignment: bytes) -> bytes:
        """See :class:`Worker`. Raises ``ValueError`` for an assignment of a different run."""
        wanted = Assignment.from_bytes(assignment)
        if wanted.run != self._run.digest:
            raise ValueError("this assignment belongs to a run with different settings")
        reached(FaultPoint.TASK_STARTED, wanted.task_id)
        try:
            record = execute_task(self._tasks[wanted.task_id], self._context, wanted.history)
        except RunStoppedError:
            return b""
        if self._on_record:
            self._on_record(record, "")
        return record.line()  # the journal adds the record's number

    def needs(self, assignment: bytes | None = None) -> tuple[str, ...]:
        """See :class:`Worker`. An assignment that only verifies a sealed candidate needs that candidate."""
        if assignment is None:
            return self._run.shipment.names
        before = Assignment.from_bytes(assignment).history.unverified
        digest = before.get("candidate_digest") if before else None
        return (f"{CANDIDATE} {digest}",) if digest else ()

    def content(self, name: str) -> Iterator[bytes]:
        """See :class:`Worker`."""
        return self._run.shipment.content(name)

    def receive(self, assignment: bytes, pieces: Iterable[bytes], node: str) -> bytes:
        """See :class:`Worker`."""
        wanted = Assignment.from_bytes(assignment)
        task, history = self._tasks[wanted.task_id], wanted.history
        trial = TrialId(task.id, history.trial)
        self._context.report.task(trial).emit(TaskStart(family=task.task_type, attempt=history.attempt))
        line = self._receiver.receive(pieces, trial, history.attempt, task.candidate_kind)
        if line and self._on_record:
            self._on_record(read_task_record(line), node)
        return line

    def notify(self, message: str) -> None:
        """See :class:`Worker`."""
        self._run.options.notify(Redactor(credentials=self._context.secrets).text(message))

    def distrusts(self, node: str) -> str:
        """See :class:`Worker`."""
        return self._distrusts(node)

    def candidate_kind(self, task_id: str) -> CandidateKind:
        """Return the kind of candidate of a task."""
        return self._tasks[task_id].candidate_kind


_preparing: Final = threading.Lock()
_workers: Final[dict[str, TrialWorker]] = {}
"""The workers of this process, by the sha256 of their settings."""


def work(settings: bytes, assignment: bytes) -> bytes:
    """Execute ``assignment`` in a process other than the one that started the run. See :class:`Worker`.

    The first call for a run prepares the harness, and opens a sandbox driver and any egress gateways that the run
    needs. The driver and the gateways are closed when the process exits. Raises :class:`ConfigError` if anything that
    could affect a verdict differs between this process and that of the run.
    """
    digest = hashlib.sha256(settings).hexdigest()
    with _preparing:
        if digest not in _workers:
            stack = ExitStack()
            atexit.register(stack.close)
            _workers[digest] = _prepare(settings, stack)
    return _workers[digest](assignment)


def _prepare(settings: bytes, stack: ExitStack) -> TrialWorker:
    """Prepare a run in this process, from ``settings`` of the process that started the run.

    ``stack`` closes what is opened.
    """
    unpickled: tuple[TesterConfig, RunOptions] = pickle.loads(settings)  # noqa: S301 - of the same run, never of an agent
    config, options = unpickled
    stack.enter_context(places.steady_umask())
    plan = make_plan(config, options, RunParts())
    header = read_header(plan.directory)
    if header is None:
        raise ConfigError(f"{plan.directory} is not the directory of a run", code="output-dir-unusable")
    commitment = Commitment.read(plan.directory)
    run, egress = prepare_worker(plan, options, header, commitment, stack, f"egress-{os.getpid()}.jsonl")
    return TrialWorker(run, run.context(report=Reporter(()), egress=egress))


def prepare_worker(
    plan: Plan, options: RunOptions, header: RunHeader, commitment: Commitment, stack: ExitStack, log_name: str
) -> tuple[PreparedRun, RunEgress]:
    """Prepare a run that another process started, and whose header is ``header``. ``stack`` closes what is opened.

    Raises :class:`ConfigError` if anything that could affect a verdict differs from ``header``.
    """
    parts = RunParts()
    config = plan.config
    driver_config = replace(config, sandbox=requested_sandbox(config.sandbox, options.driver, header))
    driver = adapted(stack.enter_context(closing(parts.make_driver(driver_config, options.notify))))
    info = driver.info()
    images = [driver.resolve_image(reference) for reference in sorted(header.images)]
    agent = prepare_agents(plan, driver, images, header, options)
    header.resumed_by(plan.header(driver, info, {image.reference: image.id for image in images}, commitment, agent))
    egress = stack.enter_context(run_egress(plan, parts, log_name))
    run = PreparedRun(
        plan=plan, options=options, parts=parts, driver=driver, info=info, header=header, commitment=commitment
    )
    return run, egress


def _ignore(_value: object) -> None:
    """Ignore a message, because this process cannot show it."""
