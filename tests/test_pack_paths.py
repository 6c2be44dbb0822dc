"""Which paths, mounts and working directories a pack may contain."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.pack_paths import (
    DENIED_MOUNTS,
    colliding_mounts,
    container_directory_fault,
    mount_fault,
    relative_path_fault,
)
from securebench.resources import Visibility


@pytest.mark.parametrize("path", ["a", "a/b.txt", ".hidden", "src/**", "a b/c", "..a/b..c", "é/ü", "-rf", "100%"])
def test_plain_relative_paths_are_taken(path: str) -> None:
    """Relative paths with letters of any script, a leading dot or inner spaces are accepted."""
    assert relative_path_fault(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "a/../b",
        "../a",
        "a/..",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "..\\a",
        "a\0b",
        "a\nb",
        "a\x1b[2J",
        "a\u200bb",
        "a\u202eb",
        "%2e%2e/a",
        "a%2Fb",
        "%00",
        "C:/a",
        "c:a",
        "~/a",
        "con",
        "a/NUL.txt",
        "com1",
        "a./b",
        "a /b",
        " a",
        "\uff0e\uff0e/a",
        "a\u2215b",
        "\u2025/a",
        "x" * 256,
        "é" * 128,
        "/".join("x" * 40),
        "\ud800",
    ],
    ids=ascii,
)
def test_k12_other_paths_are_refused(path: str) -> None:
    """K12: absolute, overlong and non-normal paths, and those with ``..``, escapes or device names, are refused."""
    assert relative_path_fault(path) != ""


@given(st.text())
def test_what_is_taken_stays_below_its_root(path: str) -> None:
    """K12: an accepted path is in normal form and stays below the directory that it is joined to."""
    if relative_path_fault(path) == "":
        joined = PurePosixPath("/root") / path
        assert str(joined) == f"/root/{path}"
        assert ".." not in joined.parts


@pytest.mark.parametrize("path", ["/app", "/testbed", "/workspace", "/usr/src/app", "/root", "/home/user", "/var/www"])
def test_working_directories_of_tasks_are_taken(path: str) -> None:
    """Common working directories of images are accepted."""
    assert container_directory_fault(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "app",
        "",
        "/",
        "//",
        "/proc",
        "/proc/self",
        "/sys",
        "/dev/shm",
        "/etc",
        "/usr",
        "/usr/lib/x",
        "/bin",
        "/run/x",
        "/app/..",
        "/app/../etc",
        "/app/",
        "/a//b",
        "/tmp",
        "/opt/securebench/agent",
        "/a\x00",
        "/a\\b",
        "~",
        "/a%2e",
    ],
)
def test_k16_other_working_directories_are_refused(path: str) -> None:
    """K16: relative paths, the root, and directories of the container's system are refused."""
    assert container_directory_fault(path) != ""


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("//app", "contains an empty name"),
        ("//", "contains an empty name"),
        ("/~/x", "has a first component that begins with '~'"),
        ("/C:/x", "has a first component that begins with '~' or with a drive letter"),
        ("app", "is not an absolute path"),
    ],
)
def test_a_fault_of_a_working_directory_does_not_ask_for_a_relative_path(path: str, fault: str) -> None:
    """A message about a working directory, which must be absolute, does not ask for a relative path."""
    assert container_directory_fault(path).startswith(fault)


@pytest.mark.parametrize(
    "mount",
    [
        "task.json",
        "TASK.JSON",
        "task.json/x",
        ".git",
        ".GIT/hooks/x",
        "securebench",
        "securebench/public/x",
        "Securebench/x",
        "../x",
        *DENIED_MOUNTS,
        "eval/x",
        "Ground_Truth/y",
        "\uff45\uff56\uff41\uff4c/x",
    ],
)
def test_k14_reserved_and_denied_mounts_are_refused(mount: str) -> None:
    """K14: a public mount at or below a reserved or denied path is refused, whatever its case or Unicode form."""
    assert mount_fault(mount, Visibility.PUBLIC) != ""


@pytest.mark.parametrize("mount", ["x", "tests/eval", "evaluation/x", "task/x.json", ".github/x", "a/task.json"])
def test_other_public_mounts_are_taken(mount: str) -> None:
    """A public mount that only resembles a reserved path is accepted."""
    assert mount_fault(mount, Visibility.PUBLIC) == ""


@pytest.mark.parametrize(
    ("lane", "mount", "fine"),
    [
        (Visibility.EVALUATION_INPUTS, "securebench/evaluation_inputs/run.sh", True),
        (Visibility.EVALUATION_INPUTS, "securebench/evaluation_inputs", False),
        (Visibility.EVALUATION_INPUTS, "securebench/evaluator/x", False),
        (Visibility.EVALUATION_INPUTS, "run.sh", False),
        (Visibility.HIDDEN, "securebench/evaluator/x", True),
        (Visibility.HIDDEN, "securebench/evaluation_inputs/x", False),
    ],
)
def test_eval_files_lie_below_the_root_of_their_lane(lane: Visibility, mount: str, fine: bool) -> None:
    """A file of ``evaluation_inputs`` or ``hidden`` is accepted only below the root of its lane."""
    assert (mount_fault(mount, lane) == "") is fine


@pytest.mark.parametrize(
    ("mounts", "collision"),
    [
        (["a", "b", "c/d"], None),
        (["a/b", "a/c", "ab"], None),
        (["a", "a"], ("a", "a")),
        (["a/b/c", "a"], ("a", "a/b/c")),
        (["A/x", "a/X"], ("A/x", "a/X")),
        (["caf\u00e9", "cafe\u0301"], ("caf\u00e9", "cafe\u0301")),
        (["stra\u00dfe", "STRASSE/x"], ("stra\u00dfe", "STRASSE/x")),
    ],
)
def test_k14_overlapping_mounts_are_found(mounts: list[str], collision: tuple[str, str] | None) -> None:
    """K14: two mounts collide if they are equal or one is below the other, whatever their case or Unicode form."""
    assert colliding_mounts(mounts) == collision
