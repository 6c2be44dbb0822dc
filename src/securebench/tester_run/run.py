"""The run itself: preparation, execution of the tasks, summary."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.errors import ConfigError, ImageError, InfrastructureError, SecureBenchError
from securebench.execution import RunControl
from securebench.faults import FaultPoint, reached
from securebench.garbage import rare_collections
from securebench.harnesses.pipeline import needs_image_tree
from securebench.plurals import counted
from securebench.progress import EventKind, Reporter, Resume, RunDone, RunStart
from securebench.results.attestation import RunAttestation
from securebench.results.read import RecordedRun
from securebench.results.recorded_task import answering_models
from securebench.results.records.commitment import Commitment
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.closing import Closing
from securebench.results.run_directory.journal import Journal
from securebench.results.run_directory.lock import RunLock
from securebench.results.run_directory.running import WRITE_SECONDS, RunningTasks
from securebench.results.run_directory.source import PackSource
from securebench.results.run_directory.trace import TraceLog
from securebench.results.summary import RunEnd, TesterRunSummary
from securebench.sandboxes.base import image_tree_unavailable
from securebench.sandboxes.copying import adapted
from securebench.sandboxes.enforcement import DriverFeature
from securebench.sandboxes.spec_rules import no_forwarded_ports
from securebench.tester_config.places import contained
from securebench.tester_run.agent_copy import with_agent_copy
from securebench.tester_run.agents import check_provider, prepare_agents, run_egress
from securebench.tester_run.coordinator import Coordinator
from securebench.tester_run.cost import RunCost
from securebench.tester_run.options import RunOptions, RunParts, requested_sandbox
from securebench.tester_run.planning import directory as places
from securebench.tester_run.planning.plan import make_plan
from securebench.tester_run.watch import Watch
from securebench.tester_run.worker import PreparedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from securebench.images.model import ResolvedImage
    from securebench.progress import Event
    from securebench.results.run_directory.header import RunHeader
    from securebench.sandboxes.base import DriverInfo, SandboxDriver
    from securebench.signing.signers import StatementSigner
    from securebench.tester_config import TesterConfig
    from securebench.tester_run.agents import ProviderCheck
    from securebench.tester_run.planning.plan import Plan


def run_benchmark(
    config: TesterConfig,
    options: RunOptions | None = None,
    sinks: Iterable[Callable[[Event], None]] = (),
    parts: RunParts | None = None,
) -> TesterRunSummary:
    """Run a benchmark pack against an agent, and return the summary, computed from the records.

    Before any task has run, raises :class:`ConfigError`, :class:`InfrastructureError`, and ``ValueError`` for a budget
    that is not positive. Later problems are in the records and in the summary's ``problems``.
    """
    options, parts = options or RunOptions(), parts or RunParts()
    return run_plan(make_plan(config, options, parts), options, sinks, parts)


@rare_collections()
def run_plan(
    plan: Plan, options: RunOptions, sinks: Iterable[Callable[[Event], None]], parts: RunParts
) -> TesterRunSummary:
    """Run what :func:`make_plan` planned. Raises the errors of :func:`run_benchmark`."""
    if options.sign:
        _require_signer(plan, options.sign)
    places.make_directory(plan.directory)
    with ExitStack() as stack:
        stack.enter_context(places.steady_umask())
        stack.enter_context(RunLock(plan.directory))
        earlier = places.earlier_header(plan.directory, resume=options.resume)
        if earlier:
            RunAttestation(RecordedRun(plan.directory, earlier)).require_signer(options.sign)
        plan = stack.enter_context(with_agent_copy(plan, parts))
        requested = requested_sandbox(plan.config.sandbox, options.driver, earlier)
        made = parts.make_driver(replace(plan.config, sandbox=requested), options.notify)
        driver = adapted(stack.enter_context(closing(made)))
        commitment = Commitment.read(plan.directory) if earlier else parts.new_commitment()
        info, header = _prepare(plan, driver, earlier, options, commitment)
        reached(FaultPoint.RUN_PREPARED)
        # A new run checks the provider's key before it writes its header. A resumed run checks it later, and only if
        # tasks and budget are left.
        check = None if earlier else check_provider(plan, parts, options, None, RunCost(plan.budget_usd))
        if earlier is None:
            commitment.write(plan.directory)
            PackSource.of(plan.config.benchmark).write(plan.directory)
            header = header.checked(check.usages) if check else header
            header.write(plan.directory)
            reached(FaultPoint.HEADER_WRITTEN)
        journal = Journal(plan.directory, earlier or header, plan.identity(commitment, info, header.images))
        kept = _Kept(stack.enter_context(journal), commitment, header, is_resumed=earlier is not None)
        if earlier:
            places.require_candidates(plan.directory, journal.entries.values())
            places.require_logs(plan.directory, earlier)
            # All checks except that of the provider have passed. From here on, the resumed run is no longer signed or
            # closed.
            RunAttestation(RecordedRun(plan.directory, earlier)).remove_signatures()
            PackSource.of(plan.config.benchmark).write(plan.directory)
            header.write(plan.directory)
        return _Run(plan, options, parts, driver, kept).go(info, check, sinks)


def _require_signer(plan: Plan, signer: StatementSigner) -> None:
    """Raise :class:`ConfigError` if the signer cannot sign, or if an agent could read the signer's secrets."""
    agent_dir = getattr(plan.config.harness.config, "agent_dir", None)
    for directory, name in ((agent_dir, "harness.config.agent_dir"), (plan.pack.directory, "the pack")):
        if directory and (secret := contained(directory, signer.secrets)):
            hint = "move the file elsewhere, and make another key if an agent may have read this one"
            raise ConfigError(f"{name} contains {secret}, which no agent may read", code="key-exposed", hint=hint)
    signer.try_out()


def _prepare(
    plan: Plan, driver: SandboxDriver, earlier: RunHeader | None, options: RunOptions, commitment: Commitment
) -> tuple[DriverInfo, RunHeader]:
    """Return the driver's description and the run's header, after checking that the run can begin here.

    Writes nothing into the run directory.
    """
    info = driver.info()
    _require_features(plan, info)
    if reaped := driver.reap():
        options.notify(f"removed {counted(reaped, 'sandbox', 'sandboxes')} left behind by an earlier run")
    if plan.choice:
        options.notify(plan.choice.describe())
    elif plan.requested_workers and plan.workers < plan.requested_workers:
        workers = counted(plan.workers, "worker")
        options.notify(f"using {workers} instead of {plan.requested_workers}: not enough memory for more")
    images = _resolve_images(plan, driver, options)
    places.require_space(plan.directory)
    for image in images[:1]:  # this tests the driver, so one image is enough
        driver.self_test(image, forwarded_ports=plan.producer.needs_gateway)
    agent = prepare_agents(plan, driver, images, earlier, options)
    header = plan.header(driver, info, {image.reference: image.id for image in images}, commitment, agent)
    if earlier is None:
        return info, header
    resumed = earlier.resumed_by(header)
    plan.require_planned(earlier, commitment)
    return info, resumed


def _require_features(plan: Plan, info: DriverInfo) -> None:
    """Raise an error if the run needs a feature that the driver lacks."""
    if plan.producer.needs_gateway and DriverFeature.FORWARDED_PORTS in info.lacks:
        runtime = f" with {info.runtime}" if info.runtime else ""
        raise no_forwarded_ports(f"the {info.name} driver{runtime} cannot forward ports")
    needing = [task.id for task in plan.tasks if needs_image_tree(task)]
    if needing and DriverFeature.IMAGE_TREE in info.lacks:
        raise image_tree_unavailable(info, f"the task {needing[0]}")


def _resolve_images(plan: Plan, driver: SandboxDriver, options: RunOptions) -> list[ResolvedImage]:
    """Return all images of the plan. Raises :class:`ImageError` with the names of all missing images."""
    images, missing = [], []
    for reference in sorted({reference for task in plan.tasks for reference in task.images}):
        try:
            images.append(driver.resolve_image(reference, options.notify))
        except ImageError as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        raise ImageError("\n".join(str(error) for error in missing), code=missing[0].code)
    return images


@dataclass(frozen=True, slots=True)
class _Kept:
    """The journal, commitment key and header of a run, as they are on disk."""

    journal: Journal
    commitment: Commitment
    header: RunHeader
    is_resumed: bool


class _Run:
    """One run, from its first event to its summary."""

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        parts: RunParts,
        driver: SandboxDriver,
        kept: _Kept,
    ) -> None:
        self._plan = plan
        self._options = options
        self._parts = parts
        self._driver = driver
        self._journal, self._commitment, self._header = kept.journal, kept.commitment, kept.header
        self._is_resumed = kept.is_resumed
        self._control = RunControl()
        self._noting = threading.Lock()

    def go(
        self, info: DriverInfo, check: ProviderCheck | None, sinks: Iterable[Callable[[Event], None]]
    ) -> TesterRunSummary:
        plan = self._plan
        with ExitStack() as stack:
            running = stack.enter_context(RunningTasks(plan.directory, WRITE_SECONDS))
            all_sinks: list[Callable[[Event], None]] = [*sinks, running]
            if self._options.show_agent_output:
                all_sinks.append(stack.enter_context(TraceLog(plan.directory / places.TRACE)))
            muted = () if self._options.show_agent_output else (EventKind.AGENT_OUTPUT,)
            report = Reporter(all_sinks, muted=muted)
            stack.callback(places.clear_scratch, plan.directory)
            redone = self._set_errors_aside()
            planned = plan.planned()
            to_do = [trial for trial in planned if trial.id not in self._journal.entries]
            cost = RunCost.of(self._journal, self._header, plan.directory)
            if check is None and to_do and not cost.is_budget_used_up:
                check = check_provider(plan, self._parts, self._options, self._header, cost)
                self._header = self._header.checked(check.usages)
                self._header.write(plan.directory)
            places.make_room(plan.directory)
            watch = Watch(
                self._control,
                self._driver,
                handle_signals=self._options.handle_signals,
                notify=self._options.notify,
            )
            with run_egress(plan, self._parts) as outward:
                if check and outward.log:
                    for line in check.lines:
                        outward.log(line)
                run = PreparedRun(
                    plan=plan,
                    options=self._options,
                    parts=self._parts,
                    driver=self._driver,
                    info=info,
                    header=self._header,
                    commitment=self._commitment,
                )
                context = run.context(
                    report=report, egress=outward, control=self._control, note_problem=self._note_problem
                )
                if context.kept is not None:
                    stack.callback(context.kept.close)
                coordinator = Coordinator(run, context, self._journal, cost, outward.log)
                stack.enter_context(watch)
                self._announce(report, len(planned), len(to_do), redone, coordinator.cost_usd)
                stack.callback(context.removals.close)
                coordinator.work_through(to_do)
                context.removals.close()
                leftovers = self._remove_workspaces()
            troubles = (coordinator.trouble, outward.trouble, leftovers)
            summary = self._close(_ending(watch, coordinator), troubles)
            report.emit(RunDone(summary=summary.to_json()))
            reached(FaultPoint.RUN_DONE)
            return summary

    def _set_errors_aside(self) -> int:
        """Move records of infrastructure errors aside, so that their trials run again. Return their number."""
        errors = {name for name, entry in self._journal.entries.items() if entry.status is VerificationStatus.ERROR}
        self._journal.supersede(errors)
        return len(errors)

    def _announce(self, report: Reporter, planned: int, to_do: int, redone: int, cost: float | None) -> None:
        report.emit(
            RunStart(
                run_id=self._plan.config.run.id,
                benchmark_id=self._plan.pack.id,
                agent=self._plan.config.harness.label,
                tasks=len(self._plan.tasks),
                trials=self._plan.trials,
                pack_tasks=len(self._plan.all_tasks),
                to_do=to_do,
                workers=self._plan.workers,
                output_dir=str(self._plan.directory),
                budget_usd=self._plan.budget_usd,
                cost_usd=cost,
            )
        )
        if self._is_resumed:
            report.emit(Resume(kept=planned - to_do, redone=redone, planned=planned))

    def _close(self, ending: RunEnd, troubles: Iterable[str]) -> TesterRunSummary:
        """Close the run, and return its summary, which is computed from the records on disk."""
        self._check_pack()
        directory = self._plan.directory
        models: Counter[str] = Counter()
        summary, tally = RecordedRun(directory, self._header).counted(
            lambda record: models.update(answering_models(record.provenance))
        )
        problems = [*troubles, *self._header.problems]
        try:
            places.candidate_store(directory).keep_only(tally.candidates)
            closing = Closing.of(tally, self._header.planned, ending.value, directory)
            self._header = self._header.answered_by(models).closed(closing)
            self._header.write(directory)
        except InfrastructureError as error:
            problems.append(f"the run could not be closed: {error}")
        else:
            problems.append(self._sign())
        return replace(summary, ending=ending, problems=tuple(filter(None, problems)))

    def _sign(self) -> str:
        """Sign the closed run if the user wants that. Return the problem if signing failed: the run is saved anyway."""
        signer = self._options.sign
        if signer is None:
            return ""
        try:
            path = RunAttestation(RecordedRun(self._plan.directory, self._header)).sign(signer)
        except SecureBenchError as error:
            return f"the run is saved, but could not be signed (--resume tries again): {error}"
        self._options.notify(f"signed with the {signer.name}: {path}")
        return ""

    def _note_problem(self, problem: str) -> None:
        """Store a problem of the whole run on disk at once, so that no later failure can lose it."""
        with self._noting:
            self._header = self._header.with_problem(problem)
            self._header.write(self._plan.directory)

    def _remove_workspaces(self) -> str:
        """Remove all workspaces that should not be kept. Return the problem if that failed."""
        try:
            places.remove_workspaces(self._plan.directory, self._plan.keep_workspaces, self._journal.entries)
        except InfrastructureError as error:
            return f"workspaces could not be removed: {error}"
        return ""

    def _check_pack(self) -> None:
        """Store a problem if the pack has changed. No task used a changed file, but the user should know."""
        try:
            self._plan.pack.verify_unchanged()
        except ConfigError as error:
            self._note_problem(str(error))


def _ending(watch: Watch, coordinator: Coordinator) -> RunEnd:
    """Return how the run ended."""
    if watch.interrupted:
        return RunEnd.INTERRUPTED
    if coordinator.trouble:
        return RunEnd.STOPPED
    return RunEnd.OUT_OF_BUDGET if coordinator.is_out_of_budget else RunEnd.FINISHED
