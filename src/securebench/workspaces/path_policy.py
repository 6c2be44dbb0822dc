"""Rules for the paths of files in a workspace, and for their visibility.

The rules for the text of a path are those of :mod:`securebench.pack_paths`, which are checked when a pack is loaded.
They are checked again when files are laid out, because a task need not come from a pack. This module adds rules that
depend on three things: the part of a run that would see the file (such as the agent), the name of the task file, and
the other files in the same workspace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import MaterializationError, PathPolicyError
from securebench.pack_paths import LANE_ROOTS, colliding_mounts, mount_fault, relative_path_fault
from securebench.resources import VISIBLE_TO, Component, Visibility

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.resources import Resource

DEFAULT_TASK_FILE = "task.json"


def require_visible(resource: Resource, component: Component) -> None:
    """Raise :class:`MaterializationError` if ``component`` may not see ``resource``."""
    if resource.visibility not in VISIBLE_TO[component]:
        raise MaterializationError(
            f"resource {resource.name!r} is {resource.visibility}: it must not be given to the {component}",
            code="resource-not-visible",
        )


def value_path(resource: Resource) -> str:
    """Return the path of the JSON file that gets the value of ``resource``.

    Raises :class:`PathPolicyError` if the resource's name cannot be a file name.
    """
    name = f"{resource.name}.json"
    if fault := "contains a '/'" if "/" in name else relative_path_fault(name):
        raise PathPolicyError(
            f"the resource name {resource.name!r} {fault}", hint="use only letters, digits, '_' and '-' in field names"
        )
    return f"{LANE_ROOTS[resource.visibility]}/{name}"


def require_mount(resource: Resource, mount: str) -> str:
    """Return ``mount`` if a file of ``resource`` may be placed there. Raises :class:`PathPolicyError`."""
    if fault := mount_fault(mount, resource.visibility):
        raise PathPolicyError(f"the mount {mount!r} of {resource.name!r} {fault}")
    return mount


def require_source(path: str) -> str:
    """Return ``path`` if it is a valid path below an asset root. Raises :class:`PathPolicyError`."""
    if fault := relative_path_fault(path):
        raise PathPolicyError(f"the asset path {path!r} {fault}")
    return path


def require_task_file(path: str) -> str:
    """Return ``path`` if the task file may be placed there. Raises :class:`PathPolicyError`."""
    fault = "" if path == DEFAULT_TASK_FILE else mount_fault(path, Visibility.PUBLIC)
    if fault:
        raise PathPolicyError(
            f"the task file {path!r} {fault}", hint="remove 'harness.config.task_file' to use the default, 'task.json'"
        )
    return path


def require_apart(paths: Iterable[str]) -> None:
    """Raise :class:`PathPolicyError` if two of ``paths`` are equal or one contains the other.

    Paths that differ only in case or Unicode normalization count as equal.
    """
    if pair := colliding_mounts(paths):
        raise PathPolicyError(
            f"{pair[0]!r} and {pair[1]!r} collide: they are the same path, or one is inside the other",
            hint="give each file its own path; upper and lower case letters count as equal",
        )
