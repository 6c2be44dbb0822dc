"""Where an agent works: in its workspace for most tasks, in the image itself for a repository."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import MaterializationError
from securebench.sandboxes.base import workspace_user
from securebench.tasks import WORKSPACE_TARGET, CandidateKind
from securebench.workspaces.image_tree import HostTree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import AgentView, SecureBenchTask

ROOT: Final = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlace:
    """The agent's ``workspace``, working directory and user. Paths are absolute, inside its sandbox.

    ``image_directory`` is the directory of the image that the task is about, if any: either a repository that the agent
    changes in place (``is_changed``), or the directory whose files are copied into the workspace.
    """

    workspace: str = WORKSPACE_TARGET
    workdir: str = WORKSPACE_TARGET
    user: tuple[int, int]
    image_directory: str | None = None
    is_changed: bool = False


def place_of(view: AgentView, image: ResolvedImage) -> WorkPlace:
    """Return where the agent works on this task.

    In existing images root owns the repository, so its agent runs as root, without capabilities. Raises
    :class:`MaterializationError` (``image-workdir-missing``) if neither the task nor the image names a directory.
    """
    if view.candidate_kind is CandidateKind.PATCH:
        repository = _directory(view, image)
        return WorkPlace(workdir=repository, user=ROOT, image_directory=repository, is_changed=True)
    is_workspace = view.candidate_kind is CandidateKind.WORKSPACE
    target = (view.environment.workdir if is_workspace else None) or WORKSPACE_TARGET
    # A mixed pack may set this in its manifest's defaults for its terminal tasks; other families ignore it.
    filled = is_workspace and view.environment.materialize_workdir_from_image
    directory = _directory(view, image) if filled else None
    return WorkPlace(workspace=target, workdir=target, user=workspace_user(), image_directory=directory)


@contextmanager
def image_directory(place: WorkPlace, driver: SandboxDriver, image: ResolvedImage) -> Iterator[HostTree | None]:
    """Yield the host's tree of the image directory that the task is about, or ``None``.

    Raises :class:`MaterializationError` (``image-workdir-missing``) and the driver's errors.
    """
    if place.image_directory is None:
        yield None
        return
    with driver.image_tree(image) as lease, HostTree.of_image(lease.root, place.image_directory) as tree:
        yield tree


def needs_image_tree(task: SecureBenchTask) -> bool:
    """Whether the agent of ``task`` works on files of its image, so that :func:`image_directory` reads them."""
    is_workspace = task.candidate_kind is CandidateKind.WORKSPACE
    is_filled = is_workspace and task.environment.materialize_workdir_from_image
    return is_filled or task.candidate_kind is CandidateKind.PATCH


def _directory(view: AgentView, image: ResolvedImage) -> str:
    directory = view.environment.workdir or image.workdir
    if directory.strip("/"):
        return directory
    raise MaterializationError(
        f"neither the task nor its image {image.reference} names a working directory",
        code="image-workdir-missing",
        hint="set environment.workdir in the task",
    )
