"""What the tester configures about a harness: ``harness.config`` of a tester YAML, one strict model for each type.

A model is frozen, refuses unknown keys and converts nothing. Read from a file, its paths are relative to that file.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from securebench.families.fields import Seconds
from securebench.limits import MIB, ProviderTimeouts
from securebench.strict_input.models import WireModel
from securebench.tester_config.endpoints import BaseUrl
from securebench.tester_config.fields import (
    TIB,
    Command,
    Domains,
    Maybe,
    Model,
    ResolvedPath,
    Size,
    Version,
    WorkspacePath,
)

DEFAULT_TIMEOUT_SECONDS: Final = 900.0
"""How long an agent may work on one task, unless the tester says otherwise."""

_TIMEOUTS: Final = ProviderTimeouts()


class HarnessSettings(WireModel):
    """What every harness can be configured with. A harness with more settings subclasses it."""

    task_file: WorkspacePath = "task.json"
    """Where the agent finds its task, in the workspace."""
    timeout_seconds: Seconds = DEFAULT_TIMEOUT_SECONDS
    """How long the agent may work on one task."""
    allowed_domains: Domains = ()
    """The hosts, and their subdomains, that the agent can reach through the proxy."""


class CommandConfig(HarnessSettings):
    """An agent that is a command. ``artifact_path`` is in the workspace; without it the answer is its stdout."""

    command: Command
    artifact_path: Maybe[WorkspacePath] = None
    agent_dir: Maybe[ResolvedPath] = None
    """A directory of the host that is mounted read-only at ``/opt/securebench/agent``."""


class Budget(WireModel):
    """What an agent may ask of its provider on one task. ``tokens`` are those of input and output together."""

    requests: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    tokens: Annotated[int, Field(ge=1, le=1_000_000_000_000)] = 50_000_000
    bytes: Annotated[Size, Field(ge=1, le=4 * TIB)] = 2 * 1024 * MIB


class ProviderTimeoutSettings(WireModel):
    """How long to wait for a provider, in seconds: see :class:`ProviderTimeouts`."""

    connect: Seconds = _TIMEOUTS.connect
    first_byte: Seconds = _TIMEOUTS.first_byte
    between_bytes: Seconds = _TIMEOUTS.between_bytes
    whole_answer: Seconds = _TIMEOUTS.whole_answer


class ProviderSettings(HarnessSettings):
    """What every harness with a provider can be configured with.

    ``version`` is exact, ``latest``, or ``None`` for the one that this release was tested with. ``base_url`` is another
    endpoint than the provider's own. ``credentials`` is ``relay``, where the key stays outside the sandbox, or
    ``passthrough``. ``provider_tools`` admits tools that the provider runs: web search, file fetch, code execution.
    """

    model: Model
    version: Maybe[Version] = None
    base_url: Maybe[BaseUrl] = None
    credentials: Literal["relay", "passthrough"] = "relay"
    provider_tools: bool = False
    budget: Budget = Budget()
    provider_timeouts: ProviderTimeoutSettings = ProviderTimeoutSettings()


class CodexConfig(ProviderSettings):
    """The Codex CLI as an agent."""


class ClaudeCodeConfig(ProviderSettings):
    """Claude Code as an agent."""

    model: Model = "sonnet"
