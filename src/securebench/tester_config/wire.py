"""The tester YAML as it stands in its file, schema version 0.2."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from securebench.families.fields import DangerousCommands, Identifier, Seconds, ShellOrArgv
from securebench.limits import MIB
from securebench.strict_input.models import OPTIONAL, WireModel
from securebench.tester_config.endpoints import BaseUrl
from securebench.tester_config.fields import (
    Domains,
    HostPath,
    Model,
    SchemaVersion,
    Size,
    Variables,
    Version,
    Workers,
    WorkspacePath,
)

_TIB = 1024 * 1024 * MIB


class RunModel(WireModel):
    """The run."""

    id: Identifier
    output_dir: HostPath
    max_workers: Workers = OPTIONAL


class BenchmarkModel(WireModel):
    """The pack."""

    manifest: HostPath
    tasks: HostPath


class HarnessModel(WireModel):
    """The harness. ``config`` is held to the model of its type."""

    type: Literal["command", "codex", "claude_code"]
    env: Variables = OPTIONAL
    config: dict[str, Any] = OPTIONAL


class AgentModel(WireModel):
    """What every harness can be told."""

    task_file: WorkspacePath = OPTIONAL
    timeout_seconds: Seconds = OPTIONAL
    allowed_domains: Domains = OPTIONAL


class CommandModel(AgentModel):
    """An agent that is a command."""

    command: ShellOrArgv
    artifact_path: WorkspacePath = OPTIONAL
    agent_dir: HostPath = OPTIONAL


class BudgetModel(WireModel):
    """What an agent may ask of its provider on one task."""

    requests: Annotated[int, Field(ge=1, le=1_000_000)] = OPTIONAL
    tokens: Annotated[int, Field(ge=1, le=1_000_000_000_000)] = OPTIONAL
    bytes: Annotated[Size, Field(ge=1, le=4 * _TIB)] = OPTIONAL


class ProviderTimeoutsModel(WireModel):
    """How long to wait for a provider, in seconds."""

    connect: Seconds = OPTIONAL
    first_byte: Seconds = OPTIONAL
    between_bytes: Seconds = OPTIONAL
    whole_answer: Seconds = OPTIONAL


class ProviderModel(AgentModel):
    """What every harness with a provider can be told."""

    version: Version = OPTIONAL
    base_url: BaseUrl = OPTIONAL
    credentials: Literal["relay", "passthrough"] = OPTIONAL
    provider_tools: bool = OPTIONAL
    budget: BudgetModel = OPTIONAL
    provider_timeouts: ProviderTimeoutsModel = OPTIONAL


class CodexModel(ProviderModel):
    """The Codex CLI."""

    model: Model


class ClaudeCodeModel(ProviderModel):
    """Claude Code."""

    model: Model = OPTIONAL


AGENT_MODELS: Final[dict[str, type[AgentModel]]] = {
    "command": CommandModel,
    "codex": CodexModel,
    "claude_code": ClaudeCodeModel,
}


class VerificationModel(WireModel):
    """What verifiers may do."""

    disallow_dangerous_commands: bool = OPTIONAL
    deny_commands: DangerousCommands = OPTIONAL


class LimitsModel(WireModel):
    """What each sandbox may use. Sizes are bytes, or a number with ``k``, ``m`` or ``g``."""

    memory: Annotated[Size, Field(ge=16 * MIB, le=4 * _TIB)] = OPTIONAL
    pids: Annotated[int, Field(ge=8, le=65_536)] = OPTIONAL
    cpus: Annotated[float, Field(gt=0, le=1024)] = OPTIONAL
    tmpfs: Annotated[Size, Field(ge=MIB, le=4 * _TIB)] = OPTIONAL
    open_files: Annotated[int, Field(ge=64, le=1_048_576)] = OPTIONAL
    file_size: Annotated[Size, Field(ge=MIB, le=4 * _TIB)] = OPTIONAL
    output: Annotated[Size, Field(ge=1024, le=4096 * MIB)] = OPTIONAL


class SandboxModel(WireModel):
    """What makes the sandboxes."""

    driver: Literal["auto", "docker", "oci"] = OPTIONAL
    runtime: Literal["crun", "runc", "runsc"] = OPTIONAL
    limits: LimitsModel = OPTIONAL


class TesterModel(WireModel):
    """A tester YAML."""

    schema_version: SchemaVersion
    run: RunModel
    benchmark: BenchmarkModel
    harness: HarnessModel
    verification: VerificationModel = OPTIONAL
    sandbox: SandboxModel = OPTIONAL
