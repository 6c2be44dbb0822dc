"""The connection of a run's agents to their model provider: the key, the check before the run, and the sessions.

Declared agents, commands with a provider, plain models and the judge model use it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from securebench.egress.model import PROVIDER_TROUBLES, ProbeReport, Trouble
from securebench.errors import ConfigError, ProviderError
from securebench.harnesses.agent_session import open_egress
from securebench.harnesses.provider.ca_bundle import read_ca_bundle
from securebench.harnesses.provider.endpoints import HostNetwork
from securebench.harnesses.provider.proxy import proxy_of
from securebench.harnesses.provider.session import ProviderSession, ProviderSetup, probes_of
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.egress.gateway import EgressSession, Gateway
    from securebench.errors import Problem
    from securebench.harnesses.base import ProduceContext, RunContext
    from securebench.harnesses.provider.endpoints import ProviderEndpoint, ProviderKey
    from securebench.harnesses.provider.session import SessionAgent
    from securebench.resources import JsonValue
    from securebench.tasks import AgentView
    from securebench.tester_config import PriceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Secrets:
    """What :meth:`ProviderConnection.prepare` read from the tester's variables."""

    key: ProviderKey
    network: HostNetwork


class ProviderConnection:
    """The connection to one provider endpoint. Call :meth:`prepare` before any method that needs the key."""

    def __init__(self, endpoint: ProviderEndpoint) -> None:
        self.endpoint = endpoint
        self._secrets: _Secrets | None = None

    @property
    def key(self) -> ProviderKey:
        """The provider key."""
        return self._prepared.key

    @property
    def credentials(self) -> tuple[str, ...]:
        """The provider key for :attr:`HarnessProducer.credentials`; empty before :meth:`prepare`, or without a key."""
        return tuple(filter(None, [self._secrets.key.value])) if self._secrets else ()

    def use_prices(self, table: PriceTable | None) -> Problem | None:
        """See :meth:`HarnessProducer.use_prices`."""
        self.endpoint = self.endpoint.priced(table)
        fault = self.endpoint.cost_fault()
        if fault and self.endpoint.budget.usd is not None:
            place = f"{self.endpoint.place}.budget.usd"
            raise ConfigError(f"{place} cannot be enforced: {fault.message}", code=fault.code, hint=fault.hint)
        return fault

    def require_key(self, variables: Mapping[str, str]) -> None:
        """See :meth:`HarnessProducer.require_key`."""
        self.endpoint.with_cloud(variables).key(variables)

    def prepare(self, run: RunContext) -> None:
        """Read the key, and warn about the configuration.

        Raises :class:`ConfigError` (``env-missing``, ``key-malformed``, ``proxy-invalid``, ``subscription-token``).
        """
        self.endpoint = self.endpoint.with_cloud(run.variables)
        key = self.endpoint.key(run.variables)
        network = HostNetwork(
            ca_bundle=read_ca_bundle(run.variables, run.notify),
            proxy=proxy_of(run.variables, self.endpoint.base_url),
        )
        self._secrets = _Secrets(key=key, network=network)
        if warning := self.endpoint.warning():
            run.notify(warning)

    def check(self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None]) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.check_provider`.

        Raises ``provider-refused``, ``provider-rejected``, ``provider-unreachable``, and :class:`EgressError`.
        """
        if self.endpoint.cloud:
            cloud = self.endpoint.cloud
            notify(f"{cloud} is set: only the agent has the credentials, so SecureBench checks neither key nor model")
            return {}
        with closing(open_gateway()) as gateway:
            return self.probe(gateway, notify)

    def probe(self, gateway: Gateway, notify: Callable[[str], None]) -> Mapping[str, JsonValue]:
        """Check key and model through ``gateway``, as :meth:`check` does."""
        endpoint, secrets = self.endpoint, self._prepared
        report = gateway.probe(None, endpoint.relay_plan(secrets.key, secrets.network), endpoint.model)
        if report.trouble is Trouble.REFUSED:
            raise ConfigError(
                f"the model provider at {endpoint.host} refused access: {report.message}",
                code="provider-refused",
                hint=f"check {secrets.key.name}, and that the key's account may use the model {endpoint.model}"
                if secrets.key.value
                else f"set {' or '.join(endpoint.facts.key_names)}: no key was sent",
            )
        if report.model_unknown:
            raise ConfigError(
                f"the model provider at {endpoint.host} has no model {endpoint.model}: {report.message}",
                code="provider-rejected",
                hint=f"check {endpoint.place}.model",
            )
        if report.is_foreign:
            message = f"the server at {endpoint.host} did not answer as the configured API does: {report.message}"
            raise ConfigError(message, code="provider-rejected", hint=endpoint.url_hint)
        # With passthrough, agents connect through the proxy, which may reach hosts that the probe cannot reach.
        if not report.is_connected and endpoint.is_relayed:
            own_url = "" if endpoint.is_own else f", and {endpoint.place}.base_url"
            raise ProviderError(
                f"cannot connect to the model provider at {endpoint.host}: {report.message}",
                code="provider-unreachable",
                hint=f"check the network and HTTPS_PROXY{own_url}",
            )
        if warning := _warning(report):
            notify(warning)
        return probes_of([report], endpoint.token_prices)

    def open_session(self, view: AgentView, context: ProduceContext, agent: SessionAgent) -> ProviderSession:
        """Open egress to the provider for one try of a task. Raises :class:`EgressError`."""
        endpoint, secrets = self.endpoint, self._prepared
        asking = endpoint.relay_plan(secrets.key, secrets.network)
        session = open_egress(view, endpoint.plan(secrets.key, secrets.network, context.spent), context)
        assert context.gateway is not None
        setup = ProviderSetup(
            agent=agent,
            model=endpoint.model,
            ask=partial(context.gateway.probe, TrialId(view.task_id, context.trial), asking)
            if not endpoint.cloud
            else lambda _model: ProbeReport(),
            pause=context.pause,
            prices=endpoint.token_prices,
            environment=endpoint.key_variables(context.environment, secrets.key),
        )
        return ProviderSession(session, setup)

    def open_relay(self, gateway: Gateway, trial: TrialId) -> EgressSession:
        """Open a relay to the provider for requests that SecureBench itself sends. Raises :class:`EgressError`."""
        return gateway.open(trial, self.endpoint.plan(self._prepared.key, self._prepared.network))

    @property
    def _prepared(self) -> _Secrets:
        if self._secrets is None:
            raise AssertionError("call prepare() first")
        return self._secrets


def _warning(report: ProbeReport) -> str:
    """Return a warning if the first probe met trouble that does not end the run, else an empty string."""
    if report.trouble in PROVIDER_TROUBLES:
        return (
            f"the model provider may be unavailable: {report.message}; the run continues and retries failures of the "
            "provider"
        )
    if report.trouble is Trouble.REJECTED:
        return f"cannot check the key and the model: the provider rejected the test request: {report.message}"
    return ""
