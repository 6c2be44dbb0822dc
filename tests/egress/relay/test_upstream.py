"""Connections to the provider that are kept for later requests."""

from __future__ import annotations

import asyncio

import pytest

from relay_setup import GOOD, exchange, relayed
from securebench.egress.model import Provider
from securebench.egress.relay import upstream as module
from securebench.egress.relay.upstream import Upstream


def test_stale_connection_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was idle for too long is not reused: a new one is opened."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)

    async def play() -> None:
        async with relayed() as setting:
            assert [(await setting.ask()).status for _ in range(2)] == [200, 200]
        assert len(setting.connections) == 2

    asyncio.run(play())


def test_connection_that_the_provider_closed() -> None:
    """A connection that the provider closed between two requests is replaced, and the agent gets no error."""

    async def script(seen: object, peer: object) -> None:
        await GOOD[Provider.OPENAI](seen, peer)  # type: ignore[arg-type] # passed through
        peer.writer.close()  # type: ignore[attr-defined] # passed through

    async def play() -> None:
        async with relayed(script) as setting:
            for _ in range(3):
                assert (await setting.ask()).status == 200
                await asyncio.sleep(0.05)
        assert setting.relay.report().trouble is None

    asyncio.run(play())


def test_few_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its answer, a connection is closed if enough idle connections are already kept."""
    monkeypatch.setattr(module, "MAX_IDLE", 1)

    async def play() -> None:
        async with relayed() as setting:
            await asyncio.gather(*(setting.ask() for _ in range(4)))
            assert len(setting.relay._context.upstream._idle) == 1

    asyncio.run(play())


def test_one_connection_an_answer_at_a_time() -> None:
    """Two requests in progress at the same time do not share a connection."""

    async def play() -> None:
        async with relayed() as setting:
            agents = [await setting.connect() for _ in range(2)]
            answers = await asyncio.gather(*(exchange(agent, setting.request()) for agent in agents))
            for agent in agents:
                await agent.close()
        assert [answered.status for answered in answers] == [200, 200]
        assert len(setting.connections) == 2

    asyncio.run(play())


@pytest.mark.parametrize(
    ("url", "named", "path"),
    [
        ("https://api.openai.com/v1", b"api.openai.com", "/v1"),
        ("https://api.openai.com/v1/", b"api.openai.com", "/v1"),
        ("https://api.anthropic.com", b"api.anthropic.com", ""),
        ("http://127.0.0.1:11434/v1", b"127.0.0.1:11434", "/v1"),
        ("http://user:word@[::1]:8080", b"[::1]:8080", ""),
    ],
)
def test_base_url_is_taken_apart(url: str, named: bytes, path: str) -> None:
    """A base URL is split into the host and port, without credentials, and the path."""
    upstream = Upstream(url)
    assert (upstream.authority, upstream.path) == (named, path)
