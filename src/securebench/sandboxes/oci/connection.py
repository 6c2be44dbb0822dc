"""The driver's connection to its supervisor: starting it, and sending it requests."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import EngineError
from securebench.images.store.ids import tree_shift
from securebench.ipc.child import ChildError, SupervisedChild
from securebench.ipc.frames import channel_pair, pack, send
from securebench.sandboxes.oci.handle import ProcessHandle, exhaustion, gone
from securebench.sandboxes.oci.wire import write_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.sandboxes.oci.optimisations import Optimisations
    from securebench.sandboxes.oci.runtime import OciRuntime

_READY_SECONDS: Final = 30.0
_END_SECONDS: Final = 10.0
_START: Final = pack({})
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

    def __init__(
        self, run: Path, group: str, files: Mapping[str, str], runtime: OciRuntime, optimisations: Optimisations
    ) -> None:
        """Start it. Raises :class:`EngineError` (``sandbox-unavailable``) where that cannot even be tried."""
        self._sending = threading.Lock()
        self._hello: Hello | None = None
        context = {
            "run": str(run),
            "group": group,
            "inner_groups": runtime.owns_cgroups,
            "unreadable": tree_shift() if runtime.runs_unreadable else None,
            "sealed": runtime.path if runtime.copies_itself and optimisations.sealed_runtime else None,
            "pooled": optimisations.cgroup_pool,
        }
        owner = os.pidfd_open(os.getpid())
        try:
            self._child = SupervisedChild(
                "securebench.sandboxes.oci.supervisor.main",
                {"context": context, "files": dict(files)},
                (owner,),
                launcher=_unshare(),
                environment={"PATH": os.defpath},  # where unshare finds newuidmap
            )
        except ChildError as error:
            raise _unavailable(str(error)) from error
        finally:
            os.close(owner)

    def hello(self) -> Hello:
        """Return what the supervisor found, once it is ready.

        Raises :class:`EngineError`: ``sandbox-unavailable`` if it never was, ``sandbox-supervisor-gone`` if it has
        exited since.
        """
        with self._sending:
            if self._hello is None:
                try:
                    found = self._child.await_ready(_READY_SECONDS)
                except ChildError as error:
                    raise _unavailable(str(error)) from error
                self._hello = Hello(**{**found, "controllers": tuple(found["controllers"])})
            elif not self._child.is_running():
                raise gone()
            return self._hello

    def start(
        self, request: Mapping[str, Any], document: bytes, streams: Sequence[int], within: ProcessHandle | None = None
    ) -> ProcessHandle:
        """Start a process on three standard streams, ``within`` the container of another one.

        Raises :class:`EngineError` without a supervisor, and :class:`InfrastructureError` without room for more files.
        """
        with exhaustion():
            ours, theirs = channel_pair()
            ours.setblocking(False)
            handle = ProcessHandle(ours, within)
            with theirs:
                payload = write_request(request, document)
                try:
                    self._send_start((theirs.fileno(), payload, *streams))
                finally:
                    os.close(payload)
        return handle

    def close(self) -> None:
        """End the supervisor, and with it every sandbox; idempotent. When this returns no sandbox is left.

        If the supervisor has to be killed, the kernel ends everything in its pid namespace with it.
        """
        self._child.close(_END_SECONDS)

    def _send_start(self, descriptors: Sequence[int]) -> None:
        try:
            with self._sending:
                send(self._child.channel, _START, descriptors)
        except OSError as error:
            raise gone() from error


def _unshare() -> list[str]:
    program = shutil.which("unshare")
    if not program:
        raise _unavailable("the program 'unshare' is not installed")
    return [program, *_user_namespace(), *_NAMESPACES]


def _user_namespace() -> list[str]:
    """Return what an ordinary user needs: a user namespace, with the user's subordinate ids if there are any."""
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
        f"cannot start daemonless sandboxes here: {why}",
        code="sandbox-unavailable",
        hint="run 'securebench doctor': it says what this machine lacks, such as user namespaces for ordinary users",
    )
