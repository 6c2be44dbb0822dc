"""The endpoint of a provider, its key, its prices, and the variables that a sandbox gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harnesses.provider_fakes import KEY
from securebench.egress.codec import relay_from_json, relay_to_json
from securebench.egress.model import EgressPlan, Provider, RelayPlan
from securebench.errors import ConfigError
from securebench.harnesses.provider.command_provider import dialect_facts
from securebench.harnesses.provider.connection import ProviderConnection
from securebench.harnesses.provider.endpoints import (
    PLACEHOLDER,
    HostNetwork,
    ProviderEndpoint,
    ProviderFacts,
    ProviderKey,
    endpoint_of,
)
from securebench.limits import ProviderTimeouts
from securebench.tester_config import Prices, PriceTable, ProviderSettings
from securebench.tester_config.settings import Budget, ProviderTimeoutSettings

OPENAI = dialect_facts("responses", ("OPENAI_API_KEY", "CODEX_API_KEY"))
OWN = ProviderSettings(model="m")
PASSED = ProviderSettings(model="m", credentials="passthrough", allowed_domains=("example.org",))


def openai(config: ProviderSettings = OWN) -> ProviderEndpoint:
    """Return the endpoint of Codex with ``config``."""
    return endpoint_of(OPENAI, config)


def test_the_key_is_found_by_its_usual_names() -> None:
    """The variables are read in order. The first value that is not blank is the key, without surrounding space."""
    assert openai().key({"OPENAI_API_KEY": "a", "CODEX_API_KEY": "b"}) == ProviderKey("OPENAI_API_KEY", "a")
    assert openai().key({"OPENAI_API_KEY": " ", "CODEX_API_KEY": "b"}) == ProviderKey("CODEX_API_KEY", "b")
    anthropic = endpoint_of(dialect_facts("messages"), ProviderSettings(model="sonnet"))
    assert anthropic.key({"ANTHROPIC_API_KEY": "c\n"}) == ProviderKey("ANTHROPIC_API_KEY", "c")


@pytest.mark.parametrize("config", [OWN, PASSED])
def test_a_missing_key_is_a_configuration_error(config: ProviderSettings) -> None:
    """K12: the error for a missing key names all variables that may contain it, and has a hint."""
    with pytest.raises(ConfigError, match="OPENAI_API_KEY or CODEX_API_KEY must be set") as raised:
        openai(config).key({"ANTHROPIC_API_KEY": "c"})
    assert raised.value.code == "env-missing"
    assert raised.value.hint


@pytest.mark.parametrize("value", ["two words", "k\ney", "k\u00e9y"])
def test_a_malformed_key_is_a_configuration_error(value: str) -> None:
    """The message names the variable and does not quote the key."""
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not a key") as raised:
        openai().key({"OPENAI_API_KEY": value})
    assert raised.value.code == "key-malformed"
    assert value not in str(raised.value)


def test_another_endpoint_needs_no_key() -> None:
    """An endpoint with a ``base_url`` needs no key, and its relay then adds none to requests."""
    config = ProviderSettings(model="m", base_url="http://127.0.0.1:8000/v1")
    key = openai(config).key({})
    assert key.value == ""
    relay = openai(config).plan(key).relay
    assert relay is not None
    assert relay.key is None
    assert relay.base_url == "http://127.0.0.1:8000/v1"


AZURE = ProviderSettings(model="m", auth="azure", base_url="https://a.example.com/v1")
BEARER = ProviderSettings(model="m", auth="bearer")


@pytest.mark.parametrize(
    ("facts", "config", "names"),
    [
        (dialect_facts("messages"), BEARER, ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY")),
        (OPENAI, BEARER, ("OPENAI_API_KEY", "CODEX_API_KEY")),
        (OPENAI, AZURE, ("AZURE_OPENAI_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY")),
    ],
)
def test_another_form_of_the_key_has_its_own_variable(
    facts: ProviderFacts, config: ProviderSettings, names: tuple[str, ...]
) -> None:
    """``auth`` sets the form in which the key is sent. The usual variables for that form are read first.

    A key is then required, and the identity names the form.
    """
    endpoint = endpoint_of(facts, config)
    assert endpoint.key(dict.fromkeys(names, KEY)).name == names[0]
    assert endpoint.key({names[-1]: KEY}).name == names[-1]
    assert endpoint.relay_plan(endpoint.key({names[0]: KEY})).key_form == config.auth
    assert endpoint.identity()["auth"] == config.auth
    with pytest.raises(ConfigError, match="must be set"):
        endpoint.key({})


@pytest.mark.parametrize("dialect", ["messages", "gemini"])
def test_azure_has_no_other_apis(dialect: str) -> None:
    """``auth: azure`` is refused for APIs that Azure does not have."""
    with pytest.raises(ConfigError) as raised:
        endpoint_of(dialect_facts(dialect), AZURE)
    assert raised.value.code == "auth-unfit"


@pytest.mark.parametrize(
    "variables",
    [
        {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x"},
        {"ANTHROPIC_API_KEY": "sk-ant-oat01-x"},
        {"ANTHROPIC_AUTH_TOKEN": "sk-ant-oat01-x"},
    ],
)
def test_a_subscription_is_refused(variables: dict[str, str]) -> None:
    """The token of a subscription is refused with a hint, because a subscription's terms forbid a relay.

    The error does not quote the token. If an API key is set beside the token, the API key is used.
    """
    endpoint = endpoint_of(dialect_facts("messages"), BEARER)
    with pytest.raises(ConfigError) as raised:
        endpoint.key(variables)
    assert raised.value.code == "subscription-token"
    assert "ANTHROPIC_API_KEY" in str(raised.value.hint)
    assert "sk-ant" not in f"{raised.value} {raised.value.hint}"
    assert endpoint.key({"CLAUDE_CODE_OAUTH_TOKEN": "x", "ANTHROPIC_API_KEY": KEY}).value == KEY


def test_a_key_shows_itself_to_nobody() -> None:
    """J15: the ``repr`` of an object that has a key or a proxy's password does not contain that secret."""
    key = ProviderKey("OPENAI_API_KEY", KEY)
    assert KEY not in repr(key)
    network = HostNetwork(proxy="http://user:proxy-password@proxy:3128")
    shown = repr((network, openai().plan(key, network)))
    assert KEY not in shown
    assert "proxy-password" not in shown


def test_the_relay_is_given_what_bounds_it() -> None:
    """J13, J18: the relay gets key, model and budget, and the provider's host is not added to the proxy's domains."""
    config = ProviderSettings(
        model="m", allowed_domains=("example.org",), budget=Budget(requests=1, tokens=2, bytes=3), provider_tools=True
    )
    expected = RelayPlan(
        provider=Provider.OPENAI,
        base_url="https://api.openai.com/v1",
        key=KEY,
        model="m",
        provider_tools=True,
        requests=1,
        tokens=2,
        bytes=3,
        ca_bundle="PEM",
        proxy="http://proxy:3128",
    )
    network = HostNetwork(ca_bundle="PEM", proxy="http://proxy:3128")
    plan = openai(config).plan(ProviderKey("OPENAI_API_KEY", KEY), network)
    assert plan == EgressPlan(domains=("example.org",), relay=expected)


def test_the_relay_waits_as_long_as_configured() -> None:
    """The relay's plan has the configured ``provider_timeouts``. A timeout that is not configured has its default."""
    key = ProviderKey("OPENAI_API_KEY", KEY)
    timeouts = ProviderTimeoutSettings(connect=1, first_byte=2, between_bytes=3, whole_answer=4)
    config = ProviderSettings(model="m", provider_timeouts=timeouts)
    relay = openai(config).plan(key).relay
    assert relay is not None
    assert relay.timeouts == ProviderTimeouts(connect=1, first_byte=2, between_bytes=3, whole_answer=4)
    config = ProviderSettings(model="m", provider_timeouts=ProviderTimeoutSettings(whole_answer=4))
    assert openai(config).relay_plan(key).timeouts == ProviderTimeouts(whole_answer=4)


def test_prices_have_an_order() -> None:
    """Configured prices override the tester's table, which replaces our own. Ours is only for public endpoints."""
    table = PriceTable(date="2026-01-02", models={"m": Prices(input=1, output=2)})
    own = Prices(input=3, output=4)
    assert openai(ProviderSettings(model="m", prices=own)).priced(table).identity()["prices"] == {
        "input": 3,
        "output": 4,
    }
    priced = openai().priced(table)
    assert priced.identity()["prices"] == {"input": 1, "output": 2, "date": "2026-01-02"}
    assert openai().priced(None).prices is None

    claude = ProviderSettings(model="claude-sonnet-4-5")
    facts = dialect_facts("messages")
    assert endpoint_of(facts, claude).priced(None).prices
    assert endpoint_of(facts, claude).priced(table).prices is None
    elsewhere = ProviderSettings(model="m", base_url="http://127.0.0.1:8000/v1")
    assert openai(elsewhere).priced(table).prices
    local = claude.model_copy(update={"base_url": "http://127.0.0.1:8000/v1"})
    assert endpoint_of(facts, local).priced(None).prices is None


def test_an_alias_costs_what_the_model_costs_that_answers() -> None:
    """With an alias, each model that the alias may mean has its own price.

    For any other model, the highest of these prices applies, separately for input and output.
    """
    models = {
        "claude-opus-4-1": Prices(input=15, output=75, cached_input=1),
        "claude-opus-5": Prices(input=5, output=99),
        "claude-sonnet-5": Prices(input=3, output=15),
    }
    claude = endpoint_of(dialect_facts("messages"), ProviderSettings(model="opus"))
    priced = claude.priced(PriceTable(date="2026-01-02", models=models))
    assert not priced.cost_fault()
    assert priced.identity()["prices"]["models"].keys() == {"claude-opus-4-1", "claude-opus-5"}  # type: ignore[call-overload,index,union-attr]
    plan = priced.relay_plan(ProviderKey("ANTHROPIC_API_KEY", KEY))
    assert plan == relay_from_json(json.loads(json.dumps(relay_to_json(plan))))
    for name, given, taken in (
        ("claude-opus-4-1-20250805", 15, 75),
        ("claude-opus-5", 5, 99),
        ("claude-opus-9", 15, 99),
        ("", 15, 99),
    ):
        found = plan.prices_of(name)
        assert found is not None
        assert (found.input, found.output) == (given * 1_000_000, taken * 1_000_000)
    unknown = endpoint_of(dialect_facts("messages"), ProviderSettings(model="claude-sonnet-4"))
    fault = unknown.priced(PriceTable(date="2026-01-02", models=models)).cost_fault()
    assert fault is not None
    assert "is not in the price table of 2026-01-02 (similar: claude-sonnet-5" in fault.message


@pytest.mark.parametrize(
    ("changes", "why", "fix"),
    [
        ({}, "the price of the model m is unknown: the model is not in SecureBench's price table of", "set 'prices: "),
        ({"base_url": "http://127.0.0.1:8000/v1"}, "only providers' public endpoints, not 127.0.0.1", "set 'prices: "),
        ({"prices": Prices(input=1, output=2), "provider_tools": True}, "fees", "remove 'provider_tools'; "),
        ({"credentials": "passthrough"}, "no relay", "remove 'credentials: passthrough'; "),
    ],
)
def test_a_budget_in_money_needs_to_know_all_costs(changes: dict[str, Any], why: str, fix: str) -> None:
    """If the relay cannot count all costs, a budget in money is refused. Without a budget, nothing is raised."""
    config = ProviderSettings(model="m", **changes)
    fault = ProviderConnection(openai(config)).use_prices(None)
    assert fault is not None
    assert why in fault.message
    limited = config.model_copy(update={"budget": Budget(usd=1)})
    with pytest.raises(ConfigError, match=why) as raised:
        ProviderConnection(openai(limited)).use_prices(None)
    assert raised.value.code == "price-missing"
    assert raised.value.hint.startswith(fix)
    assert raised.value.hint.endswith("or remove the budget")
    assert "harness.config.budget.usd" in str(raised.value)


def test_passthrough_lets_the_provider_through_the_proxy() -> None:
    """Without a relay, the provider's host is added to the allowed domains, unless it is already one of them."""
    key = ProviderKey("OPENAI_API_KEY", KEY)
    assert openai(PASSED).plan(key) == EgressPlan(domains=("example.org", "api.openai.com"))
    other = ProviderSettings(
        model="m", credentials="passthrough", base_url="https://m.example.com/v1", allowed_domains=("m.example.com",)
    )
    assert openai(other).plan(key) == EgressPlan(domains=("m.example.com",))


def test_a_sandbox_has_a_placeholder_wherever_a_key_was_given() -> None:
    """J15: each variable that usually has a key, or contains this key, gets a placeholder. Other variables get none."""
    given = {"CODEX_API_KEY": "other", "MINE": KEY, "HEADER": f"Bearer {KEY}", "PLAIN": "plain"}
    variables = openai().key_variables(given, ProviderKey("OPENAI_API_KEY", KEY))
    assert variables == dict.fromkeys(("CODEX_API_KEY", "HEADER", "MINE", "OPENAI_API_KEY"), PLACEHOLDER)


def test_without_a_key_nothing_is_taken_for_one() -> None:
    """If the key is empty, only its own variable gets a placeholder, although every value contains the empty text."""
    config = ProviderSettings(model="m", base_url="http://127.0.0.1:8000/v1")
    variables = openai(config).key_variables({"PLAIN": "plain"}, ProviderKey("OPENAI_API_KEY", ""))
    assert variables == {"OPENAI_API_KEY": PLACEHOLDER}


def test_passthrough_hands_the_key_over() -> None:
    """With ``passthrough``, the sandbox gets the key in the variable that had it on the host."""
    assert openai(PASSED).key_variables({}, ProviderKey("CODEX_API_KEY", KEY)) == {"CODEX_API_KEY": KEY}


def test_a_cloud_has_credentials_of_its_own() -> None:
    """With ``passthrough``, a variable that selects a cloud replaces the key. With a relay or a key, it is ignored."""
    variables = {"CLAUDE_CODE_USE_BEDROCK": "1"}
    cloud = openai(PASSED).with_cloud(variables)
    key = cloud.key(variables)
    assert (key.value, cloud.key_variables(variables, key)) == ("", {})
    assert cloud.plan(key) == EgressPlan(domains=("example.org",))
    assert cloud.identity()["endpoint"] == "CLAUDE_CODE_USE_BEDROCK"
    assert str(cloud.identity()["assurance"]).startswith("lower")
    for endpoint in (openai(PASSED).with_cloud({**variables, "OPENAI_API_KEY": KEY}), openai().with_cloud(variables)):
        assert endpoint.cloud == ""


@pytest.mark.parametrize("domain", ["api.openai.com", "openai.com"])
def test_a_way_past_the_relay_is_told(domain: str) -> None:
    """J13: a warning names the allowed domain through which agents could reach the provider without the relay."""
    config = ProviderSettings(model="m", allowed_domains=("example.org", domain))
    assert f": {domain} lets agents reach api.openai.com without the relay" in openai(config).warning()
    passed = config.model_copy(update={"credentials": "passthrough"})
    assert openai(passed).warning() == ""
    other = ProviderSettings(model="m", allowed_domains=("example.org", "xapi.openai.com", "notopenai.com"))
    assert openai(other).warning() == ""
