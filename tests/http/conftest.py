"""Fixtures for HTTP tests: a fake server, a client with short timeouts, and an environment without proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fake_server import FakeServer, serving
from securebench.http.client import HttpClient
from securebench.http.timeouts import Deadline, Timeouts

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = Timeouts(connect=2, read=0.3, total=10, attempts=3, pause=0.01, longest_pause=1)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """Yield a server without files."""
    with serving(FakeServer()) as fake:
        yield fake


@pytest.fixture
def lines() -> list[str]:
    """Return the list to which the client appends its reports."""
    return []


@pytest.fixture
def client(lines: list[str]) -> HttpClient:
    """Return a client with short timeouts."""
    return HttpClient(Deadline(QUICK), report=lines.append)
