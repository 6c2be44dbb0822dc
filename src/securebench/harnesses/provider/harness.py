"""The base of harnesses for agent programs with a model provider: install, check, run, monitor and judge.

A subclass defines only the program, its provider and its command line.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from securebench.agents.catalogue import find
from securebench.agents.store import AgentStore
from securebench.harnesses.pipeline import Harness, Invocation
from securebench.harnesses.provider.connection import ProviderConnection
from securebench.harnesses.provider.endpoints import NO_PROXY, endpoint_of
from securebench.harnesses.provider.installation import install
from securebench.harnesses.provider.prompts import ANSWER_FILES, prompt_for
from securebench.harnesses.provider.session import SessionAgent
from securebench.sandboxes.base import Mount
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.agents.model import AgentProgram
    from securebench.egress.gateway import Gateway
    from securebench.harnesses.agent_session import AgentSession
    from securebench.harnesses.base import ProduceContext, RunContext
    from securebench.harnesses.provider.endpoints import ProviderFacts
    from securebench.harnesses.provider.installation import Installation
    from securebench.harnesses.provider.self_report import EventParser
    from securebench.resources import JsonValue
    from securebench.tasks import AgentView
    from securebench.tester_config import PriceTable, ProviderSettings

PROGRAMS_TARGET: Final = "/opt/securebench/programs"
"""Where the program is mounted in the sandbox, read-only."""

HOME: Final = "/opt/securebench/home"
"""The program's home: an empty tmpfs, so that no task sees the files of another."""

_EXTRA_SECONDS: Final = 60.0
"""Seconds that a program's timeout exceeds the relay's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The parameters of one program call. ``base_url`` includes the API version, as seen from the sandbox."""

    executable: str
    base_url: str
    key_name: str
    prompt: str


class ProviderHarness(Harness):
    """A harness that runs an agent program with a provider. Call :meth:`prepare` before :meth:`produce`.

    :meth:`prepare` raises :class:`ConfigError`: ``env-missing``, ``agent-unfit`` and the errors of the
    image store.
    """

    facts: ClassVar[ProviderFacts]

    def __init__(self, config: ProviderSettings, store: AgentStore | None = None) -> None:
        self.config = config
        self._store = store or AgentStore()
        self._connection = ProviderConnection(endpoint_of(self.facts, config))
        self._installed: Installation | None = None

    @abstractmethod
    def argv(self, call: Call) -> tuple[str, ...]:
        """Return the command line. Pure."""

    @abstractmethod
    def settings(self, call: Call) -> Mapping[str, str]:
        """Return the program's own variables. Pure."""

    @abstractmethod
    def parser(self) -> EventParser:
        """Return a new event parser for one task."""

    @property
    def needs_gateway(self) -> bool:
        """Whether its agents need egress: always, to their provider."""
        return True

    @property
    def credentials(self) -> tuple[str, ...]:
        """The provider key, after :meth:`prepare`."""
        return self._connection.credentials

    def use_prices(self, table: PriceTable | None) -> str:
        """See :meth:`HarnessProducer.use_prices`."""
        return self._connection.use_prices(table)

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.prepare`. Images with the same kind of C library share one program."""
        self._connection.prepare(run)
        installation = install(self._store, self.name, self.config.version, run, PROGRAMS_TARGET)
        if warning := self._model_warning(installation):
            run.notify(warning)
        self._installed = installation
        return {"program": self.name, **installation.identity(), **self._connection.endpoint.identity()}

    def check_provider(
        self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None]
    ) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.check_provider`."""
        return self._connection.check(open_gateway, notify)

    def invocation(self, view: AgentView) -> Invocation:
        """Return the program's command line; the shorter of the tester's and the task's time limits applies."""
        config, task_limit = self.config, view.environment.timeout_seconds
        program, endpoint = self._program(view), self._connection.endpoint
        call = Call(
            executable=f"{PROGRAMS_TARGET}/{program.executable}",
            base_url=endpoint.agent_url,
            key_name=self._connection.key.name,
            prompt=prompt_for(view),
        )
        return Invocation(
            argv=self.argv(call),
            timeout_seconds=config.timeout_seconds if task_limit is None else min(config.timeout_seconds, task_limit),
            artifact_path=ANSWER_FILES.get(view.candidate_kind),
            task_file=config.task_file,
            environment={**self.settings(call), **(NO_PROXY if endpoint.is_relayed else {})},
            mounts=(Mount(program.directory, PROGRAMS_TARGET),),
            home=HOME,
        )

    def open_session(self, view: AgentView, context: ProduceContext) -> AgentSession:
        """Open egress to the provider. Raises :class:`EgressError`."""
        program = self._program(view)
        identity: dict[str, JsonValue] = {"program": program.name, "version": program.version}
        return self._connection.open_session(view, context, SessionAgent(identity=identity, parser=self.parser()))

    def _model_warning(self, installation: Installation) -> str:
        """Return a warning about a model that the program does not know. Other endpoints have models of their own."""
        if not self._connection.endpoint.is_own or find(self.name).knows_model(installation.version, self.config.model):
            return ""
        return (
            f"{self.name} {installation.version} does not list the model {self.config.model} and may use unfit "
            "settings for it, which can lower the score; see harness.config.version for a newer program"
        )

    def _program(self, view: AgentView) -> AgentProgram:
        if self._installed is None:
            raise AssertionError("call prepare() before produce()")
        return self._installed.programs[view.environment.image or DEFAULT_IMAGE]


def timeout_ms(seconds: float) -> int:
    """Return a program's timeout in milliseconds; the relay's timeout is ``seconds``."""
    return int((seconds + _EXTRA_SECONDS) * 1000)
