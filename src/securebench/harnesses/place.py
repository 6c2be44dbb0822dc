"""Where an agent works: for most tasks its workspace, for a repository the image itself."""

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
    from securebench.tasks import AgentView

ROOT: Final = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlace:
    """Where an agent finds its ``workspace``, where it starts, and as whom. Absolute paths in its sandbox.

    ``image_directory`` is the directory of the image that the task is about, if there is one: a repository, which
    ``is_changed`` where it lies, or what the workspace begins with.
    """

    workspace: str = WORKSPACE_TARGET
    workdir: str = WORKSPACE_TARGET
    user: tuple[int, int]
    image_directory: str | None = None
    is_changed: bool = False


def place_of(view: AgentView, image: ResolvedImage) -> WorkPlace:
    """Return where the agent works on this task.

    A repository belongs to root in the images that there are, so its agent is root, without capabilities. Raises
    :class:`MaterializationError` (``image-workdir-missing``) where neither task nor image say where it is.
    """
    if view.candidate_kind is CandidateKind.PATCH:
        repository = _directory(view, image)
        return WorkPlace(workdir=repository, user=ROOT, image_directory=repository, is_changed=True)
    is_workspace = view.candidate_kind is CandidateKind.WORKSPACE
    target = (view.environment.workdir if is_workspace else None) or WORKSPACE_TARGET
    # A manifest's default may say so for the terminal tasks of a mixed pack: it means nothing to other families.
    filled = is_workspace and view.environment.materialize_workdir_from_image
    directory = _directory(view, image) if filled else None
    return WorkPlace(workspace=target, workdir=target, user=workspace_user(), image_directory=directory)


@contextmanager
def image_directory(place: WorkPlace, driver: SandboxDriver, image: ResolvedImage) -> Iterator[HostTree | None]:
    """Give the directory of the image that the task is about, as it is on the host, or nothing.

    Raises :class:`MaterializationError` (``image-workdir-missing``), and as the driver does.
    """
    if place.image_directory is None:
        yield None
        return
    with driver.image_tree(image) as lease, HostTree.of_image(lease.root, place.image_directory) as tree:
        yield tree


def _directory(view: AgentView, image: ResolvedImage) -> str:
    directory = view.environment.workdir or image.workdir
    if directory.strip("/"):
        return directory
    raise MaterializationError(
        f"neither the task nor its image {image.reference} names a working directory",
        code="image-workdir-missing",
        hint="give environment.workdir",
    )
