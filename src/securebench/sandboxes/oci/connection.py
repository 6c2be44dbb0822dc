"""The driver's end of its supervisor: starting it, and asking it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import EngineError
from securebench.images.store.ids import tree_shift
from securebench.sandboxes.oci.handle import ProcessHandle, exhaustion, gone
from securebench.sandboxes.oci.wire import receive_frame, send_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.sandboxes.oci.runtime import OciRuntime

_HELLO_SECONDS: Final = 30.0
_END_SECONDS: Final = 10.0
_SOURCE: Final = Path(__file__).resolve().parents[3]
_BOOT: Final = (
    f"import sys; sys.path.append({str(_SOURCE)!r}); "
    "from securebench.sandboxes.oci.supervisor.main import main; main(sys.argv[1])"
)
_NAMESPACES: Final = ("--mount", "--propagation", "slave", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True, slots=True)
class Hello:
    """What a supervisor found.

    The id maps of its user namespace, as ``/proc`` has them; whether a sandbox can be rid of its user's other groups;
    the cgroup controllers that it can use, and whether they are in one hierarchy (version 2).
    """

    uid_map: str
    gid_map: str
    drops_groups: bool
    controllers: tuple[str, ...]
    unified: bool


class SupervisorConnection:
    """A supervisor, started in the background. ``run`` is its directory, ``group`` the name of its cgroups.

    ``files`` are shown below ``run`` by their names. Thread safe.
    """

    def __init__(self, run: Path, group: str, files: Mapping[str, str], runtime: OciRuntime) -> None:
        """Start it. Raises :class:`EngineError` (``sandbox-unavailable``) where that cannot even be tried."""
        self._sending = threading.Lock()
        self._hello: Hello | None = None
        self._control, theirs = socket.socketpair()
        owner = os.pidfd_open(os.getpid())
        sealed = runtime.path if runtime.copies_itself else None
        around = {"run": str(run), "group": group, "inner_groups": runtime.owns_cgroups}
        around |= {"unreadable": tree_shift() if runtime.runs_unreadable else None, "sealed": sealed}
        named = {"context": around, "files": dict(files)}
        settings = json.dumps({**named, "control": theirs.fileno(), "owner": owner})
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a program of this machine, and our own code
                [*_unshare(), sys.executable, "-I", "-S", "-c", _BOOT, settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), owner),
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,  # an interrupt from the terminal is the driver's to handle
            )
        except OSError as error:
            self._control.close()
            raise _unavailable(str(error)) from error
        finally:
            theirs.close()
            os.close(owner)

    def hello(self) -> Hello:
        """Return what the supervisor found, once it is ready.

        Raises :class:`EngineError`: ``sandbox-unavailable`` if it never was, ``sandbox-supervisor-gone`` if it is no
        more.
        """
        with self._sending:
            if self._hello is None:
                self._hello = self._await_hello()
            elif self._process.poll() is not None:
                raise gone()
            return self._hello

    def start(
        self, request: Mapping[str, Any], document: bytes, streams: Sequence[int], within: ProcessHandle | None = None
    ) -> ProcessHandle:
        """Start a job on three standard streams, ``within`` another.

        Raises :class:`EngineError` without a supervisor.
        """
        with exhaustion():
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        handle = ProcessHandle(ours, within)
        try:
            with self._sending:
                send_frame(self._control, request, document, (theirs.fileno(), *streams))
        except OSError as error:
            raise gone() from error
        finally:
            theirs.close()
        return handle

    def close(self) -> None:
        """End the supervisor, and with it every sandbox; idempotent. When this returns none is left."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then ends the supervisor, and all that it keeps
            self._process.wait()
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _await_hello(self) -> Hello:
        self._control.settimeout(_HELLO_SECONDS)
        try:
            frame = receive_frame(self._control)
        except OSError as error:
            raise _unavailable(f"it does not answer: {error}") from error
        self._control.settimeout(None)
        if frame is None or "failed" in frame[0]:
            raise _unavailable(self._exit_reason() if frame is None else frame[0]["failed"])
        return Hello(**{**frame[0], "controllers": tuple(frame[0]["controllers"])})

    def _exit_reason(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        said = b"" if self._process.stderr is None else self._process.stderr.read()
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with {self._process.returncode}"


def _unshare() -> list[str]:
    program = shutil.which("unshare")
    if not program:
        raise _unavailable("the program 'unshare' is not installed")
    return [program, *_user_namespace(), *_NAMESPACES]


def _user_namespace() -> list[str]:
    """Return what an ordinary user needs: a user namespace, with subordinate ids if he has any."""
    if os.geteuid() == 0:
        return []
    mapped = shutil.which("newuidmap") and shutil.which("newgidmap") and _has_subordinate_ids()
    return ["--user", "--map-root-user", *(["--map-auto"] if mapped else [])]


def _has_subordinate_ids() -> bool:
    import pwd

    uid = os.getuid()
    try:
        names = {pwd.getpwuid(uid).pw_name, str(uid)}
    except KeyError:
        names = {str(uid)}
    return all(_names_in(path) & names for path in (Path("/etc/subuid"), Path("/etc/subgid")))


def _names_in(path: Path) -> set[str]:
    try:
        return {line.split(":", 1)[0] for line in path.read_text().splitlines()}
    except OSError:
        return set()


def _unavailable(why: str) -> EngineError:
    return EngineError(
        f"no sandbox can be made here without an engine: {why}",
        code="sandbox-unavailable",
        hint="run 'securebench doctor': it says what this machine lacks, as user namespaces for ordinary users",
    )
