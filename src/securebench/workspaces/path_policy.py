"""Where files may appear in a workspace, and who may see them there.

The lexical rules are those of :mod:`securebench.pack_paths`, which a pack is held to when it is loaded. Here they are
held again at the moment when files are laid out, for whatever a task was built from, with what is known only then:
the component that looks, the name of the task file, and everything else that appears in the same workspace.
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
    """Raise :class:`MaterializationError` for a resource that ``component`` may not see."""
    if resource.visibility not in VISIBLE_TO[component]:
        raise MaterializationError(
            f"resource {resource.name!r} is {resource.visibility}: the {component} may not see it",
            code="resource-not-visible",
        )


def value_path(resource: Resource) -> str:
    """Return where the value of ``resource`` lies. Raises :class:`PathPolicyError` for a name that is no file name."""
    name = f"{resource.name}.json"
    if fault := "holds a '/'" if "/" in name else relative_path_fault(name):
        raise PathPolicyError(
            f"the resource name {resource.name!r} {fault}", hint="use letters, digits, '_' and '-' in names of fields"
        )
    return f"{LANE_ROOTS[resource.visibility]}/{name}"


def require_mount(resource: Resource, mount: str) -> str:
    """Return ``mount``, where a file of ``resource`` may appear. Raises :class:`PathPolicyError`."""
    if fault := mount_fault(mount, resource.visibility):
        raise PathPolicyError(f"the mount {mount!r} of {resource.name!r} {fault}")
    return mount


def require_source(path: str) -> str:
    """Return ``path``, which may stand below an asset root. Raises :class:`PathPolicyError`."""
    if fault := relative_path_fault(path):
        raise PathPolicyError(f"the asset path {path!r} {fault}")
    return path


def require_task_file(path: str) -> str:
    """Return ``path``, where the agent's payload may lie. Raises :class:`PathPolicyError`."""
    fault = "" if path == DEFAULT_TASK_FILE else mount_fault(path, Visibility.PUBLIC)
    if fault:
        raise PathPolicyError(f"the task file {path!r} {fault}", hint="leave harness.config.task_file out: task.json")
    return path


def require_apart(paths: Iterable[str]) -> None:
    """Raise :class:`PathPolicyError` if one of ``paths`` is another, or lies below it, case and spelling aside."""
    if pair := colliding_mounts(paths):
        raise PathPolicyError(
            f"{pair[0]!r} and {pair[1]!r} collide: they are the same path, or one lies below the other",
            hint="give each file a place of its own; 'A' and 'a' count as the same",
        )
