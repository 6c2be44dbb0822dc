"""Forward one accepted request to the provider, and stream the answer back without the key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

import h11

from securebench.egress.model import Trouble
from securebench.egress.relay.budget import Reservation
from securebench.egress.relay.encoding import AnswerDecoder
from securebench.egress.relay.error_responses import MAX_ERROR_BYTES, retry_after
from securebench.egress.relay.providers.base import read_object, versioned
from securebench.egress.relay.upstream import NoAnswerError, drop
from securebench.egress.relay.usage import AddedEvents, AnswerMeter
from securebench.resources import REDACTED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.model import RelayPlan
    from securebench.egress.relay.budget import Spending
    from securebench.egress.relay.providers.base import Dialect, Header, Route
    from securebench.egress.relay.tally import RequestEntry
    from securebench.egress.relay.upstream import Upstream

_REDACTED: Final = REDACTED.encode()

MAX_INTERIM: Final = 16
"""Maximum interim responses (1xx) before a response."""

HANGING_SECONDS: Final = 60.0
"""If a task ends after waiting this many seconds for a streamed answer to begin, the provider counts as unreachable.

An answer that is not streamed begins only when it is complete, so a long wait for it proves nothing."""

AGENT_SECONDS: Final = 60.0
"""Timeout for the agent to send the body of a request, and to read each piece of an answer. Its connection is local."""

_SHOULD_RETRY: Final = b"x-should-retry"


class Eraser:
    """Replaces a key in a stream with the redaction mark, even if the key is split between pieces.

    If the key is ``None``, nothing is replaced. Data is returned at once, except for a suffix that may be the beginning
    of the key.
    """

    def __init__(self, key: str | None) -> None:
        self._key = (key or "").encode()
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Add a piece, and return the data that can be forwarded."""
        if not self._key:
            return piece
        data = (self._held + piece).replace(self._key, _REDACTED)
        held = self._begun(data)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def finish(self) -> bytes:
        """Return the remaining data."""
        rest, self._held = self._held, b""
        return rest

    def _begun(self, data: bytes) -> int:
        """Return the length of the longest suffix of ``data`` that is a proper prefix of the key."""
        longest = min(len(self._key) - 1, len(data))
        return next((size for size in range(longest, 0, -1) if data.endswith(self._key[:size])), 0)


def erased(data: bytes, key: str | None) -> bytes:
    """Return ``data`` with ``key`` replaced by the redaction mark."""
    eraser = Eraser(key)
    return eraser.feed(data) + eraser.finish()


@dataclass(frozen=True, slots=True)
class RelayContext:
    """The shared state of all requests of one relay."""

    plan: RelayPlan
    dialect: Dialect
    upstream: Upstream
    agent_seconds: float
    spent: Spending


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """An accepted request, ready to be forwarded."""

    route: Route
    headers: list[Header]
    body: bytes
    is_stream: bool
    media_tokens: int = 0
    """The tokens to reserve for images and other media, in addition to those for the bytes of the body."""
    max_output_tokens: int | None = None
    """The maximum number of output tokens that the request allows, or ``None`` if it sets no maximum."""
    has_added_usage: bool = False
    """Whether the relay added the option that makes the provider report the tokens of a stream."""


class AgentGoneError(Exception):
    """The agent closed the connection or stopped reading."""


class RequestForwarder:
    """Forwards one request and its answer."""

    def __init__(self, context: RelayContext, agent: HttpPeer, request: AcceptedRequest, entry: RequestEntry) -> None:
        self._context = context
        self._agent = agent
        self._request = request
        self._entry = entry
        self._timeouts = context.plan.timeouts
        self._deadline = monotonic() + self._timeouts.whole_answer

    async def run(self) -> None:
        """Send the request and forward the answer. Raises :class:`NoAnswerError` and :class:`AgentGoneError`."""
        server = await self._connect()
        try:
            await self._ask(server)
            response = await self._head(server)
            self._entry.answer = response.status_code
            if not 200 <= response.status_code < 300:  # noqa: PLR2004 - a status is its own name
                self._entry.chargeable = None  # providers do not charge for errors
            if response.status_code >= 400:  # noqa: PLR2004 - a status is its own name
                await self._pass_error(server, response)
            else:
                check_final(response)
                await self._pass_answer(server, response)
        except BaseException:
            drop(server)
            raise
        self._context.upstream.give_back(server)

    async def _connect(self) -> HttpPeer:
        try:
            return await self._context.upstream.take()
        except OSError as error:
            why = type(error).__name__
            raise NoAnswerError(Trouble.UNREACHABLE, f"no connection to the provider ({why})") from None

    async def _ask(self, server: HttpPeer) -> None:
        context, request = self._context, self._request
        own: list[Header] = [
            (b"host", context.upstream.authority),
            (b"accept-encoding", b"identity"),  # compression would only delay the pieces of a stream
            (b"content-type", b"application/json"),
            (b"content-length", str(len(request.body)).encode()),
            *context.dialect.credentials(context.plan),
        ]
        self._entry.chargeable = self._entry.reserved if request.route.is_model else None
        target = versioned(context.dialect.upstream_path(context.upstream.path, request.route), context.plan)
        try:
            async with asyncio.timeout(self._timeouts.between_bytes):
                await server.send(h11.Request(method=b"POST", target=target.encode(), headers=own + request.headers))
                await server.send(h11.Data(data=request.body))
                await server.send(h11.EndOfMessage())
        except OSError:
            raise NoAnswerError(Trouble.UNREACHABLE, "could not send the request to the provider") from None

    async def _head(self, server: HttpPeer) -> h11.Response:
        since = monotonic()
        try:
            for _ in range(MAX_INTERIM):
                if isinstance(event := await self._next(server, self._timeouts.first_byte), h11.Response):
                    return event
        except asyncio.CancelledError:
            if self._request.is_stream and monotonic() - since >= HANGING_SECONDS:
                self._entry.trouble, self._entry.message = Trouble.UNREACHABLE, "the provider did not begin to answer"
            raise
        raise NoAnswerError(Trouble.FAILED, "the provider sent too many interim responses")

    async def _next(self, server: HttpPeer, silence: float | None = None) -> h11.Event:
        """Return the provider's next event. Raises :class:`NoAnswerError`.

        If the answer is streamed, the event must arrive within ``silence`` seconds; the default is the timeout between
        two pieces. The time for the whole answer is always limited.
        """
        silence = silence or self._timeouts.between_bytes
        left = self._deadline - monotonic()
        is_last_wait = not self._request.is_stream or left < silence
        try:
            async with asyncio.timeout(left if is_last_wait else silence):
                event = await server.next_event()
        except TimeoutError:
            whole = f"the provider's answer did not end within {self._timeouts.whole_answer:g} seconds"
            message = whole if is_last_wait else f"the provider sent nothing for {silence:g} seconds"
            raise NoAnswerError(Trouble.UNREACHABLE, message) from None
        except (OSError, h11.RemoteProtocolError):
            raise NoAnswerError(Trouble.FAILED, "the provider's answer is incomplete or not valid HTTP") from None
        if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
            raise NoAnswerError(Trouble.FAILED, "the provider closed the connection")
        return event

    async def _pass_error(self, server: HttpPeer, response: h11.Response) -> None:
        """Forward the provider's error to the agent, with the key removed."""
        entry, status = self._entry, response.status_code
        data = await self._error_body(server, response)
        entry.status, entry.received = status, len(data)
        self._context.spent.bytes += len(data)
        body = read_object(data)
        entry.trouble = self._context.dialect.error_trouble(status, body)
        entry.message = f"the provider answered {status}"
        delay = retry_after(response.headers)
        entry.note_retry_after(self._context.dialect.retry_delay(body) if delay is None else delay)
        data = erased(data, self._context.plan.key)
        headers = [*self._shown_headers(response), (b"content-length", str(len(data)).encode())]
        if entry.trouble is Trouble.REFUSED:
            # A retry would be refused, too. Without this header, Claude Code retries five times in 30 seconds.
            headers = [header for header in headers if header[0] != _SHOULD_RETRY] + [(_SHOULD_RETRY, b"false")]
        await self._give(h11.Response(status_code=status, headers=headers))
        await self._give(h11.Data(data=data))
        await self._give(h11.EndOfMessage())

    async def _error_body(self, server: HttpPeer, response: h11.Response) -> bytes:
        data, status = b"", response.status_code
        trouble = self._context.dialect.error_trouble(status, {})
        decoder = AnswerDecoder(response.headers, trouble)
        async for received in self._body(server):
            for piece in decoder.feed(received):
                data += piece
                if len(data) > MAX_ERROR_BYTES:
                    message = f"the provider answered {status}, with a body of more than {MAX_ERROR_BYTES} bytes"
                    raise NoAnswerError(trouble, message, status)
        decoder.finish()
        return data

    async def _pass_answer(self, server: HttpPeer, response: h11.Response) -> None:
        """Forward an answer while it arrives. Its tokens are counted even if it fails."""
        kind = dict(response.headers).get(b"content-type", b"").lower()
        is_stream = kind.startswith(b"text/event-stream")
        decoder = AnswerDecoder(response.headers)
        meter = AnswerMeter(self._context.dialect, request_bytes=len(self._request.body), is_stream=is_stream)
        self._entry.status = response.status_code
        is_model = self._request.route.is_model
        try:
            await self._give(h11.Response(status_code=response.status_code, headers=self._shown_headers(response)))
            added = AddedEvents(self._context.dialect) if is_stream and self._request.has_added_usage else None
            await self._pieces(server, decoder, meter, added)
            if meter.ended or meter.trouble is not None:
                self._entry.chargeable = None
        finally:
            if is_model:
                self._entry.chargeable = self._still_chargeable(meter)
                self._entry.input_tokens, self._entry.output_tokens = meter.tokens()
                prices = self._context.plan.prices_of(meter.model)
                self._entry.micro_usd = meter.cost(prices) if prices else None
                self._entry.answering = meter.model
        if is_model:
            self._judge(meter)

    def _still_chargeable(self, meter: AnswerMeter) -> Reservation | None:
        """Return the most that the provider may charge for an incomplete answer, or ``None``.

        It is ``None`` if the answer has ended, even with an error: only the counted tokens are then charged. If the
        beginning of the answer reported the input tokens, that number replaces the reserved one.
        """
        if self._entry.chargeable is None or meter.is_reported:
            return None
        if meter.input_tokens is None:
            return self._entry.chargeable
        return Reservation.of(self._context.plan, meter.input_tokens, self._request.max_output_tokens)

    async def _pieces(
        self, server: HttpPeer, decoder: AnswerDecoder, meter: AnswerMeter, added: AddedEvents | None
    ) -> None:
        eraser = Eraser(self._context.plan.key)
        async for received in self._body(server):
            for piece in decoder.feed(received):
                meter.feed(piece)
                self._count(len(piece))
                if shown := eraser.feed(added.feed(piece) if added else piece):
                    await self._give(h11.Data(data=shown))
        decoder.finish()
        meter.finish()
        if shown := eraser.feed(added.finish() if added else b"") + eraser.finish():
            await self._give(h11.Data(data=shown))
        await self._give(h11.EndOfMessage())

    async def _body(self, server: HttpPeer) -> AsyncIterator[bytes]:
        """Yield the body of the answer. Data that has arrived together is joined, because that is much faster."""
        is_over = False
        while not is_over and isinstance(event := await self._next(server), h11.Data):
            more, is_over = server.arrived()
            yield bytes(event.data) + more

    def _count(self, length: int) -> None:
        self._entry.received += length
        self._context.spent.bytes += length
        if self._context.spent.bytes > self._context.plan.bytes:
            message = f"the task's budget of {self._context.plan.bytes} bytes is used up"
            raise NoAnswerError(Trouble.OUT_OF_BUDGET, message)

    def _judge(self, meter: AnswerMeter) -> None:
        """Record the outcome of a completely forwarded answer."""
        if meter.trouble is Trouble.DECLINED:
            self._entry.trouble, self._entry.message = meter.trouble, "the model or the provider refused to answer"
        elif meter.trouble is not None:
            self._entry.trouble, self._entry.message = meter.trouble, "the provider's stream ended in an error"
        elif not meter.ended:
            self._entry.trouble, self._entry.message = Trouble.FAILED, "the provider's answer ended early"
        else:
            self._entry.is_answered = True

    def _shown_headers(self, response: h11.Response) -> list[Header]:
        """Return only the response headers that the agent may see, with the key removed."""
        given = self._context.dialect.answered_headers(
            [(bytes(name), bytes(value)) for name, value in response.headers]
        )
        return [(name, erased(value, self._context.plan.key)) for name, value in given]

    async def _give(self, event: h11.Event) -> None:
        """Send one event to the agent. Raises :class:`AgentGoneError`."""
        try:
            async with asyncio.timeout(self._context.agent_seconds):
                await self._agent.send(event)
        except (OSError, h11.LocalProtocolError):
            raise AgentGoneError from None


def check_final(response: h11.Response) -> None:
    """Raise :class:`NoAnswerError` if the response is a redirect.

    Callers handle 4xx and 5xx first, so every status other than 2xx is a redirect here.
    """
    if not 200 <= response.status_code < 300:  # noqa: PLR2004 - a status is its own name
        message = f"the provider answered {response.status_code}, but the relay does not follow redirects"
        raise NoAnswerError(Trouble.FAILED, message)
