"""The seccomp filter: its results, its two equivalent forms, its cache, and a comparison with Docker's profile."""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seccomp_filters import ALLOW, I386, X32_BIT, X86_64, Filter, filter_of, outcome_under, system_call
from securebench.errors import EngineError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.docker import spec as docker_spec
from securebench.sandboxes.oci import libseccomp, seccomp
from securebench.sandboxes.oci.libseccomp import Library
from securebench.sandboxes.oci.seccomp import cache_directory, seccomp_for
from securebench.sandboxes.seccomp_profile import NAMES_OF_GVISOR, profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.docker.driver import DockerDriver

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86-64")

IMAGE = ResolvedImage(reference="tool:1", id="sha256:" + "a" * 64)
SPEC = SandboxSpec(image=IMAGE)
NUMBERS = range(512)
IO_URING = {425: "io_uring_setup", 426: "io_uring_enter", 427: "io_uring_register"}

REFUSED = {
    number: name
    for names in (
        {165: "mount", 166: "umount2", 155: "pivot_root", 161: "chroot", 272: "unshare", 308: "setns"},
        {428: "open_tree", 429: "move_mount", 430: "fsopen", 432: "fsmount", 442: "mount_setattr"},
        {175: "init_module", 313: "finit_module", 176: "delete_module", 246: "kexec_load", 320: "kexec_file_load"},
        {321: "bpf", 298: "perf_event_open", 323: "userfaultfd", 250: "keyctl", 248: "add_key", 249: "request_key"},
        {303: "name_to_handle_at", 304: "open_by_handle_at", 300: "fanotify_init", 212: "lookup_dcookie"},
        {169: "reboot", 167: "swapon", 163: "acct", 164: "settimeofday", 227: "clock_settime", 170: "sethostname"},
        {172: "iopl", 173: "ioperm", 103: "syslog", 153: "vhangup", 279: "move_pages", 237: "mbind", 312: "kcmp"},
        {310: "process_vm_readv", 311: "process_vm_writev", 440: "process_madvise", 438: "pidfd_getfd"},
        {134: "uselib", 136: "ustat", 139: "sysfs", 180: "nfsservctl", 179: "quotactl", 443: "quotactl_fd"},
        IO_URING,
    )
    for number, name in names.items()
}
PRLIMIT64 = 302
OLD_AIO = {*range(206, 211), 333}
"""``io_setup`` and the calls that need its result."""
OF_NEWER_ENGINES = {303, 310, 311, 329, 330, 331}
"""Calls that Docker's profile has added after 20.10: file handles, other processes' memory, memory protection keys."""
CLONE, CLONE3, SOCKET, PERSONALITY, MSEAL, CHROOT, UNSHARE = 56, 435, 41, 135, 462, 161, 272
CLONE_OF_THREADS = 0x3D0F00
CLONE_NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)


@pytest.fixture(scope="module")
def ours() -> Filter:
    """Return the filter of a sandbox with default settings."""
    return Filter(seccomp_for(SPEC).bpf)


@pytest.mark.parametrize("number", REFUSED, ids=REFUSED.get)
def test_what_reaches_the_host_is_refused(ours: Filter, number: int) -> None:
    """I18: calls for mounts, namespaces, modules, keyrings, tracing, io_uring and the like fail with ``EPERM``."""
    assert ours.answer(number) == "EPERM"


def test_what_programs_need_is_allowed(ours: Filter) -> None:
    """Reading, writing, memory, threads, programs, sockets and waiting are allowed."""
    for number in (0, 1, 2, 3, 9, 12, 39, 42, 56, 57, 59, 60, 61, 62, 202, 231, 257, 302, 318, 332, 334, 439):
        assert ours.answer(number) == ALLOW, number


def test_a_process_has_no_namespaces_of_its_own(ours: Filter) -> None:
    """I18: clone is allowed for threads, but refused with any namespace flag. clone3 fails with ``ENOSYS``."""
    assert ours.answer(CLONE, CLONE_OF_THREADS) == ALLOW
    assert {ours.answer(CLONE, flag | 17) for flag in CLONE_NAMESPACES} == {"EPERM"}
    assert ours.answer(CLONE3) == "ENOSYS"


def test_machines_cannot_be_called(ours: Filter) -> None:
    """Socket families are allowed only if network namespaces separate them.

    vsock is refused, whatever the upper 32 bits of the argument are.
    """
    assert ours.answer(SOCKET, socket.AF_UNIX) == ours.answer(SOCKET, socket.AF_INET) == ALLOW
    assert {family for family in range(64) if ours.answer(SOCKET, family) == ALLOW} == {1, 2, 10, 16, 17}
    for number, architecture in ((SOCKET, X86_64), (359, I386), (SOCKET | X32_BIT, X86_64)):
        highs = (0, 1, 1 << 31, 0xFFFFFFFF) if architecture == X86_64 else (0,)
        assert {ours.answer(number, high << 32 | 40, architecture=architecture) for high in highs} == {"EPERM"}
        assert ours.answer(number, 0xFFFFFFFF << 32 | socket.AF_UNIX, architecture=architecture) == ALLOW


def test_personalities_are_few(ours: Filter) -> None:
    """Personalities that weaken memory protection (ADDR_NO_RANDOMIZE and READ_IMPLIES_EXEC) are refused."""
    assert {ours.answer(PERSONALITY, value) for value in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)} == {ALLOW}
    assert {ours.answer(PERSONALITY, value) for value in (0x0040000, 0x0400000, 0x0040008)} == {"EPERM"}


def test_nobody_limits_the_first_process(ours: Filter) -> None:
    """``prlimit64`` is refused for process 1, whatever the upper 32 bits of the pid are. The kernel ignores these bits.

    Otherwise a sandbox could limit the CPU time of process 1, and the kernel would kill that process.
    """
    for number, architecture in ((PRLIMIT64, X86_64), (340, I386), (PRLIMIT64 | X32_BIT, X86_64)):
        others = {ours.answer(number, pid, architecture=architecture) for pid in (0, 2, 3, 1 << 21, (1 << 22) - 1)}
        assert others == {ALLOW}
        garbage = {ours.answer(number, high << 32 | 1, architecture=architecture) for high in (0, 1, 0xFFFFFFFF)}
        assert garbage == {"EPERM"}
        assert ours.answer(number, 0xFFFFFFFF << 32, architecture=architecture) == ALLOW  # 0: the caller itself


def test_what_is_newer_is_unknown(ours: Filter) -> None:
    """Unused numbers and system calls that are newer than all listed ones fail with ``ENOSYS``.

    Programs then fall back to older calls.
    """
    assert {ours.answer(number) for number in (MSEAL, 500, 1023, 0x3FFFFFFF, 0xFFFFFFFF)} == {"ENOSYS"}
    assert ours.answer(500, architecture=I386) == "ENOSYS"
    assert ours.answer(X32_BIT + 1000) == "ENOSYS"


def test_other_kinds_of_programs_are_held_to_the_same(ours: Filter) -> None:
    """I18: 32-bit and x32 programs are filtered by the same list. Programs of unknown architectures are killed."""
    assert (ours.answer(4, architecture=I386), ours.answer(X32_BIT + 1)) == (ALLOW, ALLOW)  # write
    assert (ours.answer(21, architecture=I386), ours.answer(X32_BIT + 165)) == ("EPERM", "EPERM")  # mount
    assert {ours.answer(102, call, architecture=I386) for call in range(32)} == {
        "ENOSYS"
    }  # socketcall, whose address family a filter cannot see
    assert ours.answer(310, architecture=I386) == "EPERM"  # unshare
    assert ours.answer(120, CLONE_NAMESPACES[0], architecture=I386) == "EPERM"  # clone
    assert ours.answer(1, architecture=0xDEAD) == "kill"


def test_a_capability_brings_its_call() -> None:
    """With the capability SYS_CHROOT, the call chroot is allowed in addition, and no other call."""
    given = Filter(seccomp_for(SandboxSpec(image=IMAGE, cap_add=("SYS_CHROOT",))).bpf)
    without = Filter(seccomp_for(SPEC).bpf)
    assert {number for number in NUMBERS if given.answer(number) != without.answer(number)} == {CHROOT}
    assert given.answer(CHROOT) == ALLOW


def test_every_name_is_a_system_call() -> None:
    """No name in the profile is misspelt or repeated by mistake. Only gVisor's own names are unknown to libseccomp."""
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name
    for machine in ("x86_64", "aarch64"):
        names = [name for rule in profile(machine)["syscalls"] for name in rule["names"]]
        assert [name for name in names if resolve(name.encode()) == -1] == list(NAMES_OF_GVISOR)
        repeated = sum(names.count(name) - 1 for name in ("personality", "prlimit64", "socket"))
        assert len(names) == len(set(names)) + repeated > 300


def test_a_kernel_obeys_it(ours: Filter) -> None:
    """A process under the filter can open files and sockets, and gets the filter's errors for refused calls."""
    assert outcome_under(ours, lambda: os.close(os.open("/etc/hostname", os.O_RDONLY))) == "ok"
    assert outcome_under(ours, lambda: system_call(UNSHARE, 0)) == "EPERM"
    assert outcome_under(ours, lambda: system_call(CLONE3, 0, 0)) == "ENOSYS"
    assert outcome_under(ours, lambda: system_call(MSEAL, 0, 0, 0)) == "ENOSYS"
    assert outcome_under(ours, lambda: system_call(SOCKET, 40, 1, 0)) == "EPERM"
    assert outcome_under(ours, lambda: socket.socket(socket.AF_UNIX).close()) == "ok"


@pytest.mark.every_driver
def test_programs_can_wait(driver: SandboxDriver, base_image: ResolvedImage) -> None:
    """Programs can wait for files and signals in a real sandbox.

    This also works with a runtime that has other names for the system calls.
    """
    code = (
        "import select as s; s.select([], [], [], 0.001); s.poll().poll(1); s.epoll().poll(0.001); "
        "import signal; signal.sigtimedwait([signal.SIGUSR1], 0.001); print('waited')"
    )
    with driver.create(SandboxSpec(image=base_image)) as sandbox:
        result = sandbox.run(Command(argv=("python3", "-I", "-c", code), timeout_seconds=60))
    assert (result.stdout, result.stderr) == (b"waited\n", b"")


@pytest.fixture
def runc_driver() -> Iterator[SandboxDriver]:
    """Yield an oci driver with runc, which compiles the profile itself."""
    from securebench.sandboxes.oci import OciDriver

    try:
        driver = OciDriver(runtime="runc")
    except EngineError as error:
        pytest.skip(str(error))
    with closing(driver):
        yield driver


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may see the filter of a process")


@root_only
@pytest.mark.oci
def test_both_forms_are_one_filter(ours: Filter, runc_driver: SandboxDriver) -> None:
    """The filter that runc compiles from the profile gives the same results as ours, on each architecture."""
    theirs = _filter_in(runc_driver)
    for number in range(1024):
        for call, architecture in ((number, X86_64), (number, I386), (number | X32_BIT, X86_64)):
            for arguments in ((0,), (1,), (40,), (0x10000000,), (8,)):
                expected = ours.answer(call, *arguments, architecture=architecture)
                found = theirs.answer(call, *arguments, architecture=architecture)
                assert found == expected, (number, hex(architecture), arguments)


@root_only
@pytest.mark.engine
def test_docker_is_given_the_same(ours: Filter, docker_driver: DockerDriver) -> None:
    """I18: a Docker container has our filter and not the engine's default filter, on each architecture."""
    theirs = _filter_in(docker_driver)
    for number in NUMBERS:
        for call, architecture in ((number, X86_64), (number, I386), (number | X32_BIT, X86_64)):
            allowed = {found.answer(call, 1, architecture=architecture) == ALLOW for found in (ours, theirs)}
            assert len(allowed) == 1, (number, hex(architecture))


@root_only
@pytest.mark.engine
def test_docker_refuses_nothing_that_is_allowed(
    ours: Filter, docker_driver: DockerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I18: Docker's default filter without capabilities refuses no call that our filter allows.

    Of the calls below number 450, it allows only these in addition: ``io_uring`` and its predecessor, limits of
    process 1, more socket families, and some calls that only newer engines allow.
    """
    monkeypatch.setattr(docker_spec, "_seccomp", lambda _capabilities, **_: ())
    dockers = _filter_in(docker_driver)
    for arguments in ((0,), (1,), (0x10000000,), (0x20000,), (0x40000,)):
        allowed = {number for number in NUMBERS if ours.answer(number, *arguments) == ALLOW}
        by_docker = {number for number in NUMBERS if dockers.answer(number, *arguments) == ALLOW}
        assert allowed - by_docker == set()
        only_docker = {number for number in by_docker - allowed if number < 450}
        assert only_docker <= set(IO_URING) | OLD_AIO | OF_NEWER_ENGINES | {PRLIMIT64, SOCKET}
        assert (PRLIMIT64 in only_docker) is (arguments in {(1,), (0x10000000,)})  # no pid is as high as 0x10000000


def _filter_in(driver: SandboxDriver) -> Filter:
    """Return the filter of a process in a sandbox of ``driver``, read from outside the sandbox."""
    seconds = f"{60 + int.from_bytes(os.urandom(4), 'big') / 2**32:.12f}"
    image = driver.resolve_image("securebench/python:3.11")
    with driver.create(SandboxSpec(image=image)) as sandbox:
        process = sandbox.open(Command(argv=("/bin/sh", "-c", f"echo up; exec sleep {seconds}"), timeout_seconds=60))
        assert process.receive(60) is not None
        wanted = f"sleep\0{seconds}\0".encode()
        pid = None
        while pid is None:
            pid = next((int(path.name) for path in Path("/proc").glob("[0-9]*") if _command_line(path) == wanted), None)
        return filter_of(pid)


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def fresh() -> Iterator[None]:
    """Clear this process's own cache of compiled filters before and after the test."""
    seccomp._seccomp.cache_clear()
    yield
    seccomp._seccomp.cache_clear()


@pytest.fixture
def compiled(fresh: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each compilation."""
    seen: list[str] = []
    compile_ = Library.compile

    def count(self: Library, document: dict[str, object]) -> bytes:
        seen.append("compiled")
        return compile_(self, document)

    monkeypatch.setattr(Library, "compile", count)
    return seen


def again(directory: Path) -> bytes:
    """Return the filter as another process would get it: without this process's own cache."""
    seccomp._seccomp.cache_clear()
    return seccomp_for(SPEC, directory).bpf


def test_it_is_compiled_once(tmp_path: Path, compiled: list[str]) -> None:
    """A second process uses the filter that the first has cached, in a directory that only the user can access."""
    directory = tmp_path / "a" / "cache"
    assert again(directory) == again(directory) == seccomp_for(SPEC, directory).bpf
    assert compiled == ["compiled"]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert len(list(directory.iterdir())) == 1


def test_what_was_kept_is_not_trusted_blindly(tmp_path: Path, compiled: list[str]) -> None:
    """A cached filter that is cut short, changed, empty, a link or writable for others is compiled again."""
    whole = again(tmp_path)
    (kept,) = tmp_path.iterdir()
    content = kept.read_bytes()
    allow_all = b"\x06\x00\x00\x00\x00\x00\xff\x7f"
    for number, bad in enumerate((content[:-8], content[:32] + allow_all, b"", content[:32]), 2):
        kept.write_bytes(bad)
        assert again(tmp_path) == whole
        assert len(compiled) == number
        assert kept.read_bytes() == content
    elsewhere = tmp_path.parent / "elsewhere"
    elsewhere.write_bytes(content)
    kept.unlink()
    kept.symlink_to(elsewhere)
    assert again(tmp_path) == whole
    assert len(compiled) == 6
    kept.chmod(0o666)
    assert again(tmp_path) == whole
    assert len(compiled) == 7


def test_a_directory_of_others_is_not_used(tmp_path: Path, compiled: list[str]) -> None:
    """In a directory to which others can write, no filter is cached, and none is read. It is compiled each time."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert again(shared) == again(shared)
    assert len(compiled) == 2
    assert list(shared.iterdir()) == []
    own = tmp_path / "own"
    whole = again(own)
    (kept,) = own.iterdir()
    other = b"\x06\x00\x00\x00\x00\x00\xff\x7f"
    planted = hashlib.sha256(other).digest() + other
    kept.write_bytes(planted)
    assert again(own) == other, "what is planted is a valid file of the cache"
    (shared / kept.name).write_bytes(planted)
    assert again(shared) == whole
    assert len(compiled) == 4


def test_a_cache_that_cannot_be_made_costs_time_only(tmp_path: Path, compiled: list[str]) -> None:
    """If the cache directory cannot be created, the filter is compiled without it."""
    (tmp_path / "file").touch()
    assert again(tmp_path / "file" / "cache") == again(tmp_path)


def test_an_ordinary_user_has_a_cache_of_his_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user's cache is in ``XDG_CACHE_HOME`` or, if that is a relative path, in ``~/.cache``."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_directory() == Path("/caches/securebench/seccomp")
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_directory() == Path("/home/somebody/.cache/securebench/seccomp")


def test_an_unknown_machine_is_refused(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine type without a profile, there is an error that suggests the docker driver."""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "x", "6", "1", "riscv64")))
    with pytest.raises(EngineError, match="riscv64") as caught:
        seccomp_for(SPEC, tmp_path)
    assert (caught.value.code, caught.value.hint) == ("seccomp-unavailable", "use the docker driver")


def test_a_missing_library_is_told(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If libseccomp is missing, the error says what to install."""
    monkeypatch.setattr(libseccomp, "_NAME", "libnothing.so.9")
    with pytest.raises(EngineError, match="libnothing") as caught:
        seccomp_for(SPEC, tmp_path)
    assert "apt-get install libseccomp2" in caught.value.hint


def test_what_the_library_refuses_is_told(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If libseccomp refuses a rule, there is an error. The rule is not left out."""
    document = profile("x86_64")
    document["syscalls"].append({"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [_beyond_the_last()]})
    with pytest.raises(EngineError, match="the rule for read"):
        Library().compile(document)


def _beyond_the_last() -> dict[str, object]:
    return {"index": 6, "op": "SCMP_CMP_EQ", "value": 0, "valueTwo": 0}
