"""Start a Docker Engine for the demo and the tests, and stop it again.

    python scripts/engine.py up      use a running engine, or start one (after installing docker.io, if necessary)
    python scripts/engine.py down    stop what ``up`` started, if anything

Installing requires Debian or Ubuntu, and root or sudo; otherwise the error says what to do. The directory
``.cache/engine`` (or ``$SECUREBENCH_ENGINE_STATE``) contains a record of what ``up`` started, and the daemon's output.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 90.0
STOP_SECONDS = 45.0
"""If dockerd does not exit within these seconds, it is killed. It gives each container ten seconds to exit."""
LOG_LINES = 15
SYSTEMD = Path("/run/systemd/system")
UNITS = ("docker.socket", "docker.service", "containerd.service")
BY_HAND = (
    "install and start Docker Engine 20.10 or later with your system's package manager, allow your user to use it "
    "(the group 'docker', or DOCKER_HOST), and run this again"
)


class SetupError(Exception):
    """The set-up failed. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class EngineProblem:
    """The reason why no engine answers.

    If ``replaceable``, no engine was selected explicitly and none is running, so one can be started.
    """

    text: str
    replaceable: bool


def say(message: str) -> None:
    """Print a progress message."""
    print(f"== {message}", file=sys.stderr, flush=True)


def find_problem() -> EngineProblem | None:
    """Return why no engine answers, or ``None`` if one does. Connect in the same way as SecureBench does."""
    from securebench.engine.client import connect
    from securebench.engine.endpoint import DEFAULT_SOCKET, current_candidates
    from securebench.errors import EngineError

    try:
        connect().close()
    except EngineError as error:
        replaceable = error.code == "engine-unavailable" and current_candidates()[0].path == DEFAULT_SOCKET
        return EngineProblem(str(error), replaceable=replaceable)
    return None


def root_prefix() -> tuple[str, ...] | None:
    """Return the prefix that runs a command as root: empty for root, or sudo; ``None`` if neither is possible."""
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") is None:
        return None
    prefix = ("sudo",) if sys.stdin.isatty() else ("sudo", "-n")
    allowed = subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0
    return prefix if allowed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """The commands ``up`` and ``down``. The fields describe the machine, and tests may replace them."""

    state: Path
    socket: Path = Path("/var/run/docker.sock")
    find_problem: Callable[[], EngineProblem | None] = find_problem
    dockerd: Sequence[str] = ("dockerd",)

    @property
    def pid_file(self) -> Path:
        """The file with the pid of a dockerd that ``up`` started without systemd. It exists while that dockerd runs."""
        return self.state / "dockerd.pid"

    @property
    def log(self) -> Path:
        """The file with dockerd's output."""
        return self.state / "dockerd.log"

    @property
    def units_file(self) -> Path:
        """The file with the systemd units that ``up`` started, one per line."""
        return self.state / "units"

    def up(self) -> None:
        """Start an engine unless one answers, and return once it answers. Raises :class:`SetupError`."""
        problem = self.find_problem()
        if problem is None:
            return
        prefix = root_prefix()
        if not problem.replaceable:
            raise SetupError(problem.text)
        if prefix is None:
            raise SetupError(f"{problem.text}\n    hint: as an administrator, {BY_HAND}")
        units = [unit for unit in UNITS if not _is_active(unit)] if SYSTEMD.is_dir() else []
        self.state.mkdir(parents=True, exist_ok=True)
        if shutil.which(self.dockerd[0], path=_admin_path()) is None:
            self._install()
        if SYSTEMD.is_dir():
            self.units_file.write_text("\n".join(units))
            self._run_as_root(prefix, "systemctl", "start", "docker.service")
            self._wait(prefix, None)
        else:
            self._wait(prefix, self._start(prefix))
        say("the engine answers")

    def down(self) -> None:
        """Stop the systemd units or the dockerd that ``up`` started, and wait until they have stopped."""
        prefix = root_prefix() or ()
        if self.units_file.exists():
            self._run_as_root(prefix, "systemctl", "stop", *self.units_file.read_text().split())
            self.units_file.unlink()
        pid = self._own_daemon()
        if pid is not None:
            _end(prefix, [pid, *_children(pid, "containerd")])
        self.pid_file.unlink(missing_ok=True)

    def _install(self) -> None:
        if shutil.which("apt-get") is None:
            raise SetupError(
                f"no Docker Engine is installed, and this is neither Debian nor Ubuntu\n    hint: {BY_HAND}"
            )
        say("installing docker.io")
        script = f". {ROOT}/scripts/lib.sh && apt_install docker.io iptables ca-certificates"
        if subprocess.run(["bash", "-c", script], check=False).returncode != 0:
            raise SetupError(f"apt-get could not install docker.io\n    hint: {BY_HAND}")

    def _start(self, prefix: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Start dockerd in its own session, so that no terminal, pipe or signal of this process affects it."""
        if self._own_daemon() is None:
            self.pid_file.unlink(missing_ok=True)
        say(f"starting dockerd (its output: {self.log})")
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*prefix, *self.dockerd, "--pidfile", str(self.pid_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, "PATH": _admin_path()},
                start_new_session=True,
            )

    def _wait(self, prefix: tuple[str, ...], daemon: subprocess.Popen[bytes] | None) -> None:
        deadline = time.monotonic() + START_SECONDS
        while (problem := self.find_problem()) is not None:
            if daemon is not None and daemon.poll() is not None:
                raise SetupError(f"dockerd exited with {daemon.returncode}:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise SetupError(f"no engine answers after {START_SECONDS:.0f} s: {problem.text}\n{self._log_tail()}")
            if prefix and self.socket.exists() and not os.access(self.socket, os.W_OK):
                # The daemon was started with this user's sudo, so the user may own its socket until it restarts.
                self._run_as_root(prefix, "chown", str(os.getuid()), str(self.socket))
            time.sleep(0.2)

    def _own_daemon(self) -> int | None:
        """Return the pid of the daemon that ``up`` started, if it is running."""
        with suppress(OSError, ValueError):
            pid = int(self.pid_file.read_text())
            if _name(pid) == "dockerd":
                return pid
        return None

    def _run_as_root(self, prefix: tuple[str, ...], *command: str) -> None:
        done = subprocess.run([*prefix, *command], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SetupError(f"'{' '.join(command)}' failed: {done.stderr.strip()}")

    def _log_tail(self) -> str:
        if not self.log.exists():
            return "    see: journalctl -u docker"
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join(f"    {line}" for line in lines)


def _admin_path() -> str:
    """Return ``PATH`` with the directories of daemons, which an ordinary user's ``PATH`` may lack."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


def _is_active(unit: str) -> bool:
    return subprocess.run(["systemctl", "--quiet", "is-active", unit], check=False).returncode == 0


def _name(pid: int) -> str | None:
    """Return the name of a running process. A zombie is not running."""
    with suppress(OSError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if rest.split()[0] != "Z":
            return name
    return None


def _children(parent: int, name: str) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _name(pid) == name and _parent(pid) == parent]


def _parent(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def _end(prefix: tuple[str, ...], pids: list[int]) -> None:
    """Terminate the first process, which terminates the others. After ``STOP_SECONDS``, kill those that are left."""
    names = {pid: _name(pid) for pid in pids}
    _signal(prefix, signal.SIGTERM, pids[:1])
    deadline = time.monotonic() + STOP_SECONDS
    while left := [pid for pid, name in names.items() if name and _name(pid) == name]:
        if time.monotonic() > deadline:
            _signal(prefix, signal.SIGKILL, left)
            return
        time.sleep(0.1)


def _signal(prefix: tuple[str, ...], number: signal.Signals, pids: list[int]) -> None:
    # Use the shell's builtin ``kill``, because a minimal machine has no program ``kill``.
    command = f"kill -{number.value} {' '.join(map(str, pids))}"
    subprocess.run([*prefix, "sh", "-c", command], check=False, stderr=subprocess.DEVNULL)


def default_setup() -> EngineSetup:
    """Return the set-up of this machine, with the state directory from the environment."""
    return EngineSetup(state=Path(os.environ.get("SECUREBENCH_ENGINE_STATE") or ROOT / ".cache" / "engine").resolve())


def main(arguments: list[str]) -> int:
    """Run the command in ``arguments``, and return the exit code."""
    setup = default_setup()
    halves = {"up": setup.up, "down": setup.down}
    if len(arguments) != 1 or arguments[0] not in halves:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        halves[arguments[0]]()
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
