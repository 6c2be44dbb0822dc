"""Tests of the conformance suite: real drivers pass every check, and drivers that break their contract fail."""

from __future__ import annotations

import os
import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from securebench.sandboxes.base import BASE_ENVIRONMENT, MIB, DriverInfo, SandboxDriver
from securebench.sandboxes.collected import CollectedLayer
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.testing.conformance import CHECKS, Check, ConformanceError, expected_failure
from securebench.testing.conformance.bench import run_checks
from securebench.testing.conformance.expected_failures import FOREIGN_FILES, GVISOR
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE, ScriptedDriver
from testing.lying_drivers import (
    AlwaysOutOfMemory,
    AlwaysSucceeds,
    Anonymous,
    AnotherTree,
    AnyImage,
    Forgetful,
    IgnoresBrokenPipes,
    LateReader,
    LyingDriver,
    MovingTags,
    OneStream,
    TextOnly,
    changing,
    followed_links,
    growing,
    plain_modes,
    text_names,
    with_plain_arguments,
    without,
    without_variables,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Command, Mount
    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.sandboxes.oci import OciDriver
    from securebench.sandboxes.wrapping import WrappedProcess

by_name = {check.name: check for check in CHECKS}

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory that every user in a sandbox may enter."""
    tmp_path.chmod(0o755)
    return tmp_path.resolve()


@every_check
@pytest.mark.every_driver
def test_every_driver_conforms(check: Check, driver: SandboxDriver, base_image: ResolvedImage, directory: Path) -> None:
    """Each real driver passes each check that it must pass.

    A check is skipped if the driver lacks a feature that it needs. It may fail if ``expected_failure`` has a reason.
    """
    if reason := check.skipped(driver.info()):
        pytest.skip(reason)
    try:
        check.run(driver, base_image, directory)
    except Exception:
        if reason := expected_failure(check, driver.info()):
            pytest.xfail(reason)
        raise


def test_what_is_weaker_is_excused_by_name_only() -> None:
    """A driver that declares a restriction as not enforced may fail only the checks that need this restriction.

    A driver that declares ``foreign_files`` may fail only the check ``FOREIGN_FILES``.
    """
    rootless = DriverInfo("oci", "crun", weaker=("memory", "groups"))
    expected = {check.name for check in CHECKS if expected_failure(check, rootless)}
    assert expected == {check.name for check in CHECKS if set(check.needs) & {"memory", "groups"}}
    assert "memory_is_limited" in expected
    assert not [check.name for check in CHECKS if expected_failure(check, DriverInfo("oci", "crun"))]
    docker = DriverInfo("docker", "runc", foreign_files=True)
    assert [check.name for check in CHECKS if expected_failure(check, docker)] == [FOREIGN_FILES]


def test_every_expected_failure_is_of_a_check() -> None:
    """Only existing checks are expected to fail on gVisor, and each check needs only names in ``ENFORCEABLE``."""
    assert set(GVISOR) <= set(by_name)
    assert {name for name, check in by_name.items() if expected_failure(check, DriverInfo("docker", "runsc"))} == set(
        GVISOR
    )
    assert {name for check in CHECKS for name in check.needs} <= set(ENFORCEABLE)


GIB = 1024 * MIB
SECRET = {**BASE_ENVIRONMENT, "SECRET": "x"}


def writable(mount: Mount) -> Mount:
    """Return a writable copy of ``mount``."""
    return replace(mount, read_only=False)


def resolved(mount: Mount) -> Mount:
    """Return a copy of ``mount`` with all links in its source resolved."""
    return replace(mount, source=mount.source.resolve())


WEAKER_SPECS: list[tuple[str, dict[str, Any]]] = [
    ("the_root_is_read_only", {"read_only": False}),
    ("a_writable_root_is_opt_in", {"read_only": True}),
    ("read_only_mounts_stay_as_they_are", {"mounts": writable}),
    ("mounts_are_seen", {"mounts": ()}),
    ("writable_mounts_are_shared", {"mounts": ()}),
    ("mounts_keep_their_content", {"mounts": ()}),
    ("mounts_can_be_refreshed", {"mounts": ()}),
    ("a_mount_of_a_link_is_refused", {"mounts": resolved}),
    ("a_mount_of_nothing_is_refused", {"mounts": ()}),
    ("a_mount_over_the_kernels_files_is_refused", {"mounts": ()}),
    ("the_environment_is_exact", {"environment": {**SECRET, "OURS": "spec"}}),
    ("there_are_no_capabilities", {"cap_add": ("SYS_CHROOT",)}),
    ("there_are_no_capabilities", {"cap_drop": ()}),
    ("root_cannot_do_what_is_forbidden", {"cap_add": ("SYS_CHROOT",)}),
    ("root_cannot_do_what_is_forbidden", {"cap_drop": ()}),
    ("capabilities_are_opt_in", {"cap_add": ()}),
    ("privileges_cannot_be_gained", {"security_opt": ()}),
    ("the_user_is_nobody", {"user": (0, 0)}),
    ("the_user_is_the_specs", {"user": (0, 0)}),
    ("others_files_cannot_be_written", {"user": (0, 0)}),
    ("the_working_directory_is_set", {"workdir": "/"}),
    ("tmp_is_writable", {"tmpfs": ()}),
    ("memory_is_limited", {"limits": {"memory": GIB}}),
    ("memory_is_limited_in_a_persistent_sandbox", {"limits": {"memory": GIB}}),
    ("processes_are_limited", {"limits": {"pids": 400}}),
    ("the_process_limit_is_per_sandbox", {"limits": {"pids": 10}}),
    ("tmpfs_is_limited", {"limits": {"tmpfs": 128 * MIB}}),
    ("tmpfs_counts_as_memory", {"limits": {"memory": GIB}}),
    ("file_size_is_limited", {"limits": {"file_size": GIB}}),
    ("resource_limits_are_set", {"limits": {"open_files": 1000}}),
    ("a_flood_of_output_ends_it", {"limits": {"output": 4 * GIB}}),
    ("output_up_to_the_limit_is_allowed", {"limits": {"output": 1000}}),
    ("an_ephemeral_sandbox_forgets_its_files", {"persistent": True}),
    ("daemons_end_with_an_ephemeral_command", {"persistent": True}),
    ("a_persistent_sandbox_keeps_its_files", {"persistent": False}),
    ("an_ended_sandbox_runs_nothing", {"persistent": False}),
    ("a_port_answers_from_the_start", {"forwarded_ports": ()}),
    ("each_port_reaches_its_own_server", {"forwarded_ports": ()}),
    ("each_container_has_its_own_ports", {"persistent": True}),
    ("each_container_has_its_own_ports", {"persistent": False}),
    ("with_a_port_there_is_still_only_loopback", {"forwarded_ports": ()}),
    ("with_a_port_nothing_more_is_allowed", {"cap_add": ("SYS_CHROOT",)}),
    ("with_a_port_nothing_more_is_allowed", {"cap_drop": ()}),
    ("forwarded_ports_are_private", {"forwarded_ports": ()}),
    ("connections_end_with_their_sandbox", {"forwarded_ports": ()}),
    ("a_port_can_be_closed_from_outside", {"forwarded_ports": ()}),
    ("ports_change_nothing_else", {"forwarded_ports": ()}),
    ("a_failing_server_prevents_the_sandbox", {"forwarded_ports": ()}),
    ("invalid_ports_are_rejected", {"forwarded_ports": ()}),
    ("uncollectable_directories_are_rejected", {"collect": None}),
]

WEAKER_SPECS_OF_DOCKER: list[tuple[str, dict[str, Any]]] = [
    ("the_first_process_has_no_other_variables", {"environment": SECRET}),
    ("set_id_files_are_not_honoured", {"security_opt": ()}),
    ("privileges_cannot_be_gained", {"security_opt": ("no-new-privileges:true", "seccomp=unconfined")}),
    ("there_is_only_loopback", {"network": "bridge"}),
    ("with_a_port_there_is_still_only_loopback", {"forwarded_ports": (), "network": "bridge"}),
    ("with_a_port_the_host_cannot_be_reached", {"forwarded_ports": (), "network": "bridge"}),
    ("with_a_port_the_host_cannot_be_reached", {"forwarded_ports": (), "network": "host"}),
    ("listening_ports_are_private", {"forwarded_ports": (), "network": "host"}),
    ("the_hosts_loopback_is_unreachable", {"network": "host"}),
    ("nothing_outside_can_be_reached", {"network": "host"}),
    ("an_ordinary_user_cannot_do_what_is_forbidden", {"security_opt": ("seccomp=unconfined",)}),
    ("with_a_port_names_are_not_resolved", {"forwarded_ports": (), "network": "host"}),
]
"""Changes that only tests of Docker make.

The oci driver refuses these networks and seccomp profiles. It has several protections against each remaining change.
"""

LYING_PROCESSES: list[tuple[str, type[WrappedProcess]]] = [
    ("stdout_and_stderr_stay_apart", OneStream),
    ("bytes_arrive_unchanged", TextOnly),
    ("large_echo_does_not_deadlock", TextOnly),
    ("one_thread_may_send_while_another_receives", TextOnly),
    ("large_stdin_arrives_whole", LateReader),
    ("many_small_writes_keep_their_order", LateReader),
    ("output_that_fits_is_not_truncated", LateReader),
    ("on_output_sees_everything", LateReader),
    ("output_at_once_is_never_lost", LateReader),
    ("persistent_commands_have_stdin", LateReader),
    ("output_before_a_time_limit_is_kept", LateReader),
    ("exit_codes_are_reported", AlwaysSucceeds),
    ("signals_are_reported", AlwaysSucceeds),
    ("a_missing_program_is_reported", AlwaysSucceeds),
    ("a_time_limit_ends_it", AlwaysSucceeds),
    ("a_time_limit_holds_without_output", AlwaysSucceeds),
    ("closing_its_output_does_not_end_a_process", AlwaysSucceeds),
    ("a_time_limit_ends_a_persistent_sandbox", AlwaysSucceeds),
    ("an_exit_code_alone_is_not_out_of_memory", AlwaysOutOfMemory),
    ("kill_works_from_another_thread", AlwaysSucceeds),
    ("sending_after_the_end_breaks_the_pipe", IgnoresBrokenPipes),
    ("sending_without_a_reader_ends_with_the_time_limit", IgnoresBrokenPipes),
]

LYING_LAYERS: list[tuple[str, Callable[[Path], None]]] = [
    ("changes_are_collected", without("added")),
    ("changes_are_collected", without("message.py")),
    ("changes_are_collected", plain_modes),
    ("names_are_bytes", text_names),
    ("links_are_data", followed_links),
    ("links_are_data", without("link")),
    ("a_replaced_directory_loses_its_files", without("only")),
    ("a_replaced_directory_loses_its_files", followed_links),
    ("a_recreated_directory_loses_its_files", without("only")),
    ("special_files_are_reported", without("pipe")),
    ("set_id_files_are_reported", plain_modes),
    ("a_sparse_file_has_its_size", without("sparse")),
    ("surviving_processes_change_nothing", growing),
]

FORGOTTEN = [
    "changes_are_collected",
    "names_are_bytes",
    "a_replaced_directory_loses_its_files",
    "links_are_data",
    "special_files_are_reported",
    "set_id_files_are_reported",
    "a_sparse_file_has_its_size",
    "a_removed_directory_is_reported",
    "a_recreated_directory_loses_its_files",
    "nothing_is_collected_too_early_or_too_late",
]

CHANGED_COMMANDS: list[tuple[str, Callable[[Command], Command]]] = [
    ("a_command_overrides_its_spec", without_variables),
    ("unrepresentable_arguments_are_rejected", without_variables),
    ("arguments_arrive_exactly", with_plain_arguments),
]

LYING_DRIVERS: list[tuple[str, Callable[[OciDriver, Path], LyingDriver]]] = [
    ("a_driver_describes_itself", lambda driver, _: Anonymous(driver)),
    ("an_image_is_resolved_once", lambda driver, _: MovingTags(driver)),
    ("a_missing_image_is_reported", lambda driver, _: AnyImage(driver, DEFAULT_IMAGE)),
    ("the_files_of_an_image_are_shown", AnotherTree),
    ("closing_ends_running_processes", lambda driver, _: LyingDriver(driver, closes=False)),
    ("a_closed_sandbox_runs_nothing", lambda driver, _: LyingDriver(driver, closes=False)),
    ("a_context_closes_its_sandbox", lambda driver, _: LyingDriver(driver, closes=False)),
]


WITHOUT_A_MUTANT: dict[str, tuple[str, ...]] = {
    "a driver that fails it hangs: noticing that takes a minute": (
        "run_ends_stdin",
        "half_closing_leaves_output_open",
        "a_conversation_takes_turns",
        "initial_stdin_comes_before_what_is_sent",
        "receiving_times_out",
        "commands_run_concurrently",
        "a_waiting_command_belongs_to_its_caller",
        "a_waiting_command_has_its_whole_time",
        "closing_does_not_wait_for_unread_output",
        "reaping_spares_live_processes",
    ),
    "it asserts that something works, and fails with any error": (
        "no_output_is_empty",
        "stdin_need_not_be_read",
        "kill_after_the_end_changes_nothing",
        "waiting_twice_returns_the_same",
        "closing_twice_is_harmless",
        "a_driver_serves_many_threads",
        "memory_within_the_limit_is_available",
        "files_are_described",
        "threads_can_be_made",
        "localhost_works",
    ),
    "no field of a spec turns it off, and a wrapper cannot": (
        "a_time_limit_ends_its_children",
        "files_of_root_can_be_read_and_removed",
        "names_are_not_resolved",
        "there_are_no_devices",
        "only_its_own_processes_are_seen",
        "the_host_name_reveals_nothing",
        "two_sandboxes_share_nothing",
        "no_mark_can_be_forged",
        "an_image_stays_as_it_was",
    ),
    "the base class does it, for every driver": ("capture_is_bounded",),
}
"""Checks without a driver that fails them, by the reason why there is none."""


def lie_id(value: object) -> str:
    """Return a readable id for a parameter."""
    if isinstance(value, dict):
        return "-".join(value)
    return value if isinstance(value, str) else getattr(value, "__name__", "")


def require_noticed(name: str, driver: LyingDriver, image: ResolvedImage, directory: Path) -> None:
    """Raise an exception unless ``driver``, which breaks its contract, fails the check ``name``."""
    try:
        with pytest.raises(ConformanceError):
            by_name[name].run(driver, image, directory)
    finally:
        driver.close()


@pytest.mark.oci
@pytest.mark.parametrize(("name", "spec"), WEAKER_SPECS, ids=lie_id)
def test_a_weaker_sandbox_is_noticed(
    name: str, spec: dict[str, Any], directory: Path, oci_driver: OciDriver, base_image: ResolvedImage
) -> None:
    """A driver that creates a different sandbox than requested fails the matching check."""
    require_noticed(name, LyingDriver(oci_driver, spec=spec), base_image, directory)


@pytest.mark.engine
@pytest.mark.parametrize(("name", "spec"), WEAKER_SPECS_OF_DOCKER, ids=lie_id)
def test_a_weaker_sandbox_of_docker_is_noticed(
    name: str, spec: dict[str, Any], directory: Path, docker_driver: DockerDriver, base_image: ResolvedImage
) -> None:
    """A Docker driver whose sandboxes lack a protection fails the matching check."""
    require_noticed(name, LyingDriver(docker_driver, spec=spec), base_image, directory)


@pytest.mark.oci
@pytest.mark.parametrize(("name", "command"), CHANGED_COMMANDS, ids=lie_id)
def test_a_changed_command_is_noticed(
    name: str,
    command: Callable[[Command], Command],
    directory: Path,
    oci_driver: OciDriver,
    base_image: ResolvedImage,
) -> None:
    """A driver that runs a different command than requested fails the matching check."""
    require_noticed(name, LyingDriver(oci_driver, command=command), base_image, directory)


@pytest.mark.oci
@pytest.mark.parametrize(("name", "process"), LYING_PROCESSES, ids=lie_id)
def test_a_process_that_lies_is_noticed(
    name: str, process: type[WrappedProcess], directory: Path, oci_driver: OciDriver, base_image: ResolvedImage
) -> None:
    """A driver that loses or changes output, or hides how a process ended, fails the matching check."""
    require_noticed(name, LyingDriver(oci_driver, process=process), base_image, directory)


@pytest.mark.oci
@pytest.mark.skipif(os.getuid() != 0, reason="only root may change what another user left")
@pytest.mark.parametrize(("name", "change"), LYING_LAYERS, ids=lie_id)
def test_a_layer_that_lies_is_noticed(
    name: str, change: Callable[[Path], None], directory: Path, oci_driver: OciDriver, base_image: ResolvedImage
) -> None:
    """A driver that collects other files than the sandbox has left fails the matching check."""
    require_noticed(name, LyingDriver(oci_driver, collected=changing(change)), base_image, directory)


@pytest.mark.oci
@pytest.mark.parametrize("name", FORGOTTEN)
def test_a_driver_that_forgets_is_noticed(
    name: str, directory: Path, oci_driver: OciDriver, base_image: ResolvedImage
) -> None:
    """A driver that always reports that nothing was changed fails the checks of collected changes."""
    require_noticed(name, Forgetful(oci_driver), base_image, directory)


@pytest.mark.oci
def test_a_driver_that_empties_a_directory_is_noticed(
    directory: Path, oci_driver: OciDriver, base_image: ResolvedImage
) -> None:
    """A driver that collects an unchanged directory as an empty one fails the matching check."""
    empty = os.open(directory, os.O_RDONLY)
    lying = LyingDriver(oci_driver, collected=lambda _: CollectedLayer(empty, whole=True))
    require_noticed("an_unchanged_directory_is_collected_as_it_was", lying, base_image, directory)
    os.close(empty)


@pytest.mark.oci
@pytest.mark.parametrize(("name", "make"), LYING_DRIVERS, ids=lie_id)
def test_a_driver_that_lies_is_noticed(
    name: str,
    make: Callable[[OciDriver, Path], LyingDriver],
    directory: Path,
    oci_driver: OciDriver,
    base_image: ResolvedImage,
) -> None:
    """A driver that gives wrong data about itself or its images, or closes no sandbox, fails the matching check."""
    require_noticed(name, make(oci_driver, directory), base_image, directory)


def test_each_check_is_known_to_notice_a_lie_or_why_not() -> None:
    """Each check has either a test with a driver that fails it, or a reason why there is no such driver."""
    lies = (WEAKER_SPECS, WEAKER_SPECS_OF_DOCKER, CHANGED_COMMANDS, LYING_PROCESSES, LYING_LAYERS, LYING_DRIVERS)
    noticed = {name for table in lies for name, *_ in table} | {
        *FORGOTTEN,
        "an_unchanged_directory_is_collected_as_it_was",
    }
    excused = [name for names in WITHOUT_A_MUTANT.values() for name in names]
    assert sorted([*noticed, *excused]) == sorted(by_name)


def test_there_are_enough_checks() -> None:
    """The suite has at least forty checks with unique names, and each check has a complete sentence."""
    assert len(by_name) == len(CHECKS) >= 40
    assert all(check.sentence.endswith(".") and check.sentence[0] in string.ascii_uppercase + "`" for check in CHECKS)


def test_a_run_of_the_suite_raises_nothing() -> None:
    """``run_checks`` reports the outcome of each check, even if the driver raises an unexpected exception."""
    driver = ScriptedDriver()
    driver.program("python3")(lambda _context: 0)
    image = driver.resolve_image(DEFAULT_IMAGE)
    driver.fail_next(ZeroDivisionError("oh"))
    chosen = [by_name[name] for name in ("no_output_is_empty", "no_output_is_empty", "a_driver_describes_itself")]
    outcomes = run_checks(chosen, driver, image)
    assert [outcome.problem for outcome in outcomes] == ["ZeroDivisionError: oh", "", ""]
    assert [outcome.check for outcome in outcomes] == chosen
