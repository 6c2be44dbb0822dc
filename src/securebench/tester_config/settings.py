"""Harness settings: ``harness.config`` of a tester YAML, one strict model for each harness type.

A model is frozen, rejects unknown keys and converts no types. Paths read from a file are relative to that file.
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
"""The default time limit of an agent on one task."""

_TIMEOUTS: Final = ProviderTimeouts()


class HarnessSettings(WireModel):
    """The settings of all harnesses. A harness with more settings subclasses it."""

    task_file: WorkspacePath = "task.json"
    """The path of the task file in the workspace."""
    timeout_seconds: Seconds = DEFAULT_TIMEOUT_SECONDS
    """The time limit of the agent on one task."""
    allowed_domains: Domains = ()
    """The domains, including subdomains, that the agent can reach through the proxy."""


class CommandConfig(HarnessSettings):
    """An agent run as a command. Its answer is ``artifact_path`` in the workspace, by default stdout."""

    command: Command
    artifact_path: Maybe[WorkspacePath] = None
    agent_dir: Maybe[ResolvedPath] = None
    """A host directory that is mounted read-only at ``/opt/securebench/agent``."""


class Budget(WireModel):
    """An agent's provider budget for one task. ``tokens`` counts input and output together."""

    requests: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    tokens: Annotated[int, Field(ge=1, le=1_000_000_000_000)] = 50_000_000
    bytes: Annotated[Size, Field(ge=1, le=4 * TIB)] = 2 * 1024 * MIB


class ProviderTimeoutSettings(WireModel):
    """Provider timeouts in seconds: see :class:`ProviderTimeouts`."""

    connect: Seconds = _TIMEOUTS.connect
    first_byte: Seconds = _TIMEOUTS.first_byte
    between_bytes: Seconds = _TIMEOUTS.between_bytes
    whole_answer: Seconds = _TIMEOUTS.whole_answer


class ProviderSettings(HarnessSettings):
    """The settings of all harnesses with a model provider.

    ``version`` is exact, ``latest``, or ``None`` for the version that this release was tested with. ``base_url``
    replaces the provider's public endpoint. ``credentials`` is ``relay`` (the key stays outside the sandbox) or
    ``passthrough``. ``provider_tools`` allows tools that the provider runs: web search, file fetch, code execution.
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
