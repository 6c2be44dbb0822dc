"""The base of harnesses for agent programs with a model provider: install, check, run, monitor and judge.

A subclass defines only the program, its provider and its command line.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from securebench.agents.catalogue import find
from securebench.agents.store import AgentStore
from securebench.egress.gateway import RELAY_PORT
from securebench.egress.model import PROVIDER_TROUBLES, Trouble
from securebench.errors import ConfigError
from securebench.harnesses.agent_session import open_egress
from securebench.harnesses.pipeline import Harness, Invocation
from securebench.harnesses.provider.ca_bundle import read_ca_bundle
from securebench.harnesses.provider.endpoints import endpoint_of
from securebench.harnesses.provider.installation import Installation, install
from securebench.harnesses.provider.prompts import ANSWER_FILES, prompt_for
from securebench.harnesses.provider.session import ProviderSession, ProviderSetup, probes_of
from securebench.sandboxes.base import Mount
from securebench.tasks import DEFAULT_IMAGE
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.agents.model import AgentProgram
    from securebench.egress.gateway import Gateway
    from securebench.egress.model import ProbeReport
    from securebench.harnesses.agent_session import AgentSession
    from securebench.harnesses.base import ProduceContext, RunContext
    from securebench.harnesses.provider.endpoints import ProviderFacts, ProviderKey
    from securebench.harnesses.provider.self_report import EventParser
    from securebench.resources import JsonValue
    from securebench.tasks import AgentView
    from securebench.tester_config import ProviderSettings

PROGRAMS_TARGET: Final = "/opt/securebench/programs"
"""Where the program is mounted in the sandbox, read-only."""

HOME: Final = "/opt/securebench/home"
"""The program's home: an empty tmpfs, so that no task sees the files of another."""

_EXTRA_SECONDS: Final = 60.0
"""Seconds that a program's timeout exceeds the relay's."""

_NO_PROXY: Final = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
"""Makes programs connect to the relay directly, even if the image configures a proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The parameters of one program call. ``base_url`` includes the API version, as seen from the sandbox."""

    executable: str
    base_url: str
    key_name: str
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """The result of :meth:`ProviderHarness.prepare`."""

    key: ProviderKey
    ca_bundle: str | None
    installation: Installation


class ProviderHarness(Harness):
    """A harness that runs an agent program with a provider. Call :meth:`prepare` before :meth:`produce`.

    :meth:`prepare` raises :class:`ConfigError`: ``env-missing``, ``agent-unfit`` and the errors of the
    image store.
    """

    facts: ClassVar[ProviderFacts]

    def __init__(self, config: ProviderSettings, store: AgentStore | None = None) -> None:
        self.config = config
        self._store = store or AgentStore()
        self._endpoint = endpoint_of(self.facts, config)
        self._ready: _Ready | None = None

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
        return tuple(filter(None, [self._ready.key.value])) if self._ready else ()

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.prepare`. Images with the same kind of C library share one program."""
        key = self._endpoint.key(run.variables)
        installation = install(self._store, self.name, self.config.version, run, PROGRAMS_TARGET)
        ca_bundle = read_ca_bundle(run.variables, run.notify)
        for warning in (self._endpoint.warning(self.config), self._model_warning(installation)):
            if warning:
                run.notify(warning)
        self._ready = _Ready(key=key, ca_bundle=ca_bundle, installation=installation)
        return {"program": self.name, **installation.identity(), **self._assurance()}

    def check_provider(
        self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None]
    ) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.check_provider`: ``provider-refused`` and ``provider-rejected``."""
        ready = self._prepared
        plan = self._endpoint.relay_plan(self.config, ready.key, ready.ca_bundle)
        with closing(open_gateway()) as gateway:
            report = gateway.probe(None, plan, self.config.model)
        if report.trouble is Trouble.REFUSED:
            raise ConfigError(
                f"the model provider at {self._endpoint.host} does not accept the key: {report.message}",
                code="provider-refused",
                hint=f"check {ready.key.name} and that its account may use the model {self.config.model}",
            )
        if report.model_unknown:
            raise ConfigError(
                f"the model provider at {self._endpoint.host} has no model {self.config.model}: {report.message}",
                code="provider-rejected",
                hint="check harness.config.model",
            )
        if warning := _warning(report):
            notify(warning)
        return probes_of([report])

    def invocation(self, view: AgentView) -> Invocation:
        """Return the program's command line; the shorter of the tester's and the task's time limits applies."""
        config, task_limit = self.config, view.environment.timeout_seconds
        program, is_relayed = self._program(view), self._endpoint.is_relayed
        call = Call(
            executable=f"{PROGRAMS_TARGET}/{program.executable}",
            base_url=f"http://127.0.0.1:{RELAY_PORT}/v1" if is_relayed else self._endpoint.base_url,
            key_name=self._prepared.key.name,
            prompt=prompt_for(view),
        )
        return Invocation(
            argv=self.argv(call),
            timeout_seconds=config.timeout_seconds if task_limit is None else min(config.timeout_seconds, task_limit),
            artifact_path=ANSWER_FILES.get(view.candidate_kind),
            task_file=config.task_file,
            environment={**self.settings(call), **(_NO_PROXY if is_relayed else {})},
            mounts=(Mount(program.directory, PROGRAMS_TARGET),),
            home=HOME,
        )

    def open_session(self, view: AgentView, context: ProduceContext) -> AgentSession:
        """Open egress to the provider. Raises :class:`EgressError`."""
        ready, program = self._prepared, self._program(view)
        asking = self._endpoint.relay_plan(self.config, ready.key, ready.ca_bundle)
        plan = self._endpoint.plan(self.config, ready.key, ready.ca_bundle, context.spent)
        session = open_egress(view, plan, context)
        assert context.gateway is not None
        setup = ProviderSetup(
            parser=self.parser(),
            model=self.config.model,
            ask=partial(context.gateway.probe, TrialId(view.task_id, context.trial), asking),
            pause=context.pause,
            environment=self._endpoint.key_variables(context.environment, ready.key),
            agent={"program": program.name, "version": program.version},
        )
        return ProviderSession(session, setup)

    def _model_warning(self, installation: Installation) -> str:
        """Return a warning about a model that the program does not know. Other endpoints have models of their own."""
        if not self._endpoint.is_own or find(self.name).knows_model(installation.version, self.config.model):
            return ""
        return (
            f"{self.name} {installation.version} does not list the model {self.config.model} and may use unfit "
            "settings for it, which can lower the score; see harness.config.version for a newer program"
        )

    def _assurance(self) -> dict[str, Any]:
        """Return what records state about the provider and the protection of its key."""
        endpoint = self._endpoint
        relayed = endpoint.is_relayed
        return {
            "provider": self.facts.provider.value,
            "endpoint": endpoint.host,
            "model": self.config.model,
            "credentials": endpoint.credentials,
            "provider_tools": self.config.provider_tools if relayed else True,
            "assurance": "the key is outside the sandbox; a relay bounds and sees all requests"
            if relayed
            else "lower: the key is in the sandbox, nothing bounds requests, and the agent reports its own outcomes",
        }

    def _program(self, view: AgentView) -> AgentProgram:
        return self._prepared.installation.programs[view.environment.image or DEFAULT_IMAGE]

    @property
    def _prepared(self) -> _Ready:
        if self._ready is None:
            raise AssertionError("call prepare() before produce()")
        return self._ready


def timeout_ms(seconds: float) -> int:
    """Return a program's timeout in milliseconds; the relay's timeout is ``seconds``."""
    return int((seconds + _EXTRA_SECONDS) * 1000)


def _warning(report: ProbeReport) -> str:
    """Return the warning about a provider that failed the first probe but may recover."""
    if report.trouble in PROVIDER_TROUBLES:
        return f"the model provider may be unavailable: {report.message}; continuing, tasks will retry"
    if report.trouble is Trouble.REJECTED:
        return f"cannot check the key and the model: the provider rejected the test request: {report.message}"
    return ""
