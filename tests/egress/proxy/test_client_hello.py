"""Reading the server name of a TLS ClientHello, which is the first message of a client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from client_hellos import EARLY_DATA, ENCRYPTED, hello, message, real_hello, record, server_name, sized
from securebench.egress.proxy.client_hello import MAX_HELLO, HelloChecker, HelloError, read_hello
from securebench.egress.proxy.decisions import Reason

HOST = "api.example.test"
CHANGE = record(b"\1", kind=20)


def reason_of(data: bytes) -> Reason:
    """Return why ``data`` is refused."""
    with pytest.raises(HelloError) as caught:
        read_hello(data)
    return caught.value.reason


def test_the_name_in_a_real_message_is_read() -> None:
    """A ClientHello of Python's TLS is read to its last byte, and its server name is returned."""
    data = real_hello(HOST)
    assert read_hello(data) == (HOST, len(data))


def test_nothing_is_said_before_the_message_is_complete() -> None:
    """Every shorter prefix of a ClientHello is reported as incomplete, and none is refused."""
    data = real_hello(HOST)
    assert all(read_hello(data[:end]) is None for end in range(len(data)))


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_message_in_pieces_is_joined(size: int) -> None:
    """The name is also read from a ClientHello that is split into several records, as some clients do."""
    whole = message(server_name(HOST.encode()))
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)][:60]
    pieces[-1] = whole[(len(pieces) - 1) * size :]
    assert read_hello(b"".join(map(record, pieces))) == (HOST, len(whole) + 5 * len(pieces))


def test_the_name_is_compared_in_lower_case() -> None:
    """The server name is returned in lower case, because case does not matter in host names."""
    assert read_hello(hello("API.Example.TEST")) == (HOST, len(hello(HOST)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", Reason.TLS_REQUIRED),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Reason.TLS_REQUIRED),
        (b"\x80\x2e\x01\x00\x02", Reason.TLS_REQUIRED),  # SSL 2
        (record(message(), kind=23), Reason.TLS_REQUIRED),
        (record(b"\2" + message()[1:]), Reason.TLS_REQUIRED),
        (record(message() + b"\0"), Reason.TLS_REQUIRED),
        (record(b""), Reason.TLS_REQUIRED),
        (bytes((22, 3, 1)) + sized(bytes(MAX_HELLO)), Reason.TLS_REQUIRED),
        (record(b"\1\xff\xff\xff" + bytes(100)), Reason.TLS_REQUIRED),
        (record(message(server_name(HOST.encode()), server_name(b"evil.test"))), Reason.TLS_REQUIRED),
        (record(message((0, sized(b"\0" + sized(b"a.test") + b"\0" + sized(b"b.test"))))), Reason.TLS_REQUIRED),
        (record(message((0, sized(b"\1" + sized(b"a.test"))))), Reason.TLS_REQUIRED),
        (record(message((0, b""))), Reason.TLS_REQUIRED),
        (record(message()), Reason.SERVER_NAME_MISSING),
        (record(message(server_name("\uff45xample.test".encode()))), Reason.SERVER_NAME_MISMATCH),
        (hello(HOST, ENCRYPTED), Reason.SERVER_NAME_ENCRYPTED),
        (hello(HOST, (0xFFCE, b"")), Reason.SERVER_NAME_ENCRYPTED),
        (hello(HOST, EARLY_DATA), Reason.EARLY_DATA_REFUSED),
    ],
)
def test_whatever_leaves_the_name_in_doubt_is_refused(data: bytes, reason: Reason) -> None:
    """Data without TLS, without exactly one readable name, or with early data is refused with the matching reason."""
    assert reason_of(data) is reason


def test_endless_pieces_are_refused() -> None:
    """A ClientHello in more records than any real client sends is refused."""
    assert reason_of(b"".join(record(byte.to_bytes()) for byte in message((9, bytes(200))))) is Reason.TLS_REQUIRED


@given(st.binary(max_size=300))
def test_anything_is_read_or_refused(data: bytes) -> None:
    """Any data is read, reported as incomplete, or refused, and causes no other exception."""
    for start in (b"", b"\x16\x03\x01", record(message(server_name(HOST.encode())))[:60]):
        try:
            found = read_hello(start + data)
        except HelloError:
            continue
        assert found is None or found[1] <= len(start + data)


@given(st.integers(0, len(hello(HOST)) - 1), st.integers(0, 255))
def test_a_message_with_one_wrong_byte_is_read_or_refused(at: int, value: int) -> None:
    """A ClientHello with a wrong byte is refused, incomplete, or read with a name that its bytes contain."""
    data = bytearray(hello(HOST))
    data[at] = value
    try:
        found = read_hello(bytes(data))
    except HelloError:
        return
    assert found is None or found[0].encode() in bytes(data).lower()


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_an_introduction_passes_on_what_it_was_given(sizes: list[int]) -> None:
    """However the data is split, it is forwarded unchanged, and data after the ClientHellos is not checked."""
    data = hello(HOST) + CHANGE + hello(HOST) + record(bytes(500), kind=23) + b"anything"
    checker = HelloChecker(HOST)
    passed = b""
    for size in sizes:
        passed += checker.feed(data[:size])
        data = data[size:]
    whole = hello(HOST) + CHANGE + hello(HOST) + record(bytes(500), kind=23) + b"anything"
    assert passed + checker.feed(data) == whole
    assert checker.is_complete


@pytest.mark.parametrize("between", [b"", CHANGE, CHANGE + CHANGE])
def test_a_second_message_is_held_to_the_host_too(between: bytes) -> None:
    """A second ClientHello for another host is refused, because the server may use the name in it."""
    checker = HelloChecker(HOST)
    checker.feed(hello(HOST))
    with pytest.raises(HelloError, match="server_name_mismatch"):
        checker.feed(between + hello("evil.example.test"))


@pytest.mark.parametrize("trick", [record(b""), record(b"\1\1", kind=20), bytes((20, 3, 3, 0, 9, 1))])
def test_no_record_hides_a_second_message(trick: bytes) -> None:
    """Invalid records, which could hide where a second ClientHello begins, are refused."""
    checker = HelloChecker(HOST)
    checker.feed(hello(HOST))
    with pytest.raises(HelloError, match="tls_required"):
        checker.feed(trick + hello("evil.example.test"))


def test_a_client_that_sends_single_bytes_costs_little() -> None:
    """Checking a ClientHello of 16 kB that arrives in single bytes takes little processor time."""
    data = record(message(server_name(HOST.encode()), (9, bytes(16_000))))
    checker = HelloChecker(HOST)
    with processor_seconds(5):
        for byte in data:
            checker.feed(bytes((byte,)))
    assert checker.is_complete
