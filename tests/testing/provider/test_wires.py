"""Tests of all APIs: what is read from requests, and how the same script is rendered in each."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provider_client import APIS, TOOLS, ask, commanded, request_of, text_of
from securebench.testing.provider import ModelConversation, Say, ScriptedProvider, Shell
from securebench.testing.provider.steps import answer_at
from securebench.testing.provider.wires import ANTHROPIC, CHAT_COMPLETIONS, GEMINI, OPENAI, ApiWire, key_of, wire_of

WIRES = {"openai": OPENAI, "anthropic": ANTHROPIC, "chat_completions": CHAT_COMPLETIONS, "gemini": GEMINI}
COMMAND = 'printf \'%s\\n\' "a long line with \\"quotes\\" and ünïcödé" > candidate.txt && cat candidate.txt'
SCRIPT = (Say("First I look around a little, as one does."), Shell(COMMAND), Say("Done."))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = ("model", "input", "messages", "tools", "stream", "role", "content", "type", "text", "output", "parameters")


def hostile(value: object, keys: list[str]) -> object:
    """Return ``value`` with all keys of its objects replaced by members of ``keys``."""
    if isinstance(value, dict):
        return {keys[place % len(keys)]: hostile(inner, keys) for place, inner in enumerate(value.values())}
    return [hostile(inner, keys) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("api", APIS)
def test_a_script_is_followed_by_what_the_conversation_holds(api: str) -> None:
    """The number of command results in a request determines the answer, whatever requests came before it."""
    with ScriptedProvider(SCRIPT) as provider:
        last = ask(provider.url, api, request_of(api, results=["it is written"]))
        first = ask(provider.url, api, request_of(api))
    assert (text_of(api, first), commanded(api, first)) == (SCRIPT[0].text, COMMAND)
    assert (text_of(api, last), commanded(api, last)) == ("Done.", None)


@pytest.mark.parametrize("api", APIS)
def test_a_conversation_is_read_from_a_request(api: str) -> None:
    """A conversation has the user's first message as its prompt, and the results in order. Its text contains both."""
    assert WIRES[api].read(request_of(api, "Do this.", ["one", "two"])) == ModelConversation(
        "m" if api != "gemini" else "",
        "Do this.",
        ("one", "two"),
        WIRES[api].read(request_of(api)).shell,
        streams=api != "gemini",  # in Gemini's API, the path says whether to stream
        questions=("Do this.",),
    )
    assert WIRES[api].read(request_of(api, "Do this.", ["one"])).text == "Do this.\none"


@pytest.mark.parametrize("api", APIS)
def test_what_has_no_shell_is_the_background(api: str) -> None:
    """A request without a shell tool is answered with a fixed text. The script then starts with its first step."""
    body = {**request_of(api), "tools": TOOLS[api][:-1]}
    with ScriptedProvider(SCRIPT) as provider:
        answer = ask(provider.url, api, body)
        first = ask(provider.url, api, request_of(api))
        conversation = provider.requests[0].conversation
    assert conversation is not None
    assert conversation.is_background
    assert (text_of(api, answer), commanded(api, answer)) == ("Scripted.", None)
    assert (text_of(api, first), commanded(api, first)) == (SCRIPT[0].text, COMMAND)


@pytest.mark.parametrize("api", APIS)
def test_a_command_needs_a_tool(api: str) -> None:
    """Rendering a command for a client without a shell tool raises an error."""
    conversation = WIRES[api].read({})
    with pytest.raises(ValueError, match="without a shell tool"):
        WIRES[api].render(answer_at((Shell("x"),), 0), conversation)


@pytest.mark.parametrize("api", APIS)
@example(value={"": [{"": None, "0": []}]}, keys=["input", "type"])
@given(value=st.dictionaries(st.text(max_size=8), JSON), keys=st.permutations(KEYS))
def test_any_body_is_read(api: str, value: dict[str, object], keys: list[str]) -> None:
    """Any JSON object can be read as a conversation and answered with a text."""
    body = hostile(value, keys)
    assert isinstance(body, dict)
    conversation = WIRES[api].read(body)
    assert json.dumps(WIRES[api].error(400, conversation.text))
    assert WIRES[api].render(answer_at((Say("x"),), 0), conversation).status == 200


@pytest.mark.parametrize(
    ("path", "headers", "wire"),
    [
        ("/v1/responses", {}, OPENAI),
        ("/v1/messages?beta=true", {}, ANTHROPIC),
        ("/v1/chat/completions", {}, CHAT_COMPLETIONS),
        ("/v1beta/models/m:generateContent", {}, GEMINI),
        ("/v1/models/m:generateContent", {"x-goog-api-key": "x"}, GEMINI),
        ("/v1/models", {"authorization": "Bearer x"}, OPENAI),
        ("/v1/models", {"x-api-key": "x"}, ANTHROPIC),
        ("/v1/models", {"authorization": "Bearer x", "anthropic-version": "2023-06-01"}, ANTHROPIC),
    ],
)
def test_an_api_is_known_by_path_or_headers(path: str, headers: dict[str, str], wire: ApiWire) -> None:
    """The API is determined by the path, or by the headers if several APIs use the path."""
    assert wire_of(path, headers) is wire


def test_a_key_is_found_in_each_header() -> None:
    """The key is read from a bearer token or from the header of any API. Without them, it is empty."""
    assert key_of({"authorization": "Bearer sk-1"}) == "sk-1"
    for name in ("x-api-key", "x-goog-api-key", "api-key"):
        assert key_of({name: "sk-2"}) == "sk-2"
    assert key_of({}) == ""
