"""Faults of the scripted provider, as a client sees them over HTTP."""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING, Any

import pytest

from provider_client import APIS, KEY, Answer, ask, commanded, request_of, text_of
from securebench.testing.provider import (
    Cut,
    Fail,
    Garble,
    Hang,
    Redirect,
    Say,
    ScriptedProvider,
    Shell,
    Slow,
    always,
    at_first,
    numbered,
)

if TYPE_CHECKING:
    from securebench.testing.provider import Fault

SCRIPT = (Shell("true"), Say("Done."))


def answered(api: str, fault: Fault, **more: Any) -> Answer:
    """Return the first answer of a provider with ``fault``."""
    with ScriptedProvider(SCRIPT, fault=fault) as provider:
        return ask(provider.url, api, request_of(api, **more))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 529])
@pytest.mark.parametrize("api", APIS)
def test_an_error_has_the_form_of_the_api(api: str, status: int) -> None:
    """The body of an error contains the status and the kind of error, and not the client's key."""
    answer = answered(api, Fail(status))
    assert answer.status == status
    assert str(status) in answer.value["error"]["message"]
    kind = answer.value["error"]["status"].lower() if api == "gemini" else answer.value["error"]["type"]
    assert kind.islower()
    assert answer.value.get("type") == ("error" if api == "anthropic" else None)
    assert KEY not in answer.body.decode()
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("api", APIS)
def test_an_error_may_say_when_to_come_again(api: str) -> None:
    """An error with ``retry_after`` has the header ``retry-after``, in seconds."""
    assert answered(api, Fail(429, retry_after=2)).headers["retry-after"] == "2"


@pytest.mark.parametrize("api", APIS)
def test_an_error_may_echo_the_key(api: str) -> None:
    """With ``echo_key``, the error message contains the client's key."""
    assert KEY in answered(api, Fail(401, echo_key=True)).value["error"]["message"]


@pytest.mark.parametrize(("api", "last"), [("openai", "response.failed"), ("anthropic", "error")])
def test_an_answer_may_break_off_with_an_error(api: str, last: str) -> None:
    """A stream can fail in the middle: it has status 200, starts normally, and ends with an error event."""
    answer = answered(api, Fail(529, in_stream=True))
    assert (answer.status, answer.types[-1]) == (200, last)
    assert len(answer.types) > 2
    assert not {"response.completed", "message_stop"} & set(answer.types)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_connection_is_cut_where_it_should_be(api: str, is_stream: bool) -> None:
    """A cut connection closes after the given number of bytes, before the body is complete."""
    with pytest.raises(http.client.IncompleteRead) as cut:
        answered(api, Cut(100), stream=is_stream)
    assert len(cut.value.partial) == 100


@pytest.mark.parametrize("api", APIS)
def test_a_hang_ends_in_the_answer(api: str) -> None:
    """After a hang of the given length, the whole answer arrives."""
    started = time.monotonic()
    answer = answered(api, Hang(0.3))
    assert time.monotonic() - started >= 0.3
    assert commanded(api, answer) == "true"


@pytest.mark.parametrize("api", APIS)
def test_a_slow_answer_comes_all_the_same(api: str) -> None:
    """A slow answer pauses before each piece, and arrives completely."""
    started = time.monotonic()
    answer = answered(api, Slow(0.03))
    assert time.monotonic() - started >= 0.03 * len(answer.events)
    assert commanded(api, answer) == "true"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_garbled_answer_is_no_json(api: str, is_stream: bool) -> None:
    """A garbled answer has status 200, and its body cannot be parsed."""
    answer = answered(api, Garble(), stream=is_stream)
    assert answer.status == 200
    with pytest.raises(ValueError, match=r"Expecting|not enough values"):
        assert answer.events if is_stream else answer.value


@pytest.mark.parametrize("api", APIS)
def test_a_redirect_names_another_host(api: str) -> None:
    """A redirect has the given location and status 307, with which clients keep the method."""
    answer = answered(api, Redirect("http://other.example/v1"))
    assert (answer.status, answer.headers["location"]) == (307, "http://other.example/v1")


def test_faults_come_by_number() -> None:
    """Faults can be chosen by the number of a request, counted from 1 over all conversations."""
    with ScriptedProvider(SCRIPT, fault=numbered([2], Fail(500))) as provider:
        statuses = [ask(provider.url, api, request_of(api)).status for api in ("openai", "anthropic", "openai")]
    assert statuses == [200, 500, 200]


def test_faults_come_at_first() -> None:
    """The first request for each answer of each conversation fails. Later requests for it succeed."""
    with ScriptedProvider(SCRIPT, fault=at_first(1, Fail(500))) as provider:
        bodies = [request_of("openai", prompt, results) for prompt in "ab" for results in ([], ["x"])]
        statuses = [ask(provider.url, "openai", body).status for body in bodies for _ in range(3)]
    assert statuses == [500, 200, 200] * 4


def test_the_background_is_never_spoilt() -> None:
    """A background conversation, in which the client offers no tools, never gets a fault and is not counted."""
    for fault in (always(Fail(500)), numbered([1], Fail(500))):
        with ScriptedProvider(SCRIPT, fault=fault) as provider:
            assert ask(provider.url, "anthropic", request_of("anthropic", tools=[])).status == 200
            assert ask(provider.url, "anthropic", request_of("anthropic")).status == 500


def test_a_script_may_have_its_own_faults() -> None:
    """A fault in a script affects every request for the answer after it. The server's own fault applies as well."""
    script = (Shell("true"), Slow(0.03), Say("Done."))
    with ScriptedProvider((Fail(401), *script)) as failing, ScriptedProvider(script, fault=Hang(0.2)) as slow:
        assert [ask(failing.url, "openai", request_of("openai")).status for _ in range(2)] == [401, 401]
        started = time.monotonic()
        answer = ask(slow.url, "openai", request_of("openai", results=["x"]))
        assert time.monotonic() - started >= 0.2 + 0.03 * len(answer.events)
        assert text_of("openai", answer) == "Done."
