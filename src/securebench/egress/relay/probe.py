"""The gateway's own test request to a provider. It distinguishes an outage from errors that an agent provoked.

An agent chooses its own requests, so an error response proves nothing about the provider: an agent can exceed the rate
limit, send forbidden requests, or leave an answer unread. The gateway therefore sends small requests of its own. It
sends one before a run's first task, to check the key and the model. After an agent has received an error, the gateway
sends several if they are needed to find the cause.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import h11

from securebench.egress.model import ProbeReport, Trouble
from securebench.egress.relay.answer import check_final
from securebench.egress.relay.encoding import AnswerDecoder
from securebench.egress.relay.error_responses import retry_after
from securebench.egress.relay.providers import dialect_of
from securebench.egress.relay.providers.base import read_object, versioned
from securebench.egress.relay.server import require_key
from securebench.egress.relay.upstream import NoAnswerError, Upstream, drop
from securebench.egress.relay.usage import AnswerMeter

if TYPE_CHECKING:
    from securebench.egress.http_streams import HttpPeer
    from securebench.egress.model import RelayPlan
    from securebench.egress.relay.providers.base import Dialect, Header, ProbeRequest

PROBE_SECONDS: Final = 30.0
"""Timeout of the whole probe. The answer has few tokens, so a provider that needs longer is unusable."""

MAX_ANSWER_BYTES: Final = 1024 * 1024
_ERROR: Final = 400
"""The lowest HTTP status that is an error."""
_NO_SUCH_PATH: Final = frozenset({404, 405})


async def ask_provider(plan: RelayPlan, model: str, seconds: float = PROBE_SECONDS) -> ProbeReport:
    """Send the provider of ``plan`` one small request, and return the result.

    Raises :class:`EgressError` if the base URL, CA certificate or key of the plan is invalid.
    """
    require_key(plan)
    upstream = Upstream(plan.base_url, plan.ca_bundle, min(plan.timeouts.connect, seconds), plan.proxy)
    dialect = dialect_of(plan.provider)
    question = dialect.question(upstream.path, model)
    server: HttpPeer | None = None
    try:
        async with asyncio.timeout(seconds):
            server = await upstream.take()
            await _ask(server, question, upstream, plan)
            report = await _answer(server, dialect, question)
            if report.trouble is Trouble.REJECTED or report.is_foreign:
                url = f"{upstream.url}{versioned(question.path, plan)}"
                return replace(report, message=f"{report.message} (request to {url})")
            return report
    except TimeoutError:
        message = f"the provider did not answer within {seconds:g} seconds"
        return ProbeReport(trouble=Trouble.UNREACHABLE, message=message, is_connected=server is not None)
    except NoAnswerError as error:
        return ProbeReport(trouble=error.trouble, message=error.message, is_connected=server is not None)
    except h11.RemoteProtocolError:
        return ProbeReport(trouble=Trouble.FAILED, message="the provider's answer is incomplete or not valid HTTP")
    except OSError as error:
        what = "the connection to the provider broke" if server else "no connection to the provider"
        message = f"{what} ({type(error).__name__})"
        return ProbeReport(trouble=Trouble.UNREACHABLE, message=message, is_connected=server is not None)
    finally:
        if server is not None:
            drop(server)
        upstream.close()


async def _ask(server: HttpPeer, question: ProbeRequest, upstream: Upstream, plan: RelayPlan) -> None:
    body = b"" if question.body is None else json.dumps(question.body).encode()
    headers: list[Header] = [
        (b"host", upstream.authority),
        (b"accept-encoding", b"identity"),
        (b"user-agent", b"securebench"),
        *question.headers,
        *dialect_of(plan.provider).credentials(plan),
    ]
    if question.body is not None:
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    method = b"GET" if question.body is None else b"POST"
    await server.send(h11.Request(method=method, target=versioned(question.path, plan).encode(), headers=headers))
    if body:
        await server.send(h11.Data(data=body))
    await server.send(h11.EndOfMessage())


async def _answer(server: HttpPeer, dialect: Dialect, question: ProbeRequest) -> ProbeReport:
    while not isinstance(event := await server.next_event(), h11.Response):
        if not isinstance(event, h11.InformationalResponse):
            raise NoAnswerError(Trouble.FAILED, "the provider closed the connection")
    response, status, data = event, event.status_code, b""
    is_stream = dict(response.headers).get(b"content-type", b"").lower().startswith(b"text/event-stream")
    meter = AnswerMeter(dialect, request_bytes=0, is_stream=is_stream)
    decoder = AnswerDecoder(response.headers, dialect.error_trouble(status, {}) if status >= _ERROR else Trouble.FAILED)
    async for received in server.body():
        for piece in decoder.feed(received):
            data += piece
            meter.feed(piece)
            if len(data) > MAX_ANSWER_BYTES:
                raise NoAnswerError(Trouble.FAILED, "the provider's answer to the test request is too long")
    decoder.finish()
    body = read_object(data)
    if status >= _ERROR:
        delay, error = retry_after(response.headers), dialect.error_trouble(status, body)
        is_unknown = dialect.is_unknown_model(body)
        # A request without a body asks for the list of models. Some servers with this API do not offer the list, so its
        # absence does not show that the base URL is wrong.
        is_lost = question.body is not None and (status in _NO_SUCH_PATH or not body)
        return ProbeReport(
            trouble=error,
            message=f"the provider answered {status}",
            status=status,
            model_unknown=is_unknown,
            is_foreign=error is Trouble.REJECTED and is_lost and not is_unknown,
            retry_after=dialect.retry_delay(body) if delay is None else delay,
        )
    if not is_stream and not body:
        message = f"the provider answered {status} without a JSON object"
        return ProbeReport(trouble=Trouble.FAILED, message=message, status=status, is_foreign=True)
    check_final(response)
    meter.finish()
    taken, given = meter.tokens() if question.body is not None else (0, 0)
    trouble = meter.trouble or (None if meter.ended else Trouble.FAILED)
    message = "" if trouble is None else "the provider's answer ended in an error or is incomplete"
    return ProbeReport(trouble=trouble, message=message, status=status, input_tokens=taken, output_tokens=given)
