"""A test setup with a scripted provider, a relay, and an agent that uses plain HTTP/1.1, all in one event loop."""

from __future__ import annotations

import asyncio
import json
import ssl  # noqa: TC003 - a dataclass's annotation
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import h11

from securebench.egress.http_streams import HttpPeer
from securebench.egress.model import Provider, RelayPlan
from securebench.egress.relay.server import ProviderRelay
from securebench.limits import ProviderTimeouts

KEY = "sk-canary-0123456789abcdef"
PATHS = {
    Provider.OPENAI: "/responses",
    Provider.ANTHROPIC: "/v1/messages?beta=true",
    Provider.CHAT_COMPLETIONS: "/v1/chat/completions",
    Provider.GEMINI: "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
}
PLAN = RelayPlan(
    provider=Provider.OPENAI,
    base_url="",
    key=KEY,
    model="gpt-5.5",
    requests=1000,
    tokens=10**9,
    bytes=10**9,
)
CHAT = replace(PLAN, provider=Provider.CHAT_COMPLETIONS)
GEMINI = replace(PLAN, provider=Provider.GEMINI, model="gemini-3-pro")
CLAUDE = replace(PLAN, provider=Provider.ANTHROPIC, model="sonnet")
BODIES: dict[Provider, dict[str, Any]] = {
    Provider.OPENAI: {"model": "gpt-5.5", "input": "hi", "store": False, "stream": True},
    Provider.ANTHROPIC: {
        "model": "claude-sonnet-5",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "stream": True,
    },
    Provider.CHAT_COMPLETIONS: {
        "model": "gpt-5.5",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    Provider.GEMINI: {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
STREAM = {
    Provider.OPENAI: (
        b'event: response.created\ndata: {"type":"response.created"}\n\n'
        b'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed",'
        b'"usage":{"input_tokens":100,"output_tokens":20}}}\n\n'
    ),
    Provider.ANTHROPIC: (
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":10,'
        b'"cache_creation_input_tokens":20,"cache_read_input_tokens":70,"output_tokens":1}}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":20}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    ),
    Provider.CHAT_COMPLETIONS: (
        b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"OK"},'
        b'"finish_reason":null}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}}\n\n'
        b"data: [DONE]\n\n"
    ),
    Provider.GEMINI: (
        b'data: {"candidates":[{"content":{"parts":[{"text":"OK"}],"role":"model"},"index":0}],'
        b'"usageMetadata":{"promptTokenCount":100,"totalTokenCount":100}}\n\n'
        b'data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],'
        b'"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":15,"thoughtsTokenCount":5,'
        b'"totalTokenCount":120},"modelVersion":"gemini-3-pro"}\n\n'
    ),
}
PATIENT = ProviderTimeouts(connect=10.0, first_byte=10.0, between_bytes=10.0, whole_answer=20.0)
"""Timeouts that no test reaches, even if its process is not scheduled for a while."""
QUICK = ProviderTimeouts(connect=2.0, first_byte=0.3, between_bytes=0.3, whole_answer=0.9)


@dataclass
class Seen:
    """A request as the provider received it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed as JSON."""
        return json.loads(self.body)


@dataclass
class Answered:
    """An answer as the agent received it. ``is_whole`` is false if the answer was cut."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool

    @property
    def message(self) -> str:
        """The message of an error answer."""
        text: str = json.loads(self.body)["error"]["message"]
        return text


Script = Callable[[Seen, HttpPeer], Awaitable[None]]


async def respond(peer: HttpPeer, status: int, body: bytes, **headers: str) -> None:
    """Send a complete answer. In names of ``headers``, ``_`` stands for ``-``."""
    given = [(name.replace("_", "-"), value) for name, value in headers.items()]
    await peer.send(h11.Response(status_code=status, headers=given))
    await peer.send(h11.Data(data=body))
    await peer.send(h11.EndOfMessage())


def answering(status: int = 200, body: bytes = b"{}", **headers: str) -> Script:
    """Return the script of a provider that gives the same answer to every request."""
    given = {"content_type": "application/json"} | headers

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await respond(peer, status, body, **given)

    return script


def streaming(body: bytes) -> Script:
    """Return the script of a provider that sends ``body`` as an event stream, in one piece."""
    return answering(200, body, content_type="text/event-stream")


GOOD = {provider: streaming(body) for provider, body in STREAM.items()}


@dataclass
class Setting:
    """A running relay, the requests that its provider received, and the lines that the relay logged."""

    relay: ProviderRelay
    plan: RelayPlan
    port: int
    seen: list[Seen] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    has_seen: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the provider has received a first request."""
    has_logged: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the relay has logged a first line, which it does at the end of a request."""

    async def connect(self) -> HttpPeer:
        """Open a connection to the relay, as an agent does."""
        return HttpPeer(h11.CLIENT, *await asyncio.open_connection("127.0.0.1", self.port))

    def log(self, line: dict[str, Any]) -> None:
        """Store a line that the relay logs."""
        self.lines.append(line)
        self.has_logged.set()

    async def ask(self, body: object = None, path: str = "", *, method: str = "POST", **headers: str) -> Answered:
        """Send one request over a new connection, and return the answer."""
        agent = await self.connect()
        try:
            return await exchange(agent, self.request(body, path, method=method, **headers))
        finally:
            await agent.close()

    def request(
        self, body: object = None, path: str = "", *, method: str = "POST", **headers: str
    ) -> tuple[h11.Request, bytes]:
        """Return a request, by default a valid one. A body that is not ``bytes`` is encoded as JSON."""
        body = BODIES[self.plan.provider] if body is None else body
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"host": "provider", "content-type": "application/json", "content-length": str(len(data))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        target = path or PATHS[self.plan.provider]
        return h11.Request(method=method, target=target, headers=list(given.items())), data

    async def raw(self, data: bytes, seconds: float = 1) -> bytes:
        """Send bytes, and return all received bytes until the connection ends or ``seconds`` have passed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        got = b""
        try:
            async with asyncio.timeout(seconds):
                while piece := await reader.read(65536):
                    got += piece
        except (TimeoutError, OSError):
            pass
        writer.close()
        return got


async def exchange(agent: HttpPeer, request: tuple[h11.Request, bytes]) -> Answered:
    """Send a request, and return the answer."""
    await send(agent, request)
    return await answer_of(agent)


async def send(agent: HttpPeer, request: tuple[h11.Request, bytes]) -> None:
    """Send a complete request."""
    for event in (request[0], h11.Data(data=request[1]), h11.EndOfMessage()):
        await agent.send(event)


async def answer_of(agent: HttpPeer) -> Answered:
    """Return one answer, read until it ends or is cut."""
    head = await agent.next_event()
    assert isinstance(head, h11.Response), head
    names = {name.decode(): value.decode() for name, value in head.headers}
    answered = Answered(head.status_code, names, b"", is_whole=False)
    try:
        while isinstance(event := await agent.next_event(), h11.Data):
            answered.body += bytes(event.data)
        answered.is_whole = isinstance(event, h11.EndOfMessage)
    except (OSError, h11.RemoteProtocolError):
        pass
    return answered


@asynccontextmanager
async def relayed(
    script: Script | None = None,
    plan: RelayPlan = PLAN,
    *,
    tls: ssl.SSLContext | None = None,
    timeouts: ProviderTimeouts = PATIENT,
    agent_seconds: float = 2.0,
    base: str = "/v1",
) -> AsyncIterator[Setting]:
    """Start a provider that follows ``script``, and a relay to it. The plan gets the provider's URL by default."""
    setting = Setting(None, plan, 0)  # type: ignore[arg-type] # filled in below
    script = script or GOOD[plan.provider]

    async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = HttpPeer(h11.SERVER, reader, writer)
        setting.connections.append(1)
        try:
            while await _provide_one(peer, setting, script):
                peer.connection.start_next_cycle()
        except (OSError, h11.ProtocolError):
            pass
        finally:
            await peer.close()

    provider = await asyncio.start_server(provide, "127.0.0.1", 0, ssl=tls)
    url = f"http{'s' if tls else ''}://localhost:{provider.sockets[0].getsockname()[1]}{base}"
    setting.plan = replace(plan, base_url=plan.base_url or url, timeouts=timeouts)
    setting.relay = ProviderRelay(setting.plan, setting.log, agent_seconds=agent_seconds)
    server = await asyncio.start_server(setting.relay.serve, "127.0.0.1", 0)
    setting.port = server.sockets[0].getsockname()[1]
    try:
        yield setting
    finally:
        server.close()
        await setting.relay.close()
        provider.close()


async def _provide_one(peer: HttpPeer, setting: Setting, script: Script) -> bool:
    request = await peer.next_event()
    if not isinstance(request, h11.Request):
        return False
    body = b"".join([piece async for piece in peer.body()])
    names = {name.decode(): value.decode() for name, value in request.headers}
    seen = Seen(request.method.decode(), request.target.decode(), names, body)
    setting.seen.append(seen)
    setting.has_seen.set()
    await script(seen, peer)
    return peer.connection.our_state is peer.connection.their_state is h11.DONE
