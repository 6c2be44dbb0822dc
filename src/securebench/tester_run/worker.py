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
from securebench.executors.base import Worker
from securebench.faults import FaultPoint, reached
from securebench.progress import Reporter
from securebench.results.commitment import Commitment
from securebench.results.provenance import driver_provenance, extension_provenance, json_digest
from securebench.results.run_header import RunHeader, read_header
from securebench.results.trajectory import TRAJECTORIES
from securebench.sandboxes.copying import adapted
from securebench.tester_run import directory as places
from securebench.tester_run.agents import prepare_agents, run_egress
from securebench.tester_run.options import RunOptions, RunParts, driver_asked_for
from securebench.tester_run.plan import Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.resources import JsonValue
    from securebench.results.record import TaskRecord
    from securebench.sandboxes.base import DriverInfo, SandboxDriver
    from securebench.tester_config import TesterConfig
    from securebench.tester_run.agents import RunEgress


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that can execute tasks: its plan, and what was made and checked for it on this machine."""

    plan: Plan
    options: RunOptions
    parts: RunParts
    driver: SandboxDriver
    info: DriverInfo
    header: RunHeader
    commitment: Commitment

    @cached_property
    def worker_settings(self) -> bytes:
        """What a worker in another process needs to prepare the same run. It contains secrets."""
        options = replace(
            self.options,
            handle_signals=False,
            show_agent_output=False,
            show_verifier_output=None,
            sign=None,
            notify=_ignore,
        )
        return pickle.dumps((self.plan.config, options))

    @cached_property
    def digest(self) -> str:
        """The digest of everything that could affect a verdict. Every assignment names it."""
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
            judge=partial(plan.judge.session, egress.judge, pause=control.pause) if plan.judge else None,
            control=control,
            note_problem=note_problem or _ignore,
        )


class TrialWorker(Worker):
    """Executes trials of the tasks of ``run``. ``on_record`` sees each record in the thread that made it."""

    def __init__(self, run: PreparedRun, context: TaskContext, on_record: Callable[[TaskRecord], None]) -> None:
        self._run = run
        self._context = context
        self._on_record = on_record
        self._tasks = {task.id: task for task in run.plan.all_tasks}

    @staticmethod
    def entry(settings: bytes, assignment: bytes) -> bytes:
        """See :func:`work`."""
        return work(settings, assignment)

    @property
    def settings(self) -> bytes:
        """See :class:`Worker`."""
        return self._run.worker_settings

    def __call__(self, assignment: bytes) -> bytes:
        """See :class:`Worker`. Raises ``ValueError`` for an assignment of another run."""
        wanted = Assignment.from_bytes(assignment)
        if wanted.run != self._run.digest:
            raise ValueError("this assignment belongs to a run with different settings")
        reached(FaultPoint.TASK_STARTED, wanted.task_id)
        try:
            record = execute_task(self._tasks[wanted.task_id], self._context, wanted.history)
        except RunStoppedError:
            return b""
        self._on_record(record)
        return record.line()  # the journal numbers it


_preparing: Final = threading.Lock()
_workers: Final[dict[str, TrialWorker]] = {}
"""The workers of this process, by the sha256 of their settings."""


def work(settings: bytes, assignment: bytes) -> bytes:
    """Execute ``assignment`` in a process that did not prepare its run. See :class:`Worker`.

    The first call opens a sandbox driver and prepares the harness; they are closed when the process exits. Raises
    :class:`ConfigError` if anything that could affect a verdict differs from the process of the run.
    """
    digest = hashlib.sha256(settings).hexdigest()
    with _preparing:
        if digest not in _workers:
            stack = ExitStack()
            atexit.register(stack.close)
            _workers[digest] = _prepare(settings, stack)
    return _workers[digest](assignment)


def _prepare(settings: bytes, stack: ExitStack) -> TrialWorker:
    """Prepare a run in this process, from the ``settings`` of its own process. ``stack`` closes what is opened."""
    unpickled: tuple[TesterConfig, RunOptions] = pickle.loads(settings)  # noqa: S301 - of the same run, never of an agent
    (config, options), parts = unpickled, RunParts()
    plan = make_plan(config, options, parts)
    stack.enter_context(places.steady_umask())
    header = read_header(plan.directory)
    if header is None:
        raise ConfigError(f"{plan.directory} is not the directory of a run", code="output-dir-unusable")
    commitment = Commitment.read(plan.directory)
    asked = replace(config, sandbox=driver_asked_for(config.sandbox, options.driver, header))
    driver = adapted(stack.enter_context(closing(parts.make_driver(asked, options.notify))))
    info = driver.info()
    images = [driver.resolve_image(reference) for reference in sorted(header.images)]
    agent = prepare_agents(plan, driver, images, header, options)
    header.resumed_by(plan.header(driver, info, {image.reference: image.id for image in images}, commitment, agent))
    outward = stack.enter_context(run_egress(plan, parts, f"egress-{os.getpid()}.jsonl"))
    run = PreparedRun(
        plan=plan, options=options, parts=parts, driver=driver, info=info, header=header, commitment=commitment
    )
    return TrialWorker(run, run.context(report=Reporter(()), egress=outward), _ignore)


def _ignore(_value: object) -> None:
    """Do nothing: nobody in this process shows messages or watches records."""
