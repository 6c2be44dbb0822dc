"""The command harness: the agent is a command that the tester provides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.egress.model import EgressPlan
from securebench.harnesses.agent_directory import agent_mounts
from securebench.harnesses.agent_session import AgentSession, EgressAgentSession, open_egress
from securebench.harnesses.pipeline import Harness, Invocation, time_limit
from securebench.harnesses.provider.command_provider import command_variables, model_endpoint
from securebench.harnesses.provider.connection import ProviderConnection
from securebench.harnesses.provider.session import SessionAgent
from securebench.tester_config import CommandConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.egress.gateway import Gateway
    from securebench.errors import Problem
    from securebench.harnesses.base import ProduceContext, RunContext
    from securebench.resources import JsonValue
    from securebench.tasks import AgentView
    from securebench.tester_config import PriceTable


class CommandHarnessProducer(Harness):
    """Runs ``config.command``. Its answer is its stdout, the file ``config.artifact_path``, or the files it changed.

    The agent can reach only the domains in ``config.allowed_domains``, through a proxy; by default, none. With
    ``config.provider`` it can also use one model through a relay, as the built-in agents do.

    Raises :class:`ConfigError` (``agent-dir-missing``, ``agent-dir-unreadable``, ``auth-unfit``).
    """

    name = "command"
    settings_model = CommandConfig

    def __init__(self, config: CommandConfig) -> None:
        self._config = config
        self._mounts = agent_mounts(config.agent_dir)
        provider, domains = config.provider, config.allowed_domains
        endpoint = model_endpoint(provider, "harness.config.provider", domains) if provider else None
        self._connection = ProviderConnection(endpoint) if endpoint else None

    @property
    def needs_gateway(self) -> bool:
        """Whether the agent needs egress: for its allowed domains or its provider."""
        return bool(self._config.allowed_domains or self._connection)

    @property
    def credentials(self) -> tuple[str, ...]:
        """The provider key, after :meth:`prepare`."""
        return self._connection.credentials if self._connection else ()

    def use_prices(self, table: PriceTable | None) -> Problem | None:
        """See :meth:`HarnessProducer.use_prices`."""
        return self._connection.use_prices(table) if self._connection else super().use_prices(table)

    def require_key(self, variables: Mapping[str, str]) -> None:
        """See :meth:`HarnessProducer.require_key`."""
        if self._connection:
            self._connection.require_key(variables)

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.prepare`. Reads the provider key, if there is a provider."""
        if self._connection is None:
            return {}
        self._connection.prepare(run)
        effort = self._config.provider.effort if self._config.provider else None
        return {**self._connection.endpoint.identity(), **({"settings": {"effort": effort}} if effort else {})}

    def check_provider(
        self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None]
    ) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.check_provider`."""
        return self._connection.check(open_gateway, notify) if self._connection else {}

    def open_session(self, view: AgentView, context: ProduceContext) -> AgentSession:
        """Open egress to the provider and the allowed domains, if any, and return the session of the agent.

        Raises :class:`EgressError`.
        """
        if self._connection:
            return self._connection.open_session(view, context, SessionAgent())
        if not self.needs_gateway:
            return AgentSession()
        plan = EgressPlan(domains=self._config.allowed_domains)
        return EgressAgentSession(open_egress(view, plan, context))

    def invocation(self, view: AgentView) -> Invocation:
        """Return the command; the shorter of the tester's and the task's time limits applies."""
        config = self._config
        connection, provider = self._connection, self._config.provider
        return Invocation(
            argv=config.command,
            timeout_seconds=time_limit(config.timeout_seconds, view),
            artifact_path=config.artifact_path,
            task_file=config.task_file,
            environment=command_variables(provider, connection.endpoint) if connection and provider else {},
            mounts=self._mounts,
        )
