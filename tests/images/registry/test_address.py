"""Where a registry may lead."""

from __future__ import annotations

import pytest

from securebench.errors import ImageError
from securebench.images.registry.address import Address, follow, registry_address

FAR = registry_address("registry.example.com")
NEAR = registry_address("127.0.0.1:5000")


@pytest.mark.parametrize(
    ("location", "source", "origin", "path"),
    [
        ("/v2/x", FAR, "https://registry.example.com:443", "/v2/x"),
        ("https://Storage.example/x?a=b", FAR, "https://storage.example:443", "/x?a=b"),
        ("https://[2001:db8::1]:8443", FAR, "https://[2001:db8::1]:8443", "/"),
        ("http://localhost:6000/x", NEAR, "http://localhost:6000", "/x"),
        ("https://storage.example/x", NEAR, "https://storage.example:443", "/x"),
    ],
)
def test_a_redirect_leads_where_it_says(location: str, source: Address, origin: str, path: str) -> None:
    """Absolute and relative addresses are understood, with their query."""
    target = follow(location, source)
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
def test_a_registry_elsewhere_leads_nowhere_else(location: str) -> None:
    """J05, J08, J09: a redirect to this machine, off TLS, to a file or with a trick in it is refused."""
    with pytest.raises(ImageError) as raised:
        follow(location, FAR)
    assert raised.value.code == "registry-answer-invalid"
    assert "password" not in raised.value.message


def test_what_is_shown_of_an_address_has_no_signature() -> None:
    """J15: the query of a storage address lets one in, and is shown nowhere."""
    target = follow("https://storage.example/x?signature=secret", FAR)
    assert str(target) == "storage.example"
    assert "secret" not in target.origin
