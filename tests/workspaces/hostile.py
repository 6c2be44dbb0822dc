"""Hostile workspaces: one function a trap, for tests on the host and, run as a program, for agents in a sandbox.

As a program (``python3 hostile.py NAME``) it sets the trap in the working directory. It needs nothing but the standard
library, and does as an ordinary user what it can.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SEALED = "sealed"
"""Harmless: the tree is sealed, as plain data."""
UNSAFE = "unsafe"
TOO_LARGE = "too_large"


@dataclass(frozen=True)
class Trap:
    """A trap: the catalogue's entry, what must come of it, and how to set it in a directory."""

    entry: str
    outcome: str
    build: Callable[[Path], None]


TRAPS: dict[str, Trap] = {}


def _trap(entry: str, outcome: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(build: Callable[[Path], None]) -> Callable[[Path], None]:
        TRAPS[build.__name__] = Trap(entry, outcome, build)
        return build

    return register


@_trap("H01", UNSAFE)
def link_to_host_file(root: Path) -> None:
    """Link to a file that only the host should read."""
    (root / "passwd").symlink_to("/etc/passwd")


@_trap("H01", UNSAFE)
def link_climbing_out(root: Path) -> None:
    """Link out of the tree by a relative way."""
    (root / "inner").mkdir()
    (root / "inner/out").symlink_to("../../../../../../etc/passwd")


@_trap("H01", UNSAFE)
def link_through_a_link(root: Path) -> None:
    """Climb out through a link: each target alone, read as text, seems to stay inside."""
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/up").symlink_to("../..")
    (root / "out").symlink_to("a/b/up/../etc/passwd")


@_trap("H01", UNSAFE)
def link_to_proc(root: Path) -> None:
    """Link to the memory of whoever reads it."""
    (root / "maps").symlink_to("/proc/self/mem")


@_trap("H02", UNSAFE)
def link_to_root_directory(root: Path) -> None:
    """Link to the whole host."""
    (root / "all").symlink_to("/")


@_trap("H02", SEALED)
def link_loops(root: Path) -> None:
    """Lead links to themselves, to each other, and to the tree they lie in."""
    (root / "self").symlink_to("self")
    (root / "left").symlink_to("right")
    (root / "right").symlink_to("left")
    (root / "sub").mkdir()
    (root / "sub/here").symlink_to("..")


@_trap("H04", SEALED)
def hard_links(root: Path) -> None:
    """Give a file two names, and try to give the system's files one, which the kernel refuses."""
    (root / "one").write_text("content")
    (root / "two").hardlink_to(root / "one")
    if os.getuid() != 0:
        for target in ("/etc/passwd", "/etc/shadow"):
            try:
                os.link(target, root / "stolen")
            except OSError:
                continue
            raise SystemExit(f"a hard link to {target} was made")


@_trap("H05", UNSAFE)
def fifo(root: Path) -> None:
    """Block a reader for ever."""
    os.mkfifo(root / "pipe")


@_trap("H05", UNSAFE)
def unix_socket(root: Path) -> None:
    """Leave a socket behind."""
    here = Path.cwd()
    os.chdir(root)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    os.chdir(here)


@_trap("H06", UNSAFE)
def set_user_id_file(root: Path) -> None:
    """Leave a program that runs with the rights of whoever owns it."""
    (root / "shell").write_bytes(b"#!/bin/sh\n")
    (root / "shell").chmod(0o4755)


@_trap("H06", UNSAFE)
def set_group_id_file(root: Path) -> None:
    """Do the same with a group."""
    (root / "shell").write_bytes(b"#!/bin/sh\n")
    (root / "shell").chmod(0o2755)


@_trap("H07", TOO_LARGE)
def sparse_files(root: Path) -> None:
    """Make files that weigh nothing on the disk, and gigabytes when they are read."""
    for number in range(3):
        with (root / f"sparse-{number}").open("wb") as file:
            file.truncate(900 * 1024 * 1024)


@_trap("H08", TOO_LARGE)
def many_files(root: Path) -> None:
    """Make more files than anybody needs."""
    for number in range(50_001):
        os.close(os.open(root / str(number), os.O_CREAT | os.O_WRONLY))


@_trap("H08", UNSAFE)
def deep_tree(root: Path) -> None:
    """Nest directories deeper than a recursion may go, and than a path may be long."""
    here = Path.cwd()
    os.chdir(root)
    for _ in range(3000):
        Path("d").mkdir()
        os.chdir("d")
    os.chdir(here)


@_trap("H08", SEALED)
def long_names(root: Path) -> None:
    """Make names as long as they may be."""
    (root / ("n" * 255)).mkdir()
    (root / ("n" * 255) / ("m" * 255)).write_text("content")


@_trap("H09", SEALED)
def odd_names(root: Path) -> None:
    """Use names that a shell, a terminal, a decoder or another file system stumbles over."""
    for name in ODD_NAMES:
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(b"content of " + name)


ODD_NAMES = (
    b"-rf",
    b"--help",
    b" ",
    b"trailing ",
    b"trailing.",
    b"a\nb",
    b"$(touch canary)",
    b"`touch canary`;touch canary",
    b"CON",
    b"invalid-\xff\xfe",
    b"\x1b[2J\x1b[31mred",
    "\u202egnp.exe".encode(),
    b"%2e%2e%2f",
    b"..hidden",
    b"'\"\\",
)


@_trap("H11", UNSAFE)
def locked_directory(root: Path) -> None:
    """Close a directory to everybody, with something in it."""
    (root / "locked/inner").mkdir(parents=True)
    (root / "locked/inner/file").write_text("content")
    (root / "locked/inner").chmod(0)
    (root / "locked").chmod(0)


@_trap("H11", UNSAFE)
def locked_file(root: Path) -> None:
    """Close a file to everybody."""
    (root / "locked").write_text("content")
    (root / "locked").chmod(0)


@_trap("H11", UNSAFE)
def locked_workspace(root: Path) -> None:
    """Close the workspace itself."""
    (root / "file").write_text("content")
    root.chmod(0)


@_trap("H11", SEALED)
def unwritable_directory(root: Path) -> None:
    """Make a directory from which its owner may remove nothing."""
    (root / "fixed").mkdir()
    (root / "fixed/file").write_text("content")
    (root / "fixed").chmod(0o555)


@_trap("G01", SEALED)
def version_control_traps(root: Path) -> None:
    """Leave what a version control system on the host would run."""
    program = "touch canary; echo ran > ran"
    (root / ".git/hooks").mkdir(parents=True)
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git/config").write_text(
        f'[core]\n\tfsmonitor = "{program}"\n\thooksPath = hooks\n[filter "x"]\n\tclean = "{program}"\n'
        f'[diff]\n\texternal = "{program}"\n'
    )
    (root / ".git/hooks/post-index-change").write_text(f"#!/bin/sh\n{program}\n")
    (root / ".gitattributes").write_text("* filter=x\n")


if __name__ == "__main__":
    TRAPS[sys.argv[1]].build(Path.cwd())
