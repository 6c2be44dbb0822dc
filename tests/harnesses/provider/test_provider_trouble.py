"""Who is to blame for a provider error, tested with a real gateway, a scripted provider and cheating agents."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import TYPE_CHECKING, Any

import pytest

from provider_client import APIS, KEY, PATHS, request_of
from securebench.egress.gateway import Gateway
from securebench.egress.model import EgressPlan, RelayPlan
from securebench.egress.model import Provider as Api
from securebench.errors import CandidateError, FailurePhase, FailureReason, ProviderError
from securebench.harnesses.provider.events.claude_code import ClaudeEventParser
from securebench.harnesses.provider.events.codex import CodexEventParser
from securebench.harnesses.provider.session import ProviderSession, ProviderSetup, SessionAgent
from securebench.limits import ProviderTimeouts
from securebench.sandboxes.base import CommandResult
from securebench.testing.egress_world import port_of
from securebench.testing.provider import Fail, FaultPlan, Hang, Say, ScriptedProvider, numbered
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.harnesses.agent_session import SessionEnd
    from securebench.harnesses.provider.self_report import EventParser
    from securebench.resources import JsonValue
    from securebench.testing.provider import Fault, ModelRequest

CRAFTED = "a request that the agent itself makes"
ENDED = CandidateError(FailureReason.AGENT_EXIT, "the agent ended with exit code 137", phase=FailurePhase.PRODUCE)
RESULT = CommandResult(exit_code=137)
TIMEOUTS = ProviderTimeouts(connect=2.0, first_byte=2.0, between_bytes=2.0, whole_answer=4.0)
PARSERS: Mapping[str, Callable[[], EventParser | None]] = {
    "openai": CodexEventParser,
    "anthropic": ClaudeEventParser,
    "chat_completions": lambda: None,
    "gemini": lambda: None,
}
every_api = pytest.mark.parametrize("api", APIS)


def if_crafted(fault: Fault) -> FaultPlan:
    """Return a plan that applies ``fault`` only to crafted requests, as if the agent had provoked the error."""
    return lambda request: fault if CRAFTED in request.conversation.prompt else None


class Task:
    """One task of an agent that uses ``provider`` through ``gateway``. ``pauses`` gets the pauses between probes."""

    def __init__(self, api: str, provider: ScriptedProvider, gateway: Gateway, pauses: list[float]) -> None:
        relay = RelayPlan(
            provider=Api(api),
            base_url=f"{provider.url}/v1",
            key=KEY,
            model="scripted",
            requests=100,
            tokens=10**6,
            bytes=10**9,
            timeouts=TIMEOUTS,
        )
        self._api = api
        session = gateway.open(TrialId("task"), EgressPlan(relay=relay))
        setup = ProviderSetup(
            agent=SessionAgent(parser=PARSERS[api](), is_trusted=True),
            model="scripted",
            ask=lambda model: gateway.probe(TrialId("task"), relay, model),
            pause=pauses.append,
        )
        self.agent_session = ProviderSession(session, setup)
        self._port = port_of(session)

    def ask(self, prompt: str, *, seconds: float = 10.0, **more: Any) -> int:
        """Send one request to the relay, as an agent program does, and return the status."""
        body, path = request_of(self._api, prompt, model="scripted", **{"stream": True} | more), PATHS[self._api]
        if self._api == "openai":
            body["store"] = False
        if self._api == "gemini":  # in this API, the path contains both
            method = "streamGenerateContent?alt=sse" if body.pop("stream") else "generateContent"
            path = f"/v1beta/models/{body.pop('model')}:{method}"
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def end(self) -> SessionEnd:
        """End the agent with a failure. Raises the infrastructure error if the session judges it to be one."""
        ending = self.agent_session.end(RESULT, None, ENDED)
        if ending.fault is not None:
            raise ending.fault
        return ending


@pytest.fixture
def play() -> Any:
    """Return a function that runs one task and returns its end, the pauses between probes, and the gateway's log."""

    def play_one(
        api: str, plan: FaultPlan, work: Callable[[Task], None]
    ) -> tuple[SessionEnd, list[float], list[Mapping[str, JsonValue]]]:
        lines: list[Mapping[str, JsonValue]] = []
        pauses: list[float] = []
        gateway = Gateway(lines.append)
        with (
            contextlib.closing(gateway),
            ScriptedProvider((Say("Done."),), fault=plan, models=("scripted",)) as provider,
        ):
            task = Task(api, provider, gateway, pauses)
            with task.agent_session:
                work(task)
                return task.end(), pauses, lines

    return play_one


@every_api
@pytest.mark.parametrize("status", [403, 429, 500, 529])
def test_an_agent_cannot_make_its_failure_an_outage(play: Any, api: str, status: int) -> None:
    """An agent that provokes provider errors and then kills its program has failed, because the probes succeed."""

    def cheat(task: Task) -> None:
        assert task.ask("Do it.") == 200
        for _ in range(3):
            assert task.ask(CRAFTED) == status

    ending, _, lines = play(api, if_crafted(Fail(status)), cheat)
    assert ending.failure is ENDED
    assert ending.metadata["outcome"] == "crashed"
    probes: Any = ending.metadata["usage"]["probes"]
    assert set(probes["troubles"]) == {None}
    assert probes["output_tokens"] > 0
    assert [line["reason"] for line in lines if line["kind"] == "probe"] == [""] * probes["requests"]


@every_api
@pytest.mark.parametrize("stream", [True, False])
def test_a_slow_answer_that_nobody_reads_is_no_outage(play: Any, api: str, stream: bool) -> None:
    """An agent that requests a slow answer, does not wait for it, and kills its program has failed."""

    def cheat(task: Task) -> None:
        assert task.ask("Do it.") == 200
        with pytest.raises(TimeoutError):
            task.ask(CRAFTED, seconds=0.5, stream=stream)

    ending, _, _ = play(api, if_crafted(Hang(3)), cheat)
    assert ending.failure is ENDED


@every_api
@pytest.mark.parametrize(("status", "code"), [(401, "refused"), (403, "refused"), (500, "failed"), (529, "failed")])
def test_an_outage_after_an_answer_is_infrastructure(play: Any, api: str, status: int, code: str) -> None:
    """A provider error that the gateway's probe also meets is an infrastructure error, and the agent is not scored."""

    def work(task: Task) -> None:
        assert task.ask("Do it.") == 200
        assert task.ask("And now?") == status

    with pytest.raises(ProviderError) as raised:
        play(api, numbered({2}, Fail(status)), work)
    assert raised.value.code == f"provider-{code}"


def test_a_provider_that_went_away_is_infrastructure() -> None:
    """If the gateway cannot connect to the provider either, that is an infrastructure error."""
    gateway = Gateway(lambda _line: None)
    with contextlib.closing(gateway):
        with ScriptedProvider((Say("Done."),), models=("scripted",)) as provider:
            task = Task("openai", provider, gateway, [])
            assert task.ask("Do it.") == 200
        with task.agent_session:
            assert task.ask("And now?") == 502
            with pytest.raises(ProviderError) as raised:
                task.end()
    assert raised.value.code == "provider-unreachable"


def test_a_rate_limit_counts_once_it_outlasts_a_flood(play: Any) -> None:
    """A rate limit that outlasts all pauses between probes is an infrastructure error. It has the ``Retry-After``."""

    def work(task: Task) -> None:
        assert task.ask("Do it.") == 200
        assert task.ask("And now?") == 429

    with pytest.raises(ProviderError) as raised:
        play("openai", numbered({2}, Fail(429, retry_after=30)), work)
    assert (raised.value.code, raised.value.retry_after) == ("provider-rate-limited", 30.0)


def test_a_rate_limit_that_passes_was_the_agents(play: Any) -> None:
    """If a rate limit ends during the pauses between probes, the agent has failed. Pauses respect ``Retry-After``."""
    answers = iter([Fail(429, retry_after=9), Fail(429), None])

    def plan(request: ModelRequest) -> Fault | None:
        if CRAFTED in request.conversation.prompt:
            return Fail(429)
        return None if "Do it." in request.conversation.prompt else next(answers, None)

    def flood(task: Task) -> None:
        assert task.ask("Do it.") == 200
        assert task.ask(CRAFTED) == 429

    ending, pauses, _ = play("openai", plan, flood)
    assert ending.failure is ENDED
    assert pauses == [9.0, 20.0]


def test_before_an_answer_nobody_is_asked(play: Any) -> None:
    """A rate limit before any answer is an infrastructure error, with its ``Retry-After``, without any probe."""
    asked: list[str] = []

    def plan(request: ModelRequest) -> Fault | None:
        asked.append(request.conversation.prompt)
        return Fail(429, retry_after=40)

    with pytest.raises(ProviderError) as raised:
        play("openai", plan, lambda task: task.ask("Do it."))
    assert asked == ["Do it."]
    assert raised.value.retry_after is not None
    assert 30 < raised.value.retry_after <= 40


def test_a_flaky_provider_gets_the_benefit_of_the_doubt(play: Any) -> None:
    """One failed probe of several is enough to make an outage an infrastructure error."""
    answers = iter([None, None, Fail(500)])

    def plan(request: ModelRequest) -> Fault | None:
        if "And now?" in request.conversation.prompt:
            return Fail(500)
        return None if "Do it." in request.conversation.prompt else next(answers, None)

    def work(task: Task) -> None:
        assert task.ask("Do it.") == 200
        assert task.ask("And now?") == 500

    with pytest.raises(ProviderError):
        play("openai", plan, work)
