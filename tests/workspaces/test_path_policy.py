"""Tests of the path rules that are checked when a task's files are laid out, whatever the task was built from."""

from __future__ import annotations

import pytest

from securebench.errors import ConfigError, MaterializationError, PathPolicyError
from securebench.pack_paths import DENIED_MOUNTS, RESERVED_MOUNTS
from securebench.resources import VISIBLE_TO, Component, Resource, Visibility
from securebench.workspaces.path_policy import (
    require_apart,
    require_mount,
    require_source,
    require_task_file,
    require_visible,
    value_path,
)

UNSAFE_PATHS = (
    "",
    ".",
    "/etc/passwd",
    "../x",
    "a/../b",
    "a//b",
    "./a",
    "a/",
    "a\\b",
    "a\0b",
    "a\nb",
    "%2e%2e/a",
    "C:/a",
    "nul",
    "a\u2024\u2024/b",
    "\ud800",
)
"""K12: paths that are absolute, not normalised, or have unsafe characters or names."""


def _resource(lane: Visibility = Visibility.PUBLIC, name: str = "input") -> Resource:
    return Resource(name, "value", lane)


@pytest.mark.parametrize("path", UNSAFE_PATHS)
def test_unsafe_paths_are_refused_everywhere(path: str) -> None:
    """K12: an unsafe path is refused as a source, as a mount and as the task file."""
    for check in (require_source, require_task_file, lambda mount: require_mount(_resource(), mount)):
        with pytest.raises(PathPolicyError):
            check(path)


@pytest.mark.parametrize("lane", Visibility)
@pytest.mark.parametrize("below", ["", "/x"])
@pytest.mark.parametrize("denied", DENIED_MOUNTS)
def test_denied_places_are_denied_in_every_lane(denied: str, below: str, lane: Visibility) -> None:
    """A01, K14: nothing is mounted at or below paths where other tools keep answers and scores, in any letter case."""
    for mount in (denied + below, denied.upper() + below):
        with pytest.raises(PathPolicyError):
            require_mount(_resource(lane), mount)


@pytest.mark.parametrize("reserved", [*RESERVED_MOUNTS, ".GIT/config", "Task.json", "securebench/evaluator/x"])
def test_a_public_asset_stays_out_of_the_frameworks_places(reserved: str) -> None:
    """K14: no public asset is mounted at or below task.json, .git or securebench/."""
    with pytest.raises(PathPolicyError):
        require_mount(_resource(), reserved)


def test_an_eval_file_stays_below_the_root_of_its_lane() -> None:
    """F06: a file of a lane that is not public may be mounted only below the directory of that lane."""
    inputs, hidden = _resource(Visibility.EVALUATION_INPUTS), _resource(Visibility.HIDDEN)
    assert require_mount(inputs, "securebench/evaluation_inputs/run.sh") == "securebench/evaluation_inputs/run.sh"
    for resource, mount in (
        (inputs, "run.sh"),
        (inputs, "securebench/evaluation_inputs"),
        (inputs, "securebench/evaluator/x"),
        (hidden, "securebench/evaluation_inputs/x"),
        (hidden, "securebench/public/x"),
    ):
        with pytest.raises(PathPolicyError):
            require_mount(resource, mount)


@pytest.mark.parametrize("component", Component)
def test_a_component_is_given_its_lanes_and_no_other(component: Component) -> None:
    """F18: a resource in a lane that the component may not see is refused, and the error names the lane."""
    for lane in Visibility:
        if lane in VISIBLE_TO[component]:
            require_visible(_resource(lane), component)
        else:
            with pytest.raises(MaterializationError, match=lane.value) as refused:
                require_visible(_resource(lane), component)
            assert refused.value.code == "resource-not-visible"


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a\0", "x" * 300, "con", "a\\b", "\u202ex"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    """K12: a resource name that would make an unsafe file name is refused. An empty name gives ``.json``."""
    if name == "":
        assert value_path(_resource(name=name)) == "securebench/public/.json"
        return
    with pytest.raises(PathPolicyError):
        value_path(_resource(name=name))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "A"), ("A/b", "a"), ("caf\u00e9", "cafe\u0301"), ("ﬁ", "fi")],
)
def test_paths_that_collide_are_refused(one: str, other: str) -> None:
    """K14: equal paths, and a path below another, are refused, whatever their case and Unicode normalization."""
    with pytest.raises(PathPolicyError, match="collide"):
        require_apart([one, "between", other])


def test_siblings_are_apart() -> None:
    """Paths that only share a parent directory or a prefix do not collide."""
    require_apart(["a/b", "a/c", "ab", "a-b"])


@pytest.mark.parametrize("path", ["task.json", "input.json", "given/task.json"])
def test_a_task_file_may_lie_elsewhere(path: str) -> None:
    """The tester may choose the path of the task file."""
    assert require_task_file(path) == path


@pytest.mark.parametrize("path", ["securebench/public/x.json", ".git/config", "ground_truth", "eval/task.json"])
def test_a_task_file_lies_in_no_special_place(path: str) -> None:
    """K14: the task file is refused at a path that is reserved or where nothing may be mounted."""
    with pytest.raises(PathPolicyError):
        require_task_file(path)


def test_an_unsafe_path_is_a_configuration_error() -> None:
    """``PathPolicyError`` is a ``ConfigError``, so callers that handle invalid packs handle unsafe paths, too."""
    assert issubclass(PathPolicyError, ConfigError)
