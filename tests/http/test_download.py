"""Downloads are complete and checked, or fail within bounds."""

from __future__ import annotations

import hashlib
import time

import pytest

from fake_server import Content, FakeServer, breaks_after, drips, says, stalls
from securebench.http.address import parse_address
from securebench.http.client import HttpClient
from securebench.http.download import Download
from securebench.http.errors import DeadlineError, HttpError, MismatchError, TooLargeError, UnreachableError
from securebench.http.timeouts import Deadline, Timeouts

from .conftest import QUICK

DATA = bytes(position * 7 % 251 for position in range(300_000))
SIZE = len(DATA)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture(autouse=True)
def _data(server: FakeServer) -> None:
    server.files["/data"] = Content(DATA)


def download(client: HttpClient, server: FakeServer, *, limit: int = SIZE, digest: str = DIGEST) -> Download:
    """Return a download of ``/data`` without an expected size."""
    return Download(client, parse_address(f"{server.url}/data"), limit, digest=digest)


def failed(pieces: Download) -> HttpError:
    """Return the error with which the download ends. It must end within 15 s."""
    started = time.monotonic()
    with pytest.raises(HttpError) as raised:
        b"".join(pieces)
    assert time.monotonic() - started < 15
    return raised.value


@pytest.mark.parametrize("digest", ["", DIGEST, f"sha512:{hashlib.sha512(DATA).hexdigest()}"])
def test_a_file_is_downloaded(client: HttpClient, server: FakeServer, digest: str) -> None:
    """The whole file is yielded, with or without a digest. The size is known from the first piece on."""
    pieces = download(client, server, digest=digest)
    assert pieces.size == 0
    received = bytearray()
    for piece in pieces:
        assert pieces.size == SIZE
        received += piece
        assert pieces.received == len(received)
    assert received == DATA


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_resumed(client: HttpClient, server: FakeServer, lines: list[str], ranges: bool) -> None:
    """A download continues after each break, even from a server without ranges, and yields the right bytes."""
    server.ranges = ranges
    server.faults["/data"] = [breaks_after(100_000)] * (2 if ranges else 1)
    assert b"".join(download(client, server)) == DATA
    starts = [request.headers.get("range", "") for request in server.requests]
    assert starts == (["", "bytes=100000-", "bytes=200000-"] if ranges else ["", "bytes=100000-"])
    assert all("retrying in" in line for line in lines)


def test_progress_resets_the_number_of_attempts(client: HttpClient, server: FakeServer) -> None:
    """A download that progresses between breaks may break more often than the limit of attempts."""
    server.faults["/data"] = [breaks_after(50_000)] * (QUICK.attempts + 1)
    assert b"".join(download(client, server)) == DATA


def test_another_range_than_requested_is_refused(client: HttpClient, server: FakeServer) -> None:
    """When a download is resumed, a range that does not begin at the first missing byte is refused."""
    server.faults["/data"] = [
        breaks_after(100_000),
        says(206, DATA[:200_000], Content_Range="bytes 0-199999/300000"),
    ]
    error = failed(download(client, server))
    assert isinstance(error, MismatchError)
    assert "a different range" in str(error)


def test_a_part_instead_of_the_file_is_refused(client: HttpClient, server: FakeServer) -> None:
    """A range in response to a request for the whole file is refused."""
    server.faults["/data"] = [says(206, DATA[100:], Content_Range="bytes 100-299999/300000")]
    assert isinstance(failed(download(client, server, digest="")), MismatchError)


def test_a_file_that_changes_is_not_mixed(client: HttpClient, server: FakeServer) -> None:
    """Without a digest, a download is resumed if the file's ``ETag`` is the same, and fails if it has changed."""
    server.files["/data"] = Content(DATA, headers={"ETag": '"1"'})
    server.faults["/data"] = [breaks_after(1000)]
    assert b"".join(download(client, server, digest="")) == DATA
    server.faults["/data"] = [breaks_after(1000), says(200, DATA, ETag='"2"')]
    error = failed(download(client, server, digest=""))
    assert isinstance(error, MismatchError)
    assert "changed during" in str(error)


def test_a_file_without_digest_or_version_is_not_resumed(client: HttpClient, server: FakeServer) -> None:
    """With neither a digest nor an ``ETag``, an interrupted download fails: two versions could be mixed.

    A request that fails before the first byte is repeated.
    """
    server.faults["/data"] = [breaks_after(1000)]
    assert isinstance(failed(download(client, server, digest="")), UnreachableError)
    assert len(server.requests) == 1
    server.faults["/data"] = [says(503)]
    assert b"".join(download(client, server, digest="")) == DATA


def test_a_file_that_stays_short_is_given_up(client: HttpClient, server: FakeServer) -> None:
    """A server that ends each response too early, without an error, gets a limited number of requests."""
    server.files["/data"], server.ranges = Content(DATA[:1000]), False
    pieces = Download(client, parse_address(f"{server.url}/data"), SIZE, expected_size=SIZE, digest=DIGEST)
    error = failed(pieces)
    assert isinstance(error, UnreachableError)
    assert "1000 of 300000 bytes" in str(error)
    assert len(server.requests) == QUICK.attempts


def test_more_than_expected_is_never_yielded(client: HttpClient, server: FakeServer) -> None:
    """I11: if the server sends more than the expected size, the download fails and yields no byte beyond that size."""
    server.files["/data"] = Content(DATA * 20)
    pieces = Download(client, parse_address(f"{server.url}/data"), SIZE, expected_size=SIZE, digest=DIGEST)
    received = bytearray()
    with pytest.raises(MismatchError, match="more than the 300000 bytes"):
        received.extend(byte for piece in pieces for byte in piece)
    assert len(received) <= SIZE


def test_more_than_the_limit_is_refused(client: HttpClient, server: FakeServer) -> None:
    """A file above the limit is refused, whether or not the server announces its size."""
    assert isinstance(failed(download(client, server, limit=SIZE - 1)), TooLargeError)
    server.faults["/data"] = [drips(b"HTTP/1.0 200 OK\r\n\r\n" + b"a" * 100, 0)]
    assert isinstance(failed(download(client, server, limit=50)), TooLargeError)


@pytest.mark.parametrize("digest", [f"sha256:{'0' * 64}", f"sha512:{'0' * 128}"])
def test_other_bytes_are_refused(client: HttpClient, server: FakeServer, digest: str) -> None:
    """A file with another digest than the requested one is refused, and the error contains the requested digest."""
    error = failed(download(client, server, digest=digest))
    assert isinstance(error, MismatchError)
    assert digest in str(error)


def test_the_declared_encoding_is_ignored(client: HttpClient, server: FakeServer) -> None:
    """H14: a ``Content-Encoding`` header does not cause decompression."""
    server.faults["/data"] = [says(200, DATA, Content_Encoding="gzip")]
    assert b"".join(download(client, server)) == DATA


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "x"])
def test_an_absurd_length_is_no_traceback(client: HttpClient, server: FakeServer, length: str) -> None:
    """J19: a ``Content-Length`` that is not a valid size leads to an :class:`HttpError` and no other exception."""
    server.faults["/data"] = [drips(f"HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n".encode(), 0)] * 5
    failed(download(client, server))


def test_silence_ends_a_download(client: HttpClient, server: FakeServer) -> None:
    """A download from a server that sends nothing fails after a limited number of attempts."""
    b"".join(download(client, server))
    server.faults["/data"] = [stalls] * 9
    assert isinstance(failed(download(client, server)), UnreachableError)
    assert len(server.requests) == 1 + QUICK.attempts


@pytest.mark.parametrize("header", [b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_a_server_that_drips_is_interrupted(server: FakeServer, header: bytes) -> None:
    """A server that is never silent and never done is stopped by the deadline, in a header and in a body.

    If the deadline cuts off a body of unknown length, the body is not treated as complete.
    """
    server.faults["/data"] = [drips(header + b"a" * 10_000, 0.05)]
    client = HttpClient(Deadline(Timeouts(read=0.3, total=0.8)))
    error = failed(download(client, server, digest=""))
    assert isinstance(error, DeadlineError)
    assert "longer than 0.8 s" in str(error)


def test_an_abandoned_download_closes_its_connection(client: HttpClient, server: FakeServer) -> None:
    """The deadline stops watching the connection of a download that is dropped before its end."""
    pieces = iter(download(client, server))
    next(pieces)
    assert client.deadline._watched
    del pieces
    assert not client.deadline._watched
    assert client.deadline._timer is None
