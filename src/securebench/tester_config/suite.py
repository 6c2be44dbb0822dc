"""A suite: one YAML file that describes a run of each agent, with each of its models, on each pack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from securebench.families.fields import Identifier
from securebench.strict_input.faults import Fault
from securebench.strict_input.models import OPTIONAL, WireModel, fit
from securebench.tester_config.fields import HostPath, Label, Model, SchemaVersion
from securebench.tester_config.loader import config_of
from securebench.tester_config.wire import SandboxModel, SharedRunModel, VerificationModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.strict_input.faults import Path as FaultPath
    from securebench.tester_config.loader import TesterFile
    from securebench.tester_config.model import TesterConfig

MAX_RUNS: Final = 1000
"""Maximum number of runs of one suite."""


class SuiteModel(WireModel):
    """The section ``suite``: the suite's id and output directory."""

    id: Identifier
    output_dir: HostPath


class SuiteAgentModel(WireModel):
    """An agent. ``harness`` is like the section ``harness`` of a tester YAML.

    If ``models`` is given, the agent runs on each pack once with each of these models as ``harness.config.model``.
    """

    name: Label
    harness: dict[str, Any]
    models: Annotated[list[Model], Field(min_length=1)] = OPTIONAL


class SuiteFileModel(WireModel):
    """A suite file.

    The sections ``run``, ``verification``, ``sandbox`` and ``judge`` are as in a tester YAML, except that ``run`` has
    no ``id`` and no ``output_dir``. They apply to every run of the suite.
    """

    schema_version: SchemaVersion
    suite: SuiteModel
    packs: Annotated[list[HostPath], Field(min_length=1)]
    agents: Annotated[list[SuiteAgentModel], Field(min_length=1)]
    run: SharedRunModel = OPTIONAL
    verification: VerificationModel = OPTIONAL
    sandbox: SandboxModel = OPTIONAL
    judge: dict[str, Any] = OPTIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """One run of a suite. ``path`` is its directory, relative to the output directory of the suite."""

    pack: str
    """The name of the pack's directory."""
    agent: str
    """The name of the agent, followed by the model if the suite lists models for this agent."""
    path: str
    config: TesterConfig


@dataclass(frozen=True, slots=True)
class Suite:
    """A loaded suite. ``runs`` are in the order of execution: all runs on the first pack, then all runs on the next."""

    id: str
    output_dir: Path
    runs: tuple[SuiteRun, ...]


def load_suite(file: TesterFile) -> Suite:
    """Return the suite in ``file`` after checking it and the configuration of each run.

    Raises :class:`ConfigError` with all problems and their locations.
    """
    model, faults = fit(SuiteFileModel, file.value)
    file.raise_if_any(faults)
    assert model is not None
    output = file.path.parent / model.suite.output_dir
    runs: list[SuiteRun] = []
    found: dict[Fault, None] = {}  # without duplicates: the same section is checked for every run
    for cell in _cells(model, file):
        value = _tester_value(file.value, cell, output)
        config, faults = config_of(value, file)
        found |= dict.fromkeys(_moved(fault, cell) for fault in faults)
        if config is not None:
            runs.append(SuiteRun(pack=cell.pack_name, agent=cell.label, path=cell.path, config=config))
    file.raise_if_any([*found, *_clashes(runs)])
    return Suite(model.suite.id, output, tuple(runs))


@dataclass(frozen=True, slots=True)
class _Cell:
    """One combination: a pack and an agent, by position in the file, and the model, if the agent has ``models``."""

    pack: int
    agent: int
    model: str | None
    pack_name: str
    label: str

    @property
    def path(self) -> str:
        return f"{_slug(self.pack_name)}/{_slug(self.label)}"


def _cells(model: SuiteFileModel, file: TesterFile) -> Iterator[_Cell]:
    for pack, place in enumerate(model.packs):
        name = (file.path.parent / place).resolve().name
        for agent, given in enumerate(model.agents):
            if not given.models:
                yield _Cell(pack, agent, None, name, given.name)
            for chosen in given.models or ():
                yield _Cell(pack, agent, chosen, name, f"{given.name} {chosen}")


def _tester_value(suite: dict[str, Any], cell: _Cell, output: Path) -> dict[str, Any]:
    """Return the content of a tester YAML for one run, as if it had been read from a file beside the suite."""
    agent, pack = suite["agents"][cell.agent], suite["packs"][cell.pack]
    harness = {"name": cell.label, **agent["harness"]}
    if cell.model is not None:
        harness["config"] = {**harness.get("config", {}), "model": cell.model}
    shared: dict[str, Any] = {name: suite[name] for name in ("verification", "sandbox", "judge") if name in suite}
    return {
        "schema_version": suite["schema_version"],
        "run": {
            **suite.get("run", {}),
            "id": f"{suite['suite']['id']}-{_slug(cell.pack_name)}-{_slug(cell.label)}",
            "output_dir": str(output / cell.path),
        },
        "benchmark": {"manifest": f"{pack}/manifest.yaml", "tasks": f"{pack}/tasks.jsonl"},
        "harness": harness,
        **shared,
    }


def _moved(fault: Fault, cell: _Cell) -> Fault:
    """Return ``fault``, found in the configuration of one run, with the matching path in the suite file."""
    path: FaultPath
    match fault.path:
        case ("harness", "config", "model") if cell.model is not None:
            path = ("agents", cell.agent, "models")
        case ("harness", *rest):
            path = ("agents", cell.agent, "harness", *rest)
        case ("benchmark", *_):
            path = ("packs", cell.pack)
        case ("run", "output_dir" | "id" as key):
            path = ("suite", key)
        case _:
            path = fault.path
    return Fault(fault.code, fault.message, path, fault.hint, fault.at_key, fault.position)


def _clashes(runs: list[SuiteRun]) -> Iterator[Fault]:
    """Yield a fault if there are too many runs, and another fault if two runs would write to the same directory."""
    if len(runs) > MAX_RUNS:
        yield Fault("field-value", f"the suite has {len(runs)} runs; at most {MAX_RUNS} are allowed", ("suite",))
    seen: dict[str, SuiteRun] = {}
    for run in runs:
        other = seen.setdefault(run.path, run)
        if other is not run:
            what = f"{run.agent!r} on {run.pack!r} and {other.agent!r} on {other.pack!r}"
            hint = "give the agents different names, and list each pack and model once"
            yield Fault("suite-runs-clash", f"{what} would both write to {run.path!r}", ("agents",), hint)
            return  # one fault is enough: agents that clash on one pack clash on every pack


def _slug(name: str) -> str:
    """Return ``name`` as a part of a path: letters, digits, dots, underscores and hyphens."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "unnamed"
