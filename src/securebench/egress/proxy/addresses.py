"""Decide which addresses the proxy may connect to: public addresses of other machines."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# The refused ranges are listed here because ``ipaddress.is_global`` differs between Python versions, and because it
# accepts addresses that may lead back into the local network or cloud (6to4 relays, Azure's own services).
_REFUSED_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT; some clouds serve metadata here
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's own services for the machine
            "169.254.0.0/16",  # link-local, and metadata of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarking
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_PUBLIC_6: Final = IPv6Network("2000::/3")
"""The range of global unicast IPv6 addresses: no loopback, private, link-local, multicast or IPv4-mapped ones."""
_REFUSED_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: contains an IPv4 address
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return ``texts`` as networks. Raises ``ValueError``."""
    return tuple(map(ip_network, texts))


def is_public(address: Address) -> bool:
    """Return whether ``address`` is in a public range.

    A NAT64 address is judged by the IPv4 address that it contains.
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_4)
    if address.scope_id is None and address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    return address.scope_id is None and address in _PUBLIC_6 and not any(address in refused for refused in _REFUSED_6)


def is_own(address: Address) -> bool:
    """Return whether ``address`` belongs to this machine.

    Connecting a UDP socket sends nothing, but gives the socket an address of this machine: ``address`` itself, if that
    belongs to this machine. Returns ``False`` if there is no route.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - the IP version
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
        return ip_address(probe.getsockname()[0]) == address


def may_connect(address: Address, trusted: Iterable[Network]) -> bool:
    """Return whether the proxy may connect to ``address``: it is trusted, or public and not of this machine."""
    if any(address in network for network in trusted):
        return True
    return is_public(address) and not is_own(address)
