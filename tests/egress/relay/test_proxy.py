"""A provider behind the proxy of the tester's network, with a certificate of a private authority."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
import trustme

from relay_setup import GOOD, KEY, PLAN, STREAM, relayed, streaming
from securebench.egress.model import Provider, Trouble
from securebench.egress.relay.probe import ask_provider
from securebench.limits import ProviderTimeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relay_setup import Seen
    from securebench.egress.http_streams import HttpPeer

WORD = "p@ss:word"
LOGIN = "Basic " + b64encode(f"user:{WORD}".encode()).decode()


@dataclass
class Forwarder:
    """A proxy that forwards tunnels. If ``refusal`` is set, it sends these bytes and closes the connection instead."""

    refusal: bytes = b""
    url: str = ""
    heads: list[str] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)
    """Everything that the relay sends into tunnels."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.refusal:
            writer.write(self.refusal)
            writer.close()
            return
        host, _, port = head.split()[1].rpartition(":")
        inner, outer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        await asyncio.gather(self._copy(reader, outer, self.sent), self._copy(inner, writer, bytearray()))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, kept: bytearray) -> None:
        try:
            while data := await source.read(65536):
                kept += data
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


@asynccontextmanager
async def forwarding(refusal: bytes = b"", tls: ssl.SSLContext | None = None) -> AsyncIterator[Forwarder]:
    """Serve a proxy whose URL has a user name and a password. It uses TLS if ``tls`` is given."""
    forwarder = Forwarder(refusal)
    server = await asyncio.start_server(forwarder.serve, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    forwarder.url = f"{scheme}://user:p%40ss%3Aword@localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield forwarder
    finally:
        server.close()


@pytest.fixture(name="authority", scope="module")
def _authority() -> trustme.CA:
    """Return a certificate authority that no system trusts."""
    return trustme.CA()


@pytest.fixture(name="server_tls")
def _server_tls(authority: trustme.CA) -> ssl.SSLContext:
    """Return the TLS context of a server at ``localhost``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_provider_behind_a_proxy(authority: trustme.CA, server_tls: ssl.SSLContext, is_secure: bool) -> None:
    """The relay and the probe request a tunnel, and use TLS with the provider inside it.

    The connection to the proxy may itself use TLS.
    The proxy does not see the provider's key, and the provider does not see the proxy's password.
    """
    bundle = authority.cert_pem.bytes().decode()
    large = b": " + b"x" * 3_000_000 + b"\n\n"

    async def script(seen: Seen, peer: HttpPeer) -> None:
        await streaming((b"" if seen.json["model"] == "m" else large) + STREAM[Provider.OPENAI])(seen, peer)

    async def play() -> None:
        async with (
            forwarding(tls=server_tls if is_secure else None) as proxy,
            relayed(
                script, replace(PLAN, ca_bundle=bundle, proxy=proxy.url), tls=server_tls, timeouts=ProviderTimeouts()
            ) as setting,
        ):
            answers = [await setting.ask() for _ in range(2)]
            report = await ask_provider(setting.plan, "m", 5.0)
        assert [(answered.status, answered.is_whole) for answered in answers] == [(200, True)] * 2
        assert answers[0].body.startswith(large)
        assert (setting.relay.report().trouble, report.trouble) == (None, None)
        target = setting.plan.base_url.removeprefix("https://").removesuffix("/v1")
        assert [head.split("\r\n")[0] for head in proxy.heads] == [f"CONNECT {target} HTTP/1.1"] * 2
        for head in proxy.heads:  # one of the probe, and one that both requests of the agent share
            assert f"proxy-authorization: {LOGIN}" in head.lower().replace(LOGIN.lower(), LOGIN)
            assert KEY not in head
        assert KEY.encode() not in proxy.sent
        assert all("proxy-authorization" not in seen.headers for seen in setting.seen)
        assert WORD not in str(setting.lines) + str(setting.relay.report())

    asyncio.run(play())


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (b"HTTP/1.1 407 p@ss:word\r\nContent-Length: 0\r\n\r\n", "the proxy in HTTPS_PROXY answered 407"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad", "the proxy in HTTPS_PROXY answered 502"),
        (b"SSH-2.0-x\r\n\r\n", "the proxy in HTTPS_PROXY did not answer with HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nnot TLS at all, but text", "no connection to the provider"),
    ],
)
def test_a_proxy_that_refuses(server_tls: ssl.SSLContext, refusal: bytes, message: str) -> None:
    """If the proxy opens no usable tunnel, the provider counts as unreachable, and the message gives the cause."""

    async def play() -> None:
        async with (
            forwarding(refusal) as proxy,
            relayed(GOOD[Provider.OPENAI], replace(PLAN, proxy=proxy.url), tls=server_tls) as setting,
        ):
            answered = await setting.ask()
            report = await ask_provider(setting.plan, "m", 5.0)
        seen = setting.relay.report()
        assert (answered.status, setting.seen) == (502, [])
        assert (seen.trouble, report.trouble) == (Trouble.UNREACHABLE, Trouble.UNREACHABLE)
        assert message in seen.message
        assert message in report.message
        assert WORD not in answered.message + seen.message + report.message

    asyncio.run(play())


def test_a_certificate_of_an_unknown_authority(server_tls: ssl.SSLContext) -> None:
    """A certificate of an authority that is not in ``ca_bundle`` is rejected, so no proxy can intercept TLS."""

    async def play() -> None:
        async with (
            forwarding() as proxy,
            relayed(GOOD[Provider.OPENAI], replace(PLAN, proxy=proxy.url), tls=server_tls) as setting,
        ):
            assert (await setting.ask()).status == 502
        assert "SSLCertVerificationError" in setting.relay.report().message
        assert setting.seen == []

    asyncio.run(play())


def test_a_provider_without_tls_needs_no_proxy() -> None:
    """A provider with an HTTP URL is reached directly: such URLs are for this machine and private networks."""

    async def play() -> None:
        async with forwarding() as proxy, relayed(plan=replace(PLAN, proxy=proxy.url)) as setting:
            assert (await setting.ask()).status == 200
        assert proxy.heads == []

    asyncio.run(play())
