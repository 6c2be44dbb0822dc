"""One admitted request on its way to the provider, and the answer on its way back, piece by piece."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

import h11

from securebench.egress.model import Trouble
from securebench.egress.relay.providers.base import read_object
from securebench.egress.relay.secret import Eraser, erased
from securebench.egress.relay.upstream import drop
from securebench.egress.relay.usage import AnswerMeter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.model import RelayPlan
    from securebench.egress.relay.budget import Spending
    from securebench.egress.relay.providers.base import Dialect, Header, Route
    from securebench.egress.relay.tally import RequestEntry
    from securebench.egress.relay.upstream import Upstream

MAX_ERROR_BYTES: Final = 64 * 1024
"""The body of an error. A longer one is not passed on: half of one is no JSON."""

MAX_INTERIM: Final = 16
"""Interim answers (1xx) before an answer."""

HANGING_SECONDS: Final = 60.0
"""After which it is the provider that was waited for, if a task ends before a streamed answer begins. Silence until the
end is normal for an answer that is not streamed, so it says nothing."""


AGENT_SECONDS: Final = 60.0
"""For the agent to send what it said that it sends, and to take what is sent to it. It is beside the relay."""

_SHOULD_RETRY: Final = b"x-should-retry"
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class RelayContext:
    """What all requests of one relay have in common."""

    plan: RelayPlan
    dialect: Dialect
    upstream: Upstream
    agent_seconds: float
    spent: Spending


@dataclass(frozen=True, slots=True)
class Order:
    """What is sent for an admitted request."""

    route: Route
    headers: list[Header]
    body: bytes
    is_stream: bool


class NoAnswerError(Exception):
    """No answer came, or not all of it. ``status`` is for the agent, if nothing has been passed on to it yet."""

    def __init__(self, trouble: Trouble, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.message = message
        self.status = status


class AgentGoneError(Exception):
    """The agent does not take what it asked for."""


class Passage:
    """One request and its answer."""

    def __init__(self, way: RelayContext, agent: HttpPeer, order: Order, entry: RequestEntry) -> None:
        self._way = way
        self._agent = agent
        self._order = order
        self._entry = entry
        self._timeouts = way.plan.timeouts
        self._deadline = monotonic() + self._timeouts.whole_answer

    async def run(self) -> None:
        """Send the order, and pass on what is answered. Raises :class:`NoAnswerError` and :class:`AgentGoneError`."""
        server = await self._connect()
        try:
            await self._ask(server)
            response = await self._head(server)
            self._entry.answer = response.status_code
            if response.status_code >= 400:  # noqa: PLR2004 - a status is its own name
                await self._pass_error(server, response)
            else:
                check_readable(response)
                await self._pass_answer(server, response)
        except BaseException:
            drop(server)
            raise
        self._way.upstream.give_back(server)

    async def _connect(self) -> HttpPeer:
        try:
            return await self._way.upstream.take()
        except OSError as error:
            why = type(error).__name__
            raise NoAnswerError(Trouble.UNREACHABLE, f"no connection to the provider ({why})") from None

    async def _ask(self, server: HttpPeer) -> None:
        way, order = self._way, self._order
        own: list[Header] = [
            (b"host", way.upstream.authority),
            (b"accept-encoding", b"identity"),  # what is compressed cannot be counted
            (b"content-type", b"application/json"),
            (b"content-length", str(len(order.body)).encode()),
        ]
        if way.plan.key is not None:
            own.append(way.dialect.authorise(way.plan.key))
        target = way.dialect.upstream_path(way.upstream.path, order.route)
        try:
            async with asyncio.timeout(self._timeouts.between_bytes):
                await server.send(h11.Request(method=b"POST", target=target.encode(), headers=own + order.headers))
                await server.send(h11.Data(data=order.body))
                await server.send(h11.EndOfMessage())
        except OSError:
            raise NoAnswerError(Trouble.UNREACHABLE, "the provider did not take the request") from None

    async def _head(self, server: HttpPeer) -> h11.Response:
        since = monotonic()
        try:
            for _ in range(MAX_INTERIM):
                if isinstance(event := await self._next(server, self._timeouts.first_byte), h11.Response):
                    return event
        except asyncio.CancelledError:
            if self._order.is_stream and monotonic() - since >= HANGING_SECONDS:
                self._entry.trouble, self._entry.message = Trouble.UNREACHABLE, "the provider did not begin to answer"
            raise
        raise NoAnswerError(Trouble.FAILED, "the provider does not come to its answer")

    async def _next(self, server: HttpPeer, silence: float | None = None) -> h11.Event:
        """Return what the provider sends next, after at most ``silence`` seconds. Raises :class:`NoAnswerError`."""
        silence = silence or self._timeouts.between_bytes
        left = self._deadline - monotonic()
        is_last_wait = not self._order.is_stream or left < silence
        try:
            async with asyncio.timeout(left if is_last_wait else silence):
                event = await server.next_event()
        except TimeoutError:
            whole = f"the provider's answer did not end within {self._timeouts.whole_answer:g} seconds"
            message = whole if is_last_wait else f"the provider sent nothing for {silence:g} seconds"
            raise NoAnswerError(Trouble.UNREACHABLE, message) from None
        except (OSError, h11.RemoteProtocolError):
            raise NoAnswerError(Trouble.FAILED, "the provider's answer broke off") from None
        if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
            raise NoAnswerError(Trouble.FAILED, "the provider closed the connection")
        return event

    async def _pass_error(self, server: HttpPeer, response: h11.Response) -> None:
        """Hand the provider's error to the agent, as it is but for the key."""
        entry, status = self._entry, response.status_code
        data = await self._error_body(server, status)
        entry.status, entry.received = status, len(data)
        self._way.spent.bytes += len(data)
        entry.trouble = self._way.dialect.error_trouble(status, read_object(data))
        entry.message = f"the provider answered {status}"
        entry.note_retry_after(retry_after(response.headers))
        data = erased(data, self._way.plan.key)
        headers = [*self._shown_headers(response), (b"content-length", str(len(data)).encode())]
        if entry.trouble is Trouble.REFUSED:
            # No repetition makes a key right: Claude Code would otherwise ask five more times, for half a minute.
            headers = [header for header in headers if header[0] != _SHOULD_RETRY] + [(_SHOULD_RETRY, b"false")]
        await self._give(h11.Response(status_code=status, headers=headers))
        await self._give(h11.Data(data=data))
        await self._give(h11.EndOfMessage())

    async def _error_body(self, server: HttpPeer, status: int) -> bytes:
        data = b""
        while isinstance(event := await self._next(server), h11.Data):
            data += bytes(event.data)
            if len(data) > MAX_ERROR_BYTES:
                message = f"the provider answered {status}, at length"
                raise NoAnswerError(self._way.dialect.error_trouble(status, {}), message, status)
        return data

    async def _pass_answer(self, server: HttpPeer, response: h11.Response) -> None:
        """Pass an answer on as it comes. Whatever becomes of it, what it took is counted."""
        kind = dict(response.headers).get(b"content-type", b"").lower()
        is_stream = kind.startswith(b"text/event-stream")
        meter = AnswerMeter(self._way.dialect, asked=len(self._order.body), is_stream=is_stream)
        self._entry.status = response.status_code
        is_model = self._order.route.is_model
        try:
            await self._give(h11.Response(status_code=response.status_code, headers=self._shown_headers(response)))
            await self._pieces(server, meter)
        finally:
            if is_model:
                self._entry.input_tokens, self._entry.output_tokens = meter.tokens()
                self._entry.answering = meter.model
        if is_model:
            self._judge(meter)

    async def _pieces(self, server: HttpPeer, meter: AnswerMeter) -> None:
        eraser = Eraser(self._way.plan.key)
        while isinstance(event := await self._next(server), h11.Data):
            piece = bytes(event.data)
            meter.feed(piece)
            self._count(len(piece))
            if shown := eraser.feed(piece):
                await self._give(h11.Data(data=shown))
        meter.finish()
        if shown := eraser.finish():
            await self._give(h11.Data(data=shown))
        await self._give(h11.EndOfMessage())

    def _count(self, length: int) -> None:
        self._entry.received += length
        self._way.spent.bytes += length
        if self._way.spent.bytes > self._way.plan.bytes:
            raise NoAnswerError(Trouble.OUT_OF_BUDGET, f"the task's {self._way.plan.bytes} bytes are used up")

    def _judge(self, meter: AnswerMeter) -> None:
        """Say how an answer ended that was passed on whole: its reader knows as much."""
        if meter.trouble is Trouble.DECLINED:
            self._entry.trouble, self._entry.message = meter.trouble, "the provider's policy stopped the answer"
        elif meter.trouble is not None:
            self._entry.trouble, self._entry.message = meter.trouble, "the provider's stream ended in an error"
        elif not meter.ended:
            self._entry.trouble, self._entry.message = Trouble.FAILED, "the provider's answer has no end"
        else:
            self._entry.is_answered = True

    def _shown_headers(self, response: h11.Response) -> list[Header]:
        """Return the headers of an answer that the agent may see."""
        given = self._way.dialect.answered_headers([(bytes(name), bytes(value)) for name, value in response.headers])
        return [(name, erased(value, self._way.plan.key)) for name, value in given]

    async def _give(self, event: h11.Event) -> None:
        """Hand one event to the agent. Raises :class:`AgentGoneError`."""
        try:
            async with asyncio.timeout(self._way.agent_seconds):
                await self._agent.send(event)
        except (OSError, h11.LocalProtocolError):
            raise AgentGoneError from None


def retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Return for how many seconds a provider asks to be left alone, or ``None`` if it does not say."""
    given = {bytes(name): bytes(value).decode("latin-1").strip() for name, value in headers}
    seconds, date = given.get(b"retry-after-ms", ""), given.get(b"retry-after", "")
    try:
        if _NUMBER.fullmatch(seconds):
            return float(seconds) / 1000
        if _NUMBER.fullmatch(date):
            return float(date)
        return max(0.0, (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):  # no date, a date without a zone, a year out of range
        return None


def check_readable(response: h11.Response) -> None:
    """Raise :class:`NoAnswerError` for an answer that leads elsewhere, or that cannot be read."""
    if not 200 <= response.status_code < 300:  # noqa: PLR2004 - a status is its own name
        message = f"the provider answered {response.status_code}, which is not followed"
        raise NoAnswerError(Trouble.FAILED, message)
    encodings = [value.lower() for name, value in response.headers if name == b"content-encoding"]
    if encodings not in ([], [b"identity"]):
        raise NoAnswerError(Trouble.FAILED, "the provider's answer is compressed, which was not asked for")
