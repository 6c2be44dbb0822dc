"""Which addresses and redirects are allowed."""

from __future__ import annotations

import pytest

from securebench.http.address import Address, parse_address, without_password
from securebench.http.errors import AddressError

FAR = parse_address("https://registry.example.com/v2/")
NEAR = parse_address("http://127.0.0.1:5000/v2/")
PLAIN = parse_address("http://data.example/x", allow_plain=True)


@pytest.mark.parametrize(
    ("location", "source", "origin", "path"),
    [
        ("/v2/x", FAR, "https://registry.example.com:443", "/v2/x"),
        ("../x", FAR, "https://registry.example.com:443", "/x"),
        ("https://Storage.example/x?a=b", FAR, "https://storage.example:443", "/x?a=b"),
        ("https://[2001:db8::1]:8443", FAR, "https://[2001:db8::1]:8443", "/"),
        ("http://localhost:6000/x", NEAR, "http://localhost:6000", "/x"),
        ("https://storage.example/x", NEAR, "https://storage.example:443", "/x"),
        ("http://other.example/x", PLAIN, "http://other.example:80", "/x"),
        ("https://data.example/x", PLAIN, "https://data.example:443", "/x"),
    ],
)
def test_a_redirect_is_resolved(location: str, source: Address, origin: str, path: str) -> None:
    """Absolute and relative redirects are resolved, and keep their query."""
    target = source.follow(location)
    assert (target.origin, target.path) == (origin, path)


@pytest.mark.parametrize(
    "location",
    [
        "http://registry.example.com/x",
        "http://storage.example/x",
        "http://127.0.0.1:2375/v1.41/images/json",
        "https://127.0.0.1/x",
        "https://localhost/x",
        "https://[::1]/x",
        "ftp://storage.example/x",
        "file:///etc/passwd",
        "https://user:password@storage.example/x",
        "https://storage.example:port/x",
        "https://storage.example/a b",
        "https://storage.example/\r\nX: y",
        "https://stor\u0430ge.example/x",
        "//[",
    ],
)
def test_an_unsafe_redirect_is_refused(location: str) -> None:
    """J05, J08, J09: an https address elsewhere may not lead to this machine, another scheme or an invalid address."""
    with pytest.raises(AddressError) as raised:
        FAR.follow(location)
    assert "user:password" not in str(raised.value)


@pytest.mark.parametrize("location", ["http://127.0.0.1/x", "http://localhost/x", "ftp://data.example/x"])
def test_plain_http_elsewhere_does_not_lead_to_this_machine(location: str) -> None:
    """An address without TLS on another machine may not redirect to this machine, or to FTP."""
    with pytest.raises(AddressError):
        PLAIN.follow(location)


def test_this_machine_does_not_redirect_to_plain_http_elsewhere() -> None:
    """A redirect from this machine to plain HTTP elsewhere is refused: the data could be changed in transit."""
    with pytest.raises(AddressError, match="no TLS"):
        NEAR.follow("http://storage.example/x")


def test_messages_do_not_contain_signatures() -> None:
    """J15: the query of an address may grant access, so it is not part of messages."""
    target = FAR.follow("https://storage.example/x?signature=secret")
    assert str(target) == "storage.example"
    assert "secret" not in target.origin


@pytest.mark.parametrize("url", ["http://data.example/x", "ftp://data.example/x", "data.example", "https://", ""])
def test_an_address_needs_tls(url: str) -> None:
    """Unless plain HTTP is allowed, an address of another machine must be a complete https URL."""
    with pytest.raises(AddressError):
        parse_address(url)


def test_a_password_in_an_address_is_not_supported() -> None:
    """An address with a password is refused, and neither the error nor ``without_password`` repeats the password."""
    with pytest.raises(AddressError, match="user name or password") as raised:
        parse_address("https://user:secret@data.example/x")
    assert "secret" not in str(raised.value)
    assert without_password("https://user:secret@data.example/x") == "https://data.example/x"
    assert without_password("https://user:sec@ret@data.example/@x") == "https://data.example/@x"
