"""The self-test of a driver: what a sandbox says of itself, before anything hostile runs in one. It fails closed.

A specification is only what was asked for. An engine of another version, or one that was configured to be lenient, may
do something else with it, and nothing would show: so the first sandbox of a run is asked what it sees.

All that an image needs for it is ``/bin/cat``. Where a sandbox does not see its cgroups, the limits are hit instead: a
sandbox that is allowed one process, or hardly any memory, must not run.

A forwarded port is known by the number of its socket, which is the same inside and outside. Nothing else may be in its
sandbox's network namespace that could be spoken to.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.base import Command, Limits, SandboxSpec
from securebench.sandboxes.forwarding import ForwardedPort
from securebench.sandboxes.gvisor import RUNSC
from securebench.sandboxes.seen import FILES, SOCKET_FILES, Sockets, View

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult, Sandbox, SandboxDriver

_T = TypeVar("_T")

_USER: Final = (65533, 65533)
"""Nobody's neighbour: groups that are not mapped are shown as nobody's, and he would not be told from them."""

_LOOK: Final = ("/bin/cat", *FILES)
_STAND: Final = ("/bin/cat", "/dev/null")
_SECONDS: Final = 60.0
_FORWARDED_PORT: Final = 3128
_ALL_IDS: Final = 65536
_IDENTITY: Final = (0, 0, 2**32 - 1)
_TOO_LITTLE: Final[Mapping[str, dict[str, int]]] = {"pids": {"pids": 1}, "memory": {"memory": 64 * 1024}}
"""Limits under which no sandbox can stand: its init alone is one process, and no process fits into 16 pages."""

_OF_ITS_OWN: Final = frozenset({"user-namespace", "file-owners", "kernel-settings", "pids"})
"""What such a kernel shows of itself alone: whom its users are on the host, only the host can tell, and the limit of
processes is one of its threads. That it is in the cgroups of its sandbox, the limit of memory shows."""
_NEED_NOT_SHOW: Final = frozenset({"no-new-privileges", "rlimits"})
"""What it need not show: no program in it ever gives privileges, and not every version has a file of limits."""


class _NotShownError(Exception):
    """A sandbox does not see a file or a line that would tell."""


class _Check(NamedTuple):
    name: str
    problem: Callable[[View, Limits], str]


def require_isolation(
    driver: SandboxDriver, image: ResolvedImage, *, hit_limits: bool = True, forwarded_ports: bool = False
) -> None:
    """Look at sandboxes of the strictest kind. Raises :class:`EngineError` (``sandbox-not-isolated``).

    With ``forwarded_ports`` also at one with a forwarded port, and at that: then :class:`EgressError`
    (``egress-unavailable``) as well.

    What a driver says itself that it holds a sandbox to less strictly (``DriverInfo.weaker``) is not held against it.
    Without ``hit_limits`` those that do not show are taken for granted: they have been hit before, in another image.
    """
    info = driver.info()
    found = look(driver.create, image, info.runtime, hit_limits=hit_limits)
    if troubles := [trouble for name, trouble in found.items() if name not in info.weaker]:
        raise _failed("; ".join(troubles))
    if forwarded_ports:
        _require_port(driver, image)


def _require_port(driver: SandboxDriver, image: ResolvedImage) -> None:
    served: list[socket.socket] = []
    spec = SandboxSpec(image=image, user=_USER, forwarded_ports=(ForwardedPort(_FORWARDED_PORT, served.append),))
    try:
        result = _run(driver.create, spec, (*_LOOK[:1], *SOCKET_FILES, *FILES))
        text = result.stdout.decode("utf-8", "replace")
        info = driver.info()
        found = weaknesses(View.parse(text), spec.limits, info.runtime)
        troubles = [trouble for name, trouble in found.items() if name not in info.weaker]
        troubles += port_troubles(text, [os.fstat(listener.fileno()).st_ino for listener in served])
    finally:
        for listener in served:
            listener.close()
    if troubles:
        raise _failed(f"with a way out, {'; '.join(troubles)}")


def port_troubles(text: str, inodes: Sequence[int]) -> list[str]:
    """Return what is wrong with a sandbox with one forwarded port, in which :data:`SOCKET_FILES` are seen so.

    ``inodes`` are the numbers of the listening sockets that were handed out for it: it must have that one, and no more.
    """
    seen = Sockets.parse(text)
    wanted = [(("127.0.0.1", _FORWARDED_PORT), inode) for inode in inodes[:1]]
    troubles = [] if seen.listening == tuple(wanted) else [f"it has these listening sockets: {seen.listening}"]
    troubles += [] if len(inodes) == 1 else [f"{len(inodes)} sockets were handed out for one forwarded port"]
    return troubles + [f"it has {what}" for what in (*seen.others, *seen.routes)]


def look(
    create: Callable[[SandboxSpec], Sandbox], image: ResolvedImage, runtime: str = "", *, hit_limits: bool = True
) -> dict[str, str]:
    """Return what is weaker than asked for in a sandbox of ``image``, by name, with what is wrong there.

    The names are those of :data:`~securebench.sandboxes.enforcement.ENFORCEABLE` but for ``cpu``, which shows in
    nothing, and ``kernel-settings``. ``runtime`` is the name of what runs it.
    Raises :class:`EngineError` (``sandbox-not-isolated``) if it cannot be looked at.
    """
    spec = SandboxSpec(image=image, user=_USER)
    result = _run(create, spec, _LOOK)
    view = View.parse(result.stdout.decode("utf-8", "replace"))
    if not view.status:
        code = result.exit_code
        raise _failed(f"it could not be looked at: {_LOOK[0]} ended with {code} in {image.reference}")
    found = weaknesses(view, spec.limits, runtime)
    hit = _TOO_LITTLE if hit_limits and not view.cgroup else {}
    for name, change in hit.items():
        told = not (runtime == RUNSC and name in _OF_ITS_OWN)
        if told and _stands(create, replace(spec, limits=replace(spec.limits, **change))):
            found[name] = f"the limit of {name} does not bite"
    return found


def weaknesses(view: View, limits: Limits, runtime: str = "") -> dict[str, str]:
    """Return what is wrong with a sandbox with ``limits`` that is seen so, by name."""
    found = {}
    own = runtime == RUNSC
    for name, problem in _CHECKS:
        try:
            trouble = "" if own and name in _OF_ITS_OWN else problem(view, limits)
        except _NotShownError as missing:
            trouble = "" if own and name in _NEED_NOT_SHOW else f"{missing} is not there"
        if trouble:
            found[name] = trouble
    return found


def _run(create: Callable[[SandboxSpec], Sandbox], spec: SandboxSpec, argv: tuple[str, ...]) -> CommandResult:
    with create(spec) as sandbox:
        return sandbox.run(Command(argv=argv, timeout_seconds=_SECONDS))


def _stands(create: Callable[[SandboxSpec], Sandbox], spec: SandboxSpec) -> bool:
    try:
        return _run(create, spec, _STAND).exit_code == 0
    except InfrastructureError:
        return False  # the runtime itself met the limit; sandboxes without it have just been made


def _network(view: View, _limits: Limits) -> str:
    named = ", ".join(view.interfaces) or "not even its own"
    return "" if view.interfaces == ("lo",) else f"it has these network interfaces: {named}"


def _capabilities(view: View, _limits: Limits) -> str:
    _shown(view.status, "CapBnd")
    held = [f"{name} is {value}" for name, value in view.status.items() if name.startswith("Cap") and int(value, 16)]
    return f"capabilities can be had ({held[0]})" if held else ""


def _no_new_privileges(view: View, _limits: Limits) -> str:
    value = _shown(view.status, "NoNewPrivs")
    return "" if value == "1" else f"privileges can be gained (NoNewPrivs is {value})"


def _seccomp(view: View, _limits: Limits) -> str:
    value = _shown(view.status, "Seccomp")
    return "" if value == "2" else f"no seccomp filter is on (Seccomp is {value})"


def _user_namespace(view: View, _limits: Limits) -> str:
    return "its users are those of the host" if _IDENTITY in _users(view) else ""


def _users(view: View) -> tuple[tuple[int, int, int], ...]:
    if not view.uid_map:
        raise _NotShownError("uid_map")
    return view.uid_map


def _file_owners(view: View, _limits: Limits) -> str:
    mapped = sum(count for _, _, count in _users(view))
    return "" if mapped >= _ALL_IDS else f"it has {mapped} users only, so files of images cannot keep their owners"


def _groups(view: View, _limits: Limits) -> str:
    others = set(_shown(view.status, "Groups").split()) - {str(_USER[1])}
    return f"it is in groups of the host: {' '.join(sorted(others))}" if others else ""


def _read_only_root(view: View, _limits: Limits) -> str:
    return "" if "ro" in _shown(view.mounts, "/").options else "the root file system can be written"


def _kernel_settings(view: View, _limits: Limits) -> str:
    if _IDENTITY not in _users(view):
        return ""  # who its root is on the host may write none
    mount = view.mounts.get("/proc/sys")
    return "" if mount is not None and "ro" in mount.options else "settings of the kernel can be written (/proc/sys)"


def _tmpfs(view: View, limits: Limits) -> str:
    mount = _shown(view.mounts, "/tmp")  # noqa: S108 - a path inside the sandbox
    sizes = {f"size={limits.tmpfs}", f"size={limits.tmpfs // 1024}k"}
    return "" if mount.kind == "tmpfs" and sizes & mount.options else "what is written in memory is not limited"


def _rlimits(view: View, limits: Limits) -> str:
    wanted = {"core file size": 0, "file size": limits.file_size, "open files": limits.open_files}
    wrong = [name for name, value in wanted.items() if _shown(view.limits, f"Max {name}") != str(value)]
    return f"these limits are not set: {', '.join(wrong)}" if wrong else ""


def _memory(view: View, limits: Limits) -> str:
    return "" if str(limits.memory) in view.cgroup or not view.cgroup else "memory is not limited"


def _pids(view: View, limits: Limits) -> str:
    return "" if str(limits.pids) in view.cgroup or not view.cgroup else "processes are not limited"


_CHECKS: Final = (
    _Check("network", _network),
    _Check("capabilities", _capabilities),
    _Check("no-new-privileges", _no_new_privileges),
    _Check("seccomp", _seccomp),
    _Check("user-namespace", _user_namespace),
    _Check("file-owners", _file_owners),
    _Check("groups", _groups),
    _Check("read-only-root", _read_only_root),
    _Check("kernel-settings", _kernel_settings),
    _Check("tmpfs", _tmpfs),
    _Check("rlimits", _rlimits),
    _Check("memory", _memory),
    _Check("pids", _pids),
)


def _shown(values: Mapping[str, _T], name: str) -> _T:
    try:
        return values[name]
    except KeyError:
        raise _NotShownError(name) from None


def _failed(why: str) -> EngineError:
    return EngineError(
        f"a sandbox of this machine is not what was asked for: {why}",
        code="sandbox-not-isolated",
        hint="use an engine with its default seccomp profile, and images with /bin/cat",
    )
