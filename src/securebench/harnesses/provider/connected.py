"""The base class of harnesses that leave everything about the provider to a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.harnesses.pipeline import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.egress.gateway import Gateway
    from securebench.errors import Problem
    from securebench.harnesses.provider.connection import ProviderConnection
    from securebench.resources import JsonValue
    from securebench.tester_config import PriceTable


class ConnectedHarness(Harness):
    """A harness whose agents always use a model. A subclass sets ``_connection``, and prepares it in ``prepare``."""

    _connection: ProviderConnection

    @property
    def needs_gateway(self) -> bool:
        """Always true: the agents need their provider."""
        return True

    @property
    def credentials(self) -> tuple[str, ...]:
        """The provider key, after :meth:`prepare`."""
        return self._connection.credentials

    def use_prices(self, table: PriceTable | None) -> Problem | None:
        """See :meth:`HarnessProducer.use_prices`."""
        return self._connection.use_prices(table)

    def require_key(self, variables: Mapping[str, str]) -> None:
        """See :meth:`HarnessProducer.require_key`."""
        self._connection.require_key(variables)

    def check_provider(
        self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None]
    ) -> Mapping[str, JsonValue]:
        """See :meth:`HarnessProducer.check_provider`."""
        return self._connection.check(open_gateway, notify)
