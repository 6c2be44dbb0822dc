"""The host's targets for attacks, and the checks of the host afterwards."""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from securebench.limits import MIB
from securebench.sandboxes.base import UNPRIVILEGED_USER
from securebench.testing.addresses import own_addresses
from securebench.testing.breakout.inside.base import Host

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS: Final = ("core_pattern", "modprobe", "hostname", "panic_on_oops", "ctrl-alt-del")
_LEAVING_SECONDS: Final = 20.0
_HARNESS_GROWTH: Final = 64 * MIB
_VICTIM: Final = "securebench-victim"


@dataclass(frozen=True, slots=True)
class HostEvidence:
    """A check of the host after all attempts.

    ``means`` names the harm, and ``entry`` is the entry in the catalogue of attacks.
    """

    name: str
    means: str
    entry: str


EVIDENCE: Final = (
    HostEvidence("a file of the host, after all attempts", "writes the host's files", "I18"),
    HostEvidence("the host's kernel settings, after all attempts", "changes settings of the kernel", "I18"),
    HostEvidence("a process of the host, after all attempts", "ends the host's processes", "A05"),
    HostEvidence("remaining processes, after all attempts", "leaves a process that survives the sandbox", "L10"),
    HostEvidence("SecureBench's memory, after all attempts", "makes SecureBench run out of memory", "L17"),
)


class Target:
    """A canary file, an environment variable, a victim process, and servers.

    As a context manager, it removes them at the end.

    ``shared`` is a directory that sandboxes may write to.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.directory = Path(tempfile.mkdtemp(prefix="securebench-breakout-")).resolve()
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.directory.chmod(0o755)
        self.shared = self.directory / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o777)
        self._secret = secrets.token_hex(16)
        # A driver must not pass this variable to a sandbox, neither directly nor through programs that inherit it.
        variable = f"SECUREBENCH_SECRET_{self._secret[:8]}"
        os.environ[variable] = self._secret
        self._stack.callback(os.environ.pop, variable, None)
        self._canary = self.directory / "canary.txt"
        self._canary.write_text(self._secret)
        self._canary.chmod(0o666)  # writable by anyone who can see it
        self._before = (self._canary.lstat(), _settings(), _harness_memory())
        self._victim = self._start_victim()

    def host(self) -> Host:
        """Start the servers. Return the parts of this host that the attempts try to reach."""
        addresses = ("127.0.0.1", *own_addresses())
        server = self._stack.enter_context(socket.create_server(("", 0)))
        abstract = f"securebench-{self._secret[:8]}"
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind("\0" + abstract)
        listener.listen()
        port = int(server.getsockname()[1])
        return Host(str(self._canary), self._secret, self._victim.pid, port, addresses, abstract)

    def harm(self) -> Iterator[str]:
        """Yield a text for each of :data:`EVIDENCE`, in order: the harm to the host, or an empty text."""
        canary, settings, memory = self._before
        after = self._canary.lstat()
        same = (after.st_mtime_ns, after.st_mode, after.st_ino) == (canary.st_mtime_ns, canary.st_mode, canary.st_ino)
        yield "" if same and self._canary.read_text() == self._secret else "changed"
        yield "" if _settings() == settings else "changed"
        yield "" if self._victim.poll() is None else "ended"
        yield self._remaining_processes()
        yield "" if _harness_memory() - memory < _HARNESS_GROWTH else "grew"

    def close(self) -> None:
        """Kill the victim, close the servers, and remove the variable and the directory."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_victim(self) -> subprocess.Popen[bytes]:
        """Start the victim process. If SecureBench runs as root, the victim runs as nobody."""
        user, group = UNPRIVILEGED_USER if os.getuid() == 0 else (None, None)
        victim = subprocess.Popen(  # noqa: S603 - a fixed program
            [_VICTIM, "600"],
            executable="/bin/sleep",
            env={"SECRET": self._secret},
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )
        self._stack.callback(victim.wait)
        self._stack.callback(victim.kill)
        return victim

    def _remaining_processes(self) -> str:
        """Wait until no process has the secret in its arguments, but not longer than :data:`_LEAVING_SECONDS`.

        Return how many are left, if any, as text.
        """
        deadline = time.monotonic() + _LEAVING_SECONDS
        while (left := list(self._processes())) and time.monotonic() < deadline:
            time.sleep(0.1)
        return f"{len(left)} processes" if left else ""

    def _processes(self) -> Iterator[str]:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if self._secret.encode() in path.read_bytes():
                    yield path.parent.name
            except OSError:  # it ended meanwhile
                continue


def _settings() -> dict[str, str]:
    there = (path for path in (Path("/proc/sys/kernel", name) for name in _SETTINGS) if path.exists())
    return {path.name: path.read_text(encoding="utf-8") for path in there}


def _harness_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
