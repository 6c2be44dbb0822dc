"""A command with a model provider: what the agent gets, what the relay enforces, and which outcome is recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harnesses.conftest import VIEW
from harnesses.provider_fakes import KEY, WORKED, FakeGateway, run_context
from securebench.egress.model import EgressPlan, ProbeReport, Provider, RelayPlan, RelayReport, Trouble
from securebench.errors import ConfigError, FailureReason, ProviderError
from securebench.harnesses.base import Spent
from securebench.harnesses.command import CommandHarnessProducer
from securebench.harnesses.provider.endpoints import PLACEHOLDER
from securebench.limits import ProviderTimeouts
from securebench.money import TokenPrices
from securebench.tester_config import CommandConfig, CommandProvider
from securebench.tester_config.settings import AgentVariables, Budget, Prices, ProviderTimeoutSettings

if TYPE_CHECKING:
    from harnesses.conftest import Bench
    from securebench.harnesses.base import AgentResult
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedDriver

LOCAL = "http://127.0.0.1:8000/v1"
KEYS = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GEMINI_API_KEY": KEY, "MY_KEY": KEY}


class Place:
    """A command harness with a provider and a fake gateway, on a bench."""

    def __init__(
        self, bench: Bench, scripted: ScriptedDriver, *, domains: tuple[str, ...] = (), **provider: Any
    ) -> None:
        settings = {"dialect": "chat_completions", "model": "m", **provider}
        config = CommandConfig(command=("agent",), allowed_domains=domains, provider=CommandProvider(**settings))
        self.gateway = FakeGateway()
        self.notes: list[str] = []
        self._bench, self._scripted = bench, scripted
        self.harness = CommandHarnessProducer(config)

    def prepare(self, variables: dict[str, str] | None = None) -> Any:
        """Prepare the run, and return the agent's identity."""
        run = run_context(self._scripted, variables=KEYS if variables is None else variables)
        return self.harness.prepare(replace(run, notify=self.notes.append))

    def produce(self, relay: RelayReport | None = None, *, code: int = 0, **context: Any) -> AgentResult:
        """Run an agent that prints its environment and exits with ``code``. The relay reports ``relay``."""
        self.prepare()
        if relay is not None:
            self.gateway.relay = relay

        @self._scripted.program("agent")
        def agent(program: ProgramContext) -> int:
            program.stdout.write(json.dumps(dict(program.environment)))
            return code

        made = replace(self._bench.context(), gateway=self.gateway, pause=lambda _seconds: None, **context)
        return self.harness.produce(VIEW, made)


@pytest.mark.parametrize(
    ("dialect", "prefix", "url"),
    [
        ("chat_completions", "OPENAI", "http://127.0.0.1:8788/v1"),
        ("responses", "OPENAI", "http://127.0.0.1:8788/v1"),
        ("messages", "ANTHROPIC", "http://127.0.0.1:8788"),
        ("gemini", "GEMINI", "http://127.0.0.1:8788"),
    ],
)
def test_the_agent_gets_the_usual_variables(
    bench: Bench, scripted: ScriptedDriver, dialect: str, prefix: str, url: str
) -> None:
    """J15: the agent gets the relay's URL, the model and a placeholder for the key. It uses no proxy for the relay."""
    result = Place(bench, scripted, dialect=dialect).produce(environment={"OTHER": f"Bearer {KEY}", "PLAIN": "x"})
    environment = json.loads(result.stdout)
    base_url = "GOOGLE_GEMINI_BASE_URL" if dialect == "gemini" else f"{prefix}_BASE_URL"
    expected = {base_url: url, f"{prefix}_API_KEY": PLACEHOLDER, f"{prefix}_MODEL": "m"}
    assert {name: environment[name] for name in expected} == expected
    assert environment["NO_PROXY"] == "127.0.0.1,localhost"
    assert (environment["OTHER"], environment["PLAIN"]) == (PLACEHOLDER, "x")
    assert KEY not in result.stdout


def test_the_names_of_variables_can_be_chosen(bench: Bench, scripted: ScriptedDriver) -> None:
    """The chosen names replace the usual names. The tester's own key variable also contains a placeholder."""
    names = AgentVariables(base_url="LLM_URL", api_key="LLM_KEY", model="LLM")
    result = Place(bench, scripted, variables=names, api_key_env="MY_KEY").produce()
    environment = json.loads(result.stdout)
    assert (environment["LLM_URL"], environment["LLM"]) == ("http://127.0.0.1:8788/v1", "m")
    assert (environment["LLM_KEY"], environment["MY_KEY"]) == (PLACEHOLDER, PLACEHOLDER)
    assert not {"OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"} & environment.keys()


def test_the_effort_is_passed_on_and_recorded(bench: Bench, scripted: ScriptedDriver) -> None:
    """The agent gets the reasoning effort in a variable, whose name can be chosen; the effort is recorded, too."""
    place = Place(bench, scripted, effort="high")
    assert json.loads(place.produce().stdout)["OPENAI_REASONING_EFFORT"] == "high"
    assert place.prepare()["settings"] == {"effort": "high"}
    named = Place(bench, scripted, effort="low", variables=AgentVariables(effort="HOW_MUCH"))
    assert json.loads(named.produce().stdout)["HOW_MUCH"] == "low"


def test_the_relay_gets_key_and_limits(bench: Bench, scripted: ScriptedDriver) -> None:
    """J13, J18: the egress plan contains the tester's settings, the usage of earlier tries and the proxy's domains."""
    place = Place(
        bench,
        scripted,
        domains=("example.org",),
        base_url=LOCAL,
        api_key_env="MY_KEY",
        provider_tools=True,
        budget=Budget(requests=1, tokens=2, bytes=3, usd=0.5),
        prices=Prices(input=1, output=2, cached_input=0.1, cache_write=1.25),
        timeouts=ProviderTimeoutSettings(connect=1, whole_answer=4),
    )
    place.produce(spent=Spent(requests=5, tokens=6, bytes=7, micro_usd=8))
    expected = RelayPlan(
        provider=Provider.CHAT_COMPLETIONS,
        base_url=LOCAL,
        key=KEY,
        model="m",
        provider_tools=True,
        requests=1,
        tokens=2,
        bytes=3,
        micro_usd=500_000,
        prices=TokenPrices(
            input=1_000_000, cached_input=100_000, cache_write=1_250_000, cache_write_1h=1_250_000, output=2_000_000
        ),
        timeouts=ProviderTimeouts(connect=1, whole_answer=4),
        spent_requests=5,
        spent_tokens=6,
        spent_bytes=7,
        spent_micro_usd=8,
    )
    assert [plan for _, plan in place.gateway.plans] == [EgressPlan(domains=("example.org",), relay=expected)]
    assert place.harness.credentials == (KEY,)
    assert place.harness.needs_gateway


def test_tokens_cost_and_outcome_are_recorded(bench: Bench, scripted: ScriptedDriver) -> None:
    """The recorded counts and cost are those of the relay. Without prices there is no cost."""
    result = Place(bench, scripted, prices=Prices(input=0.25, output=2)).produce(replace(WORKED, micro_usd=1104))
    usage: Any = result.metadata["usage"]
    assert result.metadata["outcome"] == "worked"
    assert (usage["input_tokens"], usage["output_tokens"], usage["requests"]) == (3600, 102, 3)
    assert usage["cost_usd"] == 0.001104
    assert usage["relay"]["answered"] == 3
    assert not {"turns", "denials", "events_skipped"} & usage.keys()
    assert (result.trajectory, result.candidate is not None) == ("", True)
    plain: Any = Place(bench, scripted).produce().metadata["usage"]
    assert "cost_usd" not in plain


def test_the_provider_is_part_of_the_identity(bench: Bench, scripted: ScriptedDriver) -> None:
    """The agent's identity, which is recorded, describes the provider. It is empty without a provider."""
    identity = Place(bench, scripted, base_url=LOCAL, prices=Prices(input=1, output=2)).prepare()
    assert identity == {
        "provider": "chat_completions",
        "endpoint": "127.0.0.1",
        "model": "m",
        "credentials": "relay",
        "provider_tools": False,
        "assurance": "the key is outside the sandbox; a relay bounds and sees all requests",
        "prices": {"input": 1, "output": 2},
    }
    assert CommandHarnessProducer(CommandConfig(command=("agent",))).prepare(run_context(scripted)) == {}


@pytest.mark.parametrize(
    ("provider", "variables", "missing"),
    [
        ({}, {}, "OPENAI_API_KEY"),
        ({"dialect": "messages"}, {"OPENAI_API_KEY": KEY}, "ANTHROPIC_API_KEY"),
        ({"api_key_env": "MY_KEY"}, {"OPENAI_API_KEY": KEY}, "MY_KEY"),
        ({"api_key_env": "MY_KEY", "base_url": LOCAL}, {}, "MY_KEY"),
        ({"base_url": LOCAL}, {}, ""),
    ],
)
def test_a_missing_key(
    bench: Bench, scripted: ScriptedDriver, provider: dict[str, Any], variables: dict[str, str], missing: str
) -> None:
    """K12: a missing key is an error before any task, except for the tester's own endpoint without ``api_key_env``."""
    place = Place(bench, scripted, **provider)
    if not missing:
        place.prepare(variables)
        assert place.harness.credentials == ()
        return
    with pytest.raises(ConfigError, match=f"{missing} must be set") as raised:
        place.prepare(variables)
    assert raised.value.code == "env-missing"


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (ProbeReport(trouble=Trouble.REFUSED, message="the provider answered 401"), "provider-refused"),
        (ProbeReport(trouble=Trouble.REJECTED, model_unknown=True, message="404"), "provider-rejected"),
    ],
)
def test_a_wrong_key_or_model_ends_the_run(
    bench: Bench, scripted: ScriptedDriver, report: ProbeReport, code: str
) -> None:
    """If the probe before the first task finds a wrong key or model, the run ends with an error.

    The hint names the setting or the variable to correct.
    """
    place = Place(bench, scripted, api_key_env="MY_KEY")
    place.prepare()
    place.gateway.answers = [report]
    with pytest.raises(ConfigError) as raised:
        place.harness.check_provider(lambda: place.gateway, place.notes.append)
    assert raised.value.code == code
    assert "MY_KEY" in str(raised.value.hint) or "harness.config.provider.model" in str(raised.value.hint)


NOT_HERE = ProbeReport(trouble=Trouble.REJECTED, is_foreign=True, message="the provider answered 404 to http://h/x")
GONE = ProbeReport(trouble=Trouble.UNREACHABLE, is_connected=False, message="no connection to the provider (OSError)")


@pytest.mark.parametrize(
    ("provider", "report", "code", "hint"),
    [
        ({"base_url": "http://h"}, NOT_HERE, "provider-rejected", "{place}.base_url: should it end in /v1?"),
        ({"base_url": "http://h/v1/"}, NOT_HERE, "provider-rejected", "{place}.base_url"),
        ({"base_url": "http://h/v1", "dialect": "gemini"}, NOT_HERE, "provider-rejected", "should it end in /v1beta?"),
        ({"base_url": "http://h", "dialect": "messages"}, NOT_HERE, "provider-rejected", "{place}.base_url"),
        ({}, NOT_HERE, "provider-rejected", "{place}.model"),
        ({"base_url": "http://h/v1"}, GONE, "provider-unreachable", "HTTPS_PROXY, and {place}.base_url"),
        ({}, GONE, "provider-unreachable", "HTTPS_PROXY"),
        (
            {"base_url": "http://h"},
            ProbeReport(trouble=Trouble.REFUSED),
            "provider-refused",
            "set OPENAI_API_KEY: no key was sent",
        ),
    ],
)
def test_a_wrong_address_ends_the_run(
    bench: Bench, scripted: ScriptedDriver, provider: dict[str, Any], report: ProbeReport, code: str, hint: str
) -> None:
    """If the probe fails, the run ends before its first task, and the error's hint names what to correct."""
    place = Place(bench, scripted, **provider)
    place.prepare({} if "base_url" in provider else None)
    place.gateway.answers = [report]
    with pytest.raises((ConfigError, ProviderError)) as raised:
        place.harness.check_provider(lambda: place.gateway, place.notes.append)
    assert raised.value.code == code
    assert str(raised.value.hint).endswith(hint.format(place="harness.config.provider"))
    assert report.message in raised.value.message
    assert not place.notes


def test_a_way_around_the_relay_is_reported(bench: Bench, scripted: ScriptedDriver) -> None:
    """J13: an allowed domain that includes the provider's host causes a warning."""
    place = Place(bench, scripted, domains=("openai.com",))
    place.prepare()
    assert len([note for note in place.notes if "openai.com" in note]) == 1


BAD = RelayReport(requests=1, statuses={"500": 1}, trouble=Trouble.FAILED, message="the provider answered 500")


@pytest.mark.parametrize("code", [0, 1])
def test_an_outage_is_infrastructure(bench: Bench, scripted: ScriptedDriver, code: int) -> None:
    """If the agent's last request and the gateway's probe fail, the result is a fault without a candidate.

    The agent's exit code does not matter.
    """
    place = Place(bench, scripted)
    place.gateway.answers = [ProbeReport(trouble=Trouble.FAILED, message="the provider answered 500")]
    result = place.produce(BAD, code=code)
    assert isinstance(result.fault, ProviderError)
    assert (result.candidate, result.failure) == (None, None)


@pytest.mark.parametrize("trouble", [Trouble.FAILED, Trouble.REFUSED, Trouble.RATE_LIMITED, Trouble.UNREACHABLE])
def test_trouble_that_the_agent_made_is_its_failure(bench: Bench, scripted: ScriptedDriver, trouble: Trouble) -> None:
    """If the gateway's probes succeed, the agent caused its failed requests itself, and its crash is a failure."""
    result = Place(bench, scripted).produce(replace(BAD, trouble=trouble), code=1)
    assert result.fault is None
    assert result.failure is not None
    assert result.failure.reason is FailureReason.AGENT_EXIT
    assert result.metadata["outcome"] == "crashed"


def test_an_agent_without_a_request_is_judged(bench: Bench, scripted: ScriptedDriver) -> None:
    """An agent that exits without any request is not an infrastructure error: perhaps it needs no model."""
    silent = RelayReport()
    assert Place(bench, scripted).produce(silent).metadata["outcome"] == "worked"
    failed = Place(bench, scripted).produce(silent, code=1)
    assert (failed.fault, failed.metadata["outcome"]) == (None, "crashed")
