"""The OCI configuration, compared with an expected document in all fields, and with Docker's configuration in many."""

from __future__ import annotations

import base64
import json
import resource
import string
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import ConfigError, EngineError, MaterializationError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import MIB, Command, Limits, Mount, SandboxSpec
from securebench.sandboxes.docker.spec import compile_container
from securebench.sandboxes.oci.config import (
    INIT_TARGET,
    HostLayout,
    OciConfig,
    _own_oom_score,
    compile_config,
    compile_process,
)
from securebench.sandboxes.oci.runtime import OciRuntime
from securebench.sandboxes.oci.seccomp import Seccomp
from securebench.sandboxes.seccomp_profile import profile_of_gvisor
from securebench.sandboxes.spec_rules import OOM_SCORE, binds

IMAGE = ResolvedImage(
    reference="tool:1",
    id="sha256:" + "a" * 64,
    environment={"PATH": "/opt/bin", "LD_PRELOAD": "/evil.so"},
    workdir="/opt",
    user="app",
    volumes=("/data", "/tmp"),
)
COMMAND = Command(argv=("python3", "-c", "print(1)"), timeout_seconds=5, environment={"TASK": "1"})
MAP = [{"containerID": 0, "hostID": 1879048192, "size": 65536}]
SECCOMP = Seccomp(b"\x06\x00\x00\x00\x00\x00\xff\x7f", {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []})


def layout(spec: SandboxSpec, name: str = "crun", **options: Any) -> HostLayout:
    """Return the host paths and ids that a driver would use for ``spec``."""
    settings: dict[str, Any] = {
        "root": "/run/root",
        "sources": {mount.target: f"/staged{mount.target}" for mount in binds(spec)} | {INIT_TARGET: "/staged/init"},
        "uid_map": MAP,
        "gid_map": MAP,
        "seccomp": SECCOMP,
        "runtime": OciRuntime(name, f"/usr/bin/{name}", "1.0"),
        "cgroup": "/ours/s1",
        "oom_score": 0,
    }
    return HostLayout(**settings | options)


def bind(target: str, mode: str) -> dict[str, Any]:
    """Return the expected entry of a bind mount."""
    return {
        "destination": target,
        "type": "bind",
        "source": f"/staged/{target.removeprefix('/dev/').removeprefix('/')}",
        "options": ["bind", "rprivate", "nosuid", "nodev", mode],
    }


def mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    """Return the expected entry of a mount that is not a bind mount."""
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def golden(**of_linux: Any) -> dict[str, Any]:
    """Return the expected document. ``of_linux`` are the fields of ``linux`` that differ between runtimes."""
    closed = ("nosuid", "noexec", "nodev")
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": "/run/root", "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": 65534, "gid": 65534},
            "args": ["/dev/init", "--", "python3", "-c", "print(1)"],
            "env": [
                "HOME=/tmp",
                "LANG=C.UTF-8",
                "LC_ALL=C.UTF-8",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "TASK=1",
            ],
            "cwd": "/workspace",
            "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": []},
            "rlimits": [
                {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
                {"type": "RLIMIT_FSIZE", "soft": 1073741824, "hard": 1073741824},
                {"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 1024},
                {"type": "RLIMIT_MSGQUEUE", "soft": 131072, "hard": 131072},
                {"type": "RLIMIT_SIGPENDING", "soft": 4096, "hard": 4096},
                {"type": "RLIMIT_NICE", "soft": 0, "hard": 0},
                {"type": "RLIMIT_RTPRIO", "soft": 0, "hard": 0},
            ],
            "noNewPrivileges": True,
            "oomScoreAdj": 0,
        },
        "mounts": [
            mount("/proc", "proc", *closed),
            mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=67108864", "nr_inodes=16384"),
            mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
            mount("/sys", "sysfs", *closed, "ro"),
            mount("/dev/mqueue", "mqueue", *closed),
            mount("/dev/shm", "tmpfs", "rw", *closed, "mode=1777", "size=67108864", "nr_inodes=16384"),
            bind("/dev/init", "ro"),
            mount("/tmp", "tmpfs", "rw", "nosuid", "nodev", "exec", "mode=1777", "size=268435456", "nr_inodes=65536"),
            mount(
                "/data", "tmpfs", "rw", "nosuid", "nodev", "noexec", "mode=1777", "size=268435456", "nr_inodes=65536"
            ),
            bind("/workspace", "rw"),
            bind("/etc/hosts", "ro"),
            bind("/etc/resolv.conf", "ro"),
        ],
        "annotations": {},
        "linux": {
            "namespaces": [
                {"type": "pid"},
                {"type": "network"},
                {"type": "ipc"},
                {"type": "uts"},
                {"type": "mount"},
                {"type": "cgroup"},
                {"type": "user"},
            ],
            "uidMappings": MAP,
            "gidMappings": MAP,
            "maskedPaths": [
                "/proc/acpi",
                "/proc/asound",
                "/proc/interrupts",
                "/proc/kcore",
                "/proc/keys",
                "/proc/latency_stats",
                "/proc/sched_debug",
                "/proc/scsi",
                "/proc/timer_list",
                "/proc/timer_stats",
                "/sys/devices/virtual/powercap",
                "/sys/firmware",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            **of_linux,
        },
    }


@pytest.mark.parametrize(
    ("runtime", "annotations", "of_linux"),
    [
        ("crun", {"run.oci.seccomp_bpf_data": base64.b64encode(SECCOMP.bpf).decode()}, {}),
        ("runc", {}, {"cgroupsPath": "/ours/s1/runtime", "seccomp": SECCOMP.document}),
        ("runsc", {}, {"seccomp": profile_of_gvisor(SECCOMP.document)}),
    ],
)
def test_the_whole_document(
    tmp_path: Path, runtime: str, annotations: dict[str, str], of_linux: dict[str, Any]
) -> None:
    """I02, I05, I11, I17, I18, I19, I20, J04: with the defaults, each runtime gets exactly the expected document."""
    spec = SandboxSpec(image=IMAGE, mounts=(Mount(tmp_path, "/workspace", read_only=False),), workdir="/workspace")
    document = compile_config(spec, COMMAND, layout(spec, runtime))
    assert document == golden(**of_linux) | {"annotations": annotations}


@pytest.mark.parametrize(
    ("runtime", "joined"), [("crun", [{"type": "network", "path": "/cell/network"}]), ("runc", [])]
)
def test_ports_change_the_network_alone(runtime: str, joined: list[dict[str, str]]) -> None:
    """J03: forwarded ports change only the network namespace and ``/sys``.

    crun lets the container join the existing network namespace. runc itself is started in that namespace, so its
    configuration contains no network namespace.
    """
    spec = SandboxSpec(image=IMAGE)
    plain = layout(spec, runtime)
    served = layout(spec, runtime, network="/cell/network", sources={**plain.sources, "/sys": "/cell/sys"})
    before, after = (_json_of(compile_config(spec, COMMAND, laid_out)) for laid_out in (plain, served))
    namespaces = [entry for entry in after["linux"].pop("namespaces") if entry["type"] == "network"]
    assert {"type": "network"} in before["linux"].pop("namespaces")
    assert namespaces == joined
    changed = [mount for mount in after["mounts"] if mount not in before["mounts"]]
    options = ["bind", "rprivate", "nosuid", "noexec", "nodev", "ro"]
    assert changed == [{"destination": "/sys", "type": "bind", "source": "/cell/sys", "options": options}]
    assert len(after.pop("mounts")) == len(before.pop("mounts"))
    assert after == before


def test_a_persistent_sandbox_waits_on_its_stdin() -> None:
    """A persistent sandbox runs ``cat``. It differs from other sandboxes only in its command and its environment."""
    spec = SandboxSpec(image=IMAGE)
    ephemeral, persistent = (_json_of(compile_config(spec, command, layout(spec))) for command in (COMMAND, None))
    assert persistent["process"]["args"] == ["/dev/init", "--", "/bin/cat"]
    assert {key for key in ephemeral if ephemeral[key] != persistent[key]} == {"process"}
    changed = {key for key in ephemeral["process"] if ephemeral["process"][key] != persistent["process"][key]}
    assert changed == {"args", "env"}


def test_a_command_of_a_persistent_sandbox_is_held_to_the_same() -> None:
    """A further command in a persistent sandbox has the limits and capabilities of the first process, but no init."""
    spec = SandboxSpec(image=IMAGE)
    beside = compile_process(spec, COMMAND, layout(spec))
    first = compile_config(spec, COMMAND, layout(spec))["process"]
    assert first == {**beside, "args": ["/dev/init", "--", *beside["args"]]}
    assert beside["noNewPrivileges"]


@pytest.mark.parametrize("user", [(0, 0), (1000, 1000)])
def test_capabilities_are_roots(user: tuple[int, int]) -> None:
    """I02: only root can use an added capability. Other users have it only in the bounding set, as in Docker."""
    spec = SandboxSpec(image=IMAGE, cap_add=("SYS_CHROOT",), user=user)
    found = compile_process(spec, COMMAND, layout(spec))["capabilities"]
    held = ["CAP_SYS_CHROOT"] if user[0] == 0 else []
    assert found == {
        "bounding": ["CAP_SYS_CHROOT"],
        "effective": held,
        "permitted": held,
        "inheritable": [],
        "ambient": [],
    }


@pytest.mark.parametrize(
    ("runtime", "memory", "data"), [("crun", 64, 64), ("runsc", 64, 64), ("runc", 64, 128), ("runc", 256, 256)]
)
def test_without_cgroups_each_process_is_limited(runtime: str, memory: int, data: int) -> None:
    """I08, I09: without cgroups, resource limits apply to data and processes, and the document has no cgroup path.

    The document for crun has no process limit, because the supervisor sets this limit. The data limit is never lower
    than what the runtime itself needs to create a sandbox.
    """
    spec = SandboxSpec(image=IMAGE, limits=Limits(memory=memory * MIB, pids=32))
    document = compile_config(spec, COMMAND, layout(spec, runtime, cgroup=None))
    found = {limit["type"]: (limit["soft"], limit["hard"]) for limit in document["process"]["rlimits"]}
    assert found["RLIMIT_DATA"] == (data * MIB, data * MIB)
    assert found.get("RLIMIT_NPROC") == (None if runtime == "crun" else (32, 32))  # the supervisor limits crun
    assert "cgroupsPath" not in document["linux"]


def test_a_rootless_runc_makes_no_cgroup() -> None:
    """An ordinary user's runc gets no cgroup path: like crun and runsc, it is started in the sandbox's cgroups."""
    spec = SandboxSpec(image=IMAGE)
    rootless = layout(spec, runtime=OciRuntime("runc", "/usr/bin/runc", "1.2", rootless=True))
    assert "cgroupsPath" not in compile_config(spec, COMMAND, rootless)["linux"]


def test_all_but_crun_need_a_root() -> None:
    """If the sandbox's own user is the only mapped id, runc and runsc are refused with an error, and crun works."""
    spec = SandboxSpec(image=IMAGE)
    alone = [{"containerID": 65534, "hostID": 0, "size": 1}]
    for runtime in ("runc", "runsc"):
        with pytest.raises(EngineError, match=f"{runtime} needs subordinate ids") as caught:
            compile_config(spec, COMMAND, layout(spec, runtime, uid_map=alone, gid_map=alone))
        assert caught.value.code == "runtime-unavailable"
    document = compile_config(spec, COMMAND, layout(spec, uid_map=alone, gid_map=alone))
    assert document["linux"]["uidMappings"] == alone


@pytest.mark.parametrize(
    "options",
    [
        {"network": "agents"},
        {"network": "host"},
        {"security_opt": ("seccomp=unconfined",)},
        {"security_opt": ("no-new-privileges:false",)},
        {"cap_add": ("ALL",)},
    ],
)
def test_what_cannot_be_given_is_refused(options: dict[str, Any]) -> None:
    """I02: a spec with a network, weaker security options or all capabilities is refused, and not silently changed."""
    spec = SandboxSpec(image=IMAGE, **options)
    with pytest.raises(ConfigError) as caught:
        compile_config(spec, COMMAND, layout(spec))
    assert caught.value.code == "sandbox-unsupported"


def test_new_privileges_are_asked_for_by_name() -> None:
    """A spec without the option ``no-new-privileges`` gives a sandbox in which set-id programs work."""
    spec = SandboxSpec(image=IMAGE, security_opt=())
    assert compile_process(spec, COMMAND, layout(spec))["noNewPrivileges"] is False


def test_a_mount_beneath_another_comes_after_it(tmp_path: Path) -> None:
    """Mounts are sorted so that a mount never hides another one below it, whatever their order in the spec."""
    (tmp_path / "file").touch()
    mounts = (Mount(tmp_path / "file", "/tmp/a/file"), Mount(tmp_path, "/tmp/a"), Mount(tmp_path, "/srv"))
    spec = SandboxSpec(image=IMAGE, mounts=mounts, tmpfs=("/srv/tmp", "/tmp"))
    order = [found["destination"] for found in compile_config(spec, COMMAND, layout(spec))["mounts"]]
    assert order.index("/tmp") < order.index("/tmp/a") < order.index("/tmp/a/file")
    assert order.index("/srv") < order.index("/srv/tmp")


def test_unsafe_sources_are_refused(tmp_path: Path) -> None:
    """H01: a mount whose source is a link is refused when the configuration is compiled, before a runtime starts."""
    (tmp_path / "link").symlink_to("/etc")
    spec = SandboxSpec(image=IMAGE)
    unsafe = SandboxSpec(image=IMAGE, mounts=(Mount(tmp_path / "link", "/workspace"),))
    with pytest.raises(MaterializationError) as caught:
        compile_config(unsafe, COMMAND, layout(spec))
    assert caught.value.code == "mount-unsafe"


def test_what_the_host_spares_is_not_spared() -> None:
    """A sandbox's OOM score is at least ``OOM_SCORE``, so the kernel kills a sandbox rather than SecureBench."""
    assert _own_oom_score() >= OOM_SCORE > 0
    spec = SandboxSpec(image=IMAGE)
    assert compile_process(spec, COMMAND, layout(spec, oom_score=200))["oomScoreAdj"] == 200


TARGETS = st.lists(
    st.text(string.ascii_lowercase, min_size=1, max_size=8).map("/mnt/{}".format), max_size=4, unique=True
)


@st.composite
def specs(draw: st.DrawFn) -> SandboxSpec:
    """Draw a spec that both drivers support."""
    sources = Path(__file__).resolve().parent
    limits = Limits(
        memory=draw(st.integers(1 << 20, 1 << 40)),
        pids=draw(st.integers(1, 4096)),
        tmpfs=draw(st.integers(1, 1 << 40)),
        open_files=draw(st.integers(3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),  # no runtime can exceed it
        file_size=draw(st.integers(0, 1 << 40)),
    )
    variables = st.dictionaries(st.text(string.ascii_uppercase, min_size=1), st.text(string.printable), max_size=4)
    return SandboxSpec(
        image=ResolvedImage(
            reference="some:1",
            id="sha256:" + "b" * 64,
            environment=draw(variables),
            volumes=tuple(draw(TARGETS)),
        ),
        cap_add=tuple(draw(st.lists(st.sampled_from(("SYS_CHROOT", "KILL", "CHOWN")), unique=True))),
        read_only=draw(st.booleans()),
        tmpfs=tuple(draw(TARGETS)),
        limits=limits,
        mounts=tuple(Mount(sources, f"/home{target}", read_only=draw(st.booleans())) for target in draw(TARGETS)),
        environment=draw(variables),
        inherit_image_environment=draw(st.booleans()),
        workdir=draw(st.sampled_from(("/", "/usr"))),
        user=draw(st.tuples(st.integers(0, 70000), st.integers(0, 70000))),
    )


@given(specs())
def test_both_drivers_ask_for_the_same(spec: SandboxSpec) -> None:
    """I02, I05, I17: for the same spec, Docker and an OCI runtime get equivalent configurations."""
    docker = compile_container(spec, COMMAND, {})
    host = docker["HostConfig"]
    ours = compile_config(spec, COMMAND, layout(spec))
    process = ours["process"]
    assert process["args"][2:] == docker["Cmd"]
    assert process["env"] == [entry for entry in docker["Env"] if "=" in entry]
    assert process["cwd"] == docker["WorkingDir"]
    assert "{uid}:{gid}".format(**process["user"]) == docker["User"]
    assert ours["hostname"] == docker["Hostname"]
    assert process["noNewPrivileges"] == ("no-new-privileges:true" in host["SecurityOpt"])
    assert process["capabilities"]["bounding"] == sorted(f"CAP_{name}" for name in host["CapAdd"])
    assert ours["root"]["readonly"] == host["ReadonlyRootfs"]
    limits = {limit["type"].removeprefix("RLIMIT_").lower(): limit["hard"] for limit in process["rlimits"]}
    assert limits == {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]}
    assert _mounted(ours) == _mounted_by_docker(host)


def _mounted(document: OciConfig) -> dict[str, tuple[str, ...]]:
    """Return the spec's mounts by target.

    A bind mount is given by its kind and mode, a tmpfs by its kind, its size and its ``exec`` or ``noexec`` option.
    """
    found: dict[str, tuple[str, ...]] = {}
    for entry in document["mounts"]:
        if entry["type"] == "bind" and entry["destination"] != INIT_TARGET:
            found[entry["destination"]] = ("bind", "ro" if "ro" in entry["options"] else "rw")
        elif entry["type"] == "tmpfs" and not entry["destination"].startswith("/dev"):
            size = next(option for option in entry["options"] if option.startswith("size="))
            executable = "exec" if "exec" in entry["options"] else "noexec"
            assert {"nosuid", "nodev", "mode=1777"} <= set(entry["options"])
            found[entry["destination"]] = ("tmpfs", size, executable)
    return found


def _mounted_by_docker(host: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for target, options in host["Tmpfs"].items():
        words = options.split(",")
        assert {"nosuid", "nodev", "mode=1777"} <= set(words)
        found[target] = ("tmpfs", words[-1], "exec" if "exec" in words else "noexec")
    for entry in host["Mounts"]:
        if entry["Type"] == "bind":
            found[entry["Target"]] = ("bind", "ro" if entry["ReadOnly"] else "rw")
        else:  # Docker mounts these with nosuid, nodev and noexec
            found[entry["Target"]] = ("tmpfs", f"size={entry['TmpfsOptions']['SizeBytes']}", "noexec")
    return found


def test_more_open_files_than_the_hard_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of open files above the hard limit is an error with both limits, and with a command to raise it."""
    monkeypatch.setattr(resource, "getrlimit", lambda _number: (64, 64))
    spec = SandboxSpec(image=IMAGE)
    with pytest.raises(EngineError, match=r"1024 open files.*is 64") as raised:
        compile_config(spec, COMMAND, layout(spec))
    assert "ulimit -Hn 1024" in raised.value.hint
    monkeypatch.setattr(resource, "getrlimit", lambda _number: (64, resource.RLIM_INFINITY))
    compile_config(spec, COMMAND, layout(spec))


def _json_of(document: OciConfig) -> dict[str, Any]:
    """Return the document as a runtime reads it."""
    return cast("dict[str, Any]", json.loads(json.dumps(document)))
