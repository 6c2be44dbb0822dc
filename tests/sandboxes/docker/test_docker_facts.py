"""What is recorded about a Docker Engine: its versions, its runtime and which limits it can enforce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine_doubles import VERSION, FakeEngine
from securebench.engine.client import connect
from securebench.errors import EngineError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.docker.driver import DockerDriver
from securebench.sandboxes.docker.spec import compile_container

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INFO: dict[str, Any] = {
    "Driver": "overlay2",
    "KernelVersion": "6.1",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": "/usr/bin/runsc"}, "io.containerd.runc.v2": {}},
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
}
COMPONENTS = [{"Name": "Engine", "Version": "20.10.24"}, {"Name": "runc", "Version": "1.1.5"}]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    """Yield a fake engine that reports ``VERSION``, ``COMPONENTS`` and ``INFO``, and has no containers."""
    fake = FakeEngine(tmp_path / "engine.sock")
    fake.answer("GET /(v[0-9.]+/)?version", {**VERSION, "Components": COMPONENTS})
    fake.answer("GET /v1.41/info", INFO)
    fake.answer("GET /v1.41/containers/json", [])
    yield fake
    fake.close()


def driver(fake: FakeEngine, runtime: str | None = None) -> DockerDriver:
    """Return a driver for ``fake``."""
    return DockerDriver(engine=connect([fake.endpoint]), runtime=runtime)


def test_names_versions_and_what_is_enforced(fake: FakeEngine) -> None:
    """The versions of the engine and its runtime are reported. Only a user namespace is reported as not enforced."""
    with_default = driver(fake)
    info = with_default.info()
    with_default.close()
    assert (info.name, info.runtime, info.version) == ("docker", "runc", "20.10.24")
    assert (info.details["runc"], info.details["kernel"]) == ("1.1.5", "6.1")
    assert info.weaker == ("user-namespace",)
    assert {"network", "seccomp", "memory", "pids", "cpu", "file-owners"} <= set(info.enforced)


@pytest.mark.parametrize(
    ("change", "weaker"),
    [
        ({"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}, ()),
        ({"SecurityOptions": ["name=rootless", "name=seccomp"], "CpuCfsQuota": False}, ("cpu",)),
        ({"SecurityOptions": None}, ("seccomp", "user-namespace")),
        ({"MemoryLimit": False, "PidsLimit": False}, ("user-namespace", "memory", "pids")),
    ],
)
def test_what_an_engine_cannot_do_is_weaker(fake: FakeEngine, change: dict[str, Any], weaker: tuple[str, ...]) -> None:
    """Limits and features that the engine does not support are reported as weaker, not as enforced."""
    fake.answer("GET /v1.41/info", {**INFO, **change})
    weakened = driver(fake)
    info = weakened.info()
    weakened.close()
    assert info.weaker == weaker
    assert not set(info.enforced) & set(weaker)


def test_a_runtime_that_the_engine_lists_is_used(fake: FakeEngine) -> None:
    """A chosen runtime, such as gVisor's, is named in the create request and in the driver's description."""
    image = ResolvedImage("tool:1", "sha256:" + "a" * 64)
    fake.refuse("POST /v1.41/containers/create", 500, "enough seen")
    sandboxes = driver(fake, "runsc")
    assert sandboxes.info().runtime == "runsc"
    with sandboxes.create(SandboxSpec(image=image)) as sandbox, pytest.raises(Exception, match="enough seen"):
        sandbox.open(Command(argv=("true",), timeout_seconds=5))
    sandboxes.close()
    created = [body for _, path, body in fake.requests if path.startswith("/v1.41/containers/create")]
    assert [body["HostConfig"]["Runtime"] for body in created] == ["runsc"]


def test_without_one_the_engine_chooses() -> None:
    """If no runtime was chosen, the create request names none."""
    document = compile_container(SandboxSpec(image=ResolvedImage("tool:1", "sha256:" + "a" * 64)), None, {})
    assert "Runtime" not in document["HostConfig"]


def test_a_runtime_that_the_engine_lacks_is_told_with_what_to_do(fake: FakeEngine) -> None:
    """The error for a missing runtime lists the engine's runtimes and how to add one. No container is created."""
    with pytest.raises(EngineError) as caught:
        driver(fake, "crun")
    assert caught.value.code == "runtime-unavailable"
    assert "it has: runc, runsc" in caught.value.message
    assert "apt-get install crun" in caught.value.hint
    assert "/etc/docker/daemon.json" in caught.value.hint
    assert not [path for _, path, _ in fake.requests if "create" in path]


def test_gvisor_is_told_with_the_arguments_that_it_needs(fake: FakeEngine) -> None:
    """The hint for gVisor contains its arguments ``--network=none`` and ``--oci-seccomp``.

    Without them, gVisor does not start in a container without a network, and ignores seccomp profiles.
    """
    fake.answer("GET /v1.41/info", {**INFO, "Runtimes": {"runc": {}}})
    with pytest.raises(EngineError) as caught:
        driver(fake, "runsc")
    assert '"runtimeArgs": ["--network=none", "--oci-seccomp"]' in caught.value.hint
