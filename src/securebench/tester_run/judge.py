"""The judge model of a run. It has its own relay, and is checked before the first task."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from securebench.egress.model import Trouble
from securebench.egress.relay.error_responses import MAX_ERROR_BYTES, retry_after
from securebench.egress.relay.providers import dialect_of
from securebench.egress.relay.providers.base import read_object
from securebench.egress.relay.refusals import REFUSAL_HEADER, RelayRefusal
from securebench.errors import ConfigError, EgressError, FailurePhase, FailureReason, ProviderError
from securebench.execution import RunControl
from securebench.execution.retry import PROVIDER_BACK_OFF, pause_before_retry, with_retries
from securebench.execution.trail import Trail
from securebench.families.model_graded import is_model_graded
from securebench.harnesses.model.guest.apis import APIS, INVALID
from securebench.harnesses.provider.command_provider import model_endpoint
from securebench.harnesses.provider.connection import ProviderConnection
from securebench.harnesses.provider.outcomes import provider_error
from securebench.harnesses.provider.relay_client import RelayAnswer, RelayClient
from securebench.harnesses.provider.session import unreported
from securebench.money import in_usd
from securebench.plurals import counted
from securebench.results.records.provenance import json_digest
from securebench.results.records.usage import Usage, read_usage
from securebench.results.run_directory.judge import JudgeAgreement
from securebench.trials import TrialId
from securebench.verifiers.model_graded.grading import JUDGE_UNFIT, MAX_REQUESTS_A_VOTE, graded, read_replies
from securebench.verifiers.model_graded.prompt import GradingTask, quoted_bytes
from securebench.verifiers.model_graded.session import JudgeReply, JudgeSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.benchmark_pack.calibration import CalibrationItem
    from securebench.egress.gateway import Gateway
    from securebench.errors import Problem
    from securebench.harnesses.base import RunContext
    from securebench.harnesses.model.guest.apis import ModelApi
    from securebench.resources import JsonValue
    from securebench.tasks import SecureBenchTask
    from securebench.tester_config import JudgeSettings, PriceTable
    from securebench.tester_run.cost import RunCost
    from securebench.tester_run.sealed_run import SealedRun
    from securebench.verifiers.base import VerificationResult
    from securebench.verifiers.model_graded.prompt import JudgePrompt

_RETRIES: Final = len(PROVIDER_BACK_OFF)
"""The maximum number of retries in one session, for all of its requests together.

The count restarts when the judge answers a request about a control response (see ``grading.py``). A whole
verification is also repeated at most this many times.
"""
_JSON_BYTES: Final = 3
"""The maximum ratio of a text's size in JSON to its own size, if it has no unusual control characters.

The escape ``\\u00e9`` has six bytes, and the letter that it encodes has two. The relay charges a token for each
byte of a request if the provider does not report how many tokens the request has.
"""
_TOKEN_BYTES: Final = 32
"""The assumed maximum number of bytes per token in the JSON of an answer. A typical token has four bytes."""

_SPARE_SECONDS: Final = 60.0
_OK: Final = 200
_MAX_MODEL: Final = 120
"""Maximum characters of a model's name."""
_FILLER: Final = "This sentence is only here to fill the space. "
_RARE: Final = 0x20000
"""The first of 40,000 characters that hardly any text contains. Each has four bytes."""


class RunJudge(ABC):
    """The judge of a run. ``identity`` is what ``run.json`` and records say about it."""

    identity: Mapping[str, JsonValue]
    needs_gateway: bool = False
    credentials: tuple[str, ...] = ()

    def require_key(self, variables: Mapping[str, str]) -> None:
        """See :meth:`HarnessProducer.require_key`."""
        del variables

    def prepare(self, run: RunContext) -> None:
        """Read the key, if the judge needs one. Raises the errors of :meth:`ProviderConnection.prepare`."""
        del run

    def use_prices(self, table: PriceTable | None) -> Problem | None:
        """See :meth:`HarnessProducer.use_prices`."""
        del table
        return None

    def require_budget(self, tasks: Iterable[SecureBenchTask]) -> None:
        """Raise :class:`ConfigError` (``judge-budget``) if grading a response could use up ``judge.budget``."""
        del tasks

    @abstractmethod
    def session(self, gateway: Gateway | None, trial: TrialId, pause: Callable[[float], None]) -> JudgeSession:
        """Return the session of one trial. It opens egress with its first request."""


class ModelJudge(RunJudge):
    """The judge that the tester configured."""

    needs_gateway = True

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings = settings
        self.connection = ProviderConnection(model_endpoint(settings, "judge", ()))

    @property
    def identity(self) -> Mapping[str, JsonValue]:  # type: ignore[override]  # the prices are known only later
        """The model, dialect and endpoint, any known prices, effort and temperature, and the digest of all settings."""
        settings, endpoint = self.settings, self.connection.endpoint
        given = {name: getattr(settings, name) for name in ("effort", "temperature")}
        prices = endpoint.identity().get("prices")
        return {
            "dialect": settings.dialect,
            "endpoint": endpoint.host,
            "model": settings.model,
            **{name: value for name, value in given.items() if value is not None},
            **({"prices": prices} if prices else {}),
            "config": json_digest(settings.model_dump(mode="json")),
        }

    @property
    def credentials(self) -> tuple[str, ...]:  # type: ignore[override]  # known only after prepare()
        """The key, after :meth:`prepare`."""
        return self.connection.credentials

    def require_key(self, variables: Mapping[str, str]) -> None:
        """See :meth:`RunJudge.require_key`."""
        self.connection.require_key(variables)

    def prepare(self, run: RunContext) -> None:
        """See :meth:`RunJudge.prepare`."""
        self.connection.prepare(run)

    def use_prices(self, table: PriceTable | None) -> Problem | None:
        """See :meth:`RunJudge.use_prices`."""
        return self.connection.use_prices(table)

    def require_budget(self, tasks: Iterable[SecureBenchTask]) -> None:
        """See :meth:`RunJudge.require_budget`.

        Without this check, an agent could send a response whose grading uses up the budget, and so turn a failure into
        an error.
        """
        budget, prices = self.settings.budget, self.connection.endpoint.token_prices
        for task in map(GradingTask.of, filter(is_model_graded, map(_values, tasks))):
            answers = task.votes * (MAX_REQUESTS_A_VOTE + _RETRIES) + 2 * _RETRIES
            requests = 2 * answers  # each may first be rejected because of its form, see ModelApi.adapt()
            input_tokens = answers * _JSON_BYTES * task.longest_prompt
            output_tokens = answers * self.settings.max_tokens
            size = 2 * input_tokens + requests * MAX_ERROR_BYTES + _TOKEN_BYTES * output_tokens
            usd = in_usd(prices.max_cost(input_tokens, output_tokens)) if prices else 0.0
            least = {
                "requests": requests,
                "tokens": input_tokens + output_tokens,
                "bytes": size,
                **({"usd": usd} if budget.usd else {}),
            }
            if any(getattr(budget, name) < value for name, value in least.items()):
                raise ConfigError(
                    f"judge.budget is too small for {counted(task.votes, 'vote')} on a task of this pack",
                    code="judge-budget",
                    hint="raise judge.budget to what one task may need, at least "
                    + ", ".join(f"{name}: {math.ceil(100 * value) / 100:.15g}" for name, value in least.items()),
                )

    def session(self, gateway: Gateway | None, trial: TrialId, pause: Callable[[float], None]) -> JudgeSession:
        """See :meth:`RunJudge.session`."""
        assert gateway is not None
        return _ModelSession(self, gateway, trial, pause)


class _ModelSession(JudgeSession):
    """Asks the model through the relay. Not thread safe."""

    def __init__(self, judge: ModelJudge, gateway: Gateway, trial: TrialId, pause: Callable[[float], None]) -> None:
        super().__init__(judge.identity)
        self._judge, self._gateway, self._trial, self._pause = judge, gateway, trial, pause
        self._dialect = dialect_of(judge.connection.endpoint.facts.provider)
        self._client: RelayClient | None = None
        self._failures = 0

    def ask(self, prompt: JudgePrompt, *, is_control: bool) -> JudgeReply:
        """See :meth:`JudgeSession.ask`. If the provider fails, repeat the request unless ``is_control`` is true."""
        while True:
            reply, error = self._ask_once(prompt)
            if is_control and error is not None:
                raise error
            if error is None:
                self._failures = 0 if is_control else self._failures
                return reply
            self._failures += 1
            if (pause := pause_before_retry(error, self._failures)) is None:
                return reply
            self._pause(pause)

    def _ask_once(self, prompt: JudgePrompt) -> tuple[JudgeReply, ProviderError | None]:
        """Return the reply, with an error if the provider did not serve the judge."""
        settings = self._judge.settings
        setup = {name: getattr(settings, name) for name in ("model", "temperature", "max_tokens", "effort")}
        api = APIS[settings.dialect]({**setup, "system": prompt.system, "is_own": settings.base_url is None})
        api.say("user", prompt.user)
        answer = self._post(api)
        if answer.status not in (0, _OK) and api.adapt(answer.data):
            answer = self._post(api)
        if answer.headers.get(REFUSAL_HEADER) == RelayRefusal.BUDGET.value:
            raise ProviderError(
                "the judge used up its budget for this task, although the budget has one token for each byte of text",
                code="judge-budget",
                hint="use another provider: this one counts more tokens than a text has bytes",
            )
        content = read_object(answer.data)
        trouble: Trouble | None
        if answer.status == _OK:
            reading = self._dialect.read_whole(content)
            trouble = reading.trouble or (None if reading.ended else Trouble.FAILED)
            if trouble is None:
                return JudgeReply(text=_text(api.take, content), model=reading.model[:_MAX_MODEL]), None
        else:
            trouble = self._dialect.error_trouble(answer.status, content) if answer.status else Trouble.FAILED
        reply = JudgeReply(trouble=trouble.value)
        if trouble is Trouble.DECLINED:
            return reply, None
        pairs = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in answer.headers.items()]
        detail = f"HTTP status {answer.status}" if answer.status else "no complete answer"
        return reply, provider_error(trouble, detail, retry_after(pairs), served="judge")

    def close(self) -> Mapping[str, JsonValue]:
        """See :meth:`JudgeSession.close`."""
        report = self._client.close() if self._client else None
        self._client = None
        if report is None or report.relay is None:
            return {}
        relay = report.relay
        names = ("requests", "forgiven", "input_tokens", "output_tokens", "bytes")
        cost = {} if relay.micro_usd is None else {"cost_usd": in_usd(relay.micro_usd)}
        return {**{name: getattr(relay, name) for name in names}, **cost, **unreported(relay)}

    def _post(self, api: ModelApi) -> RelayAnswer:
        if self._client is None:
            session = self._judge.connection.open_relay(self._gateway, self._trial)
            timeout = self._judge.settings.timeouts.whole_answer + _SPARE_SECONDS
            self._client = RelayClient(session, lambda: self._pause(0), timeout)
        try:
            return self._client.post(api.path, api.body(with_shell=False), api.headers)
        except EgressError:
            self.close()  # the gateway is gone: the next try needs another one
            raise


def _text(take: Callable[[Any], Any], content: Mapping[str, JsonValue]) -> str:
    """Return the text of an answer. If it has no text, return an empty string, which is not a valid verdict."""
    try:
        return str(take(content).text)
    except INVALID:
        return ""


class RecordedJudge(RunJudge):
    """Answers with the recorded replies of a run's judge, so that verdicts are recomputed without new requests."""

    def __init__(self, sealed: SealedRun) -> None:
        self._sealed = sealed
        identity = sealed.run.header.decisive.get("judge")
        self.identity = identity if isinstance(identity, dict) else {}

    def session(self, gateway: Gateway | None, trial: TrialId, pause: Callable[[float], None]) -> JudgeSession:
        """See :meth:`RunJudge.session`."""
        del gateway, pause
        return _RecordedSession(self.identity, self._replies(trial))

    def _replies(self, trial: TrialId) -> list[JudgeReply]:
        if trial not in self._sealed.entries:
            return []
        verifier = self._sealed.record(trial).verifier
        try:
            return read_replies(verifier.metadata.get("evidence") if verifier else None)
        except ValueError:
            return []


class _RecordedSession(JudgeSession):
    def ask(self, prompt: JudgePrompt, *, is_control: bool) -> JudgeReply:
        """Raise :class:`ConfigError`, because a recorded judge cannot be asked again."""
        del prompt, is_control
        raise ConfigError(
            "the record does not have the judge's replies that this verdict needs",
            code="judge-replies-missing",
            hint="run the task again: its record was changed, or SecureBench now judges it differently",
        )


def judge_for(
    tasks: Iterable[SecureBenchTask],
    settings: JudgeSettings | None,
    make: Callable[[JudgeSettings | None], RunJudge | None],
) -> RunJudge | None:
    """Return the judge if ``tasks`` need one. Raises :class:`ConfigError` (``judge-missing``)."""
    if not any("rubric" in task.resources and is_model_graded(_values(task)) for task in tasks):
        return None
    judge = make(settings)
    if judge is None:
        raise ConfigError(
            "the pack has tasks with a model_graded rubric, and the tester YAML has no judge model",
            code="judge-missing",
            hint="add the section 'judge', or select other tasks with --task or --family",
        )
    return judge


def _longest(size: int) -> str:
    """Return a response that has about ``size`` bytes when quoted. Tokenizers split its rare characters into bytes."""
    words = _FILLER[: size - quoted_bytes(".") + 1]
    room = size - quoted_bytes(words)
    return words + "".join(chr(_RARE + 97 * number % 40_000) for number in range(room // 4))


def _values(task: SecureBenchTask) -> Mapping[str, Any]:
    return task.verifier_view().evaluator.payload()


class JudgeCheck:
    """Checks, before the first task, that a judge gives valid replies and agrees with the pack's calibration set.

    The check stops when the run's budget is used up. Then no task starts, and a resumed run repeats the check.
    """

    def __init__(
        self, judge: RunJudge, pack: BenchmarkPack, tasks: Iterable[SecureBenchTask], workers: int, cost: RunCost
    ) -> None:
        self._judge, self._pack, self._workers, self._cost = judge, pack, workers, cost
        self._tasks = {task.id: values for task in tasks if is_model_graded(values := _values(task))}
        self._used: list[Usage] = []
        """The usage of each grading. Several threads append to it."""

    def run(
        self, open_gateway: Callable[[], Gateway], notify: Callable[[str], None], *, is_calibrated: bool
    ) -> Mapping[str, JsonValue]:
        """Check the judge, and return the usage of the check: nothing for a recorded judge, which needs no check.

        Unless ``is_calibrated``, also calibrate the judge. If the calibration was completed, the result contains it.

        Raises :class:`ConfigError` (``judge-uncalibrated``, and the errors of a provider check), and
        :class:`InfrastructureError`.
        """
        if not isinstance(self._judge, ModelJudge):
            return {}
        pool = ThreadPoolExecutor(self._workers)
        try:
            # The gateway is closed before the pool. This ends requests that are still running after an error or an
            # interrupt.
            with closing(open_gateway()) as gateway:
                connection = self._judge.connection
                found_usage = with_retries(lambda: connection.probe(gateway, notify), notify)
                probed = read_usage({"probes": found_usage}) or Usage()
                self._cost.add_check(probed)
                if not self._cost.is_budget_used_up:
                    self._require_long_responses(gateway)
                found = None if is_calibrated else self._calibrate(gateway, pool)
        finally:
            pool.shutdown(cancel_futures=True)
        if self._cost.is_budget_used_up:
            notify("the check of the judge model used up the run's budget: no tasks are started")
        calibration = {"calibration": found.to_json()} if found else {}
        return {**sum(self._used, probed).to_json(), "judge": {**self._judge.identity, **calibration}}

    def _require_long_responses(self, gateway: Gateway) -> None:
        """Raise :class:`ProviderError` if the judge cannot grade the longest prompt that a task allows.

        Without this check, an agent could cause errors with long responses.
        """
        values = max(self._tasks.values(), key=lambda values: GradingTask.of(values).longest_prompt)
        size = GradingTask.of(values).max_bytes
        once = {**values, "rubric": {**values["rubric"], "votes": 1}}
        if self._grade(once, _longest(size), gateway).reason is FailureReason.JUDGE_NO_VERDICT:
            raise ProviderError(
                "the judge gives no valid verdict on the longest prompt that the pack allows, which asks it to grade a "
                f"response of {size} bytes",
                code=JUDGE_UNFIT,
                hint="use a model with a longer context or higher rate limits, or raise judge.max_tokens",
            )

    def _calibrate(self, gateway: Gateway, pool: ThreadPoolExecutor) -> JudgeAgreement | None:
        items = self._pack.calibration
        if not items:
            return None

        def passes(item: CalibrationItem) -> bool | None:
            if self._cost.is_budget_used_up:
                return None
            return self._grade(self._tasks[item.task_id], item.candidate, gateway).passed

        verdicts = [passed for passed in pool.map(passes, items) if passed is not None]
        if len(verdicts) < len(items):
            return None
        found = JudgeAgreement.of((item.passes, passed) for item, passed in zip(items, verdicts, strict=True))
        least = self._pack.min_kappa
        if least is not None and found.kappa < least:
            raise ConfigError(
                f"the judge {self._judge.identity['model']} is not good enough for this pack: {found}; "
                f"the pack demands a kappa of at least {least:g}",
                code="judge-uncalibrated",
                hint="use another model in judge.model",
            )
        return found

    def _grade(self, values: Mapping[str, Any], response: str, gateway: Gateway) -> VerificationResult:
        control = RunControl()
        session = self._judge.session(gateway, TrialId("", 0), control.pause)
        try:
            return Trail(1).try_phase(FailurePhase.PREFLIGHT, lambda: graded(values, response, session, {}), control)
        finally:
            used = read_usage(session.close()) or Usage()
            self._used.append(used)
            self._cost.add_check(used)
