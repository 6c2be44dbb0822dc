"""Prepare the agents of a run, and its judge model: their program, their egress, their secrets."""

from __future__ import annotations

import re
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.errors import ConfigError
from securebench.execution.retry import with_retries
from securebench.harnesses.base import RunContext
from securebench.results.records.redaction import Redactor
from securebench.results.records.usage import read_usage
from securebench.results.run_directory.egress_log import EGRESS_LOG, EgressLog
from securebench.results.run_directory.judge import calibration_in
from securebench.tasks import DEFAULT_IMAGE
from securebench.tester_run.judge import JudgeCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.egress.gateway import Gateway
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue
    from securebench.results.run_directory.header import RunHeader
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tester_run.cost import RunCost
    from securebench.tester_run.options import RunOptions, RunParts
    from securebench.tester_run.planning.plan import Plan

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
    """Prepare the harness and the judge for a run, and return the agent's identity.

    The harness is prepared for those of ``images`` in which agents run.

    Raises :class:`ConfigError` and :class:`InfrastructureError`.
    """
    references = {task.environment.image or DEFAULT_IMAGE for task in plan.tasks}
    before = earlier.decisive.get("agent") if earlier else None
    notify = _scrubbed(options.notify, plan)
    run = RunContext(
        driver=driver,
        images=tuple(image for image in images if image.reference in references),
        variables=options.variables,
        notify=notify,
        agent=before if isinstance(before, dict) else {},
    )
    agent = plan.producer.prepare(run)
    if plan.judge:
        plan.judge.prepare(run)
        _require_hidden(plan.judge.credentials, plan.environment)
    for name in exposed_secrets(plan.environment, plan.credentials):
        notify(f"harness.env exposes {name} to the agent's sandbox; the name suggests a secret")
    return agent


@dataclass(frozen=True, slots=True)
class ProviderCheck:
    """The results of checking the agents' provider and, if the run has a judge, the judge.

    ``usages`` has the usage of each check. ``lines`` are lines for the egress log.
    """

    usages: Sequence[Mapping[str, JsonValue]]
    lines: Sequence[Mapping[str, JsonValue]]


def check_provider(
    plan: Plan, parts: RunParts, options: RunOptions, earlier: RunHeader | None, cost: RunCost
) -> ProviderCheck:
    """Check the key and model of the harness, if it uses a model provider. Then check the judge, if the run has one.

    Without this check, a rejected key would make every task end in an error. The judge is calibrated unless ``earlier``
    contains a calibration. The cost of every request of the checks is added to ``cost``, and calibration stops when the
    run's budget is used up.
    Raises :class:`ConfigError` and :class:`InfrastructureError`.
    """
    lines: list[Mapping[str, JsonValue]] = []
    notify = _scrubbed(options.notify, plan)
    producer = plan.producer
    usages = [with_retries(lambda: producer.check_provider(lambda: parts.make_gateway(lines.append), notify), notify)]
    cost.add_check(read_usage(usages[0]))
    if plan.judge:
        check = JudgeCheck(plan.judge, plan.pack, plan.all_tasks, plan.workers, cost)
        is_calibrated = earlier is not None and calibration_in(earlier) is not None
        usages.append(
            check.run(lambda: parts.make_gateway(_of_judge(lines.append)), notify, is_calibrated=is_calibrated)
        )
    return ProviderCheck(usages, lines)


def exposed_secrets(environment: Mapping[str, str], kept: Sequence[str]) -> list[str]:
    """Return the names of variables that look like secrets, except variables whose values are in ``kept``."""
    return [name for name, value in environment.items() if _SECRET_NAME.search(name) and value not in kept]


@dataclass(frozen=True, slots=True)
class RunEgress:
    """The egress gateways of a run (for its agents and its judge) and their log. Unneeded fields are ``None``.

    The gateways are separate processes: what agents send never reaches the process that has the judge's key.
    """

    gateway: Gateway | None = None
    judge_gateway: Gateway | None = None
    log: EgressLog | None = None

    @property
    def trouble(self) -> str:
        """What is missing in the log and why; empty if the log is complete."""
        return self.log.trouble if self.log else ""


@contextmanager
def run_egress(plan: Plan, parts: RunParts, log_name: str = EGRESS_LOG) -> Iterator[RunEgress]:
    """Yield the egress of a run, logged to ``log_name``. Raises :class:`StorageError` if the log cannot be opened."""
    has_judge = plan.judge is not None and plan.judge.needs_gateway
    if not plan.producer.needs_gateway and not has_judge:
        yield RunEgress()
        return
    secrets = (*plan.environment.values(), *plan.credentials)
    with EgressLog(plan.directory / log_name, Redactor(credentials=secrets)) as log, ExitStack() as stack:
        gateway = stack.enter_context(closing(parts.make_gateway(log))) if plan.producer.needs_gateway else None
        judge = stack.enter_context(closing(parts.make_gateway(_of_judge(log)))) if has_judge else None
        yield RunEgress(gateway, judge, log)


def _of_judge(log: Callable[[Mapping[str, JsonValue]], None]) -> Callable[[Mapping[str, JsonValue]], None]:
    """Return a function that marks lines as the judge's and passes them to ``log``."""
    return lambda line: log({**line, "judge": True})


def _require_hidden(keys: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise :class:`ConfigError` (``key-exposed``) if an agent would get the judge's key."""
    for name, value in environment.items():
        if any(key in value for key in keys):
            raise ConfigError(
                f"harness.env gives agents the key of the judge, in {name}",
                code="key-exposed",
                hint=f"remove {name} from harness.env, or use another key for the judge (judge.api_key_env)",
            )


def _scrubbed(notify: Callable[[str], None], plan: Plan) -> Callable[[str], None]:
    """Return a function that redacts the run's current credentials in each message and passes it to ``notify``."""
    return lambda text: notify(Redactor(credentials=plan.credentials).text(text))
