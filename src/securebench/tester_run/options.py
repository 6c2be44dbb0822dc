"""What whoever starts a run decides, and the parts that a run is put together from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from securebench.errors import ConfigError
from securebench.harnesses.registry import build_harness_producer
from securebench.verifiers.registry import verifier_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.harnesses.base import HarnessProducer
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tester_config import HarnessConfig, TesterConfig
    from securebench.verifiers.base import Verifier


def _ignore(_text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What whoever starts a run decides. ``None`` leaves it to the tester YAML.

    ``limit`` takes the first rows only. ``variables`` is where the values of ``harness.env`` are looked up. ``notify``
    is told, in plain words, what is no event: an image that is pulled, what a killed run left. ``handle_signals``
    makes SIGINT, SIGTERM and SIGHUP end the run cleanly; only in the main thread.
    """

    limit: int | None = None
    output_dir: Path | None = None
    workers: int | None = None
    resume: bool = False
    show_agent_output: bool = False
    handle_signals: bool = False
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    notify: Callable[[str], None] = _ignore


def make_driver(config: TesterConfig) -> SandboxDriver:
    """Return the driver that the tester YAML asks for. Raises :class:`ConfigError` and :class:`EngineError`."""
    if config.sandbox.driver not in {"auto", "docker"}:
        raise ConfigError(
            f"sandbox.driver is {config.sandbox.driver!r}, which this version does not have",
            code="driver-unavailable",
            hint="use 'docker' or 'auto'",
        )
    if config.sandbox.runtime is not None:
        raise ConfigError(
            f"sandbox.runtime is {config.sandbox.runtime!r}, but the docker driver uses the engine's own runtime",
            code="runtime-unavailable",
            hint="leave sandbox.runtime out",
        )
    from securebench.sandboxes.docker import DockerDriver

    return DockerDriver(run_id=config.run.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The parts of a run, each replaceable. ``checkpoint`` is called at every point at which a run may be killed."""

    make_driver: Callable[[TesterConfig], SandboxDriver] = make_driver
    make_producer: Callable[[HarnessConfig], HarnessProducer] = build_harness_producer
    verifier_for: Callable[[str], Verifier | None] = verifier_for
    checkpoint: Callable[[str], None] = _ignore
