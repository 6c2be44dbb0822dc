"""What a checker's sandbox is shown: a copy of the sealed workspace, and over it, from elsewhere, what judges it.

The two lie in directories of their own, so that nothing of the candidate is ever a path to an evaluation input. A
candidate that holds something where an evaluation input goes is refused, whichever case or spelling its name has.
"""

from __future__ import annotations

import os
import stat
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from securebench.errors import FailureReason
from securebench.fs.safe_open import OPEN_FILE, TreeRefusedError
from securebench.fs.tar_reader import MemberKind, TarReader
from securebench.fs.tree_writer import TreeWriter
from securebench.fs.walk import KEPT_MODE, MAX_OFFENDERS
from securebench.limits import MIB
from securebench.pack_paths import LANE_ROOTS, folded, is_at_or_below
from securebench.printable import printable_name
from securebench.resources import Component, Visibility
from securebench.sandboxes.base import Mount
from securebench.verifiers.faults import CandidateFailedError
from securebench.verifiers.terminal_task.links import UNKNOWN, WorkspaceLinks
from securebench.workspaces.materialization import VisibilityAwareMaterializer, asset_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.fs.tar_reader import Member
    from securebench.tasks import VerifierView
    from securebench.verifiers.terminal_task.request import CheckRequest

FRAMEWORK_ROOT: Final = "securebench"
"""The directory of a workspace whose content is the framework's: the checker sees its own, whole and read-only."""

_JUDGING: Final = tuple(f"{LANE_ROOTS[lane]}/" for lane in Visibility if lane is not Visibility.PUBLIC)
_ALL: Final = 0o777
"""For a directory that nobody else reaches."""
_HEADER_LIMIT: Final = 64 * 1024
_MAX_WORKDIR: Final = 1024
_MAX_NAME: Final = 255
_PLACE: Final = VisibilityAwareMaterializer(Component.TEST_SANDBOX)


@dataclass(frozen=True, slots=True)
class CheckLayout:
    """Two directories of the host. ``covers`` are the paths of ``inputs`` that lie over the workspace, with digests."""

    workspace: Path
    inputs: Path
    covers: tuple[tuple[str, str], ...]

    def mounts(self, target: str) -> tuple[Mount, ...]:
        """Return the mounts for a sandbox that has the workspace at ``target``."""
        over = (Mount(self.inputs / path, f"{target}/{path}") for path, _ in self.covers)
        return (Mount(self.workspace, target, read_only=False), *over)

    def require_untouched(self) -> None:
        """Raise :class:`CandidateFailedError` unless what judges is what was laid out."""
        if any(asset_digest(self.inputs, path) != digest for path, digest in self.covers):
            raise CandidateFailedError(FailureReason.TAMPERED, "what judges was changed while the checker ran")


def lay_out(
    view: VerifierView,
    candidate: CandidateArtifact,
    request: CheckRequest,
    scratch: Path,
    owner: tuple[int, int] | None,
    *,
    shared: bool,
) -> CheckLayout:
    """Lay everything out below the empty directory ``scratch``, for the check that ``request`` describes.

    The workspace belongs to ``owner`` (uid, gid), or with ``shared`` may be written by anybody whom the sandbox has.
    Raises :class:`CandidateFailedError` for a candidate that interferes, and as
    :meth:`VisibilityAwareMaterializer.materialize`.
    """
    workspace, inputs = scratch / "workspace", scratch / "inputs"
    for directory in (workspace, inputs):
        directory.mkdir(mode=0o755)
    covers = lay_out_inputs(view, inputs)
    with TreeWriter(workspace, owner, everybody=shared) as writer:
        links = WorkspaceLinks(request.target, _unpack(candidate, writer))
        if not (workspace / FRAMEWORK_ROOT).is_dir():
            writer.make_directory(FRAMEWORK_ROOT.encode())
        _require_links_elsewhere(links)
        _make_workdir(request, workspace, links, writer)
    _require_places(workspace, covers)
    if owner is not None:
        os.chown(workspace, *owner)
    if shared:
        workspace.chmod(_ALL)
    return CheckLayout(workspace, inputs, covers)


def lay_out_inputs(view: VerifierView, inputs: Path) -> tuple[tuple[str, str], ...]:
    """Lay out evaluation inputs, public values, and read-only public assets: the other ones are the agent's.

    Returns the paths that lie over a workspace, with digests. Raises as
    :meth:`VisibilityAwareMaterializer.materialize`.
    """
    plan = _PLACE.plan(view.test_sandbox, public_assets=view.public_assets, eval_assets=view.eval_assets)
    kept = tuple(asset for asset in plan.assets if asset.read_only or _is_framework(asset.target))
    done = _PLACE.materialize(replace(plan, assets=kept), inputs)
    assets = tuple((asset.target, asset.digest) for asset in done if not _is_framework(asset.target))
    return ((FRAMEWORK_ROOT, asset_digest(inputs, FRAMEWORK_ROOT)), *assets)


def _is_framework(target: str) -> bool:
    return is_at_or_below(target, FRAMEWORK_ROOT)


def _unpack(candidate: CandidateArtifact, writer: TreeWriter) -> dict[bytes, bytes]:
    """Write the sealed workspace and return its links.

    Raises :class:`CandidateFailedError` (``tampered``) for an entry that interferes with the checker.

    An archive of an earlier version has modes 644 and 755 alone, and is read like any other.
    """
    links: dict[bytes, bytes] = {}
    descriptor = os.open(candidate.path, OPEN_FILE)
    with closing(os.fdopen(descriptor, "rb")) as file:
        reader = TarReader(iter(lambda: file.read(MIB), b""), "the sealed workspace", _HEADER_LIMIT)
        offenders = list(islice(_written(reader, writer, links), MAX_OFFENDERS))
    if offenders:
        raise CandidateFailedError(
            FailureReason.TAMPERED, f"the workspace holds what only the task may bring: {', '.join(offenders)}"
        )
    return links


def _written(reader: TarReader, writer: TreeWriter, links: dict[bytes, bytes]) -> Iterator[str]:
    """Write each member that does not interfere, and yield those that do."""
    for member in reader:
        path = member.path.rstrip(b"/")
        if _interferes(path, member):
            yield printable_name(path)
        elif member.kind is MemberKind.DIRECTORY:
            writer.make_directory(path, member.mode & KEPT_MODE)
        elif member.kind is MemberKind.SYMLINK:
            writer.make_link(path, member.link)
            links[path] = member.link
        else:
            writer.write_file(path, reader.content(), member.mode & KEPT_MODE)


def _interferes(path: bytes, member: Member) -> bool:
    if _is_judging(path):
        return True
    return _folded(path) == FRAMEWORK_ROOT and member.kind is not MemberKind.DIRECTORY


def _is_judging(path: bytes) -> bool:
    return f"{_folded(path)}/".startswith(_JUDGING)


def _folded(path: bytes) -> str:
    return folded(path.decode("utf-8", "surrogateescape"))


def _require_links_elsewhere(links: WorkspaceLinks) -> None:
    """Raise :class:`CandidateFailedError` for a link to an input: a checker would compare that file with itself.

    Links of the kernel and of the image can lead there as well, and to what a checker has open. Where that cannot be
    ruled out, the workspace is refused, too.
    """
    for path in links:
        leads = links.resolve(links.root + b"/" + path)
        if leads == UNKNOWN:
            raise CandidateFailedError(
                FailureReason.UNSAFE_WORKSPACE,
                f"the workspace holds a link through /proc, /dev or '..' of another directory: {printable_name(path)}",
            )
        below = links.below_root(leads) if leads is not None else None
        if below is not None and _is_judging(below):
            raise CandidateFailedError(
                FailureReason.TAMPERED, f"the workspace holds a link to what judges: {printable_name(path)}"
            )


def _make_workdir(request: CheckRequest, workspace: Path, links: WorkspaceLinks, writer: TreeWriter) -> None:
    """Make the directory in which the checker starts, if it lies in the workspace and is not there.

    Raises :class:`CandidateFailedError` where the candidate has a file, or a link that leads out: no sandbox could
    begin. Links are not followed here, on the host; where they lead was computed.
    """
    if not is_at_or_below(request.workdir, request.target):
        return
    found = links.resolve(os.fsencode(request.workdir))
    below = None if found is None else links.below_root(found)
    # Links can name a path that no directory may have: a candidate's failure, and not the machine's.
    if below is not None and len(below) <= _MAX_WORKDIR and max(map(len, below.split(b"/"))) <= _MAX_NAME:
        place = workspace / os.fsdecode(below)
        nearest = next(path for path in (place, *place.parents) if os.path.lexists(path))
        if stat.S_ISDIR(nearest.lstat().st_mode):
            if nearest != place and not _is_judging(below):
                writer.make_directory(below)
            return
    raise CandidateFailedError(
        FailureReason.NO_VERDICT, "the checker's working directory is not a directory of the workspace"
    )


def _require_places(workspace: Path, covers: tuple[tuple[str, str], ...]) -> None:
    """Raise :class:`CandidateFailedError` if a read-only asset was replaced."""
    for path, digest in covers[1:]:
        try:
            same = asset_digest(workspace, path) == digest
        except TreeRefusedError:
            same = False
        if not same:
            raise CandidateFailedError(FailureReason.TAMPERED, f"a read-only asset was replaced: {path}")
