"""The file format of the tester YAML, schema version 0.2."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from securebench.families.fields import DangerousCommands, Identifier
from securebench.limits import MIB
from securebench.strict_input.models import OPTIONAL, WireModel
from securebench.tester_config.fields import (
    TIB,
    HostPath,
    Label,
    Names,
    SchemaVersion,
    Size,
    Trials,
    Variables,
    Workers,
)
from securebench.tester_config.settings import Usd


class SelectModel(WireModel):
    """``run.select``: which tasks of the pack to run."""

    task: Names = OPTIONAL
    tag: Names = OPTIONAL
    family: Names = OPTIONAL
    shuffle: Annotated[int, Field(ge=0)] = OPTIONAL
    limit: Annotated[int, Field(ge=1)] = OPTIONAL


class RunBudgetModel(WireModel):
    """``run.budget``: what a run may spend."""

    usd: Usd


class SharedRunModel(WireModel):
    """The settings of a run that all runs of a suite share."""

    max_workers: Workers = OPTIONAL
    keep_workspaces: Literal["all", "failures", "none"] = OPTIONAL
    trials: Trials = OPTIONAL
    select: SelectModel = OPTIONAL
    executor: str = OPTIONAL
    executor_config: dict[str, Any] = OPTIONAL
    budget: RunBudgetModel = OPTIONAL
    prices: HostPath = OPTIONAL


class RunModel(SharedRunModel):
    """The section ``run``."""

    id: Identifier
    output_dir: HostPath


class BenchmarkModel(WireModel):
    """The section ``benchmark``: the paths of the pack's manifest and tasks file."""

    manifest: HostPath
    tasks: HostPath


class HarnessModel(WireModel):
    """The section ``harness``. Its ``type`` determines how ``config`` is checked."""

    type: str
    name: Label = OPTIONAL
    env: Variables = OPTIONAL
    config: dict[str, Any] = OPTIONAL


class VerifierModel(WireModel):
    """A verifier that replaces a family's built-in one. Its ``type`` determines how ``config`` is checked."""

    type: str
    config: dict[str, Any] = OPTIONAL


class VerificationModel(WireModel):
    """The section ``verification``: which dangerous commands are allowed, and verifiers that replace built-in ones."""

    disallow_dangerous_commands: bool = OPTIONAL
    deny_commands: DangerousCommands = OPTIONAL
    verifiers: dict[str, VerifierModel] = OPTIONAL


class LimitsModel(WireModel):
    """``sandbox.limits``, for each sandbox. Sizes are bytes, or a number with the suffix ``k``, ``m`` or ``g``."""

    memory: Annotated[Size, Field(ge=16 * MIB, le=4 * TIB)] = OPTIONAL
    pids: Annotated[int, Field(ge=8, le=65_536)] = OPTIONAL
    cpus: Annotated[float, Field(gt=0, le=1024)] = OPTIONAL
    tmpfs: Annotated[Size, Field(ge=MIB, le=4 * TIB)] = OPTIONAL
    open_files: Annotated[int, Field(ge=64, le=1_048_576)] = OPTIONAL
    file_size: Annotated[Size, Field(ge=MIB, le=4 * TIB)] = OPTIONAL
    workspace: Annotated[Size, Field(ge=MIB, le=4 * TIB)] = OPTIONAL
    output: Annotated[Size, Field(ge=1024, le=4096 * MIB)] = OPTIONAL


class SandboxModel(WireModel):
    """The section ``sandbox``: the driver, its settings, the runtime, and the limits of each sandbox."""

    driver: str = OPTIONAL
    config: dict[str, Any] = OPTIONAL
    runtime: Literal["crun", "runc", "runsc"] = OPTIONAL
    limits: LimitsModel = OPTIONAL


class TesterModel(WireModel):
    """The content of a tester YAML."""

    schema_version: SchemaVersion
    run: RunModel
    benchmark: BenchmarkModel
    harness: HarnessModel
    verification: VerificationModel = OPTIONAL
    sandbox: SandboxModel = OPTIONAL
    judge: dict[str, Any] = OPTIONAL
