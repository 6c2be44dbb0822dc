"""The conformance suite: the fake and the real engine pass every check, and a driver that lies does not."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from securebench.sandboxes.base import BASE_ENVIRONMENT, MIB, DriverInfo, SandboxDriver
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.testing.conformance import CHECKS, Check, ConformanceError, excuse
from securebench.testing.conformance.bench import run_checks
from securebench.testing.conformance.excuses import GVISOR
from securebench.testing.fake_probe import install_probe
from securebench.testing.fake_sandbox import DEFAULT_IMAGE, FakeDriver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.images.leases import TreeLease
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Sandbox, SandboxSpec
    from securebench.sandboxes.docker import DockerDriver

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Give a directory that any user of a sandbox may enter, through parents that he may pass."""
    tmp_path.chmod(0o755)
    return tmp_path.resolve()


@every_check
def test_the_fake_conforms(check: Check, directory: Path) -> None:
    """The fake passes each check that the real drivers pass."""
    driver = FakeDriver()
    install_probe(driver)
    check.run(driver, driver.resolve_image(DEFAULT_IMAGE), directory)
    assert driver.open == set()


@every_check
def test_every_driver_conforms(check: Check, driver: SandboxDriver, base_image: ResolvedImage, directory: Path) -> None:
    """Each real driver passes each check, but for what is declared, with its reason, of a driver like it."""
    try:
        check.run(driver, base_image, directory)
    except Exception:
        if reason := excuse(check, driver.info()):
            pytest.xfail(reason)
        raise


def test_what_is_weaker_is_excused_by_name_only() -> None:
    """A driver that says what it is weaker in is held to everything else, and one that says nothing to everything."""
    rootless = DriverInfo("oci", "crun", weaker=("memory", "groups"))
    excused = {check.name for check in CHECKS if excuse(check, rootless)}
    assert excused == {check.name for check in CHECKS if set(check.needs) & {"memory", "groups"}}
    assert "memory_is_limited" in excused
    assert not [check.name for check in CHECKS if excuse(check, DriverInfo("oci", "crun"))]


def test_every_excuse_is_for_a_check() -> None:
    """What is declared of gVisor names checks that there are, and what checks need can be enforced."""
    assert set(GVISOR) <= set(by_name)
    assert {name for name, check in by_name.items() if excuse(check, DriverInfo("docker", "runsc"))} == set(GVISOR)
    assert {name for check in CHECKS for name in check.needs} <= set(ENFORCEABLE)


class Liar(SandboxDriver):
    """A driver that weakens each spec before it hands it on."""

    def __init__(self, driver: SandboxDriver, **weaker: Any) -> None:
        self._driver = driver
        self._weaker = weaker

    def info(self) -> DriverInfo:
        """Say what it would be."""
        return self._driver.info()

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Resolve honestly."""
        return self._driver.resolve_image(reference, on_progress)

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Show honestly."""
        return self._driver.image_tree(image)

    def self_test(self, image: ResolvedImage) -> None:
        """Test honestly."""
        self._driver.self_test(image)

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Make another sandbox than was asked for."""
        weaker = dict(self._weaker)
        persistent = weaker.pop("persistent", persistent)
        if "limits" in weaker:
            weaker["limits"] = replace(spec.limits, **weaker["limits"])
        if "mounts" in weaker:
            weaker["mounts"] = tuple(replace(mount, read_only=False) for mount in spec.mounts)
        return self._driver.create(replace(spec, **weaker), persistent=persistent)

    def reap(self) -> int:
        """Reap honestly."""
        return self._driver.reap()

    def close(self) -> None:
        """Close nothing: the driver is the test's."""


GIB = 1024 * MIB

LIES: list[tuple[str, dict[str, Any]]] = [
    ("the_root_is_read_only", {"read_only": False}),
    ("read_only_mounts_stay_as_they_are", {"mounts": "writable"}),
    ("the_environment_is_exact", {"environment": {**BASE_ENVIRONMENT, "OURS": "spec", "SECRET": "x"}}),
    ("the_first_process_has_no_more", {"environment": {**BASE_ENVIRONMENT, "SECRET": "x"}}),
    ("there_are_no_capabilities", {"cap_add": ("SYS_CHROOT",)}),
    ("root_can_do_no_more", {"cap_add": ("SYS_CHROOT",)}),
    ("privileges_cannot_be_gained", {"security_opt": ()}),
    ("the_user_is_nobody", {"user": (0, 0)}),
    ("others_files_cannot_be_written", {"user": (0, 0)}),
    ("the_working_directory_is_set", {"workdir": "/"}),
    ("memory_is_limited", {"limits": {"memory": GIB}}),
    ("processes_are_limited", {"limits": {"pids": 400}}),
    ("tmpfs_is_limited", {"limits": {"tmpfs": 128 * MIB}}),
    ("tmpfs_counts_as_memory", {"limits": {"memory": GIB}}),
    ("file_size_is_limited", {"limits": {"file_size": GIB}}),
    ("resource_limits_are_set", {"limits": {"open_files": 1000}}),
    ("a_flood_of_output_ends_it", {"limits": {"output": 4 * GIB}}),
    ("an_ephemeral_sandbox_forgets_its_files", {"persistent": True}),
    ("a_persistent_sandbox_keeps_its_files", {"persistent": False}),
]

REAL_LIES: list[tuple[str, dict[str, Any]]] = [
    *(lie for lie in LIES if lie[0] != "a_flood_of_output_ends_it"),
    ("there_is_only_loopback", {"network": "bridge"}),
    ("set_id_files_are_not_honoured", {"security_opt": ()}),
    ("privileges_cannot_be_gained", {"security_opt": ("no-new-privileges:true", "seccomp=unconfined")}),
    ("root_can_do_no_more", {"cap_drop": ()}),
    ("there_are_no_capabilities", {"cap_drop": ()}),
]

by_name = {check.name: check for check in CHECKS}


def lie_id(value: object) -> str:
    """Return a readable id of a parameter."""
    return value if isinstance(value, str) else "-".join(value) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("name", "weaker"), LIES, ids=lie_id)
def test_a_fake_that_lies_is_found_out(name: str, weaker: dict[str, Any], directory: Path) -> None:
    """A driver that gives less than was asked for fails the check for it: no check passes without its feature."""
    driver = FakeDriver()
    install_probe(driver)
    with pytest.raises(ConformanceError):
        by_name[name].run(Liar(driver, **weaker), driver.resolve_image(DEFAULT_IMAGE), directory)


@pytest.mark.engine
@pytest.mark.parametrize(("name", "weaker"), REAL_LIES, ids=lie_id)
def test_a_real_driver_that_lies_is_found_out(
    name: str, weaker: dict[str, Any], directory: Path, docker_driver: DockerDriver, base_image: ResolvedImage
) -> None:
    """On the real engine, too, a sandbox that is weaker than was asked for fails the check for it."""
    with pytest.raises(ConformanceError):
        by_name[name].run(Liar(docker_driver, **weaker), base_image, directory)


def test_there_are_enough_checks() -> None:
    """The suite has at least forty checks, each with a name of its own and a sentence that states a fact."""
    assert len(by_name) == len(CHECKS) >= 40
    assert all(check.sentence.endswith(".") and check.sentence[0] in string.ascii_uppercase + "`" for check in CHECKS)


def test_a_run_of_the_suite_raises_nothing() -> None:
    """Running checks reports each outcome, good or bad, whatever a driver raises."""
    driver = FakeDriver()
    install_probe(driver)
    image = driver.resolve_image(DEFAULT_IMAGE)
    driver.fail_next(ZeroDivisionError("oh"))
    chosen = [by_name[name] for name in ("no_output_is_empty", "no_output_is_empty", "a_driver_says_what_it_is")]
    outcomes = run_checks(chosen, driver, image)
    assert [outcome.problem for outcome in outcomes] == ["ZeroDivisionError: oh", "", ""]
    assert [outcome.check for outcome in outcomes] == chosen
