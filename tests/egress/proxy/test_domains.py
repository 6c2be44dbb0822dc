"""Host names: their canonical form, and which are allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.egress.proxy.decisions import Reason
from securebench.egress.proxy.domains import AllowedDomains, HostError, canonical

ADDRESSES = """
127.0.0.1 127.1 1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 127.0.0.1. 0x a.1 10.0.0.0x1
[::1] [::ffff:127.0.0.1] [fe80::1%25eth0]
"""


@pytest.mark.parametrize("host", ["api.example.com", "API.Example.COM", "api.example.com."])
def test_a_name_has_one_spelling(host: str) -> None:
    """The canonical form of a host name is in lower case, without a trailing dot."""
    assert canonical(host) == "api.example.com"


@pytest.mark.parametrize(
    "host",
    ADDRESSES.split(),
)
def test_an_address_is_no_name_in_any_spelling(host: str) -> None:
    """Every notation of an IP address is refused: decimal, octal, hexadecimal, short and bracketed."""
    with pytest.raises(HostError) as caught:
        canonical(host)
    assert caught.value.reason is Reason.HOST_IS_ADDRESS


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "..", "api..example.com", ".example.com", "example.com..", "a" * 64 + ".com", "a." * 130 + "com"),
        *("-a.com", "a-.com", "a b.com", "a\tb.com", "a\0.com", "a.com\n", "a%2ecom", "a.com\\b", "*.com", "a,b.com"),
        *("ex\xe4mple.com", "\uff45xample.com", "example\u3002com", "\u0435xample.com", "\uff11\uff12.0.0.1"),
        "\u0130.com",  # becomes two characters in lower case
    ],
)
def test_what_is_no_name_is_refused(host: str) -> None:
    """Names with empty or long labels, special characters or letters beyond ASCII are refused, even look-alikes."""
    with pytest.raises(HostError) as caught:
        canonical(host)
    assert caught.value.reason is Reason.HOST_INVALID


@pytest.mark.parametrize("host", ["example.com", "api.example.com", "a.b.example.com", "xn--bcher-kva.test"])
def test_a_domain_is_allowed_with_its_subdomains(host: str) -> None:
    """An allowed domain admits itself and its subdomains. An international name is compared in its ASCII form."""
    assert AllowedDomains(["Example.com", "xn--bcher-kva.test"]).admits(host)


@pytest.mark.parametrize(
    "host",
    ["com", "example.org", "notexample.com", "example.com.evil.test", "xn--xample-9uf.com", "xample.com", "e.com"],
)
def test_nothing_else_is_allowed(host: str) -> None:
    """A parent of an allowed domain, another domain, and a name that only resembles an allowed one are refused."""
    assert not AllowedDomains(["example.com"]).admits(host)


def test_of_no_domains_nothing_is_allowed() -> None:
    """An empty list of domains admits no host."""
    assert not AllowedDomains([]).admits("example.com")


@given(st.text(max_size=80))
def test_a_canonical_name_is_plain_and_stays_as_it_is(text: str) -> None:
    """A canonical name is lower-case ASCII without a trailing dot. ``canonical`` returns such a name unchanged."""
    try:
        name = canonical(text)
    except HostError:
        return
    assert name.isascii()
    assert name == name.lower() == canonical(name)
    assert not name.endswith(".")
