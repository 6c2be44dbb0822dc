"""The addresses to which the proxy may connect."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from securebench.egress.proxy.addresses import is_own, is_public, may_connect, networks

REFUSED = """
0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 127.0.0.1 127.255.255.254
169.254.169.254 169.254.170.2 168.63.129.16 100.64.0.1 100.100.100.200 100.127.255.255
192.0.0.192 192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 198.19.255.255 192.88.99.1 224.0.0.1
239.255.255.250 240.0.0.1 255.255.255.255 :: ::1 ::ffff:127.0.0.1 ::ffff:1.1.1.1 ::127.0.0.1
fe80::1 fe80::1%1 fc00::1 fd00::1 fd00:ec2::254 fec0::1 ff02::1 2001:db8::1 3fff::1 5f00::1
100::1 2001::1 2001:0:7f00:1:: 2001:2::1 2001:10::1 2002:7f00:1:: 2002:0101:0101::1
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2606:4700::1111%1
"""


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111"])
def test_public_addresses_are_public(address: str) -> None:
    """Addresses outside all special ranges are public."""
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    REFUSED.split(),
)
def test_all_other_addresses_are_not(address: str) -> None:
    """Addresses in special ranges, and IPv6 addresses with a zone or with an IPv4 address in them, are not public.

    Special ranges: private, loopback, link-local, metadata, carrier-grade NAT, multicast, reserved.
    The next test has the only exception: NAT64 addresses.
    """
    assert not is_public(ip_address(address))


def test_behind_a_nat64_the_inner_address_is_judged() -> None:
    """A NAT64 address, as used on machines with IPv6 only, is public if the IPv4 address in it is public."""
    assert is_public(ip_address("64:ff9b::101:101"))
    assert not is_public(ip_address("64:ff9b::a00:1"))


def test_this_machine_s_addresses_are_its_own() -> None:
    """A loopback address belongs to this machine, and an address elsewhere does not."""
    assert is_own(ip_address("127.0.0.1"))
    assert not is_own(ip_address("192.0.2.1"))


def test_a_public_address_of_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy may not connect to an address of its own machine, even if the address is public."""

    class Own(socket.socket):
        def connect(self, address: object) -> None:
            pass

        def getsockname(self) -> tuple[str, int]:
            return "93.184.216.34", 40000

    monkeypatch.setattr(socket, "socket", Own)
    assert not may_connect(ip_address("93.184.216.34"), ())
    assert may_connect(ip_address("93.184.216.35"), ())


def test_trusted_networks_may_be_reached() -> None:
    """The proxy may connect to an address in a trusted network, but not to a loopback address outside it."""
    trusted = networks(["127.0.0.1/32"])
    assert may_connect(ip_address("127.0.0.1"), trusted)
    assert not may_connect(ip_address("127.0.0.2"), trusted)
