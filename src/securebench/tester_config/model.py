"""A loaded tester configuration. Paths are absolute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from securebench.dangerous_commands import VerificationPolicy
from securebench.limits import Limits
from securebench.plugins import AUTO_DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.strict_input.models import WireModel
    from securebench.tester_config.settings import HarnessSettings


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The run's id, its output directory, its number of workers, and how often it tries each task."""

    id: str
    output_dir: Path
    max_workers: int = 1
    trials: int = 1


@dataclass(frozen=True, slots=True)
class BenchmarkPaths:
    """The pack's two files."""

    manifest: Path
    tasks: Path


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """The harness, the names of the variables it passes to the agent, and its settings."""

    type: str
    env: tuple[str, ...]
    config: HarnessSettings


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """A verifier that replaces a family's own, and its settings."""

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
    """By family: the verifiers that replace a family's own."""
