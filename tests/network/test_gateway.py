"""The gateway, with its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egress_world import HOST, ask, door_of, secured, world
from securebench.network.model import EgressPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from egress_world import World

PLAN = EgressPlan(domains=(HOST,))


@pytest.fixture
def outside() -> Iterator[World]:
    """Return a world in which the one host can be reached."""
    with world(HOST) as made:
        yield made


def test_a_tunnel_leads_to_an_allowed_host(outside: World) -> None:
    """TLS for an allowed host goes through, is verified end to end, and is logged when it begins and when it ends."""
    with outside.gateway.open("task", PLAN) as session:
        with secured(door_of(session), outside.trust) as connection:
            connection.sendall(b"ping")
            assert connection.recv(4) == b"ping"
        assert outside.decisions(2) == [("allowed", "allowed"), ("closed", "done")]
        report = session.close()
    assert report.decisions == {"allowed": 1}
    assert report.hosts == {HOST: 1}
    assert report.bytes > 1000


def test_plain_http_is_passed_on(outside: World) -> None:
    """A request for an http URL of an allowed host reaches its server, without what was for the proxy."""
    with outside.gateway.open("task", PLAN) as session:
        request = (
            f"GET http://{HOST}/a?b HTTP/1.1\r\nHost: {HOST}\r\nProxy-Authorization: x\r\nConnection: close\r\n\r\n"
        )
        answer = ask(door_of(session), request.encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"GET /a?b HTTP/1.1\r\n" in answer
    assert b"proxy-authorization" not in answer.lower()
