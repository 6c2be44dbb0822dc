"""The conformance suite: the fake and the real engine pass every check, and a driver that lies does not."""

from __future__ import annotations

import copy
import io
import itertools
import string
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from securebench.sandboxes.base import BASE_ENVIRONMENT, MIB, DriverInfo, Sandbox, SandboxDriver
from securebench.sandboxes.collected import CollectedArchive, CollectedLayer
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.wrapping import WrappedDriver, WrappedSandbox
from securebench.testing.conformance import CHECKS, Check, ConformanceError, expected_failure
from securebench.testing.conformance.bench import run_checks
from securebench.testing.conformance.expected_failures import FOREIGN_FILES, GVISOR
from securebench.testing.fake_changes import LIBRARY_FILES
from securebench.testing.fake_probe import install_probe
from securebench.testing.fake_sandbox import DEFAULT_IMAGE, FakeDriver

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.images.store.leases import TreeLease
    from securebench.sandboxes.base import SandboxSpec
    from securebench.sandboxes.collected import Collected
    from securebench.sandboxes.docker.driver import DockerDriver

Lie: TypeAlias = Callable[[tarfile.TarInfo], tarfile.TarInfo | None]

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Give a directory that any user of a sandbox may enter, through parents that he may pass."""
    tmp_path.chmod(0o755)
    return tmp_path.resolve()


@pytest.mark.long
@every_check
def test_the_fake_conforms(check: Check, directory: Path) -> None:
    """The fake passes each check that the real drivers pass."""
    driver = FakeDriver()
    install_probe(driver)
    check.run(driver, driver.resolve_image(DEFAULT_IMAGE), directory)
    assert driver.open == set()


@every_check
@pytest.mark.every_driver
def test_every_driver_conforms(check: Check, driver: SandboxDriver, base_image: ResolvedImage, directory: Path) -> None:
    """Each real driver passes each check, but for what is declared, with its reason, of a driver like it."""
    try:
        check.run(driver, base_image, directory)
    except Exception:
        if reason := expected_failure(check, driver.info()):
            pytest.xfail(reason)
        raise


def test_what_is_weaker_is_excused_by_name_only() -> None:
    """A driver that says what it is weaker in is held to everything else, and one that says nothing to everything."""
    rootless = DriverInfo("oci", "crun", weaker=("memory", "groups"))
    expected = {check.name for check in CHECKS if expected_failure(check, rootless)}
    assert expected == {check.name for check in CHECKS if set(check.needs) & {"memory", "groups"}}
    assert "memory_is_limited" in expected
    assert not [check.name for check in CHECKS if expected_failure(check, DriverInfo("oci", "crun"))]
    docker = DriverInfo("docker", "runc", foreign_files=True)
    assert [check.name for check in CHECKS if expected_failure(check, docker)] == [FOREIGN_FILES]


def test_every_excuse_is_for_a_check() -> None:
    """What is declared of gVisor names checks that there are, and what checks need can be enforced."""
    assert set(GVISOR) <= set(by_name)
    assert {name for name, check in by_name.items() if expected_failure(check, DriverInfo("docker", "runsc"))} == set(
        GVISOR
    )
    assert {name for check in CHECKS for name in check.needs} <= set(ENFORCEABLE)


class Liar(WrappedDriver):
    """A driver that weakens each spec before it hands it on."""

    def __init__(self, driver: SandboxDriver, **weaker: Any) -> None:
        super().__init__(driver)
        self._weaker = weaker

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Make another sandbox than was asked for."""
        weaker = dict(self._weaker)
        persistent = weaker.pop("persistent", persistent)
        if "limits" in weaker:
            weaker["limits"] = replace(spec.limits, **weaker["limits"])
        if "mounts" in weaker:
            weaker["mounts"] = tuple(replace(mount, read_only=False) for mount in spec.mounts)
        return self._driver.create(replace(spec, **weaker), persistent=persistent)

    def close(self) -> None:
        """Close nothing: the driver is the test's."""

    def kill_all(self) -> None:
        """End nothing: as above."""


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
    ("a_port_answers_from_the_start", {"forwarded_ports": ()}),
    ("ports_lead_to_who_serves_them", {"forwarded_ports": ()}),
    ("each_container_has_ports_of_its_own", {"persistent": True}),
    ("each_container_has_ports_of_its_own", {"persistent": False}),
    ("with_a_port_there_is_still_only_loopback", {"forwarded_ports": ()}),
    ("with_a_port_there_is_still_only_loopback", {"forwarded_ports": (), "network": "bridge"}),
    ("with_a_port_nothing_more_is_allowed", {"cap_add": ("SYS_CHROOT",)}),
    ("a_port_is_one_sandboxs_alone", {"forwarded_ports": ()}),
    ("connections_end_with_their_sandbox", {"forwarded_ports": ()}),
    ("a_port_can_be_closed_from_outside", {"forwarded_ports": ()}),
    ("ports_are_no_hindrance", {"forwarded_ports": ()}),
    ("who_cannot_serve_gets_no_sandbox", {"forwarded_ports": ()}),
    ("ports_that_cannot_be_are_refused", {"forwarded_ports": ()}),
]

REAL_LIES: list[tuple[str, dict[str, Any]]] = [
    *(lie for lie in LIES if lie[0] != "a_flood_of_output_ends_it"),
    ("there_is_only_loopback", {"network": "bridge"}),
    ("with_a_port_there_is_still_only_loopback", {"forwarded_ports": (), "network": "bridge"}),
    ("with_a_port_the_host_cannot_be_reached", {"forwarded_ports": (), "network": "bridge"}),
    ("with_a_port_the_host_cannot_be_reached", {"forwarded_ports": (), "network": "host"}),
    ("with_a_port_nothing_more_is_allowed", {"cap_drop": ()}),
    ("what_listens_in_a_sandbox_is_not_a_neighbours", {"forwarded_ports": (), "network": "host"}),
    ("set_id_files_are_not_honoured", {"security_opt": ()}),
    ("privileges_cannot_be_gained", {"security_opt": ("no-new-privileges:true", "seccomp=unconfined")}),
    ("root_can_do_no_more", {"cap_drop": ()}),
    ("there_are_no_capabilities", {"cap_drop": ()}),
]

by_name = {check.name: check for check in CHECKS}


def lie_id(value: object) -> str:
    """Return a readable id of a parameter."""
    return value if isinstance(value, str) else "-".join(value) if isinstance(value, dict) else ""


@pytest.mark.long
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


class LyingLeft(Liar):
    """A driver whose archives of what is left are not what was left: ``lie`` changes members, or leaves them out."""

    def __init__(self, driver: SandboxDriver, lie: Lie) -> None:
        super().__init__(driver)
        self._lie = lie

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Make a sandbox that lies about what is left in it."""
        return LyingSandbox(self._driver.create(spec, persistent=persistent), self._lie)


class LyingSandbox(WrappedSandbox):
    """Runs honestly, and lies afterwards."""

    def __init__(self, sandbox: Sandbox, lie: Lie) -> None:
        super().__init__(sandbox)
        self._lie = lie

    def collected(self) -> Collected:
        """Lie."""
        collected = self._sandbox.collected()
        assert isinstance(collected, CollectedArchive)
        told, whole = io.BytesIO(), io.BytesIO(b"".join(collected.pieces))
        with (
            tarfile.open(fileobj=whole, errors="surrogateescape") as archive,
            tarfile.open(fileobj=told, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as other,
        ):
            for member in archive:
                data = archive.extractfile(member) if member.isreg() else None
                if (changed := self._lie(member)) is not None:
                    other.addfile(changed, data)
        return CollectedArchive(iter([told.getvalue()]))


def without(name: str) -> Lie:
    """Leave out what is called ``name``."""
    return lambda member: None if PurePosixPath(member.name).name == name else member


def altered(member: tarfile.TarInfo, **fields: object) -> tarfile.TarInfo:
    """Return ``member`` with other ``fields``: Python 3.11 has ``TarInfo.replace`` only since 3.11.4."""
    other = copy.copy(member)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Give every file the same mode, as a driver that copies contents alone does."""
    return altered(member, mode=0o644)


def followed(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Give the target of a link, which is empty here."""
    return altered(member) if not member.issym() else _emptied(member)


def _emptied(member: tarfile.TarInfo) -> tarfile.TarInfo:
    file = tarfile.TarInfo(member.name)
    file.mode = 0o644
    return file


def text_names(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Give names that are no text another name, as a driver that decodes them does."""
    return altered(member, name=member.name.encode("utf-8", "replace").decode())


LIES_AFTERWARDS: list[tuple[str, Lie]] = [
    ("changes_are_left", without("added")),
    ("changes_are_left", without("message.py")),
    ("changes_are_left", plain),
    ("names_are_bytes", text_names),
    ("links_are_data", followed),
    ("links_are_data", without("link")),
    ("a_replaced_directory_is_another", without("only")),
    ("a_replaced_directory_is_another", followed),
    ("a_directory_that_was_made_again_is_another", without("only")),
    ("special_files_are_told", without("pipe")),
    ("set_id_files_are_told", plain),
    ("a_sparse_file_has_its_size", without("sparse")),
    ("what_was_not_changed_is_as_it_was", without("message.py")),
]


@pytest.mark.parametrize(("name", "lie"), LIES_AFTERWARDS)
def test_a_fake_that_lies_about_what_is_left_is_found_out(name: str, lie: Lie, directory: Path) -> None:
    """A driver that hands over something else than what is left fails the check for it."""
    driver = FakeDriver()
    install_probe(driver)
    with pytest.raises(ConformanceError):
        by_name[name].run(LyingLeft(driver, lie), driver.resolve_image(DEFAULT_IMAGE), directory)


class Remembering(LyingLeft):
    """A driver that hands over what was left by an earlier command, or by nobody."""

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Make a sandbox whose root forgets what is changed in it."""
        return Forgetful(self._driver.create(spec, persistent=persistent), lambda member: member)


class Forgetful(LyingSandbox):
    """Says of every directory that nothing was changed in it, whenever it is asked."""

    def collected(self) -> Collected:
        """Forget."""
        return CollectedLayer(-1)


@pytest.mark.parametrize(
    "name",
    [
        "changes_are_left",
        "names_are_bytes",
        "a_replaced_directory_is_another",
        "links_are_data",
        "special_files_are_told",
        "set_id_files_are_told",
        "a_sparse_file_has_its_size",
        "a_directory_that_is_gone_is_told",
        "a_directory_that_was_made_again_is_another",
        "nothing_is_collected_too_early_or_too_late",
    ],
)
def test_a_fake_that_forgets_is_found_out(name: str, directory: Path) -> None:
    """A driver that says that nothing was changed, and that at any time, fails the checks of changes."""
    driver = FakeDriver()
    install_probe(driver)
    with pytest.raises(ConformanceError):
        by_name[name].run(Remembering(driver, plain), driver.resolve_image(DEFAULT_IMAGE), directory)


def test_a_driver_that_keeps_living_is_found_out(directory: Path) -> None:
    """A driver that hands over a directory in which a daemon still writes fails the check for it."""
    driver = FakeDriver()
    install_probe(driver)
    sizes = itertools.count(1)

    def growing(member: tarfile.TarInfo) -> tarfile.TarInfo:
        return altered(member, mode=next(sizes) & 0o777) if member.name.endswith("ticks") else member

    with pytest.raises(ConformanceError):
        by_name["what_was_left_behind_changes_nothing"].run(
            LyingLeft(driver, growing), driver.resolve_image(DEFAULT_IMAGE), directory
        )


class WrongTree(Liar):
    """A driver that shows the files of another image."""

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Show another's."""
        other = dict.fromkeys(LIBRARY_FILES, b"another's")
        assert isinstance(self._driver, FakeDriver)
        return self._driver.image_tree(self._driver.add_image("another:1", files=other))


def test_a_driver_that_shows_another_tree_is_found_out(directory: Path) -> None:
    """A driver whose tree is not the image's fails the check for it."""
    driver = FakeDriver()
    install_probe(driver)
    with pytest.raises(ConformanceError):
        by_name["the_files_of_an_image_are_shown"].run(
            WrongTree(driver), driver.resolve_image(DEFAULT_IMAGE), directory
        )


class Lenient(Liar):
    """A driver that collects whatever it is asked for."""

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Drop what could not be given."""
        del persistent
        return self._driver.create(replace(spec, collect=None))


def test_a_driver_that_collects_anything_is_found_out(directory: Path) -> None:
    """A driver that refuses no directory fails the check for it."""
    driver = FakeDriver()
    install_probe(driver)
    with pytest.raises(ConformanceError):
        by_name["what_cannot_be_collected_is_refused"].run(
            Lenient(driver), driver.resolve_image(DEFAULT_IMAGE), directory
        )


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
