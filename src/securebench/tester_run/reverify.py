"""Judge the sealed candidates of an earlier run again, without the agent, in a new run next to the old one."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import ConfigError, InfrastructureError, SourceLocation
from securebench.limits import Limits
from securebench.plugins import ExtensionKind, own_names
from securebench.plurals import counted
from securebench.printable import printable_line
from securebench.results.read import read_run
from securebench.results.records.commitment import KEY_FILE, Commitment
from securebench.results.reverification import Difference, Reverification, compare_verdicts
from securebench.results.run_directory.header import HEADER, HEADER_VERSION, read_header
from securebench.results.run_directory.lock import reading
from securebench.results.run_directory.pack_match import Match, match_pack, match_row
from securebench.results.run_directory.source import SOURCE_FILE, read_source
from securebench.strict_input.models import WireModel, fit
from securebench.tester_config import (
    BenchmarkPaths,
    HarnessConfig,
    RunConfig,
    SandboxConfig,
    TaskSelection,
    TesterConfig,
)
from securebench.tester_config.wire import (
    HarnessModel,
    LimitsModel,
    RunModel,
    SandboxModel,
    SelectModel,
    VerificationModel,
)
from securebench.tester_run.judge import RecordedJudge
from securebench.tester_run.options import RunOptions, RunParts
from securebench.tester_run.planning.plan import make_plan
from securebench.tester_run.planning.selection import select_tasks
from securebench.tester_run.run import run_plan
from securebench.tester_run.sealed_run import SealedProducer, SealedRun, SealedSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.progress import Event
    from securebench.results.read import RecordedRun
    from securebench.results.run_directory.header import RunHeader
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tester_run.planning.plan import Plan

SUFFIX: Final = ".reverified"
"""The default output directory has the name of the run directory with this suffix.

The id of the new run ends with ``-reverified``.
"""

_Model = TypeVar("_Model", bound=WireModel)


def reverify(
    directory: Path,
    options: RunOptions,
    *,
    pack: BenchmarkPaths | None = None,
    tester: TesterConfig | None = None,
    sinks: Iterable[Callable[[Event], None]] = (),
    parts: RunParts | None = None,
) -> Reverification:
    """Judge the sealed candidates of the run in ``directory`` again, and compare the verdicts.

    ``directory`` is only read. The result is written to a new run directory, by default next to it. The new run uses
    the old run's policy and limits, its pack unless ``pack`` is given, and its driver unless ``options.driver`` is
    given. Of ``tester``, only the verifiers and the settings of the driver are used.

    Raises :class:`ConfigError`: ``run-active``, ``run-version``, ``pack-missing``, ``pack-differs``,
    ``verifier-differs``; and the errors of :func:`read_run` and :func:`run_benchmark`.
    """
    parts = parts or RunParts()
    read_run(directory)  # to refuse a directory without a run before it is locked
    with reading(directory):
        run = _current(read_run(directory))
        sealed = SealedRun(run)
        output = _output_dir(directory, options.output_dir)
        config = _config(run, pack or _recorded_pack(directory), output, options, tester)
        make_driver = parts.make_driver if options.driver else _with_driver_hint(parts.make_driver)
        parts = replace(
            parts,
            make_producer=lambda _: SealedProducer(sealed),
            make_judge=lambda _: RecordedJudge(sealed),
            make_driver=make_driver,
        )
        options = replace(options, output_dir=output, driver=None)
        plan = make_plan(config, replace(options, task=()), parts)
        match = _require_pack(plan.pack, sealed)
        _require_verifiers(plan, run.header)
        selected = select_tasks(plan.all_tasks, TaskSelection(task=options.task))
        tasks = tuple(task for task in selected if task.id in sealed.rows)
        if not tasks:
            raise ConfigError(f"{directory} has no record of the selected tasks", code="selection-empty")
        if not config.verification.disallow_dangerous_commands:
            options.notify("the run allows its verifiers dangerous commands ('disallow_dangerous_commands: false')")
        plan = replace(plan, tasks=tasks, selection=_selection(run.header, options), reverified_run=run.header)
        summary = run_plan(plan, options, sinks, parts)
        trials = [planned.id for planned in plan.planned()]
        return Reverification(
            directory=directory,
            summary=summary,
            verdicts=compare_verdicts(trials, sealed.entries, read_run(output)),
            differences=_recorded_differences(output),
            notes=tuple(_notes(run, sealed, match)),
        )


def _current(run: RecordedRun) -> RecordedRun:
    """Return ``run``. Raises :class:`ConfigError` (``run-version``) unless it has the current format."""
    if run.header.version != HEADER_VERSION:
        raise ConfigError(
            f"{run.directory} was written in format {run.header.version}; only runs of format {HEADER_VERSION} can be "
            "judged again",
            code="run-version",
            hint="start a new run, or judge this one again with the version of SecureBench that made it",
        )
    return run


def _output_dir(directory: Path, output_dir: Path | None) -> Path:
    """Return the output directory.

    Raises :class:`ConfigError` (``output-dir-unsafe``) if it is the run directory or inside it.
    """
    original = directory.resolve()
    output = output_dir.resolve() if output_dir else original.with_name(original.name + SUFFIX)
    existing = [place for place in (output, *output.parents) if place.exists()]
    if any(place.samefile(original) for place in existing):  # true also for another mount of the same directory
        raise ConfigError(
            f"the output directory {output} is the run directory or inside it, "
            "but the run directory must not be changed",
            code="output-dir-unsafe",
            hint="choose another --output-dir",
        )
    return output


def _recorded_pack(directory: Path) -> BenchmarkPaths:
    """Return where the pack was when the run was last started or resumed.

    Raises :class:`ConfigError` (``pack-missing``), and the errors of :func:`read_source`.
    """
    source = read_source(directory)
    if source is None:
        problem = f"{directory} does not say where its pack is: it has no {SOURCE_FILE}"
    elif not (source.manifest.is_file() and source.tasks.is_file()):
        manifest, rows = (printable_line(str(path)) for path in (source.manifest, source.tasks))
        problem = f"the files of the run's pack are no longer at {manifest} and {rows}"
    else:
        return BenchmarkPaths(source.manifest, source.tasks)
    raise ConfigError(problem, code="pack-missing", hint="pass --pack PACK")


def _config(
    run: RecordedRun, pack: BenchmarkPaths, output: Path, options: RunOptions, tester: TesterConfig | None
) -> TesterConfig:
    """Return the configuration of the new run, with the policy and the limits of the old run."""
    header = run.header
    _valid(RunModel, {"id": run.run_id, "trials": run.trials, "output_dir": SUFFIX}, "run_id or trials")
    _valid(HarnessModel, {"type": SealedProducer.name, "name": run.label}, "harness.name")
    policy = _section(VerificationModel, header, "verification")
    limits = Limits(**_section(LimitsModel, header, "limits"))
    return TesterConfig(
        path=run.directory / HEADER,
        digest=str(header.information.get("config_digest", "")),
        run=RunConfig(id=f"{run.run_id}{SUFFIX.replace('.', '-')}", output_dir=output, trials=run.trials),
        benchmark=pack,
        harness=HarnessConfig(SealedProducer.name, (), SealedSettings(run=header.root), run.label),
        verification=VerificationPolicy(**{**policy, "deny_commands": tuple(policy.get("deny_commands", ()))}),
        sandbox=_sandbox(header, limits, options.driver, tester),
        verifiers=tester.verifiers if tester else {},
    )


def _sandbox(header: RunHeader, limits: Limits, driver: str | None, tester: TesterConfig | None) -> SandboxConfig:
    """Return the sandbox settings: ``driver``, or else the driver and the runtime of the old run."""
    begun = header.decisive.get("sandbox")
    section: dict[str, Any] = begun if isinstance(begun, dict) else {}
    name, runtime = driver or str(section.get("driver")), None
    if driver is None and name in own_names(ExtensionKind.DRIVER):
        known = get_args(SandboxModel.model_fields["runtime"].annotation)
        runtime = section.get("runtime") if section.get("runtime") in known else None
    settings = tester.sandbox.settings if tester and tester.sandbox.driver == name else None
    return SandboxConfig(driver=name, runtime=runtime, limits=limits, settings=settings)


def _section(model: type[_Model], header: RunHeader, name: str) -> dict[str, Any]:
    """Return a section of ``decisive`` in ``run.json``.

    Raises :class:`ConfigError` (``run-header-damaged``) unless the section is valid.
    """
    return _valid(model, header.decisive.get(name, {}), name)


def _valid(model: type[_Model], value: Any, name: str) -> dict[str, Any]:
    """Return a part of ``run.json``. Raises :class:`ConfigError` if it would not be valid in a tester YAML."""
    found, faults = fit(model, value)
    if found is None:
        raise ConfigError(
            f"the run header is damaged: {name}: {faults[0].message}",
            code="run-header-damaged",
            location=SourceLocation(HEADER),
        )
    return found.model_dump(exclude_unset=True)


def _selection(header: RunHeader, options: RunOptions) -> TaskSelection:
    """Return the selection of the old run. If the user gave patterns of ids, they replace the old run's patterns."""
    selection = TaskSelection(**_section(SelectModel, header, "selection"))
    return replace(selection, task=options.task) if options.task else selection


def _require_pack(pack: BenchmarkPack, sealed: SealedRun) -> Match:
    """Return whether all content of ``pack`` was compared with the pack of the run, or only public content.

    Raises :class:`ConfigError` (``pack-differs``) if the packs differ.
    """
    run = sealed.run
    has_key = os.path.lexists(run.directory / KEY_FILE)
    commitment = Commitment.read(run.directory) if has_key else None
    match = match_pack(run.header.decisive.get("pack"), pack, commitment)
    rows = {row.id: row for row in pack.rows}
    changed = [
        task_id
        for task_id, recorded in sealed.rows.items()
        if task_id not in rows or not all(match_row(row, rows[task_id], commitment).agrees for row in recorded)
    ]
    if match.agrees and not changed:
        return match
    if run.benchmark_id != pack.id:
        problem = f"it is {printable_line(pack.id)!r}, not {printable_line(run.benchmark_id)!r}"
    elif match.agrees:
        problem = f"its row of the task {printable_line(changed[0])!r} is missing or differs from the run's record"
    else:
        first = f"; the first changed row is {printable_line(changed[0])!r}" if changed else ""
        problem = f"this pack has {match.value} than the pack of the run{match.doubt}{first}"
    raise ConfigError(
        f"{pack.directory} is not the pack of this run: {problem}",
        code="pack-differs",
        hint="pass --pack with the version of the pack that the run used; 'securebench digest PACK' prints its digests",
    )


def _require_verifiers(plan: Plan, header: RunHeader) -> None:
    """Raise :class:`ConfigError` (``verifier-differs``) unless the recorded run used the same verifiers as ``plan``.

    The settings of the verifiers must be the same, too.
    """
    recorded, own = header.decisive.get("verifiers"), plan.verifier_provenance()
    for family, was in recorded.items() if isinstance(recorded, dict) else ():
        if _chosen(was) != _chosen(own.get(family)):
            raise ConfigError(
                f"the run judged {printable_line(family)} with a different verifier or different settings",
                code="verifier-differs",
                hint="install the extension that the run used, and pass --config with a tester YAML that has the "
                "verification.verifiers of the run",
            )


def _chosen(verifier: Any) -> tuple[Any, ...] | None:
    """Return which verifier and settings a tester chose.

    The version is left out, because a different version is reported but not refused.
    """
    if not isinstance(verifier, dict):
        return None
    extension = verifier.get("extension")
    names = (extension.get("name"), extension.get("distribution")) if isinstance(extension, dict) else ()
    return (*names, verifier.get("config"))


def _with_driver_hint(
    make: Callable[[TesterConfig, Callable[[str], None]], SandboxDriver],
) -> Callable[[TesterConfig, Callable[[str], None]], SandboxDriver]:
    """Return a function that calls ``make`` and adds a hint to its errors: use a different driver."""

    def made(config: TesterConfig, notify: Callable[[str], None]) -> SandboxDriver:
        try:
            return make(config, notify)
        except InfrastructureError as error:
            other = "the run used this driver; pass --driver auto to judge with one that works here"
            error.hint = f"{error.hint}; {other}" if error.hint else other
            raise

    return made


def _recorded_differences(output: Path) -> tuple[Difference, ...]:
    """Return the differences between the old and the new run, as the new run's header lists them."""
    header = read_header(output)
    assert header is not None
    described: Any = header.information["reverifies"]
    return tuple(Difference(**difference) for difference in described["differences"])


def _notes(run: RecordedRun, sealed: SealedRun, match: Match) -> Iterable[str]:
    """Yield notes about what could not be compared or was only recomputed, and what is missing from the run."""
    if match is Match.SAME_PUBLIC:
        yield f"hidden content of the pack could not be compared with that of the run: the run has no {KEY_FILE}"
    if "judge" in run.header.decisive:
        yield "verdicts of the judge model were recomputed from its recorded replies; the model was not asked again"
    if run.header.closing is None:
        yield "the run was not closed, so records may be missing at its end"
    if missing := run.planned - len(sealed.entries):
        yield f"{missing} of {counted(run.planned, 'trial')} of the run {'has' if missing == 1 else 'have'} no record"
