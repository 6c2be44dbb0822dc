"""Runtimes and inits: how they are found, their arguments, and warnings about their versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.errors import EngineError
from securebench.sandboxes.oci import runtime
from securebench.sandboxes.oci.runtime import OciRuntime, find_init, find_runtime, record_of

ELF = b"\x7fELF" + bytes(60)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only directory that is searched for programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(runtime, "_DIRECTORIES", ())
    monkeypatch.setattr(runtime, "_INIT_DIRECTORIES", ())
    return tmp_path


def install(directory: Path, name: str, content: bytes = b"") -> Path:
    """Install a program in ``directory``, and return its path. By default, it prints its version."""
    path = directory / name
    path.write_bytes(content or f"#!/bin/sh\necho '{name} version 1.2.3~rc1'\necho commit: x\n".encode())
    path.chmod(0o755)
    return path


def test_crun_is_preferred(programs: Path) -> None:
    """By default, crun is used if it is installed, else runc. gVisor is used only if it is requested."""
    install(programs, "runsc")
    with pytest.raises(EngineError):
        find_runtime()
    install(programs, "runc")
    assert find_runtime().name == "runc"
    crun = install(programs, "crun")
    assert find_runtime() == OciRuntime("crun", str(crun), "1.2.3~rc1", rootless=os.geteuid() != 0)
    assert find_runtime("runsc").name == "runsc"


def test_a_missing_runtime_is_told(programs: Path) -> None:
    """If a runtime is not installed, the error says what to install."""
    with pytest.raises(EngineError, match="not installed") as caught:
        find_runtime("crun")
    assert (caught.value.code, "apt-get install crun" in caught.value.hint) == ("runtime-unavailable", True)


@pytest.mark.parametrize("name", ["sh", "../crun", ""])
def test_an_unsupported_runtime_is_refused_with_the_supported_ones(programs: Path, name: str) -> None:
    """An unsupported runtime is refused with the same error, whether or not a program with its name is installed."""
    install(programs, "sh")
    with pytest.raises(EngineError, match=f"the runtime '{name}' is not supported") as caught:
        find_runtime(name)
    assert (caught.value.code, caught.value.hint) == ("runtime-unavailable", "use one of crun, runc, runsc")


def test_asking_for_a_version_makes_no_file(programs: Path) -> None:
    """L10: crun, which binds itself to a file when it starts, cannot create one when it is asked for its version."""
    install(programs, "crun", b'#!/bin/sh\n/bin/touch "$_LIBCONTAINER_STATEDIR/crun.abcdef" || echo version 1.2.3\n')
    assert find_runtime("crun").version == "1.2.3"


@pytest.mark.parametrize("content", [b"#!/bin/sh\nexit 1\n", b"#!/no/such/shell\n"])
def test_a_broken_runtime_is_an_error(programs: Path, content: bytes) -> None:
    """A runtime that cannot report its version is refused."""
    install(programs, "crun", content)
    with pytest.raises(EngineError, match="cannot read the version"):
        find_runtime("crun")


@pytest.mark.parametrize(
    ("name", "version", "warned"),
    [
        ("runc", "1.1.5+ds1", True),
        ("runc", "1.1.12", False),
        ("runc", "1.2.0-rc.1", False),
        ("crun", "1.8.1", False),
        ("crun", "1.8", False),
        ("crun", "0.17", True),
        ("crun", "", True),
        ("runsc", "0.0~20221219.0", False),
    ],
)
def test_old_versions_are_warned_of(name: str, version: str, *, warned: bool) -> None:
    """I03: there is a warning for a version with known container escapes, and for an unknown version of crun."""
    assert bool(OciRuntime(name, "/x", version).warning) == warned


def test_crun_is_called_without_its_cgroups() -> None:
    """The options of crun disable its use of cgroups, set its log file, and keep it in the foreground."""
    crun = OciRuntime("crun", "/usr/bin/crun", "1.8.1")
    begin = ["/usr/bin/crun", "--cgroup-manager=disabled", "--log-format=json"]
    run = ["--root", "/run/a1/state", "run", "--bundle", "/run/a1/s1", "--pid-file", "/run/a1/s1/pid", "a1-s1"]
    assert crun.run_argv("/run/a1/s1", "/run/a1/state", "s1") == [*begin, "--log=/run/a1/s1/log", *run]
    beside = ["exec", "--process", "/run/a1/s1/p", "--pid-file", "/run/a1/s1/p.pid", "a1-s1"]
    found = crun.exec_argv("/run/a1/s1/p", "/run/a1/state", "s1")
    assert found == [*begin, "--log=/run/a1/s1/p.log", "--root", "/run/a1/state", *beside]


@pytest.mark.parametrize(("name", "option"), [("crun", False), ("runc", True), ("runsc", False)])
def test_runc_leaves_commands(name: str, *, option: bool) -> None:
    """A04: runc is told to exit once a command runs. Otherwise, it would wait for all users of the streams."""
    argv = OciRuntime(name, f"/usr/bin/{name}", "1").exec_argv("/run/a1/s1/p", "/run/a1/state", "s1")
    assert ("--detach" in argv) is option


@pytest.mark.parametrize(("name", "option"), [("crun", True), ("runc", True), ("runsc", False)])
def test_containers_are_left_to_the_supervisor(name: str, *, option: bool) -> None:
    """The supervisor waits for the first process itself, to see whether it was killed. With gVisor, it cannot."""
    runtime = OciRuntime(name, f"/usr/bin/{name}", "1")
    argv = runtime.run_argv("/run/a1/s1", "/run/a1/state", "s1", detached=runtime.detaches_containers)
    assert ("--detach" in argv) is runtime.detaches_containers is runtime.can_run_unreadable is option
    assert argv[-1] == Path(record_of("/run/a1/state", "s1")).name == "a1-s1"


def test_gvisor_has_no_network_and_filters() -> None:
    """J03: gVisor is started without a network, and is told to use the seccomp filter."""
    argv = OciRuntime("runsc", "/usr/bin/runsc", "0").run_argv("/run/a1/s1", "/run/a1/state", "s1")
    assert {"--network=none", "--ignore-cgroups", "--oci-seccomp"} <= set(argv)


@pytest.mark.parametrize(("name", "forwarded_ports", "enters"), [("crun", 1, 1), ("runc", 1, 0), ("runsc", 0, 1)])
def test_each_has_its_own_way_into_a_network(name: str, forwarded_ports: int, enters: int) -> None:
    """GVisor has no forwarded ports. runc is started in the network namespace, which it cannot enter for ``exec``."""
    runtime = OciRuntime(name, f"/usr/bin/{name}", "1")
    assert (runtime.has_forwarded_ports, runtime.enters_networks) == (bool(forwarded_ports), bool(enters))


@pytest.mark.parametrize(("name", "option"), [("crun", False), ("runc", False), ("runsc", True)])
def test_gvisor_writes_through_what_is_collected(name: str, *, option: bool) -> None:
    """If changes are collected, gVisor is told to write them to the root file system and not to its own overlay."""
    runtime = OciRuntime(name, f"/usr/bin/{name}", "1")
    assert "--overlay2=none" not in runtime.run_argv("/run/b", "/run/x/state", "s1")
    argv = runtime.run_argv("/run/b", "/run/x/state", "s1", collects=True)
    assert ("--overlay2=none" in argv[: argv.index("run")]) == option


def test_ids_are_those_of_a_driver() -> None:
    """Sandboxes of two drivers never have the same id, because gVisor uses it in the name of a host-wide socket."""
    runsc = OciRuntime("runsc", "/usr/bin/runsc", "0")
    ids = {runsc.run_argv("/b", f"/run/{token}/state", "s1")[-1] for token in ("one", "two")}
    assert ids == {"one-s1", "two-s1"}


@pytest.mark.parametrize(
    ("name", "compiled", "owns", "locks", "root_id", "pids"),
    [
        ("crun", True, False, True, False, False),
        ("runc", False, True, True, True, False),
        ("runsc", False, False, False, True, True),
    ],
)
def test_runtimes_differ(*, name: str, compiled: bool, owns: bool, locks: bool, root_id: bool, pids: bool) -> None:
    """Each runtime has its own answers to these questions.

    Does it take a compiled seccomp filter? Does it create cgroups (no runtime of an ordinary user does)? Can the root
    file system be mounted nosuid and nodev? Must id 0 be mapped? Does it need processes of its own?
    """
    found = OciRuntime(name, "/x", "1")
    answers = (found.uses_compiled_seccomp, found.owns_cgroups, found.locks_root, found.needs_root_id)
    assert (*answers, bool(found.extra_pids)) == (compiled, owns, locks, root_id, pids)
    assert not OciRuntime(name, "/x", "1", rootless=True).owns_cgroups


def test_an_init_is_one_that_needs_no_loader(programs: Path) -> None:
    """An init that is dynamically linked, or is not an ELF program, is skipped, because images may have no loader."""
    install(programs, "tini", ELF + b"/lib64/ld-linux-x86-64.so.2\0")
    install(programs, "docker-init", b"#!/bin/sh\n")
    with pytest.raises(EngineError) as caught:
        find_init()
    assert (caught.value.code, "apt-get install tini" in caught.value.hint) == ("runtime-unavailable", True)
    catatonit = install(programs, "catatonit", ELF)
    assert find_init() == catatonit
    tini = install(programs, "tini-static", ELF)
    assert find_init() == tini


def test_a_link_is_followed_once(programs: Path) -> None:
    """A runtime is called by its real path, so that a later change of the link has no effect."""
    real = install(programs, "crun-1.20")
    (programs / "crun").symlink_to(real.name)
    assert find_runtime().path == str(real)
