"""Hostile workspaces: one function per trap, called on the host or run as a program by an agent in a sandbox.

As a program (``python3 trees.py NAME``), this module sets the trap ``NAME`` in the working directory. It needs only the
standard library. No trap needs root.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SEALED = "sealed"
"""The outcome of a harmless trap: the tree is sealed as plain data."""
UNSAFE = "unsafe"
TOO_LARGE = "too_large"


@dataclass(frozen=True)
class Trap:
    """A trap: its entry in the catalogue of attacks, its expected outcome, and a function that sets the trap."""

    entry: str
    outcome: str
    build: Callable[[Path], None]
    in_repository: str
    """The expected outcome if the workspace is a repository. For example, a set-id file is then ``unsafe``."""


TRAPS: dict[str, Trap] = {}


def _trap(
    entry: str, outcome: str, in_repository: str = ""
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(build: Callable[[Path], None]) -> Callable[[Path], None]:
        TRAPS[build.__name__] = Trap(entry, outcome, build, in_repository or outcome)
        return build

    return register


@_trap("H01", SEALED)
def link_to_host_file(root: Path) -> None:
    """Link to a file that only the host should read."""
    (root / "passwd").symlink_to("/etc/passwd")


@_trap("H01", SEALED)
def link_climbing_out(root: Path) -> None:
    """Link out of the tree by a relative path."""
    (root / "inner").mkdir()
    (root / "inner/out").symlink_to("../../../../../../etc/passwd")


@_trap("H01", SEALED)
def link_through_a_link(root: Path) -> None:
    """Link out of the tree through another link. As text, each target alone seems to stay inside."""
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/up").symlink_to("../..")
    (root / "out").symlink_to("a/b/up/../etc/passwd")


@_trap("H01", SEALED)
def link_to_proc(root: Path) -> None:
    """Link to the memory of whichever process opens the link."""
    (root / "maps").symlink_to("/proc/self/mem")


@_trap("H02", SEALED)
def link_to_root_directory(root: Path) -> None:
    """Link to the root directory of the host."""
    (root / "all").symlink_to("/")


@_trap("H02", SEALED)
def link_loops(root: Path) -> None:
    """Make links that lead to themselves, to each other, and to the tree that contains them."""
    (root / "self").symlink_to("self")
    (root / "left").symlink_to("right")
    (root / "right").symlink_to("left")
    (root / "sub").mkdir()
    (root / "sub/here").symlink_to("..")


@_trap("H04", SEALED)
def hard_links(root: Path) -> None:
    """Give a file two names. As an ordinary user, also try to link to files of the system, which the kernel refuses."""
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
    """Make a FIFO, which blocks a reader forever."""
    os.mkfifo(root / "pipe")


@_trap("H05", UNSAFE)
def unix_socket(root: Path) -> None:
    """Leave a socket behind."""
    here = Path.cwd()
    os.chdir(root)  # a socket's path may have at most 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    os.chdir(here)


@_trap("H06", SEALED, UNSAFE)
def set_user_id_file(root: Path) -> None:
    """Leave a program that runs with the rights of its owner."""
    (root / "shell").write_bytes(b"#!/bin/sh\n")
    (root / "shell").chmod(0o4755)


@_trap("H06", SEALED, UNSAFE)
def set_group_id_file(root: Path) -> None:
    """Leave a program that runs with the rights of its group."""
    (root / "shell").write_bytes(b"#!/bin/sh\n")
    (root / "shell").chmod(0o2755)


@_trap("H07", TOO_LARGE)
def sparse_files(root: Path) -> None:
    """Make files that use no disk space, but have gigabytes of content."""
    for number in range(3):
        with (root / f"sparse-{number}").open("wb") as file:
            file.truncate(900 * 1024 * 1024)


@_trap("H08", TOO_LARGE)
def many_files(root: Path) -> None:
    """Make more files than a candidate may have."""
    for number in range(50_001):
        os.close(os.open(root / str(number), os.O_CREAT | os.O_WRONLY))


@_trap("H08", UNSAFE)
def deep_tree(root: Path) -> None:
    """Nest directories beyond the recursion limit and the maximum length of a path."""
    here = Path.cwd()
    os.chdir(root)
    for _ in range(3000):
        Path("d").mkdir()
        os.chdir("d")
    os.chdir(here)


@_trap("H08", SEALED)
def long_names(root: Path) -> None:
    """Make names of the maximum length."""
    (root / ("n" * 255)).mkdir()
    (root / ("n" * 255) / ("m" * 255)).write_text("content")


@_trap("H09", SEALED)
def odd_names(root: Path) -> None:
    """Use names that a shell, a terminal, a decoder or another file system may handle wrongly."""
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
    """Make a directory that not even its owner may enter, with a file in it."""
    (root / "locked/inner").mkdir(parents=True)
    (root / "locked/inner/file").write_text("content")
    (root / "locked/inner").chmod(0)
    (root / "locked").chmod(0)


@_trap("H11", UNSAFE)
def locked_file(root: Path) -> None:
    """Make a file that not even its owner may read."""
    (root / "locked").write_text("content")
    (root / "locked").chmod(0)


@_trap("H11", UNSAFE, SEALED)
def locked_workspace(root: Path) -> None:
    """Make the workspace itself a directory that not even its owner may enter."""
    (root / "file").write_text("content")
    root.chmod(0)


@_trap("H11", SEALED)
def unwritable_directory(root: Path) -> None:
    """Make a directory from which its owner cannot remove anything."""
    (root / "fixed").mkdir()
    (root / "fixed/file").write_text("content")
    (root / "fixed").chmod(0o555)


@_trap("H11", SEALED)
def odd_times(root: Path) -> None:
    """Give files times before the epoch, and after the latest time that an archive can express."""
    for name, seconds in (("before", -(2**31)), ("after", 2**33 + 1), ("last", 2**34 - 2)):
        (root / name).write_text("content")
        os.utime(root / name, (seconds, seconds))


@_trap("H17", SEALED)
def attributes(root: Path) -> None:
    """Give files extended attributes that overlay file systems interpret."""
    (root / "directory").mkdir()
    (root / "file").write_text("content")
    for path in (root / "directory", root / "file"):
        for name in ("user.overlay.opaque", "user.overlay.whiteout", "user.overlay.redirect", "user.x"):
            with suppress(OSError):  # not every file system or kernel accepts them
                os.setxattr(path, name, b"y")


@_trap("H20", SEALED)
def deleted_but_open(root: Path) -> None:
    """Delete a large file while it is open. If this module runs as a program, leave a process that keeps it open."""
    (root / "work").write_text("content")
    with (root / "big").open("wb") as file:
        file.write(bytes(64 * 1024 * 1024))
        file.flush()
        (root / "big").unlink()
        if __name__ == "__main__" and os.fork() == 0:
            for stream in range(3):
                os.close(stream)
            time.sleep(600)
            os._exit(0)


_PROGRAM = "touch canary; echo ran > ran"
_ATTRIBUTES = "* filter=x diff=x merge=x\n"


def _git(root: Path, config: str = "", attributes: str = "") -> Path:
    """Make a minimal repository with ``config`` and ``attributes``, and a file in its working tree. Return ``.git``."""
    git = root / ".git"
    for directory in ("objects/info", "refs/heads", "info", "hooks"):
        (git / directory).mkdir(parents=True, exist_ok=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n" + config)
    if attributes:
        (root / ".gitattributes").write_text(attributes)
    (root / "work").write_text("content")
    return git


@_trap("G01", SEALED)
def git_fsmonitor(root: Path) -> None:
    """Make git run a program to find out what changed."""
    _git(root, f'[core]\n\tfsmonitor = "{_PROGRAM}"\n')


@_trap("G02", SEALED)
def git_diff_driver(root: Path) -> None:
    """Make git run a program to show differences."""
    _git(root, f'[diff]\n\texternal = "{_PROGRAM}"\n[diff "x"]\n\tcommand = "{_PROGRAM}"\n', _ATTRIBUTES)


@_trap("G03", SEALED)
def git_textconv(root: Path) -> None:
    """Make git run a program to convert files to text."""
    _git(root, f'[diff "x"]\n\ttextconv = "{_PROGRAM}"\n', _ATTRIBUTES)


@_trap("G04", SEALED)
def git_filters(root: Path) -> None:
    """Make git read and write files through programs.

    The files ``.gitattributes`` and ``info/attributes`` request these programs. No option of git disables either file.
    """
    filters = "".join(f'\t{kind} = "{_PROGRAM}"\n' for kind in ("clean", "smudge", "process"))
    git = _git(root, f'[filter "x"]\n{filters}\trequired = true\n', _ATTRIBUTES)
    (git / "info/attributes").write_text(_ATTRIBUTES)


@_trap("G06", SEALED)
def git_included_config(root: Path) -> None:
    """Make git read more configuration files: an included one, a worktree's, and a user's ``.gitconfig``."""
    git = _git(root, "[include]\n\tpath = ../more\n[extensions]\n\tworktreeConfig = true\n")
    for path in (root / "more", git / "config.worktree", root / ".gitconfig"):
        path.write_text(f'[core]\n\tfsmonitor = "{_PROGRAM}"\n\tworktree = /etc\n')


@_trap("G06", SEALED)
def git_elsewhere(root: Path) -> None:
    """Put git's data in another directory, named by a file ``.git``."""
    real = _git(root, f'[core]\n\tfsmonitor = "{_PROGRAM}"\n\tworktree = /etc\n')
    shutil.copytree(real, root / "real")
    shutil.rmtree(real)
    (root / ".git").write_text("gitdir: real\n")


@_trap("G07", SEALED)
def git_hooks(root: Path) -> None:
    """Make git run hooks, from the usual directory and from another one."""
    git = _git(root, "[core]\n\thooksPath = hooks\n")
    for place in (git / "hooks", root / "hooks"):
        place.mkdir(exist_ok=True)
        for name in ("post-index-change", "reference-transaction", "pre-commit", "post-checkout", "fsmonitor-watchman"):
            (place / name).write_text(f"#!/bin/sh\n{_PROGRAM}\n")
            (place / name).chmod(0o755)


@_trap("G10", SEALED)
def git_nested(root: Path) -> None:
    """Nest repositories without commits, and name one of them as a submodule."""
    _git(root)
    for name in ("inner", "inner/innermost"):
        (root / name).mkdir()
        _git(root / name, f'[core]\n\tfsmonitor = "{_PROGRAM}"\n')
    (root / ".gitmodules").write_text(f'[submodule "inner"]\n\tpath = inner\n\turl = ./x\n\tupdate = !{_PROGRAM}\n')


@_trap("G11", SEALED)
def git_helpers(root: Path) -> None:
    """Make git run programs as its helpers: pager, editors, SSH, credentials and signatures."""
    keys = ("core.pager", "core.editor", "core.sshCommand", "credential.helper", "gpg.program", "sequence.editor")
    _git(root, "".join(f'[{key.partition(".")[0]}]\n\t{key.partition(".")[2]} = "{_PROGRAM}"\n' for key in keys))


@_trap("G13", SEALED)
def git_broken(root: Path) -> None:
    """Damage the files that git reads first."""
    git = _git(root, "[this is not a configuration\n")
    (git / "index").write_bytes(b"DIRC\xff\xff\xff\xff" + bytes(64))
    (git / "index.lock").write_bytes(b"")
    (git / "HEAD").write_bytes(b"\xff" * 100)


@_trap("G15", SEALED)
def git_objects_of_the_host(root: Path) -> None:
    """Use files of the host as git objects."""
    git = _git(root)
    (git / "objects/info/alternates").write_text("/root/.git/objects\n/proc/self/cwd/.git/objects\n")
    (git / "objects/aa").symlink_to("/etc")


@_trap("G16", SEALED)
def other_tools(root: Path) -> None:
    """Leave files that make other tools, such as Mercurial, npm, Python and editors, run programs or load code."""
    for name, content in {
        ".hg/hgrc": f"[hooks]\npre-status = {_PROGRAM}\n[extensions]\nx = ./ran.py\n",
        ".svn/hooks/pre-commit": f"#!/bin/sh\n{_PROGRAM}\n",
        ".npmrc": "node-options=--require ./ran.js\nscript-shell=./ran.sh\n",
        "package.json": f'{{"scripts": {{"preinstall": "{_PROGRAM}"}}}}',
        "setup.py": "open('ran', 'w')\n",
        "pip.conf": "[global]\nindex-url = file:///etc\n",
        "sitecustomize.py": "open('ran', 'w')\n",
        ".vscode/tasks.json": f'{{"tasks": [{{"command": "{_PROGRAM}", "runOptions": {{"runOn": "folderOpen"}}}}]}}',
        ".envrc": f"{_PROGRAM}\n",
        "Makefile": f"all:\n\t{_PROGRAM}\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
        (root / name).chmod(0o755)


if __name__ == "__main__":
    TRAPS[sys.argv[1]].build(Path.cwd())
