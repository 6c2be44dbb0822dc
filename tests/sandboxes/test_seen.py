"""Parsing the kernel's files that the self-test reads in a sandbox."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.sandboxes.base import Limits
from securebench.sandboxes.self_test import FILES, SOCKET_FILES, Mounted, Sockets, View, weaknesses


def test_this_process_is_read() -> None:
    """The concatenated files of a real process are parsed; missing files are left out."""
    files = [Path(name) for name in FILES]
    view = View.parse("".join(file.read_text(errors="replace") for file in files if file.exists()))
    assert "lo" in view.interfaces
    assert view.uid_map[0][2] >= 1
    assert view.mounts["/proc"].kind == "proc"
    assert {"Max open files", "Max core file size", "Max file size"} <= set(view.limits)
    assert {"Groups", "CapBnd", "NoNewPrivs", "Seccomp"} <= set(view.status)
    assert view.status["Uid"].split()[0].isdigit()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tmpfs /tmp tmpfs rw,size=4k 0 0", {"/tmp": Mounted("tmpfs", frozenset({"rw", "size=4k"}))}),
        ("overlay / overlay ro,lowerdir=a:b 0 0", {"/": Mounted("overlay", frozenset({"ro", "lowerdir=a:b"}))}),
        ("none / 9p ro 0 0\nnone / 9p rw 0 0", {"/": Mounted("9p", frozenset({"rw"}))}),
        ("tmpfs /tmp tmpfs", {}),
    ],
)
def test_the_last_mount_counts(line: str, expected: dict[str, Mounted]) -> None:
    """A mount hides an earlier mount at the same target."""
    assert View.parse(line + "\nName:\tcat\n").mounts == expected


@given(st.text(alphabet="loName:0123 \n\t/Maxrwgrps,=-|", max_size=300))
def test_nothing_that_is_not_understood_passes(text: str) -> None:
    """Any text instead of the kernel's files is parsed without an error, and fails the checks."""
    found = weaknesses(View.parse(text), Limits())
    assert {"capabilities", "seccomp", "no-new-privileges", "read-only-root"} <= set(found)


def test_sockets_of_this_process_are_seen() -> None:
    """A listening TCP socket is found with its address and inode. UDP and Unix sockets are found, too."""

    def look() -> Sockets:
        files = [Path(name) for name in SOCKET_FILES]
        return Sockets.parse("".join(file.read_text() for file in files if file.exists()))

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        others = [
            stack.enter_context(socket.socket(family, kind))
            for family, kind in ((socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_STREAM))
        ]
        others[0].bind(("127.0.0.1", 0))
        seen = look()
        assert (listener.getsockname(), os.fstat(listener.fileno()).st_ino) in seen.listening
        for other in others:
            assert any(str(os.fstat(other.fileno()).st_ino) in line.split() for line in seen.others)


@pytest.mark.parametrize(
    ("line", "others", "routes"),
    [
        ("   0: 00000000000000000000000001000000:0C38 00000000000000000000000000000000:0000 0A 0:0 0:0 0", 1, 0),
        ("   0: 0100007F:0C38 00000000:0000 0A too few", 1, 0),
        ("  12: 0B00007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 9 2 0 0", 1, 0),
        ("   0: 0100007F:0C38 0100007F:C7C8 01 00000000:00000000 00:00000000 00000000 65534        0 17 1 0 0", 1, 0),
        ("0000000000000000: 00000002 00000000 00010000 0001 01 12 @abstract", 1, 0),
        ("00000000dd2c21fe 3      3    0003   2     1 0          0      99", 1, 0),
        ("eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0   ", 0, 1),
        ("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT", 0, 0),
        ("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", 0, 0),
        ("Num       RefCount Protocol Flags    Type St Inode Path", 0, 0),
    ],
)
def test_sockets_and_routes_are_found(line: str, others: int, routes: int) -> None:
    """A line about a socket or route of any type is counted. A heading is not."""
    seen = Sockets.parse(line + "\n")
    assert (len(seen.listening), len(seen.others), len(seen.routes)) == (0, others, routes)


@given(st.text())
def test_any_text_can_be_parsed_for_sockets(text: str) -> None:
    """Parsing any text for sockets raises no error."""
    assert isinstance(Sockets.parse(text), Sockets)
