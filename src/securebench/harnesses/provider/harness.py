"""The harness of declared agents: install the program, check it, run it, monitor it and judge how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench import plugins
from securebench.agents.catalogue import find
from securebench.agents.declaration import (
    EXTRA_ARGUMENTS,
    AgentDeclaration,
    ConditionalArguments,
    ConditionalValue,
    fill,
)
from securebench.agents.store import AgentStore
from securebench.harnesses.agent_directory import agent_mounts
from securebench.harnesses.pipeline import Invocation, time_limit
from securebench.harnesses.provider.command_provider import dialect_facts
from securebench.harnesses.provider.connected import ConnectedHarness
from securebench.harnesses.provider.connection import ProviderConnection
from securebench.harnesses.provider.endpoints import NO_PROXY, PLACEHOLDER, endpoint_of
from securebench.harnesses.provider.events.mapped import MappedEventParser
from securebench.harnesses.provider.program.declared_files import DeclaredFiles
from securebench.harnesses.provider.program.installation import install
from securebench.harnesses.provider.program.settings import AgentSettings
from securebench.harnesses.provider.prompts import ANSWER_FILES, prompt_for
from securebench.harnesses.provider.session import SessionAgent
from securebench.plugins import ExtensionKind
from securebench.sandboxes.base import Mount
from securebench.tasks import DEFAULT_IMAGE
from securebench.tester_config import ProviderSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.declaration import Condition
    from securebench.agents.model import AgentProgram
    from securebench.harnesses.agent_session import AgentSession
    from securebench.harnesses.base import ProduceContext, RunContext
    from securebench.harnesses.provider.program.installation import Installation
    from securebench.harnesses.provider.program.runtime import AgentRuntime
    from securebench.harnesses.provider.self_report import EventParser
    from securebench.plugins import Identity
    from securebench.resources import JsonValue
    from securebench.tasks import AgentView
    from securebench.tester_config import HarnessSettings

PROGRAMS_TARGET: Final = "/opt/securebench/programs"
"""Where the program is mounted in the sandbox, read-only."""

HOME: Final = "/opt/securebench/home"
"""The program's home: an empty tmpfs, so that no task sees the files of another."""

_EXTRA_SECONDS: Final = 60.0
"""How many seconds longer a program waits than the relay, so that the relay records why there was no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The parameters of one program call.

    ``base_url`` is the URL to which the program sends model requests, including the API version.
    """

    executable: str
    interpreter: tuple[str, ...] = ()
    base_url: str
    key_name: str
    prompt: str
    key: str = PLACEHOLDER
    family: str = ""


class AgentType:
    """The harness type of a declared agent, for :func:`securebench.plugins.load`."""

    settings_model: Final = ProviderSettings

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def settings_defaults(self) -> dict[str, str]:
        """The default ``model``, if the declaration has one. Raises :class:`ConfigError` for a bad declaration."""
        declared = find(self.name).declared
        model = declared.default_model if isinstance(declared, AgentDeclaration) else None
        return {} if model is None else {"model": model}

    def from_settings(self, settings: HarnessSettings) -> ProviderHarness:
        """Return a harness with these settings."""
        assert isinstance(settings, ProviderSettings)
        return ProviderHarness(self.name, settings)


class ProviderHarness(ConnectedHarness):
    """A harness that runs a declared agent with a provider. Call :meth:`prepare` before :meth:`produce`.

    Raises the errors of :func:`find`, :class:`AgentSettings`, :func:`agent_mounts` and :meth:`ProviderFacts.with_auth`.
    :meth:`prepare` raises the errors of :meth:`ProviderConnection.prepare` and :func:`install`.
    """

    def __init__(self, name: str, config: ProviderSettings, store: AgentStore | None = None) -> None:
        self.name = name
        self.config = config
        self.known = find(name)
        declared = self.known.declared
        assert isinstance(declared, AgentDeclaration)
        self.declared = declared
        facts = dialect_facts(declared.dialect, declared.api_key_env)
        self._settings = AgentSettings(name, declared, config)
        self._agent_mounts = agent_mounts(config.agent_dir)
        self._store = store or AgentStore()
        self._connection = ProviderConnection(endpoint_of(facts, config))
        self._installed: Installation | None = None
        self._files: DeclaredFiles | None = None

    def argv(self, call: Call) -> tuple[str, ...]:
        """Return the command line. Pure."""
        declared, values = self.declared, self._values(call)
        arguments: list[str] = []
        for item in declared.family_arguments.get(call.family, declared.arguments):
            if item == EXTRA_ARGUMENTS:
                arguments += self._settings.extra_arguments
            elif not isinstance(item, ConditionalArguments):
                arguments.append(fill(item, values))
            elif self._holds(item.when):
                arguments += (fill(argument, values) for argument in item.arguments)
        return (*call.interpreter, call.executable, *arguments)

    def settings(self, call: Call) -> Mapping[str, str]:
        """Return the environment variables that the declaration sets. Pure."""
        values = self._values(call)
        return {
            name: fill(item.value if isinstance(item, ConditionalValue) else item, values)
            for name, item in self.declared.environment.items()
            if not isinstance(item, ConditionalValue) or self._holds(item.when)
        }

    def parser(self) -> EventParser | None:
        """Return a new event parser for one task, or ``None`` for a program that reports nothing."""
        events = self.declared.events
        if isinstance(events, str):
            parser: EventParser = plugins.load(ExtensionKind.EVENT_PARSER, events)()
            return parser
        return MappedEventParser(events) if events else None

    def identity(self) -> Identity | None:
        """See :meth:`Extension.identity`: the identity of the event parser's code."""
        return plugins.identity_of(type(self.parser() or self))

    def _holds(self, condition: Condition) -> bool:
        if condition == "exact_model":
            return self.config.model.partition("[")[0] not in self.declared.aliases
        if condition in ("provider_tools", "no_provider_tools"):
            return self.config.provider_tools is (condition == "provider_tools")
        return condition in self._settings.given

    def _values(self, call: Call) -> dict[str, str]:
        """Return the values of the placeholders."""
        timeouts = self.config.provider_timeouts
        return {
            "model": self.config.model,
            "prompt": call.prompt,
            "base_url": call.base_url,
            "root_url": call.base_url.removesuffix("beta").removesuffix("/v1"),
            "api_key": call.key,
            "api_key_env": call.key_name,
            "home": HOME,
            "task_file": self.config.task_file,
            "program": PROGRAMS_TARGET,
            "idle_timeout_ms": timeout_ms(max(timeouts.first_byte, timeouts.between_bytes)),
            "answer_timeout_ms": timeout_ms(timeouts.whole_answer),
            **self._settings.placeholders(),
        }

    @property
    def programs(self) -> tuple[str, ...]:
        """See :attr:`HarnessProducer.programs`. ``DEFAULT_IMAGE`` is included if the program needs a runtime."""
        return (*self._store.references, *((DEFAULT_IMAGE,) if self._runtime else ()))

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.prepare`. Images with the same kind of C library share one program."""
        self._connection.prepare(run)
        installation = install(self._store, self.name, self.config.version, run, PROGRAMS_TARGET)
        if warning := self._model_warning(installation):
            run.notify(warning)
        self._installed = installation
        if self.declared.files:
            self._files = DeclaredFiles(self.declared.files, self._values(self._call("", prompt="")))
        declaration = {} if self.known.is_own else {"declaration": self.known.digest}
        return {
            "program": self.name,
            **installation.identity(),
            **declaration,
            **self._settings.identity(),
            **self._connection.endpoint.identity(),
        }

    def invocation(self, view: AgentView) -> Invocation:
        """Return how to run the program; the shorter of the tester's and the task's time limits applies."""
        config = self.config
        program, runtime, endpoint = self._program(view), self._runtime, self._connection.endpoint
        call = self._call(program.executable, prompt=prompt_for(view), family=view.family)
        return Invocation(
            argv=self.argv(call),
            timeout_seconds=time_limit(config.timeout_seconds, view),
            artifact_path=ANSWER_FILES.get(view.candidate_kind),
            task_file=config.task_file,
            environment={**self.settings(call), **(NO_PROXY if endpoint.is_relayed else {})},
            mounts=(
                Mount(program.directory, PROGRAMS_TARGET),
                *(runtime.mounts if runtime else ()),
                *self._agent_mounts,
                *(self._files.mounts if self._files else ()),
            ),
            home=HOME,
        )

    def open_session(self, view: AgentView, context: ProduceContext) -> AgentSession:
        """Open egress to the provider and the allowed domains, and return the agent's session.

        Raises :class:`EgressError`.
        """
        program = self._program(view)
        identity: dict[str, JsonValue] = {"program": program.name, "version": program.version}
        agent = SessionAgent(
            identity=identity,
            parser=self.parser(),
            # MCP servers and extra arguments of the tester may act before the model's first answer.
            is_trusted=self.known.is_own and not (self.config.mcp_servers or self.config.extra_arguments),
            gave_up_exit_codes=self.declared.gave_up_exit_codes,
        )
        return self._connection.open_session(view, context, agent)

    def _model_warning(self, installation: Installation) -> str:
        """Return a warning if the program does not list the model, else an empty string.

        Only the pinned version is checked, and only without a custom ``base_url``.
        """
        if not self._connection.endpoint.is_own or self.known.knows_model(installation.version, self.config.model):
            return ""
        return (
            f"{self.name} {installation.version} does not list the model {self.config.model} and may use "
            "unsuitable settings for it, which can lower the score; to use a newer program, set harness.config.version"
        )

    def _call(self, executable: str, *, prompt: str, family: str = "") -> Call:
        endpoint, key = self._connection.endpoint, self._connection.key
        return Call(
            executable=f"{PROGRAMS_TARGET}/{executable}",
            interpreter=(
                *(self._files.command if self._files else ()),
                *(self._runtime.command if self._runtime else ()),
            ),
            base_url=endpoint.agent_url,
            key_name=key.name,
            prompt=prompt,
            key=PLACEHOLDER if endpoint.is_relayed else key.value,
            family=family,
        )

    @property
    def _runtime(self) -> AgentRuntime | None:
        return self._installed.runtime if self._installed else None

    def _program(self, view: AgentView) -> AgentProgram:
        if self._installed is None:
            raise AssertionError("call prepare() before produce()")
        return self._installed.programs[view.environment.image or DEFAULT_IMAGE]


def timeout_ms(seconds: float) -> str:
    """Return the timeout of a program, in milliseconds. It is longer than the relay's timeout, ``seconds``."""
    return str(int((seconds + _EXTRA_SECONDS) * 1000))
