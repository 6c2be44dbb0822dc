"""How the current user can run ``mmdebstrap``, and how to stop all of its processes."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAM = "mmdebstrap"
_PACKAGES = (PROGRAM, "debian-archive-keyring")
"""The packages to install. The second contains Debian's keys, which other distributions do not install by default."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How to run ``mmdebstrap``: the command prefix, the mode, and the signal that stops all of its processes.

    They also end when SecureBench's process dies: the kernel signals them or, under sudo, their output pipes close.
    """

    prefix: tuple[str, ...]
    mode: str
    stop: signal.Signals


AS_USER = Bootstrap(("setpriv", "--pdeathsig", "TERM"), "auto", signal.SIGTERM)
"""For an ordinary user: ``mmdebstrap`` runs in a user namespace or under fakechroot.

After SIGTERM, ``mmdebstrap`` removes its own files, which this user could not remove.
"""


def find_bootstrap(
    report: Callable[[str], None], *, install_tools: bool, subuid: Path = Path("/etc/subuid")
) -> Bootstrap:
    """Return how this user runs ``mmdebstrap``. If it is missing and ``install_tools`` is set, install it as root.

    Raises :class:`ImageError` (``image-tool-missing``).
    """
    root = _root_prefix()
    if shutil.which(PROGRAM) is None:
        if root is None or not install_tools or shutil.which("apt-get") is None:
            raise _tool_missing(f"the program {PROGRAM!r} is not installed", _PACKAGES)
        report(f"installing {PROGRAM}")
        _install(root)
    if root is not None:
        return as_root(root)
    if shutil.which("fakechroot") or (shutil.which("newuidmap") and _has_subordinate_ids(subuid)):
        return AS_USER
    raise _tool_missing("an ordinary user needs fakechroot, or newuidmap and an entry in /etc/subuid", ("uidmap",))


def as_root(sudo: tuple[str, ...] = ()) -> Bootstrap:
    """Return how root runs ``mmdebstrap``: in separate pid and mount namespaces, which end with their first process."""
    namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    prefix = (*sudo, "setpriv", "--pdeathsig", "KILL", *namespaces)
    return Bootstrap(prefix, "root", signal.SIGTERM if sudo else signal.SIGKILL)


def query(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a short command on this machine, without input, and wait for it."""
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)  # noqa: S603 - fixed argvs of this package


def _root_prefix() -> tuple[str, ...] | None:
    """Return the prefix that runs a command as root, or ``None`` if that is impossible without a password."""
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") and query(("sudo", "-n", "true")).returncode == 0:
        return ("sudo", "-n")
    return None


def _install(root: tuple[str, ...]) -> None:
    apt = (*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq")
    for command in ((*apt, "update"), (*apt, "install", "--yes", "--no-install-recommends", *_PACKAGES)):
        done = query(command)
        if done.returncode != 0:
            raise _tool_missing(f"apt-get could not install {PROGRAM!r}: {done.stderr.strip()}", _PACKAGES)


def _has_subordinate_ids(subuid: Path) -> bool:
    lines = subuid.read_text().splitlines() if subuid.exists() else []
    return any(line.split(":")[0] in {getpass.getuser(), str(os.getuid())} for line in lines)


def _tool_missing(message: str, packages: Sequence[str]) -> ImageError:
    return ImageError(
        f"cannot build from Debian's packages: {message}",
        code="image-tool-missing",
        hint=f"run 'sudo apt-get install {' '.join(packages)}', "
        "build as root with '--install-tools', or import the image",
    )
