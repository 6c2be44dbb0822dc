"""The JSON document from which an engine creates a container. A golden test compares every field."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import securebench.sandboxes
from securebench.errors import ConfigError, MaterializationError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import BASE_ENVIRONMENT, Command, Limits, Mount, SandboxSpec
from securebench.sandboxes.docker.spec import compile_container
from securebench.sandboxes.seccomp_profile import profile, profile_of_gvisor
from securebench.sandboxes.spec_rules import SENTRY_THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping

ETC = Path(securebench.sandboxes.__file__).resolve().parent / "etc"
IMAGE = ResolvedImage(
    reference="tool:1",
    id="sha256:" + "a" * 64,
    environment={"PATH": "/opt/bin", "LD_PRELOAD": "/evil.so", "BASH_ENV": "/evil.sh"},
    workdir="/opt",
    user="app",
    volumes=("/data", "/tmp"),
)
COMMAND = Command(argv=("python3", "-c", "print(1)"), timeout_seconds=5, environment={"TASK": "1"})


def bind(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    """Return the expected entry for a bind mount."""
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only, "BindOptions": options}


def seccomp_option(capabilities: tuple[str, ...] = ()) -> str:
    """Return the security option with SecureBench's own seccomp profile."""
    return f"seccomp={json.dumps(profile(os.uname().machine, capabilities))}"


def test_the_filter_is_that_of_every_driver() -> None:
    """I18: SecureBench's profile, extended for added capabilities, is used unless the spec names another profile."""
    spec = SandboxSpec(image=IMAGE, cap_add=("SYS_CHROOT",))
    options = compile_container(spec, COMMAND, {})["HostConfig"]["SecurityOpt"]
    assert options == ["no-new-privileges:true", seccomp_option(("CAP_SYS_CHROOT",))]
    assert options[1] != seccomp_option()
    named = SandboxSpec(image=IMAGE, security_opt=("seccomp=unconfined",))
    assert compile_container(named, COMMAND, {})["HostConfig"]["SecurityOpt"] == ["seccomp=unconfined"]


def test_gvisor_has_room_for_its_own_threads() -> None:
    """I08: for gVisor, the process limit is raised by the number of gVisor's own threads.

    These threads are in the sandbox's cgroup. Without room for them, a few processes of a candidate could end gVisor's
    kernel.
    """
    spec = SandboxSpec(image=IMAGE, limits=Limits(pids=64))
    limits = [compile_container(spec, COMMAND, {}, runtime)["HostConfig"]["PidsLimit"] for runtime in (None, "runsc")]
    assert limits == [64, 64 + SENTRY_THREADS]


def test_gvisor_answers_clone3_itself() -> None:
    """The seccomp profile for gVisor differs from the usual one only in that it allows ``clone3``.

    gVisor returns ``EPERM`` for calls that a profile refuses. If it did so for ``clone3``, no program could start a
    thread.
    """
    options = compile_container(SandboxSpec(image=IMAGE), COMMAND, {}, "runsc")["HostConfig"]["SecurityOpt"]
    usual = profile(os.uname().machine)
    changed = profile_of_gvisor(usual)
    assert options[1] == f"seccomp={json.dumps(changed)}"
    differences = [pair for pair in zip(usual["syscalls"], changed["syscalls"], strict=True) if pair[0] != pair[1]]
    assert [(old["names"], new) for old, new in differences] == [
        (["clone3"], {"names": ["clone3"], "action": "SCMP_ACT_ALLOW"})
    ]


def test_the_whole_document(tmp_path: Path) -> None:
    """I02, I05, I08, I09, I11, I12, I17, I19, J04: with default options, the engine gets exactly this document."""
    mounts = (Mount(tmp_path, "/workspace", read_only=False),)
    spec = SandboxSpec(image=IMAGE, mounts=mounts, workdir="/workspace", labels={"securebench.task": "t"})
    document = compile_container(spec, COMMAND, {"securebench.run": "r"})
    assert document == {
        "Image": "sha256:" + "a" * 64,
        "Entrypoint": [""],
        "Cmd": ["python3", "-c", "print(1)"],
        "Env": [
            "HOME=/tmp",
            "LANG=C.UTF-8",
            "LC_ALL=C.UTF-8",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "TASK=1",
            "BASH_ENV",
            "HOSTNAME",
            "LD_PRELOAD",
        ],
        "WorkingDir": "/workspace",
        "User": "65534:65534",
        "Hostname": "sandbox",
        "Domainname": "",
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {"securebench.task": "t", "securebench.run": "r"},
        "HostConfig": {
            "NetworkMode": "none",
            "Dns": ["127.0.0.1"],
            "DnsSearch": ["."],
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "Privileged": False,
            "CapDrop": ["ALL"],
            "CapAdd": [],
            "SecurityOpt": ["no-new-privileges:true", seccomp_option()],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": "rw,nosuid,nodev,exec,mode=1777,size=268435456"},
            "ShmSize": 67108864,
            "Mounts": [
                bind(tmp_path, "/workspace", read_only=False),
                bind(ETC / "hosts", "/etc/hosts", read_only=True),
                bind(ETC / "resolv.conf", "/etc/resolv.conf", read_only=True),
                {"Type": "tmpfs", "Target": "/data", "TmpfsOptions": {"SizeBytes": 268435456, "Mode": 0o1777}},
            ],
            "Init": True,
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none", "Config": {}},
            "OomScoreAdj": 500,
            "Memory": 1073741824,
            "MemorySwap": 1073741824,
            "PidsLimit": 256,
            "NanoCpus": 1000000000,
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "fsize", "Soft": 1073741824, "Hard": 1073741824},
                {"Name": "nofile", "Soft": 1024, "Hard": 1024},
                {"Name": "msgqueue", "Soft": 131072, "Hard": 131072},
                {"Name": "sigpending", "Soft": 4096, "Hard": 4096},
                {"Name": "nice", "Soft": 0, "Hard": 0},
                {"Name": "rtprio", "Soft": 0, "Hard": 0},
            ],
        },
    }


def test_a_container_with_ports_joins_and_nothing_else() -> None:
    """J03: forwarded ports change only the network, the host name and the DNS options.

    The network is that of another container, the holder.
    """
    spec = SandboxSpec(image=IMAGE)
    before, after = (compile_container(spec, COMMAND, {}, joined=holder) for holder in (None, "abc"))
    host_before, host_after = before.pop("HostConfig"), after.pop("HostConfig")
    assert (before.pop("NetworkDisabled"), after.pop("NetworkDisabled")) == (True, False)
    assert (before.pop("Hostname"), after.pop("Hostname")) == ("sandbox", "")
    assert after == before
    assert (host_before.pop("NetworkMode"), host_after.pop("NetworkMode")) == ("none", "container:abc")
    assert (host_before.pop("Dns"), host_before.pop("DnsSearch")) == (["127.0.0.1"], ["."])
    assert host_after == host_before


def test_a_persistent_sandbox_waits_on_its_stdin() -> None:
    """Only the command, environment and attached streams differ between persistent and ephemeral containers."""
    spec = SandboxSpec(image=IMAGE)
    ephemeral = compile_container(spec, COMMAND, {})
    persistent = compile_container(spec, None, {})
    assert persistent["Cmd"] == ["/bin/cat"]
    changed = {key for key in ephemeral if ephemeral[key] != persistent[key]}
    assert changed == {"Cmd", "Env", "AttachStdout", "AttachStderr"}


@pytest.mark.parametrize(
    ("options", "path", "expected"),
    [
        ({"cap_add": ("SYS_CHROOT",)}, "HostConfig.CapAdd", ["SYS_CHROOT"]),
        ({"read_only": False}, "HostConfig.ReadonlyRootfs", False),
        ({"user": (1000, 1001)}, "User", "1000:1001"),
        ({"network": "agents"}, "HostConfig.NetworkMode", "agents"),
        ({"network": "agents"}, "NetworkDisabled", False),
        ({"tmpfs": ()}, "HostConfig.Tmpfs", {}),
        ({"limits": Limits(cpus=0.5)}, "HostConfig.NanoCpus", 500_000_000),
        ({"limits": Limits(memory=5)}, "HostConfig.MemorySwap", 5),
        (
            {"security_opt": ("no-new-privileges:true", "seccomp=x")},
            "HostConfig.SecurityOpt",
            ["no-new-privileges:true", "seccomp=x"],
        ),
    ],
)
def test_what_is_asked_for_by_name_is_given(options: Mapping[str, Any], path: str, expected: object) -> None:
    """Each option of a spec sets its field of the document."""
    value: Any = compile_container(SandboxSpec(image=IMAGE, **options), COMMAND, {})
    for key in path.split("."):
        value = value[key]
    assert value == expected


def test_a_network_brings_no_name_files() -> None:
    """With a network, no files for name resolution are mounted. The DNS server is still the unused 127.0.0.1."""
    document = compile_container(SandboxSpec(image=IMAGE, network="agents"), COMMAND, {})
    assert [mount["Type"] for mount in document["HostConfig"]["Mounts"]] == ["tmpfs"]
    assert document["HostConfig"]["Dns"] == ["127.0.0.1"]


def test_our_labels_win() -> None:
    """A label of a spec cannot replace the driver's label of the same name."""
    spec = SandboxSpec(image=IMAGE, labels={"securebench.owner": "somebody else"})
    assert compile_container(spec, COMMAND, {"securebench.owner": "us"})["Labels"] == {"securebench.owner": "us"}


def test_an_image_environment_is_inherited_by_name_only() -> None:
    """A spec can inherit the image's variables. Variables of the spec replace those of the image."""
    spec = SandboxSpec(image=IMAGE, inherit_image_environment=True, environment={"PATH": "/bin", "HOME": "/h"})
    assert compile_container(spec, COMMAND, {})["Env"] == [
        "BASH_ENV=/evil.sh",
        "HOME=/h",
        "LD_PRELOAD=/evil.so",
        "PATH=/bin",
        "TASK=1",
        "HOSTNAME",
    ]


def test_home_is_always_ours() -> None:
    """If a spec has no ``HOME``, it is ``/``, whatever the image's ``/etc/passwd`` contains."""
    assert "HOME=/" in compile_container(SandboxSpec(image=IMAGE, environment={}), COMMAND, {})["Env"]


def test_a_mount_takes_the_place_of_a_volume(tmp_path: Path) -> None:
    """A mount replaces a volume that the image declares at the same path."""
    spec = SandboxSpec(image=IMAGE, mounts=(Mount(tmp_path, "/data"),), tmpfs=())
    mounts = {mount["Target"]: mount["Type"] for mount in compile_container(spec, COMMAND, {})["HostConfig"]["Mounts"]}
    assert (mounts["/data"], mounts["/tmp"]) == ("bind", "tmpfs")


def test_a_writable_root_keeps_its_volumes() -> None:
    """With a writable root, no tmpfs replaces the image's volumes: the engine creates them with the image's files."""
    mounts = compile_container(SandboxSpec(image=IMAGE, read_only=False), COMMAND, {})["HostConfig"]["Mounts"]
    assert {mount["Type"] for mount in mounts} == {"bind"}


@pytest.mark.parametrize("name", ["hosts", "resolv.conf"])
def test_name_files_can_be_replaced(tmp_path: Path, name: str) -> None:
    """A spec's mount on ``/etc/hosts`` or ``/etc/resolv.conf`` replaces SecureBench's own file."""
    (tmp_path / name).touch()
    spec = SandboxSpec(image=IMAGE, mounts=(Mount(tmp_path / name, f"/etc/{name}"),))
    targets = [mount["Target"] for mount in compile_container(spec, COMMAND, {})["HostConfig"]["Mounts"]]
    assert sorted(targets) == ["/data", "/etc/hosts", "/etc/resolv.conf"]


def test_the_name_files_name_nobody() -> None:
    """J04: the hosts file has only loopback addresses, and the DNS server is 127.0.0.1, where none runs."""
    assert {line.split()[0] for line in (ETC / "hosts").read_text().splitlines()} == {"127.0.0.1", "::1"}
    assert (ETC / "resolv.conf").read_text().splitlines()[0] == "nameserver 127.0.0.1"


@pytest.mark.parametrize("kind", ["link", "behind a link", "missing", "fifo", "relative", "dots", "socket"])
def test_unsafe_sources_are_refused(
    tmp_path: Path, host_canary: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """H01, H05, I01: a mount source must be a file or directory, and its path absolute, without a link or ``..``."""
    (tmp_path / "link").symlink_to(host_canary.parent)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "plain").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
        listener.bind("socket")
    sources = {
        "link": tmp_path / "link",
        "behind a link": tmp_path / "link" / "canary.txt",
        "missing": tmp_path / "missing",
        "fifo": tmp_path / "fifo",
        "relative": Path("plain"),
        "dots": tmp_path / ".." / tmp_path.name,
        "socket": tmp_path / "socket",
    }
    spec = SandboxSpec(image=IMAGE, mounts=(Mount(sources[kind], "/workspace"),))
    with pytest.raises(MaterializationError) as raised:
        compile_container(spec, COMMAND, {})
    assert raised.value.code == "mount-unsafe"


@given(st.text(max_size=30), st.text(max_size=30))
def test_arguments_are_kept_or_refused(first: str, second: str) -> None:
    """An argument is passed on unchanged or refused."""
    command = Command(argv=(first, second), timeout_seconds=1)
    impossible = "\0" in first + second or any("\ud800" <= character <= "\udfff" for character in first + second)
    if impossible:
        with pytest.raises(ConfigError):
            compile_container(SandboxSpec(image=IMAGE), command, {})
    else:
        assert compile_container(SandboxSpec(image=IMAGE), command, {})["Cmd"] == [first, second]


def test_the_base_environment_is_small() -> None:
    """The default environment is four variables, none of them a secret."""
    assert sorted(BASE_ENVIRONMENT) == ["HOME", "LANG", "LC_ALL", "PATH"]
