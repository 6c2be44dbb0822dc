"""A loaded tester configuration. Host paths are absolute."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from securebench.dangerous_commands import VerificationPolicy
from securebench.limits import Limits
from securebench.plugins import AUTO_DRIVER, DEFAULT_EXECUTOR

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.strict_input.models import WireModel
    from securebench.tester_config.settings import HarnessSettings, JudgeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSelection:
    """Which tasks of a pack a run executes.

    ``task`` has patterns of ids. ``task``, ``tag`` and ``family`` are criteria. A task is selected if it matches at
    least one value of each criterion that is given. ``shuffle`` is a seed: if it is given, the selected tasks are
    sorted by a hash of the seed and their id. ``limit`` keeps only the first tasks.
    """

    task: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    shuffle: int | None = None
    limit: int | None = None

    @property
    def given(self) -> dict[str, JsonValue]:
        """The fields that are given, by name."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
        return {name: value for name, value in plain.items() if value not in (None, [])}


class KeepWorkspaces(StrEnum):
    """Which workspaces stay in the run directory after the verdict."""

    ALL = "all"
    FAILURES = "failures"
    """The workspaces of trials that did not pass."""
    NONE = "none"

    def keeps(self, *, passed: bool) -> bool:
        """Whether the workspace of a trial is kept."""
        return self is KeepWorkspaces.ALL or (self is KeepWorkspaces.FAILURES and not passed)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The run: its id, output directory, selected tasks, trials per task, executor, and number of parallel tasks.

    ``budget_usd`` is what the run may spend on models, and ``prices`` is the path of the tester's price table.
    """

    id: str
    output_dir: Path
    max_workers: int | Literal["auto"] = 1
    keep_workspaces: KeepWorkspaces = KeepWorkspaces.ALL
    trials: int = 1
    select: TaskSelection = field(default_factory=TaskSelection)
    executor: str = DEFAULT_EXECUTOR
    executor_settings: WireModel | None = None
    """``run.executor_config``: the settings of the executor. ``None`` means its defaults."""
    budget_usd: float | None = None
    prices: Path | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkPaths:
    """The paths of the pack's manifest and tasks file."""

    manifest: Path
    tasks: Path


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """The section ``harness``. ``env`` names environment variables to pass to the agent. ``name`` may be empty."""

    type: str
    env: tuple[str, ...]
    config: HarnessSettings
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the agent in outputs: the given one, or else the type of its harness."""
        return self.name or self.type


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """A verifier that replaces a family's built-in one, and its settings."""

    type: str
    settings: WireModel


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """The sandbox driver, its runtime, and the limits of each sandbox."""

    driver: str = AUTO_DRIVER
    runtime: str | None = None
    limits: Limits = field(default_factory=Limits)
    settings: WireModel | None = None
    """``sandbox.config``: the settings of the driver. ``None`` means its defaults."""


@dataclass(frozen=True, slots=True)
class TesterConfig:
    """A loaded tester YAML. ``digest`` is the sha256 (hex) of its bytes."""

    path: Path
    digest: str
    run: RunConfig
    benchmark: BenchmarkPaths
    harness: HarnessConfig
    verification: VerificationPolicy = field(default_factory=VerificationPolicy)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    verifiers: Mapping[str, VerifierConfig] = field(default_factory=dict)
    """By family: the verifiers that replace the built-in ones."""
    judge: JudgeSettings | None = None
    """The judge model of ``model_graded`` rubrics."""
    overrides: Mapping[str, JsonValue] = field(default_factory=dict)
    """By key: the values that replaced the file's own values."""
