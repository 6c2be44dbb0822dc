"""A tester configuration, read. Paths are absolute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from securebench.dangerous_commands import VerificationPolicy
from securebench.limits import MIB, Limits, ProviderTimeouts

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_TIMEOUT_SECONDS: Final = 900.0
"""How long an agent may work on one task, unless the tester says otherwise."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What the run is called, where it writes, and how many tasks are in flight."""

    id: str
    output_dir: Path
    max_workers: int = 1


@dataclass(frozen=True, slots=True)
class BenchmarkPaths:
    """The pack: two regular files."""

    manifest: Path
    tasks: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """An agent that is a command. ``artifact_path`` is in the workspace; without it the answer is its stdout."""

    command: tuple[str, ...]
    artifact_path: str | None = None
    agent_dir: Path | None = None
    """A directory of the host that is mounted read-only at ``/opt/securebench/agent``."""
    task_file: str = "task.json"
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    allowed_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """What an agent may ask of its provider on one task. ``tokens`` are those of input and output together."""

    requests: int = 1000
    tokens: int = 50_000_000
    bytes: int = 2 * 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexConfig:
    """The Codex CLI as an agent. What is said at :class:`ClaudeCodeConfig` holds here too."""

    model: str
    version: str | None = None
    base_url: str | None = None
    credentials: str = "relay"
    provider_tools: bool = False
    budget: Budget = field(default_factory=Budget)
    provider_timeouts: ProviderTimeouts = field(default_factory=ProviderTimeouts)
    task_file: str = "task.json"
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    allowed_domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeCodeConfig:
    """Claude Code as an agent.

    ``version`` is exact, ``latest``, or ``None`` for the one that this release was tested with. ``base_url`` is another
    endpoint than the provider's own. ``credentials`` is ``relay``, where the key stays outside the sandbox, or
    ``passthrough``. ``provider_tools`` admits tools that the provider runs: web search, file fetch, code execution.
    """

    model: str = "sonnet"
    version: str | None = None
    base_url: str | None = None
    credentials: str = "relay"
    provider_tools: bool = False
    budget: Budget = field(default_factory=Budget)
    provider_timeouts: ProviderTimeouts = field(default_factory=ProviderTimeouts)
    task_file: str = "task.json"
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    allowed_domains: tuple[str, ...] = ()


AgentConfig: TypeAlias = CommandConfig | CodexConfig | ClaudeCodeConfig


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """Which harness runs the agent, the names of the variables that it is given, and its own settings."""

    type: str
    env: tuple[str, ...]
    config: AgentConfig


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """Which driver makes the sandboxes, with which runtime, and what each sandbox may use."""

    driver: str = "auto"
    runtime: str | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class TesterConfig:
    """A tester YAML. ``digest`` is the sha256 (hex) of its bytes."""

    path: Path
    digest: str
    run: RunConfig
    benchmark: BenchmarkPaths
    harness: HarnessConfig
    verification: VerificationPolicy = field(default_factory=VerificationPolicy)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
