"""What a process sees of its sandbox: the kernel's files, read as they come."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.sandboxes.base import Limits
from securebench.sandboxes.seen import FILES, Mounted, View
from securebench.sandboxes.self_test import weaknesses


def test_this_process_is_read() -> None:
    """The files of a real process, shown one after the other, are told apart, and those that are missing left out."""
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
    """A mount that lies upon another is what a process sees."""
    assert View.parse(line + "\nName:\tcat\n").mounts == expected


@given(st.text(alphabet="loName:0123 \n\t/Maxrwgrps,=-|", max_size=300))
def test_nothing_that_is_not_understood_passes(text: str) -> None:
    """Whatever comes instead of the files is read without trouble, and never as a sandbox that is as asked for."""
    found = weaknesses(View.parse(text), Limits())
    assert {"capabilities", "seccomp", "no-new-privileges", "read-only-root"} <= set(found)
