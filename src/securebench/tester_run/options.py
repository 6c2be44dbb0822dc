"""What whoever starts a run decides, and the parts that a run is put together from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from securebench.harnesses.registry import build_harness_producer
from securebench.sandboxes.select import DRIVERS
from securebench.verifiers.registry import verifier_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.egress.gateway import Gateway
    from securebench.harnesses.base import HarnessProducer
    from securebench.resources import JsonValue
    from securebench.results.run_header import RunHeader
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tester_config import HarnessConfig, SandboxConfig, TesterConfig, VerifierConfig
    from securebench.verifiers.base import Verifier


def _ignore(_text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What whoever starts a run decides. ``None`` leaves it to the tester YAML.

    ``limit`` takes the first rows only. ``driver`` is as ``sandbox.driver``. ``variables`` is where the values of
    ``harness.env`` are looked up. ``notify`` is told, in plain words, what is no event: an image that is pulled, what a
    killed run left. ``handle_signals`` makes SIGINT, SIGTERM and SIGHUP end the run cleanly; only in the main thread.
    ``show_verifier_output`` is given the id of each task that was judged, and what the verifier's commands printed, by
    any thread; ``keep_verifier_output`` keeps the same in the run directory.
    """

    limit: int | None = None
    output_dir: Path | None = None
    workers: int | None = None
    driver: str | None = None
    resume: bool = False
    show_agent_output: bool = False
    keep_verifier_output: bool = False
    show_verifier_output: Callable[[str, str], None] | None = None
    handle_signals: bool = False
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    notify: Callable[[str], None] = _ignore


def make_driver(config: TesterConfig, notify: Callable[[str], None]) -> SandboxDriver:
    """Return the driver that the tester YAML asks for. Raises :class:`EngineError`."""
    from securebench.sandboxes.select import open_driver

    sandbox = config.sandbox
    return open_driver(sandbox.driver, sandbox.runtime, config.run.id, notify, sandbox.settings)


def make_gateway(log: Callable[[Mapping[str, JsonValue]], None]) -> Gateway:
    """Return the way out of sandboxes, which gives each of its decisions to ``log``. Nothing is started yet."""
    from securebench.egress.gateway import Gateway

    return Gateway(log)


def driver_asked_for(sandbox: SandboxConfig, override: str | None, earlier: RunHeader | None) -> SandboxConfig:
    """Return what to make the sandboxes with: what is asked for, or with ``auto`` what the run began with.

    So a run that is resumed does not change to a driver that could not be had when it began. One that is asked for by
    name is taken as it is: whether it fits is the header's to say.
    """
    asked = sandbox if override in (None, sandbox.driver) else replace(sandbox, driver=str(override), settings=None)
    begun = earlier.decisive.get("sandbox") if earlier else None
    if asked.driver != "auto" or not isinstance(begun, dict) or begun.get("driver") not in DRIVERS:
        return asked
    runtime = begun.get("runtime")
    return replace(asked, driver=str(begun["driver"]), runtime=asked.runtime or (str(runtime) if runtime else None))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The parts of a run, each replaceable. ``checkpoint`` is called at every point at which a run may be killed."""

    make_driver: Callable[[TesterConfig, Callable[[str], None]], SandboxDriver] = make_driver
    make_producer: Callable[[HarnessConfig], HarnessProducer] = build_harness_producer
    make_gateway: Callable[[Callable[[Mapping[str, JsonValue]], None]], Gateway] = make_gateway
    verifier_for: Callable[[str, VerifierConfig | None], Verifier | None] = verifier_for
    checkpoint: Callable[[str], None] = _ignore
