"""The gateway's own test request to a provider: what is sent, and how each response is classified."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import h11
import pytest

from relay_setup import CHAT, CLAUDE, GEMINI, GOOD, KEY, PLAN, STREAM, answering, relayed, streaming
from securebench.egress.model import ProbeReport, Provider, Trouble
from securebench.egress.relay import probe as module
from securebench.egress.relay.probe import ask_provider
from securebench.errors import EgressError

if TYPE_CHECKING:
    from relay_setup import Script, Seen, Setting
    from securebench.egress.http_streams import HttpPeer

EVERY = pytest.mark.parametrize(
    "plan",
    [PLAN, replace(CLAUDE, model="claude-x"), CHAT, GEMINI],
    ids=["openai", "anthropic", "chat", "gemini"],
)


def probed(script: Script, plan: Any = PLAN, seconds: float = 5.0) -> tuple[ProbeReport, Setting]:
    """Send one test request to a provider that follows ``script``. Return the report and the setting."""

    async def play() -> tuple[ProbeReport, Setting]:
        async with relayed(script, plan) as setting:
            return await ask_provider(setting.plan, plan.model, seconds), setting

    return asyncio.run(play())


@EVERY
def test_a_provider_that_is_well(plan: Any) -> None:
    """The test request is streamed, for at most 16 tokens, with the plan's model and key. Its usage is reported."""
    report, setting = probed(GOOD[plan.provider], plan)
    assert report == ProbeReport(status=200, input_tokens=100, output_tokens=20)
    (seen,) = setting.seen
    if plan.provider is not Provider.GEMINI:  # Gemini has both in the path
        assert seen.json["model"] == plan.model
        assert seen.json["stream"] is True
    fields = {**seen.json, **seen.json.get("generationConfig", {})}
    limits = {"max_output_tokens", "max_tokens", "max_completion_tokens", "maxOutputTokens"} & fields.keys()
    assert [fields[name] <= 16 for name in limits] == [True]
    keys = [seen.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key", "authorization")]
    assert KEY in [key.removeprefix("Bearer ") for key in keys]
    paths = {
        Provider.GEMINI: "models/gemini-3-pro:streamGenerateContent?alt=sse",
        Provider.OPENAI: "responses",
        Provider.ANTHROPIC: "messages",
        Provider.CHAT_COMPLETIONS: "chat/completions",
    }
    assert seen.target == f"/v1/{paths[plan.provider]}"


def test_an_alias_is_no_model_to_ask() -> None:
    """For an alias, which only Claude Code can resolve, the list of models is requested, which still tests the key."""
    report, setting = probed(answering(200, b'{"data": []}'), CLAUDE)
    assert report == ProbeReport(status=200)
    assert (setting.seen[0].method, setting.seen[0].target) == ("GET", "/v1/models?limit=1")
    assert probed(answering(401), CLAUDE)[0].trouble is Trouble.REFUSED


@EVERY
@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (400, Trouble.REJECTED),
        (401, Trouble.REFUSED),
        (403, Trouble.REFUSED),
        (429, Trouble.RATE_LIMITED),
        (500, Trouble.FAILED),
        (302, Trouble.FAILED),
        (529, Trouble.FAILED),
    ],
)
def test_errors_mean_what_they_mean_to_the_relay(plan: Any, status: int, trouble: Trouble) -> None:
    """The status of a response is classified as in the relay. The ``Retry-After`` of an error is reported."""
    report, _ = probed(answering(status, b"{}", retry_after="7"), plan)
    assert report.trouble is trouble
    assert not report.model_unknown
    assert report.retry_after == (7.0 if status >= 400 else None)
    assert str(status) in report.message


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (PLAN, {"code": "model_not_found", "message": "no"}),
        (PLAN, {"code": 404, "message": "The model `x` does not exist."}),
        (CLAUDE, {"type": "not_found_error", "message": "model: claude-y"}),
        (GEMINI, {"status": "NOT_FOUND", "message": "models/x is not found for API version v1beta"}),
    ],
)
def test_a_model_that_is_not_there(plan: Any, error: Any) -> None:
    """The model is unknown only if the error says so: a bare 404 may come from a server without this path."""
    body = json.dumps({"error": error}).encode()
    assert probed(answering(404, body), replace(plan, model="x"))[0].model_unknown
    assert not probed(answering(404, b"not here"), replace(plan, model="x"))[0].model_unknown


@EVERY
@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b'{"detail":"Not Found"}'), (405, b"{}"), (400, b"Client sent an HTTP request to an HTTPS server.")],
)
def test_an_answer_of_another_api(plan: Any, status: int, body: bytes) -> None:
    """An answer of another API is reported as foreign. The message has the requested URL, which may be wrong.

    A valid answer, an error in the API's format and a 502 are not foreign.
    """
    report, setting = probed(answering(status, body), plan)
    assert (report.trouble, report.is_foreign, report.is_connected) == (Trouble.REJECTED, True, True)
    url = f"{setting.plan.base_url}{setting.seen[0].target[3:]}"
    assert report.message == f"the provider answered {status} (request to {url})"
    assert probed(answering(200, b"<html>Welcome"), plan)[0].is_foreign
    for other in (answering(400, b'{"error": {"message": "no"}}'), answering(502, b"<html>"), GOOD[plan.provider]):
        assert not probed(other, plan)[0].is_foreign


def test_a_server_without_a_list_of_models() -> None:
    """A 404 for the list of models is not reported as foreign: some servers with the right API have no such list."""
    assert not probed(answering(404, b"{}"), CLAUDE)[0].is_foreign


def test_a_body_may_say_when_to_try_again() -> None:
    """Without a ``Retry-After`` header, the delay is read from the body if the API has it there."""
    body = json.dumps({"error": {"code": 429, "details": [{"retryDelay": "9s"}]}}).encode()
    assert probed(answering(429, body), GEMINI)[0].retry_after == 9.0
    assert probed(answering(429, body, retry_after="7"), GEMINI)[0].retry_after == 7.0
    assert probed(answering(429, body), CHAT)[0].retry_after is None


def test_answers_that_are_none() -> None:
    """A response of status 200 that is incomplete, unreadable or reports a failure is the provider's failure."""
    failed = b'data: {"type":"response.failed","response":{"error":{"code":"server_error"}}}\n\n'
    half = STREAM[Provider.OPENAI].partition(b"event: response.completed")[0]
    whole = b'{"status": "completed"}'
    for script in (
        streaming(failed),
        streaming(half),
        answering(200, b"<html>"),
        answering(200, b'{"status": "failed"}'),
        answering(200, whole, content_encoding="gzip"),
        answering(200, gzip.compress(whole)[:-1], content_encoding="gzip"),
    ):
        assert probed(script)[0].trouble is Trouble.FAILED


def test_a_provider_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe ends with a trouble if the provider is silent, cuts the connection, sends too much or is not there."""

    async def hang(_seen: Seen, peer: HttpPeer) -> None:
        await peer.reader.read()

    async def cut(_seen: Seen, peer: HttpPeer) -> None:
        peer.writer.transport.abort()

    async def flood(_seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        while True:
            await peer.send(h11.Data(data=b": filler\n\n" * 1000))

    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 50_000)
    slow = probed(hang, seconds=0.3)[0]
    assert (slow.trouble, slow.is_connected) == (Trouble.UNREACHABLE, True)
    assert probed(cut)[0].trouble in {Trouble.FAILED, Trouble.UNREACHABLE}
    assert probed(flood)[0].trouble is Trouble.FAILED
    closed = asyncio.run(ask_provider(replace(PLAN, base_url="http://127.0.0.1:1/v1"), "m", 5.0))
    assert (closed.trouble, closed.is_connected) == (Trouble.UNREACHABLE, False)


def test_a_refusal_by_policy_is_no_outage() -> None:
    """If the provider's policy refuses the test request, the trouble is ``DECLINED``: the provider works."""
    failed = b'data: {"type":"response.failed","response":{"error":{"code":"cyber_policy"}}}\n\n'
    assert probed(streaming(failed))[0].trouble is Trouble.DECLINED


def test_a_key_that_no_header_can_carry() -> None:
    """A key that cannot be sent in a header raises ``EgressError``, whose message does not contain the key."""
    with pytest.raises(EgressError) as raised:
        asyncio.run(ask_provider(replace(PLAN, base_url="http://localhost:1", key="two\nlines"), "m"))
    assert "two" not in str(raised.value)
