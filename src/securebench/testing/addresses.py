"""Addresses of this machine and of its DNS resolvers, to check that a sandbox can reach none of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

_RESOLVERS: Final = Path("/etc/resolv.conf")


def own_addresses() -> list[str]:
    """Return this machine's IPv4 addresses, except loopback, from the kernel's table of local routes."""
    text = Path("/proc/net/fib_trie").read_text(encoding="ascii")
    lines = [line.split() for line in text.splitlines()]
    found = {before[-1] for before, line in itertools.pairwise(lines) if line[:3] == ["/32", "host", "LOCAL"]}
    return sorted(address for address in found if not address.startswith("127."))


def resolvers() -> list[str]:
    """Return the addresses of this machine's DNS resolvers. Empty if ``/etc/resolv.conf`` cannot be read."""
    try:
        lines = [line.split() for line in _RESOLVERS.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
