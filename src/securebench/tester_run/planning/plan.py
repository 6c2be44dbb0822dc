"""The plan of a run. The configuration and the pack are checked here, before anything runs."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import ConfigError
from securebench.families.registry import FAMILIES
from securebench.garbage import rare_collections
from securebench.harnesses.registry import require_supported
from securebench.images.store.places import default_directory
from securebench.results.records.identity import RunIdentity
from securebench.results.records.provenance import (
    extension_provenance,
    framework_provenance,
    harness_fields,
    harness_provenance,
    json_digest,
    row_provenance,
    verifier_provenance,
)
from securebench.results.records.redaction import Redactor
from securebench.results.reverification import reverified
from securebench.results.run_directory.header import HEADER, RunHeader
from securebench.results.run_directory.part_of_pack import PartOfPack
from securebench.tester_config import CommandConfig, read_price_table, require_output_dir
from securebench.tester_config.fields import AUTO, MAX_WORKERS
from securebench.tester_run.agents import exposed_secrets
from securebench.tester_run.judge import judge_for
from securebench.tester_run.options import make_executor
from securebench.tester_run.planning.capacity import MEMORY_SHARE, Capacity, available_memory, choose_workers
from securebench.tester_run.planning.selection import select_tasks, selection_of
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.executors.base import Executor
    from securebench.harnesses.base import HarnessProducer
    from securebench.resources import JsonValue
    from securebench.results.records.commitment import Commitment
    from securebench.sandboxes.base import DriverInfo, SandboxDriver
    from securebench.strict_input.models import WireModel
    from securebench.tasks import SecureBenchTask
    from securebench.tester_config import KeepWorkspaces, PriceTable, TaskSelection, TesterConfig
    from securebench.tester_run.judge import RunJudge
    from securebench.tester_run.options import RunOptions, RunParts
    from securebench.tester_run.planning.capacity import WorkerChoice
    from securebench.verifiers.base import Verifier

_MAX_ARGUMENT: Final = 2000
"""Maximum characters of each argument of the agent's command in ``run.json``.

The harness's digest covers the whole arguments.
"""


class PlannedTrial(NamedTuple):
    """One trial of a task that a run executes. ``trial`` is the number of the trial, from 1 on."""

    task: SecureBenchTask
    trial: int

    @property
    def id(self) -> TrialId:
        """The task's id and the number of the trial."""
        return TrialId(self.task.id, self.trial)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does. ``tasks`` are the selected tasks, in the order of execution. Each is run ``trials`` times."""

    config: TesterConfig
    pack: BenchmarkPack
    tasks: tuple[SecureBenchTask, ...]
    all_tasks: tuple[SecureBenchTask, ...]
    """The tasks of the whole pack."""
    selection: TaskSelection
    trials: int
    directory: Path
    workers: int
    requested_workers: int | None
    """The number of workers that was asked for; ``None`` if ``auto`` chose it on this machine."""
    choice: WorkerChoice | None
    """How ``auto`` chose ``workers``; ``None`` if the tester gave a number, or the executor is not local."""
    keep_workspaces: KeepWorkspaces
    executor: Executor
    producer: HarnessProducer
    judge: RunJudge | None
    """The judge model, if planned tasks need one."""
    verifiers: Mapping[str, Verifier | None]
    environment: Mapping[str, str]
    command_line: Mapping[str, JsonValue]
    """The overrides, the agent's command and the name of ``agent_dir``, as the user gave them, without secrets."""
    harness: Mapping[str, JsonValue]
    framework: Mapping[str, JsonValue]
    budget_usd: float | None = None
    """What the run may spend on models, in US dollars. It may differ each time the run is resumed."""
    price_table: PriceTable | None = None
    """The tester's own price table, if there is one."""
    reverified_run: RunHeader | None = None
    """The header of the run whose sealed candidates this run judges again; ``None`` if this run has an agent."""

    @property
    def credentials(self) -> tuple[str, ...]:
        """The secrets of the harness and of the judge, as far as they are known by now."""
        return (*self.producer.credentials, *(self.judge.credentials if self.judge else ()))

    @property
    def part(self) -> PartOfPack | None:
        """The selected part of the pack; ``None`` if all tasks are selected."""
        planned, tasks = len(self.tasks), len(self.all_tasks)
        return PartOfPack(planned, tasks, self.selection.given) if planned < tasks else None

    def planned(self) -> list[PlannedTrial]:
        """Return every trial in the order of execution.

        The first trials of all tasks come before the second ones, so that an interrupted run has run all tasks about
        equally often.
        """
        return [PlannedTrial(task, number) for number in range(1, self.trials + 1) for task in self.tasks]

    def header(
        self,
        driver: SandboxDriver,
        info: DriverInfo,
        images: Mapping[str, str],
        commitment: Commitment,
        agent: Mapping[str, JsonValue] = MappingProxyType({}),
    ) -> RunHeader:
        """Return the header of a run of this plan on the given driver and images.

        ``info`` describes the driver, and ``agent`` is the agent's identity.
        """
        decisive: dict[str, JsonValue] = {
            "run_id": self.config.run.id,
            "benchmark": {"id": self.pack.id, "version": self.pack.version},
            "pack": {**self.pack_provenance(commitment), "tasks": len(self.pack.rows)},
            "trials": self.trials,
            "selection": self.selection.given,
            "harness": {**self.harness, "env": self._environment_commitments(commitment)},
            "verifiers": self.verifier_provenance(),
            "verification": _plain(asdict(self.config.verification)),
            "limits": _plain(asdict(self.config.sandbox.limits)),
            "sandbox": {
                "driver": info.name,
                "runtime": info.runtime,
                "weaker": list(info.weaker),
                **extension_provenance(driver),
                **_settings_digest(self.config.sandbox.settings),
            },
            **self.executor_provenance(),
            **({"families": families} if (families := self._families()) else {}),
            "framework": dict(self.framework),
            **({"agent": dict(agent)} if agent else {}),
            **({"judge": dict(self.judge.identity)} if self.judge else {}),
        }
        information: dict[str, JsonValue] = {
            "config_digest": self.config.digest,
            "settings": _settings(self.config, commitment),
            **self.command_line,
            **_planned(self.tasks, self.trials, commitment),
            "workers": self.workers,
            "keep_workspaces": self.keep_workspaces.value,
            **({"workers_auto": self.choice.to_json()} if self.choice else {}),
            **({} if self.budget_usd is None else {"budget": {"usd": self.budget_usd}}),
            "engine": {"version": info.version, "enforced": list(info.enforced), **info.details},
            **({"reverifies": reverified(self.reverified_run, decisive, images)} if self.reverified_run else {}),
        }
        return RunHeader(decisive=decisive, images=images, information=information)

    def require_planned(self, earlier: RunHeader, commitment: Commitment) -> None:
        """Raise :class:`ConfigError` if the planned tasks in the header ``earlier`` do not match the pack.

        Without this check, anyone could edit the header to hide tasks that have not run.
        """
        limit: Any = earlier.selection.get("limit")
        tasks = select_tasks(self.all_tasks, replace(self.selection, limit=limit))
        for name, value in _planned(tasks, earlier.trials, commitment).items():
            if earlier.information.get(name) != value:
                raise ConfigError(
                    f"{self.directory / HEADER} contradicts the pack and the selection: 'information.{name}' does"
                    " not match the planned tasks",
                    code="run-header-damaged",
                    hint="restore the file, or start a new run with another --output-dir",
                )

    def identity(self, commitment: Commitment, info: DriverInfo, images: Mapping[str, str]) -> RunIdentity:
        """Return the values that every record of this run must have."""
        return RunIdentity(
            provenance={"pack": self.pack_provenance(commitment), "harness": dict(self.harness)},
            tasks={task.id: (task.task_type, row_provenance(task, commitment)) for task in self.tasks},
            verifiers={name: verifier_provenance(verifier) for name, verifier in self.verifiers.items()},
            driver={"name": info.name, "runtime": info.runtime},
            images=images,
            trials=self.trials,
        )

    def verifier_provenance(self) -> dict[str, JsonValue]:
        """Return the version of each verifier by family. Extensions also have a package and a digest of settings."""
        return {
            name: {"version": verifier.version, **extension_provenance(verifier), **self._settings_of(name)}
            for name, verifier in self.verifiers.items()
            if verifier
        }

    def executor_provenance(self) -> dict[str, JsonValue]:
        """Return the identity of an installed executor; empty for an executor of SecureBench.

        SecureBench's executors are interchangeable.
        """
        found = extension_provenance(self.executor)
        return {"executor": {**found, **_settings_digest(self.config.run.executor_settings)}} if found else {}

    def _families(self) -> dict[str, JsonValue]:
        """Return the extensions that provide families of the pack."""
        used = {task.task_type: extension_provenance(FAMILIES[task.task_type]) for task in self.all_tasks}
        return {name: found["extension"] for name, found in used.items() if found}

    def _settings_of(self, family: str) -> dict[str, JsonValue]:
        """Return the digest of the settings of the verifier chosen for ``family``, if it has any."""
        chosen = self.config.verifiers.get(family)
        return _settings_digest(chosen.settings) if chosen else {}

    def _environment_commitments(self, commitment: Commitment) -> dict[str, JsonValue]:
        """Return a commitment to each value of ``harness.env``.

        Guesses of a value can be tested only with the run's commitment key.
        """
        return {
            name: commitment.to(hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest())
            for name, value in self.environment.items()
        }

    def pack_provenance(self, commitment: Commitment) -> dict[str, JsonValue]:
        """Return a commitment to the whole pack, and a digest of its public part."""
        return {"commitment": commitment.to(self.pack.digest), "public_digest": self.pack.public_digest}


@rare_collections()
def make_plan(config: TesterConfig, options: RunOptions, parts: RunParts) -> Plan:
    """Return the plan of a run, after checking its configuration and its pack.

    Raises :class:`ConfigError`, and ``ValueError`` for a budget that is not positive. Writes nothing.
    """
    pack = load_benchmark_pack(config.benchmark.manifest, config.benchmark.tasks)
    tasks = compile_benchmark_pack(pack)
    selection = selection_of(config.run.select, options)
    planned = select_tasks(tasks, selection)
    require_supported(task.agent_view() for task in planned)
    producer = parts.make_producer(config.harness)
    judge = judge_for(planned, config.judge, parts.make_judge)
    prices = options.price_table or config.run.prices
    table = read_price_table(prices) if prices else None
    budget_usd = config.run.budget_usd if options.budget_usd is None else options.budget_usd
    if budget_usd is not None and not budget_usd > 0:  # also rejects nan
        raise ValueError(f"budget_usd is {budget_usd}, and must be positive")
    faults = [user.use_prices(table) for user in (producer, judge) if user is not None]
    fault = next(filter(None, faults), None)
    if fault and budget_usd is not None:
        problem = f"the run cannot have a budget in money: {fault.message}"
        raise ConfigError(problem, code=fault.code, hint=fault.hint)
    if judge:
        judge.require_budget(planned)
    environment = _environment(config.harness.env, options.variables)
    exposed = [options.variables[name] for name in exposed_secrets(options.variables, ())]
    verifiers = {
        family: parts.verifier_for(family, config.verifiers.get(family))
        for family in sorted({task.task_type for task in tasks})
    }
    directory = _output_dir(options.output_dir or config.run.output_dir, pack.directory)
    trials = options.trials or config.run.trials
    requested, choice = options.workers or config.run.max_workers, None
    max_workers = min(MAX_WORKERS, len(planned) * trials)
    if not make_executor(config.run, options.executor, 1).is_local:
        workers = requested = max_workers if requested == AUTO else int(requested)  # the executor may run fewer at once
    elif requested == AUTO:
        choice = choose_workers(
            Capacity.of_this_machine((directory, default_directory())),
            config.sandbox.limits,
            sandboxes=max([1, *(verifier.sandboxes for verifier in verifiers.values() if verifier)]),
            waiting=producer.needs_gateway,
            max_workers=max_workers,
        )
        workers = choice.workers
    else:
        workers = affordable_workers(int(requested), config.sandbox.limits.memory)
    return Plan(
        config=config,
        pack=pack,
        tasks=planned,
        all_tasks=tasks,
        selection=selection,
        trials=trials,
        directory=directory,
        workers=workers,
        requested_workers=None if choice else int(requested),
        choice=choice,
        keep_workspaces=options.keep_workspaces or config.run.keep_workspaces,
        executor=make_executor(config.run, options.executor, workers),
        producer=producer,
        judge=judge,
        verifiers=verifiers,
        environment=environment,
        command_line=_command_line(config, [*environment.values(), *exposed, *producer.credentials]),
        harness=harness_provenance(config.harness, producer),
        framework=framework_provenance(),
        budget_usd=budget_usd,
        price_table=table,
    )


def affordable_workers(requested: int, memory: int) -> int:
    """Return how many of ``requested`` tasks may run at once, at least one. Each needs ``memory`` bytes."""
    return max(1, min(requested, int(available_memory() * MEMORY_SHARE) // memory))


def _command_line(config: TesterConfig, secrets: Iterable[str]) -> dict[str, JsonValue]:
    """Return the overrides, the agent's command and the name of ``agent_dir``, as the user gave them.

    The run itself uses a copy of ``agent_dir``, which has a different name.
    """
    redactor = Redactor(credentials=tuple(secrets))
    settings = config.harness.config
    found: dict[str, JsonValue] = {"overrides": dict(config.overrides)} if config.overrides else {}
    if isinstance(settings, CommandConfig):
        found["command"] = [redactor.text(argument, cap=_MAX_ARGUMENT) for argument in settings.command]
    if (agent_dir := getattr(settings, "agent_dir", None)) is not None:
        found["agent_dir"] = agent_dir.name
    return redactor.mapping(found)


def _settings(config: TesterConfig, commitment: Commitment) -> dict[str, JsonValue]:
    """Return the settings of harness and judge by name, so that an error of ``--resume`` can say which ones differ.

    Texts may be secret or long, so texts and lists are replaced by commitments.
    """
    given = {"harness.config": harness_fields(config.harness)}
    if config.judge:
        given["judge"] = config.judge.model_dump(mode="json")
    return {
        name: value if value is None or isinstance(value, bool | int | float) else commitment.to(json_digest(value))
        for prefix, fields in given.items()
        for name, value in _leaves(fields, prefix)
    }


def _leaves(fields: Mapping[str, JsonValue], prefix: str) -> Iterator[tuple[str, JsonValue]]:
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", value


def _output_dir(path: Path, pack_directory: Path) -> Path:
    require_output_dir(path, pack_directory)
    return path.resolve()


def _environment(names: Iterable[str], variables: Mapping[str, str]) -> dict[str, str]:
    missing = [name for name in names if name not in variables]
    if missing:
        raise ConfigError(
            f"harness.env names variables that are not set: {', '.join(missing)}",
            code="env-missing",
            hint="export them, or add them to the env file (--env-file)",
        )
    return {name: variables[name] for name in names}


def _planned(tasks: Collection[SecureBenchTask], trials: int, commitment: Commitment) -> dict[str, JsonValue]:
    """Return what is planned: the numbers of trials, of tasks, and of tasks by family, and a digest of the tasks."""
    return {
        "planned": len(tasks) * trials,
        "planned_tasks": len(tasks),
        "planned_families": dict(Counter(task.task_type for task in tasks)),
        "planned_digest": json_digest([[task.id, commitment.to(task.row_digest)] for task in tasks]),
    }


def _settings_digest(settings: WireModel | None) -> dict[str, JsonValue]:
    """Return the digest of an extension's settings, if it has any."""
    values = settings.model_dump(mode="json") if settings else {}
    return {"config": json_digest(values)} if values else {}


def _plain(value: Mapping[str, JsonValue | tuple[str, ...]]) -> dict[str, JsonValue]:
    """Return ``value`` with lists instead of tuples, as after writing and reading JSON."""
    return {name: list(item) if isinstance(item, tuple) else item for name, item in value.items()}
