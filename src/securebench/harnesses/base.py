"""The harness interface: a harness turns an agent's view of a task into a sealed candidate or a typed failure."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from securebench.errors import Problem
from securebench.plugins import Extension
from securebench.tester_config import HarnessSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.candidates.store import CandidateStore
    from securebench.egress.gateway import Gateway
    from securebench.errors import CandidateError, InfrastructureError
    from securebench.images.model import ResolvedImage
    from securebench.progress import Reporter
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Limits, SandboxDriver
    from securebench.tasks import AgentView
    from securebench.tester_config import PriceTable


@dataclass(frozen=True, slots=True)
class Spent:
    """What earlier tries and attempts of a trial used at the model provider. It is charged to the trial's budget."""

    requests: int = 0
    tokens: int = 0
    bytes: int = 0
    micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceContext:
    """What a harness gets for one try of a trial, such as a sandbox driver, a workspace path and a candidate store."""

    driver: SandboxDriver
    store: CandidateStore
    workspace: Path
    """The host directory for this task's workspace. It is emptied first; only this agent uses it."""
    keep_workspace: bool = True
    """Whether ``workspace`` must contain the agent's files afterwards, so that the user can look at them."""
    report: Reporter
    limits: Limits
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables named by ``harness.env``, with their values."""
    gateway: Gateway | None = None
    """The egress gateway, if agents have egress."""
    pause: Callable[[float], None] = time.sleep
    """A function that sleeps for the given number of seconds. It raises if the run is stopped meanwhile."""
    spent: Spent = field(default_factory=Spent)
    trial: int = 1
    """Which trial of the task this is, from 1."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """The result of an agent: a candidate, a failure, or both (the agent failed but left something to seal).

    A ``fault`` replaces both: the infrastructure failed while the agent worked. The other fields then describe what
    the agent used and how far it got.
    """

    candidate: CandidateArtifact | None
    failure: CandidateError | None = None
    fault: InfrastructureError | None = None
    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    trajectory: str = ""
    """The agent's steps as JSON lines, as the agent reported them, bounded in size. Empty if it reports none."""
    image_id: str = ""
    duration_seconds: float = 0.0
    recorded: Mapping[str, JsonValue] = field(default_factory=dict)
    """If a sealed candidate is judged again: the candidate fields of its earlier record, already redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a harness gets before the first task of a run.

    ``images`` are the images that agents will run in. ``variables`` are the tester's variables, from the environment
    and the env file. For a resumed run, ``agent`` is what :meth:`HarnessProducer.prepare` returned when the run was
    started; for a new run, it is empty.
    """

    driver: SandboxDriver
    images: tuple[ResolvedImage, ...]
    variables: Mapping[str, str]
    notify: Callable[[str], None]
    agent: Mapping[str, JsonValue] = field(default_factory=dict)


class HarnessProducer(Extension, ABC):
    """A harness. One instance serves all threads of a run and keeps no state between tasks."""

    name: str
    settings_model: ClassVar[type[HarnessSettings]] = HarnessSettings
    """The configuration model of ``harness.config``."""

    @classmethod
    def from_settings(cls, settings: HarnessSettings) -> Self:
        """Return a harness with these settings, which are an instance of ``settings_model``."""
        return cls(settings)  # type: ignore[call-arg]  # the constructor of the subclass takes its settings

    @property
    def needs_gateway(self) -> bool:
        """Whether the harness's agents need egress."""
        return False

    @property
    def credentials(self) -> tuple[str, ...]:
        """The secrets that the harness holds on the host. They are redacted from every record and log."""
        return ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The references of the images that contain the agents' programs, and of images that these programs need.

        They are known after :meth:`prepare`.
        """
        return ()

    def use_prices(self, table: PriceTable | None) -> Problem | None:
        """Use the prices of ``table``, by default SecureBench's own. Called once, before everything else.

        Returns a problem (``price-missing``) if the costs of the agents cannot be counted, otherwise ``None``. If the
        settings have a budget in money, the problem is raised as a :class:`ConfigError` instead.
        """
        del table
        why = "the agents do not use a model through the relay"
        return Problem("price-missing", why, hint="remove the budget")

    def require_key(self, variables: Mapping[str, str]) -> None:
        """Raise :class:`ConfigError` if the tester's ``variables`` lack a key that the harness needs. Works offline."""
        del variables

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """Prepare the run, once, before any task, and return the agent's identity: equal values mean the same agent.

        The identity is stored in ``run.json`` and in every record; a run can only be resumed with an equal one. Raises
        :class:`ConfigError` and :class:`InfrastructureError`.
        """
        del run
        return {}

    def check_provider(
        self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None]
    ) -> Mapping[str, JsonValue]:
        """Check the key and the model with the model provider, if there is one. Called before the first task.

        Returns the usage of the check. Raises :class:`ConfigError` if the provider rejects the key or the model, and
        :class:`ProviderError` if it cannot be reached; the run then calls this method again. Also raises
        :class:`EgressError`. Warnings about other problems, which may be temporary, go to ``notify``. ``open_gateway``
        makes a gateway, which this method closes.
        """
        del open_gateway, notify
        return {}

    @abstractmethod
    def produce(self, view: AgentView, context: ProduceContext) -> AgentResult:
        """Run the agent on one task and seal its candidate.

        The returned :class:`AgentResult` describes failures of the agent, and infrastructure failures after the agent
        has started (``fault``). An infrastructure failure before the agent starts raises :class:`InfrastructureError`.
        At any time, this method may raise :class:`StorageError`, :class:`ConfigError` and
        :class:`MaterializationError` (such as for a pack file that changed during the run).
        """
