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
from securebench.sandboxes.oci.handle import ProcessHandle, descriptor_errors, gone
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
    """What a supervisor reports when it is ready.

    ``uid_map`` and ``gid_map`` are those of its user namespace, as in ``/proc``. ``drops_groups``: sandboxes can drop
    the user's supplementary groups. ``controllers`` are the cgroup controllers that it can use; ``unified``: they are
    in a single hierarchy (version 2).
    """

    uid_map: str
    gid_map: str
    drops_groups: bool
    controllers: tuple[str, ...]
    unified: bool


class SupervisorConnection:
    """A supervisor process, started in the background. ``run`` is its directory, ``group`` the name of its cgroups.

    Copies of ``files`` (name: path) are available below ``run``. Thread-safe.
    """

    def __init__(
        self, run: Path, group: str, files: Mapping[str, str], runtime: OciRuntime, optimisations: Optimisations
    ) -> None:
        """Start it. Raises :class:`EngineError` (``sandbox-unavailable``) if the process cannot be started."""
        self._sending = threading.Lock()
        self._hello: Hello | None = None
        context = {
            "run": str(run),
            "group": group,
            "inner_groups": runtime.owns_cgroups,
            "unreadable": tree_shift() if runtime.can_run_unreadable else None,
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
        """Wait until the supervisor is ready, and return its report.

        Raises :class:`EngineError`: ``sandbox-unavailable`` if it did not become ready, ``sandbox-supervisor-gone`` if
        it has exited since.
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
        """Start a process with three standard streams, for a command ``within`` the container of another process.

        Raises :class:`EngineError` if the supervisor is gone, and :class:`InfrastructureError` if this process has too
        many open files.
        """
        with descriptor_errors():
            local, remote = channel_pair()
            local.setblocking(False)
            handle = ProcessHandle(local, within)
            with remote:
                payload = write_request(request, document)
                try:
                    self._send_start((remote.fileno(), payload, *streams))
                finally:
                    os.close(payload)
        return handle

    def close(self) -> None:
        """Stop the supervisor and all its sandboxes. Idempotent. When this returns, no sandbox is running.

        If the supervisor has to be killed, the kernel kills everything in its pid namespace with it.
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
    """Return the options for an ordinary user: a user namespace, with the user's subordinate ids if they have any."""
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
        hint="run 'securebench doctor' to see what is missing, such as user namespaces for ordinary users",
    )
