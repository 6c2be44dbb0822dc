"""Which proxy the gateway uses for a provider."""

from __future__ import annotations

import pytest

from securebench.errors import ConfigError
from securebench.harnesses.provider.proxy import proxy_of

URL = "https://api.example.com/v1"
PROXY = "http://user:word@proxy.example:3128"


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({}, URL, None),
        ({"HTTPS_PROXY": PROXY}, URL, PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other"}, URL, PROXY),
        ({"HTTPS_PROXY": "proxy.example:3128"}, URL, "http://proxy.example:3128"),
        ({"HTTPS_PROXY": "https://proxy.example"}, URL, "https://proxy.example"),
        ({"HTTPS_PROXY": " "}, URL, None),
        ({"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, URL, None),
        ({"HTTPS_PROXY": PROXY}, "http://10.0.0.1:8000/v1", None),
        ({"HTTPS_PROXY": PROXY}, "https://127.0.0.1:8000/v1", None),
        ({"HTTPS_PROXY": PROXY}, "https://localhost:8000/v1", None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "x.org, .example.com"}, URL, None),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "api.example.com:443"}, URL, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, URL, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "example.org,ample.com"}, URL, PROXY),
    ],
)
def test_the_testers_variables(variables: dict[str, str], url: str, proxy: str | None) -> None:
    """``HTTPS_PROXY`` and ``NO_PROXY`` work as in curl; plain HTTP and loopback addresses never use a proxy."""
    assert proxy_of(variables, url) == proxy


@pytest.mark.parametrize("value", ["socks5://user:word@x:1080", "http://", "http://user:word@x:port", "user:word@"])
def test_what_is_not_a_proxy(value: str) -> None:
    """An invalid proxy URL raises an error that does not quote the password."""
    with pytest.raises(ConfigError) as raised:
        proxy_of({"HTTPS_PROXY": value}, URL)
    assert raised.value.code == "proxy-invalid"
    assert "word" not in f"{raised.value} {raised.value.hint}"
