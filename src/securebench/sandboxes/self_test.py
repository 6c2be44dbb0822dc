"""The self-test of a driver: check from inside a sandbox that it is isolated, before anything hostile runs in one.

A specification is only a request. Some engines, because of their version or configuration, could ignore parts of it
without an error. So the first sandbox of a run reads what the kernel reports about it. The test fails closed: a
restriction counts as not enforced if the files that show it are missing, with a few exceptions for gVisor.

The image needs only ``/bin/cat``, which prints those of :data:`FILES` that exist, one after the other. If a sandbox
cannot see its cgroups, the process and memory limits are tested with other sandboxes instead. A sandbox with a limit of
one process, or with almost no memory, must fail to run.

A forwarded port is identified by the inode of its socket, which is the same inside and outside the sandbox. The
sandbox's network namespace must not have any other socket or route.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from securebench.errors import EngineError, InfrastructureError
from securebench.sandboxes.base import Command, ForwardedPort, Limits, SandboxSpec
from securebench.sandboxes.spec_rules import RUNSC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult, Sandbox, SandboxDriver

FILES: Final = (
    *("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"),
    *("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"),
    *("/proc/net/dev", "/proc/self/uid_map", "/proc/mounts", "/proc/self/limits", "/proc/self/status"),
)

SOCKET_FILES: Final = tuple(
    f"/proc/net/{name}" for name in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet", "unix", "route")
)
"""Files that list the sockets and routes of a network namespace. Without IPv6, the IPv6 files do not exist."""

_NUMBER: Final = re.compile(r"\d+|max")
_INTERFACE: Final = re.compile(r"\s*(\S+):(?:\s*\d+){8,}\s*")
_RANGE: Final = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s*")
_MOUNT: Final = re.compile(r"\S+ (\S+) (\S+) (\S+) \d+ \d+")
_LIMIT: Final = re.compile(r"(Max .+?)\s{2,}(\S+)\s+(\S+)(\s+\S+)?\s*")
_SOCKET: Final = re.compile(r"\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]{4} .*")
_LISTENING: Final = re.compile(r"\s*\d+: ([0-9A-F]{8}):([0-9A-F]{4}) 0{8}:0{4} 0A \S+ \S+ \S+\s+\d+\s+\d+ (\d+)( .*)?")
_ADDRESSLESS: Final = re.compile(r"[0-9a-f]{16}:? .*")
_ROUTE: Final = re.compile(r"[^\s:]+(\s+[0-9A-F]{8}){2}\s.*")
_FIELD: Final = re.compile(r"([A-Za-z_]+):\s*(.*?)\s*")

_T = TypeVar("_T")

_USER: Final = (65533, 65533)
"""The uid and gid in test sandboxes.

They are not those of ``nobody``, because the kernel shows an unmapped group with the gid of ``nobody``."""

_INSPECT: Final = ("/bin/cat", *FILES)
_DO_NOTHING: Final = ("/bin/cat", "/dev/null")
_SECONDS: Final = 60.0
_FORWARDED_PORT: Final = 3128
_ALL_IDS: Final = 65536
_IDENTITY: Final = (0, 0, 2**32 - 1)
_TOO_LITTLE: Final[Mapping[str, dict[str, int]]] = {"pids": {"pids": 1}, "memory": {"memory": 64 * 1024}}
"""Limits under which no command can run: the sandbox's init is already one process, and no process fits into 64 KiB."""

_HIDDEN_BY_GVISOR: Final = frozenset({"user-namespace", "file-owners", "kernel-settings", "pids"})
"""Checks that are skipped in gVisor.

gVisor's kernel, the sentry, shows its own users, not those of the host, and its threads count towards the process
limit. The memory limit is checked, which shows that the sentry is in the cgroups of its sandbox."""

_OPTIONAL_ON_GVISOR: Final = frozenset({"no-new-privileges", "rlimits"})
"""Checks that pass in gVisor if the files that they read are missing.

No program in gVisor can gain privileges, and not all versions of gVisor show the resource limits of a process."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mounted file system: its type and its options (such as ``size=4k`` or ``ro``)."""

    kind: str
    options: frozenset[str]


@dataclass(frozen=True, slots=True)
class View:
    """A sandbox as one of its processes sees it.

    ``cgroup`` has the values of the memory and process limits, if cgroups are visible. ``uid_map`` has (inside,
    outside, count) for each range. ``mounts`` has the topmost mount at each target. ``limits`` has the hard limits by
    the kernel's names. ``status`` has the fields of the process's own ``/proc/self/status``.
    """

    cgroup: tuple[str, ...]
    interfaces: tuple[str, ...]
    uid_map: tuple[tuple[int, int, int], ...]
    mounts: Mapping[str, Mounted]
    limits: Mapping[str, str]
    status: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> View:
        """Parse ``text``, the concatenated :data:`FILES`. Unknown lines are ignored."""
        before, _, status = text.partition("Name:")
        lines = before.splitlines()
        return cls(
            cgroup=tuple(line for line in lines if _NUMBER.fullmatch(line)),
            interfaces=tuple(found[1] for found in map(_INTERFACE.fullmatch, lines) if found),
            uid_map=tuple((int(f[1]), int(f[2]), int(f[3])) for f in map(_RANGE.fullmatch, lines) if f),
            mounts={f[1]: Mounted(f[2], frozenset(f[3].split(","))) for f in map(_MOUNT.fullmatch, lines) if f},
            limits={found[1]: found[3] for found in map(_LIMIT.fullmatch, lines) if found},
            status={found[1]: found[2] for found in map(_FIELD.fullmatch, status.splitlines()) if found},
        )


@dataclass(frozen=True, slots=True)
class Sockets:
    """The sockets and routes of a network namespace.

    ``listening`` has ((address, port), inode) for each listening TCP socket on IPv4. ``others`` has the kernel's lines
    for all other sockets of any type, and ``routes`` those for all routes.
    """

    listening: tuple[tuple[tuple[str, int], int], ...]
    others: tuple[str, ...]
    routes: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Sockets:
        """Parse ``text``, the concatenated :data:`SOCKET_FILES`."""
        lines = text.splitlines()
        listening = {line: match for line in lines if (match := _LISTENING.fullmatch(line))}
        sockets = [line for line in lines if _SOCKET.fullmatch(line) or _ADDRESSLESS.fullmatch(line)]
        return cls(
            listening=tuple(map(_listening, listening.values())),
            others=tuple(line.strip() for line in sockets if line not in listening),
            routes=tuple(line.strip() for line in lines if _ROUTE.fullmatch(line)),
        )


def _listening(match: re.Match[str]) -> tuple[tuple[str, int], int]:
    address = socket.inet_ntoa(int(match[1], 16).to_bytes(4, sys.byteorder))
    return (address, int(match[2], 16)), int(match[3])


class _NotShownError(Exception):
    """A file or line that a check needs is not visible in the sandbox."""


class _Check(NamedTuple):
    name: str
    find_problem: Callable[[View, Limits], str]


def require_isolation(
    driver: SandboxDriver, image: ResolvedImage, *, hit_limits: bool = True, forwarded_ports: bool = False
) -> None:
    """Check a sandbox with the strictest settings. Raises :class:`EngineError` (``sandbox-not-isolated``).

    With ``forwarded_ports``, also check a sandbox with a forwarded port. This can raise :class:`EgressError`
    (``egress-unavailable``).

    Restrictions that the driver reports as not enforced (``DriverInfo.weaker``) are not required. If the memory and
    process limits are not visible, they are checked only with ``hit_limits``. Pass ``False`` if a check with another
    image has already tested them.
    """
    info = driver.info()
    found = inspect_sandbox(driver.create, image, info.runtime, hit_limits=hit_limits)
    if problems := [problem for name, problem in found.items() if name not in info.weaker]:
        raise _failed("; ".join(problems))
    if forwarded_ports:
        _require_port(driver, image)


def _require_port(driver: SandboxDriver, image: ResolvedImage) -> None:
    served: list[socket.socket] = []
    spec = SandboxSpec(image=image, user=_USER, forwarded_ports=(ForwardedPort(_FORWARDED_PORT, served.append),))
    try:
        result = _run(driver.create, spec, (*_INSPECT[:1], *SOCKET_FILES, *FILES))
        text = result.stdout.decode("utf-8", "replace")
        info = driver.info()
        found = weaknesses(View.parse(text), spec.limits, info.runtime)
        problems = [problem for name, problem in found.items() if name not in info.weaker]
        problems += port_problems(text, [os.fstat(listener.fileno()).st_ino for listener in served])
    finally:
        for listener in served:
            listener.close()
    if problems:
        raise _failed(f"with a forwarded port, {'; '.join(problems)}")


def port_problems(text: str, inodes: Sequence[int]) -> list[str]:
    """Return the problems of a sandbox with one forwarded port, from the text of its :data:`SOCKET_FILES`.

    ``inodes`` are those of the listening sockets that the driver opened. The driver must have opened exactly one
    socket. The sandbox must have this socket, no other socket and no route.
    """
    seen = Sockets.parse(text)
    expected = [(("127.0.0.1", _FORWARDED_PORT), inode) for inode in inodes[:1]]
    problems = [] if seen.listening == tuple(expected) else [f"it has the wrong listening sockets: {seen.listening}"]
    problems += [] if len(inodes) == 1 else [f"{len(inodes)} sockets were opened for one forwarded port"]
    return problems + [f"the sandbox has another socket or a route: {line}" for line in (*seen.others, *seen.routes)]


def inspect_sandbox(
    create: Callable[[SandboxSpec], Sandbox], image: ResolvedImage, runtime: str = "", *, hit_limits: bool = True
) -> dict[str, str]:
    """Check a sandbox of ``image`` from inside. Return a description of each problem, keyed by the restriction's name.

    The names are those of :data:`~securebench.sandboxes.enforcement.ENFORCEABLE`, without ``cpu``, which is not
    visible, and with ``kernel-settings`` added. ``runtime`` is the name of the runtime.

    Raises :class:`EngineError` (``sandbox-not-isolated``) if the sandbox cannot be inspected.
    """
    spec = SandboxSpec(image=image, user=_USER)
    result = _run(create, spec, _INSPECT)
    view = View.parse(result.stdout.decode("utf-8", "replace"))
    if not view.status:
        code = result.exit_code
        raise _failed(f"it could not be inspected: {_INSPECT[0]} exited with code {code} in {image.reference}")
    found = weaknesses(view, spec.limits, runtime)
    hit = _TOO_LITTLE if hit_limits and not view.cgroup else {}
    names = [name for name in hit if not (runtime == RUNSC and name in _HIDDEN_BY_GVISOR)]
    specs = [replace(spec, limits=replace(spec.limits, **hit[name])) for name in names]
    with ThreadPoolExecutor(len(_TOO_LITTLE)) as pool:  # in parallel, because a run waits for this
        for name, ran in zip(names, pool.map(partial(_runs, create), specs), strict=True):
            if ran:
                found[name] = f"the {name} limit is not enforced"
    return found


def weaknesses(view: View, limits: Limits, runtime: str = "") -> dict[str, str]:
    """Compare a sandbox's ``view`` with its ``limits``. Return the problems, keyed by the restriction's name."""
    found = {}
    gvisor = runtime == RUNSC
    for name, check in _CHECKS:
        try:
            problem = "" if gvisor and name in _HIDDEN_BY_GVISOR else check(view, limits)
        except _NotShownError as missing:
            problem = (
                "" if gvisor and name in _OPTIONAL_ON_GVISOR else f"{name} cannot be checked: {missing} is missing"
            )
        if problem:
            found[name] = problem
    return found


def _run(create: Callable[[SandboxSpec], Sandbox], spec: SandboxSpec, argv: tuple[str, ...]) -> CommandResult:
    with create(spec) as sandbox:
        return sandbox.run(Command(argv=argv, timeout_seconds=_SECONDS))


def _runs(create: Callable[[SandboxSpec], Sandbox], spec: SandboxSpec) -> bool:
    try:
        return _run(create, spec, _DO_NOTHING).exit_code == 0
    except InfrastructureError:
        return False  # a sandbox without this limit has just worked, so the limit stopped the runtime


def _network(view: View, _limits: Limits) -> str:
    names = ", ".join(view.interfaces) or "none, not even loopback"
    return "" if view.interfaces == ("lo",) else f"it has these network interfaces: {names}"


def _capabilities(view: View, _limits: Limits) -> str:
    _shown(view.status, "CapBnd")
    sets = [f"{name} is {value}" for name, value in view.status.items() if name.startswith("Cap") and int(value, 16)]
    return f"it has capabilities ({sets[0]})" if sets else ""


def _no_new_privileges(view: View, _limits: Limits) -> str:
    value = _shown(view.status, "NoNewPrivs")
    return "" if value == "1" else f"privileges can be gained (NoNewPrivs is {value})"


def _seccomp(view: View, _limits: Limits) -> str:
    value = _shown(view.status, "Seccomp")
    return "" if value == "2" else f"no seccomp filter is active (Seccomp is {value})"


def _user_namespace(view: View, _limits: Limits) -> str:
    return "it has no user namespace: its users are the same as those of the host" if _IDENTITY in _users(view) else ""


def _users(view: View) -> tuple[tuple[int, int, int], ...]:
    if not view.uid_map:
        raise _NotShownError("uid_map")
    return view.uid_map


def _file_owners(view: View, _limits: Limits) -> str:
    mapped = sum(count for _, _, count in _users(view))
    return "" if mapped >= _ALL_IDS else f"it has only {mapped} user ids, too few for the owners of image files"


def _groups(view: View, _limits: Limits) -> str:
    others = set(_shown(view.status, "Groups").split()) - {str(_USER[1])}
    return f"its processes are in supplementary groups of the host: {' '.join(sorted(others))}" if others else ""


def _read_only_root(view: View, _limits: Limits) -> str:
    return "" if "ro" in _shown(view.mounts, "/").options else "the root file system is writable"


def _kernel_settings(view: View, _limits: Limits) -> str:
    if _IDENTITY not in _users(view):
        return ""  # the sandbox's root is an ordinary user on the host: it cannot change them
    mount = view.mounts.get("/proc/sys")
    return "" if mount is not None and "ro" in mount.options else "kernel settings are writable (/proc/sys)"


def _tmpfs(view: View, limits: Limits) -> str:
    mount = _shown(view.mounts, "/tmp")  # noqa: S108 - a path inside the sandbox
    sizes = {f"size={limits.tmpfs}", f"size={limits.tmpfs // 1024}k"}
    return "" if mount.kind == "tmpfs" and sizes & mount.options else "the size of /tmp is not limited"


def _rlimits(view: View, limits: Limits) -> str:
    expected = {"core file size": 0, "file size": limits.file_size, "open files": limits.open_files}
    wrong = [name for name, value in expected.items() if _shown(view.limits, f"Max {name}") != str(value)]
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
        f"a test sandbox on this machine was not isolated as required: {why}",
        code="sandbox-not-isolated",
        hint="run 'securebench doctor'; an engine needs its default seccomp profile, and the image needs /bin/cat",
    )
