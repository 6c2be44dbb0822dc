"""The relay server: the sandbox connects to it instead of the provider, and never sees the key."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import h11

from securebench.egress.http_streams import HttpPeer
from securebench.egress.model import SENDABLE_KEY, Trouble
from securebench.egress.relay.answer import (
    AGENT_SECONDS,
    AcceptedRequest,
    AgentGoneError,
    RelayContext,
    RequestForwarder,
)
from securebench.egress.relay.budget import Reservation, media_tokens
from securebench.egress.relay.providers import dialect_of
from securebench.egress.relay.providers.base import shown
from securebench.egress.relay.refusals import REFUSAL_HEADER, RefusedError, RelayRefusal
from securebench.egress.relay.request import Bodies, check_framing, decode, drain, encode
from securebench.egress.relay.tally import RequestEntry, Tally
from securebench.egress.relay.upstream import NoAnswerError, Upstream
from securebench.errors import EgressError

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.egress.model import RelayPlan, RelayReport
    from securebench.egress.relay.providers.base import Header
    from securebench.resources import JsonValue

MAX_CONNECTIONS: Final = 64
"""Simultaneous connections of one agent. Further connections are closed immediately."""

MAX_AT_ONCE: Final = 16
"""Simultaneous requests of one agent. Further requests wait. Agents with subagents send about ten."""

_VERSIONS: Final = (b"1.0", b"1.1")


class ProviderRelay:
    """The relay of one task. It belongs to one event loop.

    ``log`` receives a line for each request, except refused ones after the first 1,000. A line has, for example,
    the path, the status and the number of tokens, but never a body or a key.

    Raises :class:`EgressError` if the base URL, CA certificate or key of the plan is invalid.
    """

    def __init__(
        self,
        plan: RelayPlan,
        log: Callable[[dict[str, JsonValue]], None],
        *,
        upstream: Upstream | None = None,
        agent_seconds: float = AGENT_SECONDS,
    ) -> None:
        require_key(plan)
        self._tally = Tally(log, is_priced=plan.prices is not None)
        upstream = upstream or Upstream(plan.base_url, plan.ca_bundle, plan.timeouts.connect, plan.proxy)
        self._context = RelayContext(plan, dialect_of(plan.provider), upstream, agent_seconds, self._tally.spent)
        self._bodies = Bodies(agent_seconds)
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._has_ended = asyncio.Event()
        """Set when a request ends. Requests that wait for room in the budget then check again."""
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_closed = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection from the agent, then close it.

        Raises ``CancelledError`` if something other than :meth:`close` cancels the connection. Raises nothing else.
        """
        agent, task = HttpPeer(h11.SERVER, reader, writer), asyncio.current_task()
        try:
            if task is not None and len(self._tasks) < MAX_CONNECTIONS and not self._is_closed:
                self._tasks.add(task)
                await self._serve_all(agent)
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
        finally:
            self._tasks.discard(task)
            await agent.close()

    def report(self) -> RelayReport:
        """Return the report so far. It has the tokens and the outcome of a request only after the request has ended.

        All requests have ended after :meth:`close`.
        """
        return self._tally.report()

    async def close(self) -> None:
        """Cancel running requests and close all connections. Idempotent."""
        self._is_closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._context.upstream.close()

    async def _serve_all(self, agent: HttpPeer) -> None:
        with suppress(OSError, h11.ProtocolError, AgentGoneError):
            while await self._serve_next(agent):
                agent.connection.start_next_cycle()

    async def _serve_next(self, agent: HttpPeer) -> bool:
        """Serve one request, and return whether another may follow on the connection."""
        request = await _request(agent)
        if isinstance(request, h11.ConnectionClosed):
            return False
        entry = RequestEntry()
        async with self._slots:
            try:
                await self._handle(agent, request, entry)
            finally:
                self._tally.close(entry)
                self._has_ended.set()
        connection = agent.connection
        return request is not None and connection.our_state is connection.their_state is h11.DONE

    async def _handle(self, agent: HttpPeer, request: h11.Request | None, entry: RequestEntry) -> None:
        if request is None:
            await self._refuse(agent, entry, RefusedError(RelayRefusal.MALFORMED, "the request is not valid HTTP/1.1"))
            return
        entry.method, entry.path = request.method.decode("latin-1"), request.target.decode("latin-1")
        try:
            model = self._context.plan.model
            if (local := self._context.dialect.local_answer(entry.method, entry.path, model)) is not None:
                await self._answer(agent, entry, 200, local)
            else:
                await self._relay(agent, request, entry)
        except RefusedError as refused:
            await self._refuse(agent, entry, refused)
        except (h11.RemoteProtocolError, TimeoutError):
            await self._refuse(
                agent,
                entry,
                RefusedError(RelayRefusal.MALFORMED, "the body does not match the headers, or did not arrive in time"),
            )
        except NoAnswerError as error:
            await self._fail(agent, entry, error)

    async def _relay(self, agent: HttpPeer, request: h11.Request, entry: RequestEntry) -> None:
        headers = [(bytes(name), bytes(value)) for name, value in request.headers]
        route = self._context.dialect.route(entry.method, entry.path, headers)
        entry.is_model = route.is_model
        check_framing(headers)
        if route.model not in (None, self._context.plan.model):
            raise RefusedError(RelayRefusal.MODEL, f"the model {shown(route.model)} is not the configured one")
        self._context.dialect.check_headers(headers, self._context.plan)
        async with self._bodies.read(agent) as data:
            body = decode(data)
            self._context.dialect.check(body, self._context.plan)
            sent = self._context.dialect.with_usage(body)
            accepted = AcceptedRequest(
                route,
                self._context.dialect.headers(headers, self._context.plan),
                encode(sent),
                is_stream=body.get("stream") is True if route.streams is None else route.streams,
                media_tokens=media_tokens(body) if route.is_model else 0,
                max_output_tokens=self._context.dialect.max_output_tokens(sent) if route.is_model else 0,
                has_added_usage=sent is not body,
            )
            entry.model = route.model or str(body.get("model", ""))
            await self._reserve(entry, accepted)
            await RequestForwarder(self._context, agent, accepted, entry).run()

    async def _reserve(self, entry: RequestEntry, accepted: AcceptedRequest) -> None:
        """Reserve what a request may use. If it might exceed the budget, first wait for requests in progress to end."""
        plan, spent = self._context.plan, self._tally.spent
        wanted = Reservation.of(plan, len(accepted.body) + accepted.media_tokens, accepted.max_output_tokens)
        while not (bound := spent.over(plan)) and not spent.has_room(plan, wanted):
            self._has_ended.clear()
            await self._has_ended.wait()
        if bound:
            raise RefusedError(RelayRefusal.BUDGET, f"the budget of this task is used up: {bound}")
        entry.sent = len(accepted.body)
        self._tally.passed_on(entry, wanted)

    async def _refuse(self, agent: HttpPeer, entry: RequestEntry, refused: RefusedError) -> None:
        entry.refusal = refused.reason
        entry.trouble = self._trouble_of(refused)
        entry.message = f"refused by the relay: {refused.reason.value}"
        await self._explain(agent, entry, refused.status, refused.message)

    def _trouble_of(self, refused: RefusedError) -> Trouble | None:
        """Return the trouble to record for a refused request.

        Returns ``None`` if the budget is used up only because of requests on which the provider failed.
        """
        if refused.reason is not RelayRefusal.BUDGET:
            return Trouble.REJECTED
        return Trouble.OUT_OF_BUDGET if self._tally.spent.is_used_up(self._context.plan) else None

    async def _fail(self, agent: HttpPeer, entry: RequestEntry, error: NoAnswerError) -> None:
        """Send the agent an error, or abort the connection if an answer has begun.

        The agent must not mistake the part that it has received for the whole answer.
        """
        entry.trouble, entry.message = error.trouble, error.message
        if agent.connection.our_state is not h11.SEND_RESPONSE:
            agent.writer.transport.abort()
            raise AgentGoneError
        await self._explain(agent, entry, error.status, error.message)

    async def _explain(self, agent: HttpPeer, entry: RequestEntry, status: int, message: str) -> None:
        error = self._context.dialect.error(status, f"SecureBench: {message}")
        await self._answer(agent, entry, status, json.dumps(error).encode())

    async def _answer(self, agent: HttpPeer, entry: RequestEntry, status: int, body: bytes) -> None:
        """Read the rest of the request, then send the relay's own answer. Clients send everything before they read."""
        entry.status = status
        headers: list[Header] = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-should-retry", b"true" if status >= 500 else b"false"),  # noqa: PLR2004 - a status is its own name
        ]
        if entry.refusal is not None:
            headers.append((REFUSAL_HEADER.encode(), entry.refusal.value.encode()))
        await drain(agent)
        await agent.send(h11.Response(status_code=status, headers=headers))
        if body:
            await agent.send(h11.Data(data=body))
        await agent.send(h11.EndOfMessage())


def require_key(plan: RelayPlan) -> None:
    """Raise :class:`EgressError` if the key cannot be sent in a header."""
    if plan.key is not None and not SENDABLE_KEY.fullmatch(plan.key):
        raise EgressError(
            "the provider's API key is empty or contains characters that are not allowed in an HTTP header"
        )


async def _request(agent: HttpPeer) -> h11.Request | h11.ConnectionClosed | None:
    """Return the head of the next request, ``None`` if it is invalid, or ``ConnectionClosed`` if no request follows.

    Raises ``OSError``.
    """
    try:
        event = await agent.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return h11.ConnectionClosed()
    return event if event.http_version in _VERSIONS else None
