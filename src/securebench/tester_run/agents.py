"""Prepare the agents of a run: their program, their egress, their secrets."""

from __future__ import annotations

import re
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.harnesses.base import RunContext
from securebench.results.egress_log import EGRESS_LOG, EgressLog
from securebench.results.redaction import Redactor
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.egress.gateway import Gateway
    from securebench.harnesses.base import HarnessProducer
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue
    from securebench.results.run_header import RunHeader
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tester_run.options import RunOptions, RunParts
    from securebench.tester_run.plan import Plan

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|AUTH)S?(?:_|$)", re.IGNORECASE
)


def prepare_agents(
    plan: Plan,
    driver: SandboxDriver,
    images: Sequence[ResolvedImage],
    earlier: RunHeader | None,
    options: RunOptions,
) -> Mapping[str, JsonValue]:
    """Prepare the harness for the ``images`` that agents run in, and return which agent it is.

    Raises :class:`ConfigError` and :class:`InfrastructureError`.
    """
    references = {task.environment.image or DEFAULT_IMAGE for task in plan.tasks}
    before = earlier.decisive.get("agent") if earlier else None
    notify = _scrubbed(options.notify, plan.producer)
    agent = plan.producer.prepare(
        RunContext(
            driver=driver,
            images=tuple(image for image in images if image.reference in references),
            variables=options.variables,
            notify=notify,
            agent=before if isinstance(before, dict) else {},
        )
    )
    for name in exposed_secrets(plan.environment, plan.producer.credentials):
        notify(f"harness.env exposes {name} to the agent's sandbox; the name suggests a secret")
    return agent


@dataclass(frozen=True, slots=True)
class ProviderCheck:
    """The usage of a provider check, and its lines for the egress log."""

    usage: Mapping[str, JsonValue]
    lines: Sequence[Mapping[str, JsonValue]]


def check_provider(plan: Plan, parts: RunParts, options: RunOptions) -> ProviderCheck:
    """Check key and model with the model provider, if the harness uses one.

    Otherwise, a rejected key would fail every task. Raises :class:`ConfigError` and
    :class:`EgressError`.
    """
    lines: list[Mapping[str, JsonValue]] = []
    notify = _scrubbed(options.notify, plan.producer)
    usage = plan.producer.check_provider(lambda: parts.make_gateway(lines.append), notify)
    return ProviderCheck(usage, lines)


def exposed_secrets(environment: Mapping[str, str], kept: Sequence[str]) -> list[str]:
    """Return the names of variables that look like secrets, except those whose values the harness keeps (``kept``)."""
    return [name for name, value in environment.items() if _SECRET_NAME.search(name) and value not in kept]


@dataclass(frozen=True, slots=True)
class RunEgress:
    """The egress gateway of a run, if agents have egress, and its log."""

    gateway: Gateway | None = None
    log: EgressLog | None = None

    @property
    def trouble(self) -> str:
        """What is missing in the log and why."""
        return self.log.trouble if self.log else ""


@contextmanager
def run_egress(plan: Plan, parts: RunParts, log_name: str = EGRESS_LOG) -> Iterator[RunEgress]:
    """Yield the egress of a run, logged to ``log_name``. Raises :class:`StorageError` if that cannot be opened."""
    if not plan.producer.needs_gateway:
        yield RunEgress()
        return
    secrets = (*plan.environment.values(), *plan.producer.credentials)
    with (
        EgressLog(plan.directory / log_name, Redactor(credentials=secrets)) as log,
        closing(parts.make_gateway(log)) as gateway,
    ):
        yield RunEgress(gateway, log)


def _scrubbed(notify: Callable[[str], None], producer: HarnessProducer) -> Callable[[str], None]:
    """Return ``notify`` with the credentials redacted that the harness has at the time of each call."""
    return lambda text: notify(Redactor(credentials=producer.credentials).text(text))
