"""The options of a run, and its replaceable parts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from securebench import plugins
from securebench.harnesses.registry import build_harness_producer
from securebench.plugins import AUTO_DRIVER, ExtensionKind
from securebench.results.records.commitment import Commitment
from securebench.strict_input.models import WireModel
from securebench.verifiers.registry import verifier_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.egress.gateway import Gateway
    from securebench.executors.base import Executor
    from securebench.harnesses.base import HarnessProducer
    from securebench.resources import JsonValue
    from securebench.results.run_directory.header import RunHeader
    from securebench.sandboxes.base import SandboxDriver
    from securebench.signing.signers import StatementSigner
    from securebench.tester_config import (
        HarnessConfig,
        JudgeSettings,
        KeepWorkspaces,
        RunConfig,
        SandboxConfig,
        TesterConfig,
        VerifierConfig,
    )
    from securebench.tester_run.judge import RunJudge
    from securebench.trials import TrialId
    from securebench.verifiers.base import Verifier


def _ignore(_text: str) -> None:
    """Ignore the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The choices of the user who starts a run. ``None`` means the value of the tester YAML, if it has one.

    ``task``, ``tag``, ``family``, ``shuffle`` and ``limit`` replace the values in ``run.select``: see
    :class:`TaskSelection`. ``trials`` runs each task this many times. ``driver``, ``executor``, ``budget_usd`` and
    ``price_table`` replace ``sandbox.driver``, ``run.executor``, ``run.budget.usd`` and ``run.prices``. ``variables``
    has the values of ``harness.env`` and the keys of providers. ``notify`` gets messages that are not events, for
    example that an image is being pulled. ``handle_signals`` makes SIGINT, SIGTERM and SIGHUP stop the run cleanly; it
    works only in the main thread. ``show_agent_output`` reports the agents' output as events and writes it to
    ``agent-trace.log``. ``show_verifier_output`` is called from any thread with a trial and the output of its
    verifier's commands or judge model, if there is any; ``keep_verifier_output`` keeps this output in the run
    directory. ``sign`` signs the run when it ends.
    """

    task: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    shuffle: int | None = None
    limit: int | None = None
    trials: int | None = None
    output_dir: Path | None = None
    workers: int | Literal["auto"] | None = None
    keep_workspaces: KeepWorkspaces | None = None
    driver: str | None = None
    executor: str | None = None
    budget_usd: float | None = None
    price_table: Path | None = None
    resume: bool = False
    show_agent_output: bool = False
    keep_verifier_output: bool = False
    show_verifier_output: Callable[[TrialId, str], None] | None = None
    sign: StatementSigner | None = None
    handle_signals: bool = False
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    notify: Callable[[str], None] = _ignore


def make_driver(config: TesterConfig, notify: Callable[[str], None]) -> SandboxDriver:
    """Return the driver that the tester YAML asks for. Raises the errors of :func:`open_driver`."""
    from securebench.sandboxes.select import open_driver

    sandbox = config.sandbox
    return open_driver(sandbox.driver, sandbox.runtime, config.run.id, notify, sandbox.settings)


def make_executor(run: RunConfig, override: str | None, workers: int) -> Executor:
    """Return the executor that ``override`` names or, if it is ``None``, the one that the tester YAML names.

    ``run.executor_config`` applies only to the executor that the tester YAML names.
    """
    settings = run.executor_settings if override in (None, run.executor) else None
    found: type[Executor] = plugins.load(ExtensionKind.EXECUTOR, override or run.executor)
    return found.from_settings(settings or (found.settings_model or WireModel)(), workers)


def make_gateway(log: Callable[[Mapping[str, JsonValue]], None]) -> Gateway:
    """Return an egress gateway that reports its decisions to ``log``. It is not started yet."""
    from securebench.egress.gateway import Gateway

    return Gateway(log)


def make_judge(settings: JudgeSettings | None) -> RunJudge | None:
    """Return the judge model of a tester YAML, if it has one."""
    from securebench.tester_run.judge import ModelJudge

    return ModelJudge(settings) if settings else None


def requested_sandbox(sandbox: SandboxConfig, override: str | None, earlier: RunHeader | None) -> SandboxConfig:
    """Return the sandbox settings to use. With the driver ``auto``, a resumed run keeps the driver that it began with.

    The run keeps this driver even if a better one is available now. The exception is a driver from an extension:
    ``auto`` then chooses again. A driver that the user names is returned unchanged. Whether the run may be resumed with
    this driver is checked later, with the run's header.
    """
    requested = sandbox if override in (None, sandbox.driver) else replace(sandbox, driver=str(override), settings=None)
    begun = earlier.decisive.get("sandbox") if earlier else None
    if requested.driver != AUTO_DRIVER or not isinstance(begun, dict):
        return requested
    if begun.get("driver") not in plugins.own_names(ExtensionKind.DRIVER):  # auto chooses no other drivers
        return requested
    runtime = begun.get("runtime")
    return replace(
        requested, driver=str(begun["driver"]), runtime=requested.runtime or (str(runtime) if runtime else None)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The replaceable parts of a run."""

    make_driver: Callable[[TesterConfig, Callable[[str], None]], SandboxDriver] = make_driver
    make_producer: Callable[[HarnessConfig], HarnessProducer] = build_harness_producer
    make_gateway: Callable[[Callable[[Mapping[str, JsonValue]], None]], Gateway] = make_gateway
    make_judge: Callable[[JudgeSettings | None], RunJudge | None] = make_judge
    verifier_for: Callable[[str, VerifierConfig | None], Verifier | None] = verifier_for
    new_commitment: Callable[[], Commitment] = Commitment.new
