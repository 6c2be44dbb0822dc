"""What a relay forwards, removes, limits, charges and logs."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import h11
import pytest
import trustme

from relay_setup import (
    BODIES,
    CHAT,
    CLAUDE,
    GEMINI,
    GOOD,
    KEY,
    PATHS,
    PATIENT,
    PLAN,
    QUICK,
    STREAM,
    answer_of,
    answering,
    exchange,
    relayed,
    send,
    streaming,
)
from securebench.egress.model import KeyForm, Provider, RelayPlan, Trouble
from securebench.egress.relay import server as module
from securebench.egress.relay.probe import ask_provider
from securebench.egress.relay.server import ProviderRelay
from securebench.errors import EgressError
from securebench.limits import ProviderTimeouts
from securebench.money import TokenPrices

if TYPE_CHECKING:
    from relay_setup import Seen
    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.model import RelayPlan

PRICES = TokenPrices(
    input=1_000_000, cached_input=500_000, cache_write=2_000_000, cache_write_1h=3_000_000, output=10_000_000
)
PRICED = replace(PLAN, prices=PRICES)
DEAR = TokenPrices(input=0, cached_input=0, cache_write=0, cache_write_1h=0, output=500_000_000)

EVERY = pytest.mark.parametrize("plan", [PLAN, CLAUDE, CHAT], ids=["openai", "anthropic", "chat"])


@EVERY
def test_answer_passes_unchanged(plan: Any) -> None:
    """A streamed answer reaches the agent unchanged, and its tokens are counted."""

    async def play() -> None:
        async with relayed(plan=plan) as setting:
            answered = await setting.ask()
        report = setting.relay.report()
        assert (answered.status, answered.body, answered.is_whole) == (200, STREAM[plan.provider], True)
        assert answered.headers["content-type"] == "text/event-stream"
        assert (report.requests, report.answered, report.statuses) == (1, 1, {"200": 1})
        assert (report.input_tokens, report.output_tokens, report.trouble) == (100, 20, None)
        assert report.bytes == len(setting.seen[0].body) + len(answered.body)

    asyncio.run(play())


@EVERY
def test_request_is_what_was_checked(plan: Any) -> None:
    """The provider gets the checked values, serialized again, at its own host and path."""

    async def play() -> None:
        async with relayed(plan=plan) as setting:
            await setting.ask(json.dumps(BODIES[plan.provider], indent=4).encode())
        seen = setting.seen[0]
        assert seen.json == BODIES[plan.provider]
        assert b"\n" not in seen.body
        assert seen.target == "/v1" + PATHS[plan.provider].removeprefix("/v1")
        assert seen.headers["host"] == setting.plan.base_url.split("/")[2]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("plan", "base", "path", "target"),
    [
        (PLAN, "", "/responses", "/responses"),
        (PLAN, "/v1", "/v1/responses", "/v1/responses"),
        (PLAN, "/openai/v1/", "/responses", "/openai/v1/responses"),
        (CLAUDE, "", "/v1/messages", "/v1/messages"),
        (CLAUDE, "/v1", "/v1/messages", "/v1/messages"),
        (CLAUDE, "/gateway", "/v1/messages?beta=true", "/gateway/v1/messages?beta=true"),
        (CLAUDE, "", "/v1/messages/count_tokens?beta=true", "/v1/messages/count_tokens?beta=true"),
    ],
)
def test_paths_follow_the_base_url(plan: Any, base: str, path: str, target: str) -> None:
    """An allowed path is requested below the base URL, without repeating the version."""

    async def play() -> None:
        async with relayed(plan=plan, base=base) as setting:
            assert (await setting.ask(path=path)).status == 200
        assert setting.seen[0].target == target

    asyncio.run(play())


@EVERY
def test_credentials_are_replaced(plan: Any) -> None:
    """Credentials that the agent sends are removed, and only the configured key reaches the provider."""
    given = {
        "authorization": "Bearer stolen",
        "x_api_key": "stolen",
        "api_key": "stolen",
        "cookie": "session=stolen",
        "proxy_authorization": "Basic stolen",
        "x_goog_api_key": "stolen",
        "openai_organization": "stolen",
        "openai_project": "stolen",
        "x_forwarded_host": "stolen",
        "x_openai_account_routing_override": "stolen",
        "te": "trailers",
    }

    async def play() -> None:
        async with relayed(plan=plan) as setting:
            await setting.ask(**given)
        headers = setting.seen[0].headers
        assert "stolen" not in str(headers)
        assert "te" not in headers
        own = ("x-api-key", KEY) if plan == CLAUDE else ("authorization", f"Bearer {KEY}")
        assert [(name, value) for name, value in headers.items() if KEY in value] == [own]

    asyncio.run(play())


def test_no_key_is_no_header() -> None:
    """Without a key, as for a local model server, no ``Authorization`` header is sent."""

    async def play() -> None:
        async with relayed(plan=replace(PLAN, key=None)) as setting:
            await setting.ask(authorization="Bearer placeholder")
        assert "authorization" not in setting.seen[0].headers

    asyncio.run(play())


def test_harmless_headers_pass() -> None:
    """Headers that name the client and the API version are forwarded, and an uncompressed answer is requested."""

    async def play() -> None:
        async with relayed(plan=CLAUDE) as setting:
            await setting.ask(anthropic_version="2023-06-01", user_agent="claude-cli", accept_encoding="gzip, br")
        headers = setting.seen[0].headers
        assert (headers["anthropic-version"], headers["user-agent"]) == ("2023-06-01", "claude-cli")
        assert headers["accept-encoding"] == "identity"

    asyncio.run(play())


def test_answer_headers_are_few() -> None:
    """The agent gets only the response headers that it needs: no cookie and no account name."""
    headers = {
        "content_type": "text/event-stream",
        "set_cookie": "a=b",
        "openai_organization": "org-of-the-tester",
        "x_request_id": "r1",
        "x_ratelimit_remaining_requests": "7",
        "x_echo": KEY,
    }

    async def play() -> None:
        async with relayed(answering(200, STREAM[Provider.OPENAI], **headers)) as setting:
            shown = (await setting.ask()).headers
        assert shown.keys() == {"content-type", "x-request-id", "x-ratelimit-remaining-requests", "transfer-encoding"}

    asyncio.run(play())


@pytest.mark.parametrize("status", [200, 401])
def test_key_is_never_echoed(status: int) -> None:
    """If a provider repeats the key in a body or a header, the key is removed before the agent gets the response."""

    async def script(seen: Seen, peer: HttpPeer) -> None:
        head = [("content-type", "application/json"), ("x-request-id", f"r-{KEY}")]
        await peer.send(h11.Response(status_code=status, headers=head))
        for half in (f'{{"error": {{"message": "{KEY[:9]}', f'{KEY[9:]}"}}}}'):
            await peer.send(h11.Data(data=half.encode()))
            await asyncio.sleep(0.02)
        await peer.send(h11.EndOfMessage())

    async def play() -> None:
        async with relayed(script) as setting:
            answered = await setting.ask()
        assert answered.message == "<redacted>"
        assert answered.headers["x-request-id"] == "r-<redacted>"
        assert KEY not in str(setting.lines) + str(setting.relay.report()) + repr(setting.plan)

    asyncio.run(play())


def test_pieces_pass_as_they_come() -> None:
    """A piece of a streamed answer reaches the agent before the provider sends the next piece."""
    first_read = asyncio.Event()

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        await peer.send(h11.Data(data=b"data: first\n\n"))
        await asyncio.wait_for(first_read.wait(), 5)
        await peer.send(h11.Data(data=STREAM[Provider.OPENAI]))
        await peer.send(h11.EndOfMessage())

    async def play() -> None:
        async with relayed(script, timeouts=ProviderTimeouts(), agent_seconds=60.0) as setting:
            agent = await setting.connect()
            await send(agent, setting.request())
            assert isinstance(await agent.next_event(), h11.Response)
            piece = await asyncio.wait_for(agent.next_event(), 5)
            assert isinstance(piece, h11.Data)
            assert bytes(piece.data) == b"data: first\n\n"
            first_read.set()
            await agent.close()

    asyncio.run(play())


def test_connections_are_kept() -> None:
    """The agent's connection and the provider's connection are both reused for later requests."""

    async def play() -> None:
        async with relayed() as setting:
            agent = await setting.connect()
            for _ in range(3):
                assert (await exchange(agent, setting.request())).status == 200
                agent.connection.start_next_cycle()
            await agent.close()
        assert (len(setting.seen), len(setting.connections)) == (3, 1)

    asyncio.run(play())


def test_connection_survives_a_refusal() -> None:
    """After a refused request, a valid request is served on the same connection."""

    async def play() -> None:
        async with relayed() as setting:
            agent = await setting.connect()
            assert (await exchange(agent, setting.request(path="/files"))).status == 404
            agent.connection.start_next_cycle()
            assert (await exchange(agent, setting.request())).status == 200
            await agent.close()

    asyncio.run(play())


def test_probe_is_answered_here() -> None:
    """The ``HEAD /`` request that Claude Code sends first is answered by the relay and not forwarded."""

    async def play() -> None:
        async with relayed(plan=CLAUDE) as setting:
            agent = await setting.connect()
            await agent.send(h11.Request(method="HEAD", target="/", headers=[("host", "relay")]))
            await agent.send(h11.EndOfMessage())
            assert (await answer_of(agent)).status == 200
            await agent.close()
        assert setting.seen == []
        assert setting.relay.report().refused == {}

    asyncio.run(play())


def test_websocket_is_answered_426() -> None:
    """The WebSocket request that Codex sends first gets status 426, and is not forwarded."""
    request = b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

    async def play() -> None:
        async with relayed() as setting:
            got = await setting.raw(request)
        assert got.startswith(b"HTTP/1.1 426 ")
        assert setting.seen == []
        assert setting.relay.report().refused == {"upgrade": 1}

    asyncio.run(play())


def test_requests_run_beside_each_other() -> None:
    """An agent's requests run at the same time, up to a limit. Further requests wait, and are then served."""
    under_way: list[int] = []
    most = 0

    async def script(seen: Seen, peer: HttpPeer) -> None:
        nonlocal most
        under_way.append(1)
        most = max(most, len(under_way))
        await asyncio.sleep(0.05)
        under_way.pop()
        await GOOD[Provider.OPENAI](seen, peer)

    async def play() -> None:
        async with relayed(script, timeouts=ProviderTimeouts(), agent_seconds=60.0) as setting:
            answers = await asyncio.gather(*(setting.ask() for _ in range(module.MAX_AT_ONCE + 8)))
        assert {answered.status for answered in answers} == {200}
        assert most == module.MAX_AT_ONCE

    asyncio.run(play())


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection beyond the limit is closed, and the connection within it is still served."""
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 1)

    async def play() -> None:
        async with relayed() as setting:
            agent = await setting.connect()
            assert (await exchange(agent, setting.request())).status == 200
            other = await setting.connect()
            assert await other.reader.read() == b""
            agent.connection.start_next_cycle()
            assert (await exchange(agent, setting.request())).status == 200
            await agent.close()
            await other.close()

    asyncio.run(play())


def test_close_ends_what_is_under_way() -> None:
    """Closing a relay ends and logs its requests, and closes its connections to the provider."""
    ended = asyncio.Event()

    async def script(seen: Seen, peer: HttpPeer) -> None:
        assert await peer.reader.read() == b""
        ended.set()

    async def play() -> None:
        async with relayed(script, timeouts=ProviderTimeouts(), agent_seconds=60.0) as setting:
            agent = await setting.connect()
            await send(agent, setting.request())
            await setting.has_seen.wait()
            await setting.relay.close()
            await asyncio.wait_for(ended.wait(), 5)
            await agent.close()
        assert [line["path"] for line in setting.lines] == ["/responses"]
        assert setting.relay.report().trouble is None

    asyncio.run(play())


def test_budget_of_requests() -> None:
    """A request beyond the budget is not forwarded, and the response tells client programs not to retry."""

    async def play() -> None:
        async with relayed(plan=replace(PLAN, requests=2)) as setting:
            statuses = [(await setting.ask()).status for _ in range(2)]
            last = await setting.ask()
        report = setting.relay.report()
        assert (statuses, last.status, last.headers["x-should-retry"]) == ([200, 200], 429, "false")
        assert json.loads(last.body)["error"]["code"] == "insufficient_quota"
        assert (len(setting.seen), report.requests, report.trouble) == (2, 2, Trouble.OUT_OF_BUDGET)
        assert report.refused == {"budget": 1}

    asyncio.run(play())


def test_bad_hour_of_the_provider_is_no_spending() -> None:
    """Requests that fail because of the provider are not charged.

    This holds for at most as many failed requests as the budget allows requests.
    """
    statuses = iter([529, 429, 500, 200, 500, 500])

    async def script(seen: Seen, peer: HttpPeer) -> None:
        status = next(statuses)
        await (GOOD[Provider.OPENAI] if status == 200 else answering(status))(seen, peer)

    async def play() -> None:
        async with relayed(script, plan=replace(PLAN, requests=3)) as setting:
            answered = [(await setting.ask()).status for _ in range(7)]
        assert answered == [529, 429, 500, 200, 500, 500, 429]
        report = setting.relay.report()
        assert (report.trouble, report.message) == (Trouble.FAILED, "the provider answered 500")
        assert report.refused == {"budget": 1}

    asyncio.run(play())


def test_budget_of_tokens() -> None:
    """Tokens that the provider reports, including cached ones, count towards the budget."""

    async def play() -> None:
        async with relayed(plan=replace(CLAUDE, tokens=120)) as setting:
            assert [(await setting.ask()).status for _ in range(2)] == [200, 429]
        assert setting.relay.report().trouble is Trouble.OUT_OF_BUDGET

    asyncio.run(play())


def test_budget_stays_used_up() -> None:
    """After the budget is used up, no later request replaces this outcome in the report."""

    async def play() -> None:
        async with relayed(plan=replace(PLAN, requests=1)) as setting:
            for body in (None, None, {"model": "other"}):
                await setting.ask(body)
        assert setting.relay.report().trouble is Trouble.OUT_OF_BUDGET

    asyncio.run(play())


@pytest.mark.parametrize(
    ("plan", "details", "cost"),
    [
        # 100 input tokens at $1 per million, except cached ones; 20 output tokens at $10 per million.
        (PRICED, b"", 100 + 200),
        (PRICED, b',"input_tokens_details":{"cached_tokens":60}', 40 + 30 + 200),
        (replace(PRICED, provider=Provider.CHAT_COMPLETIONS), b"", 100 + 200),
        (
            replace(PRICED, provider=Provider.CHAT_COMPLETIONS),
            b',"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10}',
            30 + 30 + 20 + 200,
        ),
        (replace(CLAUDE, prices=PRICES), b"", 10 + 35 + 40 + 200),
        (replace(CLAUDE, prices=DEAR, model_prices={"claude-sonnet-5": PRICES}), b"", 10 + 35 + 40 + 200),
        (replace(CLAUDE, prices=DEAR, model_prices={"claude-sonnet-4": PRICES}), b"", 10_000),
        (replace(CLAUDE, prices=PRICES), b',"cache_creation":{"ephemeral_1h_input_tokens":5}', 10 + 35 + 30 + 15 + 200),
    ],
)
def test_answers_have_a_price(plan: RelayPlan, details: bytes, cost: int) -> None:
    """Each kind of token has its own price in every API, and the log has the price of each request."""
    usage = b'"output_tokens":1' if plan.provider is Provider.ANTHROPIC else b'"output_tokens":20'
    usage = b'"completion_tokens":20' if plan.provider is Provider.CHAT_COMPLETIONS else usage
    stream = STREAM[plan.provider].replace(b'"message":{', b'"message":{"model":"claude-sonnet-5-20260203",')
    script = streaming(stream.replace(usage, usage + details, 1))

    async def play() -> None:
        async with relayed(script, plan=plan) as setting:
            assert (await setting.ask()).status == 200
        assert setting.relay.report().micro_usd == cost
        assert setting.lines[0]["cost_usd"] == cost / 1e6

    asyncio.run(play())


def test_budget_of_money() -> None:
    """When the budget in money is used up, the next request is refused. Without prices, no cost is reported."""

    async def play() -> None:
        async with relayed(plan=replace(PRICED, micro_usd=350, spent_micro_usd=50)) as setting:
            first, second = await setting.ask(), await setting.ask()
        assert (first.status, second.status) == (200, 429)
        assert "$0.00035" in second.message
        report = setting.relay.report()
        assert (report.micro_usd, report.trouble) == (300, Trouble.OUT_OF_BUDGET)
        async with relayed() as plain:
            await plain.ask()
        assert plain.relay.report().micro_usd is None
        assert "cost_usd" not in plain.lines[0]

    asyncio.run(play())


@pytest.mark.parametrize("plan", [replace(PRICED, micro_usd=600), replace(PLAN, tokens=240)])
def test_requests_at_once_do_not_exceed_the_budget(plan: RelayPlan) -> None:
    """J18: a request that may exceed the budget waits for those in progress, and is refused if they use it up."""
    at_once: list[int] = []

    async def slow(seen: Seen, peer: HttpPeer) -> None:
        at_once.append(1)
        await asyncio.sleep(0.02)
        assert len(at_once) == 1
        at_once.clear()
        await GOOD[Provider.OPENAI](seen, peer)

    async def play() -> None:
        async with relayed(slow, plan=plan) as setting:
            answered = await asyncio.gather(*(setting.ask() for _ in range(8)))
        assert sorted(answer.status for answer in answered) == [200, 200, *[429] * 6]
        assert setting.relay.report().trouble is Trouble.OUT_OF_BUDGET

    asyncio.run(play())


def test_small_files_with_many_tokens_do_not_exceed_the_budget() -> None:
    """J18: a PDF may have far more tokens than bytes, so requests with a PDF run one after another."""
    usage = b'{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":300000,"completion_tokens":10}}'
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}
    body = {"model": "gpt-5.5", "max_tokens": 10, "messages": [{"role": "user", "content": [file]}]}

    async def play() -> None:
        async with relayed(answering(200, usage), plan=replace(CHAT, prices=PRICES, micro_usd=500_000)) as setting:
            answered = await asyncio.gather(*(setting.ask(body) for _ in range(8)))
        assert sorted(answer.status for answer in answered) == [200, 200, *[429] * 6]

    asyncio.run(play())


def test_requests_with_room_run_at_once() -> None:
    """Requests run at the same time if the budget has room for the most that each may cost."""
    both = asyncio.Barrier(2)

    async def together(seen: Seen, peer: HttpPeer) -> None:
        await both.wait()
        await GOOD[Provider.OPENAI](seen, peer)

    async def play() -> None:
        body = {**BODIES[Provider.OPENAI], "max_output_tokens": 20}
        async with relayed(together, plan=replace(PRICED, micro_usd=1000)) as setting:
            answered = await asyncio.gather(setting.ask(body), setting.ask(body))
        assert [answer.status for answer in answered] == [200, 200]

    asyncio.run(play())


async def _silent(seen: Seen, peer: HttpPeer) -> None:
    """Never answer."""
    await asyncio.sleep(60)


async def _begun(seen: Seen, peer: HttpPeer) -> None:
    """Begin an answer, and send no usage and no end."""
    await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
    for _ in range(100):
        await peer.send(h11.Data(data=b": waiting\n\n"))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("plan", [replace(PRICED, micro_usd=100_000), replace(PLAN, tokens=10_000)])
def test_an_answer_that_is_broken_off_is_charged_its_reservation(plan: RelayPlan) -> None:
    """J18: an answer is charged its whole reservation if the agent disconnects before the usage is reported."""

    async def play() -> None:
        async with relayed(_begun, plan=plan) as setting:
            agent = await setting.connect()
            _, body = request = setting.request({**BODIES[Provider.OPENAI], "max_output_tokens": 10_000})
            await send(agent, request)
            await agent.next_event()
            await agent.close()
            await setting.has_logged.wait()
            assert (await setting.ask()).status == 429
        report, line = setting.relay.report(), setting.lines[0]
        assert report.input_tokens + report.output_tokens + report.unreported_tokens >= 10_000 + len(body) - 20
        if plan.prices:
            assert line["cost_usd"] < 0.05
            assert line["cost_usd"] + line["unreported_usd"] >= 0.1
            assert report.unreported_micro_usd == round(line["unreported_usd"] * 1e6)

    asyncio.run(play())


@pytest.mark.parametrize("script", [_silent, _begun])
def test_requests_in_flight_at_the_end_are_charged(script: Any) -> None:
    """J18: requests in progress when the relay closes are charged, so exiting early does not make them free."""
    all_seen = asyncio.Barrier(4)

    async def provide(seen: Seen, peer: HttpPeer) -> None:
        await all_seen.wait()
        await script(seen, peer)

    async def play() -> None:
        async with relayed(provide, plan=PRICED, timeouts=ProviderTimeouts()) as setting:
            agents = [await setting.connect() for _ in range(3)]
            for agent in agents:
                await send(agent, setting.request({**BODIES[Provider.OPENAI], "max_output_tokens": 1000}))
            await all_seen.wait()
            await setting.relay.close()
            report = setting.relay.report()
            assert report.output_tokens + report.unreported_tokens > 3000
            assert (report.micro_usd or 0) + report.unreported_micro_usd > 30_000
            assert sum(line["unreported_usd"] for line in setting.lines) > 0.02
            for agent in agents:
                await agent.close()

    asyncio.run(play())


@pytest.mark.parametrize("plan", [PRICED, replace(CLAUDE, prices=PRICES), replace(CHAT, prices=PRICES)])
def test_the_reported_price_is_all_that_is_charged(plan: RelayPlan) -> None:
    """Only the reported price is charged for a complete answer and for an error response.

    The same holds for an answer that is cut off after it has reported its usage.
    """

    async def endless(seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        await peer.send(h11.Data(data=STREAM[plan.provider]))
        await asyncio.sleep(60)

    async def play() -> None:
        for script in (GOOD[plan.provider], answering(500), answering(302), endless):
            timeouts = QUICK if script is endless else PATIENT
            async with relayed(script, plan=plan, timeouts=timeouts) as setting:
                await setting.ask()
            report = setting.relay.report()
            assert (report.unreported_tokens, report.unreported_micro_usd) == (0, 0)
            assert "unreported_usd" not in setting.lines[0]

    asyncio.run(play())


def test_input_that_the_start_reports_is_not_charged_again() -> None:
    """An answer that breaks off is charged its maximum of output tokens, and the input tokens that it reported."""
    start = STREAM[Provider.ANTHROPIC].split(b"event: message_delta")[0]

    async def play() -> None:
        async with relayed(streaming(start), plan=replace(CLAUDE, prices=PRICES)) as setting:
            await setting.ask({**BODIES[Provider.ANTHROPIC], "max_tokens": 5000})
        report = setting.relay.report()
        assert report.input_tokens == 100
        assert report.output_tokens + report.unreported_tokens == 5000
        assert (report.micro_usd or 0) + report.unreported_micro_usd == 100 * 3 + 5000 * 10

    asyncio.run(play())


def test_budget_of_bytes_cuts_an_answer() -> None:
    """An answer that exceeds the budget of bytes is cut off so that the agent sees that it is incomplete."""

    async def play() -> None:
        async with relayed(streaming(b"data: x\n\n" * 5000), plan=replace(PLAN, bytes=20_000)) as setting:
            answered = await setting.ask()
        assert not answered.is_whole
        assert len(answered.body) < 45_000
        assert setting.relay.report().trouble is Trouble.OUT_OF_BUDGET

    asyncio.run(play())


def test_cut_stream_is_counted() -> None:
    """If the agent disconnects before the usage is reported, the tokens are estimated from the received length."""
    text = b'data: {"type":"response.output_text.delta","delta":"word"}\n\n' * 200

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await peer.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        for _ in range(50):
            await peer.send(h11.Data(data=text))
            await asyncio.sleep(0.01)

    async def play() -> None:
        async with relayed(script) as setting:
            agent = await setting.connect()
            await send(agent, setting.request())
            await agent.next_event()
            await agent.next_event()
            await agent.close()
            await setting.has_logged.wait()
        report = setting.relay.report()
        assert report.output_tokens >= len(text) // 4
        assert report.input_tokens > 0
        assert (report.answered, report.trouble) == (0, None)

    asyncio.run(play())


def test_log_has_counts_alone() -> None:
    """A log line has the path, status and counts of a request, and no part of its body, its headers or the key."""

    async def play() -> None:
        async with relayed() as setting:
            await setting.ask(BODIES[Provider.OPENAI] | {"input": "the-secret-prompt"}, user_agent="the-program")
            await setting.ask(path="/files")
        allowed, denied = setting.lines
        assert allowed.keys() == {
            *("time", "kind", "method", "path", "decision", "reason", "status", "provider_status"),
            *("seconds", "bytes", "tokens"),
        }
        assert (allowed["kind"], allowed["decision"], allowed["status"], allowed["tokens"]) == (
            "relay",
            "allowed",
            200,
            120,
        )
        assert (denied["decision"], denied["reason"], denied["status"]) == ("denied", "path", 404)
        assert not any(word in str(setting.lines) for word in ("secret-prompt", "the-program", KEY))

    asyncio.run(play())


AZURE: Any = {"key_form": KeyForm.AZURE, "api_version": "2024-10-21"}


@pytest.mark.parametrize(
    ("plan", "base", "header", "target"),
    [
        (PLAN, "/v1", f"authorization: Bearer {KEY}", "/v1/responses"),
        (CLAUDE, "/v1", f"x-api-key: {KEY}", "/v1/messages?beta=true"),
        (GEMINI, "/v1beta", f"x-goog-api-key: {KEY}", "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        (replace(CLAUDE, key_form=KeyForm.BEARER), "/v1", f"authorization: Bearer {KEY}", "/v1/messages?beta=true"),
        (
            replace(CHAT, **AZURE),
            "/openai/deployments/d",
            f"api-key: {KEY}",
            "/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (replace(PLAN, **AZURE), "/openai", f"api-key: {KEY}", "/openai/responses?api-version=2024-10-21"),
        (replace(PLAN, key_form=KeyForm.AZURE), "/openai/v1", f"api-key: {KEY}", "/openai/v1/responses"),
        (replace(PLAN, key=None), "/v1", "", "/v1/responses"),
    ],
)
def test_how_the_key_is_sent(plan: RelayPlan, base: str, header: str, target: str) -> None:
    """The key is sent in one header, the API version in the query. The agent's own credentials are removed."""
    agents = {"authorization": "Bearer other", "x_api_key": "other", "api_key": "other", "x_goog_api_key": "other"}

    async def play() -> None:
        async with relayed(plan=plan, base=base) as setting:
            assert (await setting.ask(**agents)).status == 200
            if plan.model != "sonnet":  # for an alias, the probe requests the list of models instead
                assert (await ask_provider(setting.plan, plan.model, 5.0)).trouble is None
        assert {seen.target for seen in setting.seen} == {target}
        for seen in setting.seen:
            credentials = {"authorization", "x-api-key", "api-key", "x-goog-api-key"} & seen.headers.keys()
            assert [f"{name}: {seen.headers[name]}" for name in credentials] == ([header] if header else [])

    asyncio.run(play())


def test_tls_to_a_private_authority() -> None:
    """A provider whose CA is in the plan is reached over TLS, and its connection is reused."""
    authority = trustme.CA()
    context = _server(authority.issue_cert("localhost"))

    async def play() -> None:
        plan = replace(PLAN, ca_bundle=authority.cert_pem.bytes().decode())
        async with relayed(plan=plan, tls=context) as setting:
            answers = [await setting.ask() for _ in range(3)]
        assert [(answered.status, answered.is_whole) for answered in answers] == [(200, True)] * 3
        assert len(setting.connections) == 1

    asyncio.run(play())


@pytest.mark.parametrize(("name", "trusts"), [("localhost", False), ("other.example", True)])
def test_tls_is_verified(name: str, trusts: bool) -> None:
    """A provider whose certificate is from an unknown CA, or for another name, gets no request."""
    authority = trustme.CA()
    context = _server(authority.issue_cert(name))
    pem = authority.cert_pem.bytes().decode() if trusts else None

    async def play() -> None:
        async with relayed(plan=replace(PLAN, ca_bundle=pem), tls=context) as setting:
            answered = await setting.ask()
        assert (answered.status, setting.seen) == (502, [])
        assert setting.relay.report().trouble is Trouble.UNREACHABLE

    asyncio.run(play())


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "host", "", "https://", "https://host:99999/v1", "http://[::1", "http://h/a b", "http://h/?a=b"],
)
def test_base_url_must_be_one(url: str) -> None:
    """Creating a relay with an invalid base URL raises :class:`EgressError`."""
    with pytest.raises(EgressError):
        ProviderRelay(replace(PLAN, base_url=url), print)


@pytest.mark.parametrize("key", ["", "sk-secret\n", "sk-secret\r\nx-other: y", " sk-secret", "sk-\u00e9"])
def test_key_must_fit_a_header(key: str) -> None:
    """Creating a relay with a key that no header may contain fails, and the error does not contain the key."""
    with pytest.raises(EgressError) as refused:
        ProviderRelay(replace(PLAN, base_url="https://host/v1", key=key), print)
    assert "secret" not in f"{refused.value!r} {refused.value}"


def test_relay_needs_no_files_later() -> None:
    """Importing the relay loads the modules that it needs, because its process cannot read files later.

    The module of the thread pool is an exception: the gateway's process imports it itself.
    """
    script = """
import sys, asyncio, securebench.egress.relay.server
from securebench.egress.relay.upstream import Upstream
import concurrent.futures.thread
known = set(sys.modules)
async def take():
    try:
        await Upstream("https://nothing.invalid/v1").take()
    except OSError:
        print(sorted(set(sys.modules) - known))
asyncio.run(take())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def _server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
