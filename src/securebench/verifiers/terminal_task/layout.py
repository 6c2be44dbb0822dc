"""The mounts of a checker's sandbox: a copy of the sealed workspace and, mounted over it, the evaluation inputs.

They are in separate directories on the host, so that no path through the candidate's files leads to an evaluation
input. A candidate with a file in the place of an evaluation input is rejected, even if the names differ in case or
Unicode normalization.
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
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.terminal_task.links import UNKNOWN, WorkspaceLinks
from securebench.workspaces.bounded import workspace_owner
from securebench.workspaces.materialization import VisibilityAwareMaterializer, asset_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.fs.tar_reader import Member
    from securebench.tasks import VerifierView
    from securebench.verifiers.terminal_task.request import CheckRequest
    from securebench.workspaces.bounded import WritableDirectory

FRAMEWORK_ROOT: Final = "securebench"
"""SecureBench's own directory in a workspace. The checker's sandbox mounts a read-only version over it."""

_INPUT_ROOTS: Final = tuple(f"{LANE_ROOTS[lane]}/" for lane in Visibility if lane is not Visibility.PUBLIC)
_PUBLIC: Final = 0o755
_ALL: Final = 0o777
"""The mode of a workspace that any user of the sandbox may change. Other users of the host cannot reach it."""
_HEADER_LIMIT: Final = 64 * 1024
_MAX_WORKDIR: Final = 1024
_MAX_NAME: Final = 255
_PLACE: Final = VisibilityAwareMaterializer(Component.TEST_SANDBOX)


@dataclass(frozen=True, slots=True)
class CheckLayout:
    """The directories of a check.

    ``covers`` lists the paths in ``inputs`` that are mounted over the workspace, each with its digest.
    """

    workspace: WritableDirectory
    inputs: Path
    covers: tuple[tuple[str, str], ...]

    def mounts(self, target: str) -> tuple[Mount, ...]:
        """Return the mounts for a sandbox that has the workspace at ``target``."""
        covers = (Mount(self.inputs / path, f"{target}/{path}") for path, _ in self.covers)
        workspace = self.workspace
        return (Mount(workspace.source, target, read_only=False, bounded=workspace.bounded), *covers)

    def require_untouched(self) -> None:
        """Raise :class:`CandidateFailedError` if an evaluation input or a read-only asset was changed."""
        if any(asset_digest(self.inputs, path) != digest for path, digest in self.covers):
            raise CandidateFailedError(
                FailureReason.TAMPERED, "evaluation inputs or read-only assets were changed while the checker ran"
            )


def lay_out(
    view: VerifierView,
    candidate: CandidateArtifact,
    request: CheckRequest,
    directory: WritableDirectory,
    inputs: Path,
    *,
    shared: bool,
) -> CheckLayout:
    """Write the sealed workspace to ``directory``, and the evaluation inputs to ``inputs``, a new directory.

    The workspace belongs to the user of the sandbox or, if ``shared``, is writable for all users of the sandbox. Raises
    :class:`CandidateFailedError` for a candidate that interferes with the checker, and the errors of
    :meth:`VisibilityAwareMaterializer.materialize`.
    """
    workspace = directory.files
    owner = workspace_owner()
    inputs.mkdir(mode=0o755)
    covers = lay_out_inputs(view, inputs)
    with TreeWriter(workspace, owner, everybody=shared) as writer:
        links = WorkspaceLinks(request.target, _unpack(candidate, writer))
        if not (workspace / FRAMEWORK_ROOT).is_dir():
            writer.make_directory(FRAMEWORK_ROOT.encode())
        _reject_links_to_inputs(links)
        _make_workdir(request, workspace, links, writer)
    _require_read_only_assets(workspace, covers)
    workspace.chmod(_ALL if shared else _PUBLIC)
    return CheckLayout(directory, inputs, covers)


def lay_out_inputs(view: VerifierView, inputs: Path) -> tuple[tuple[str, str], ...]:
    """Write evaluation inputs, public values and read-only public assets to ``inputs``, but no other public assets.

    Returns the paths that are mounted over a workspace, with digests. Raises the errors of
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

    Raises :class:`CandidateFailedError` (``tampered``) for an entry that interferes with the checker. Archives
    that earlier releases of SecureBench sealed have only modes 644 and 755, and are read in the same way.
    """
    links: dict[bytes, bytes] = {}
    descriptor = os.open(candidate.path, OPEN_FILE)
    with closing(os.fdopen(descriptor, "rb")) as file:
        reader = TarReader(iter(lambda: file.read(MIB), b""), "the sealed workspace", _HEADER_LIMIT)
        offenders = list(islice(_written(reader, writer, links), MAX_OFFENDERS))
    if offenders:
        raise CandidateFailedError(
            FailureReason.TAMPERED, f"the workspace contains paths that are reserved: {', '.join(offenders)}"
        )
    return links


def _written(reader: TarReader, writer: TreeWriter, links: dict[bytes, bytes]) -> Iterator[str]:
    """Write the members of the archive. Skip members that interfere with the checker, and yield their names."""
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
    if _is_input(path):
        return True
    return _folded(path) == FRAMEWORK_ROOT and member.kind is not MemberKind.DIRECTORY


def _is_input(path: bytes) -> bool:
    return f"{_folded(path)}/".startswith(_INPUT_ROOTS)


def _folded(path: bytes) -> str:
    return folded(path.decode("utf-8", "surrogateescape"))


def _reject_links_to_inputs(links: WorkspaceLinks) -> None:
    """Raise :class:`CandidateFailedError` for a link to an input: a checker would compare the input with itself.

    A link can also lead to an input, or to a file that the checker has open, through a second link that is outside the
    workspace: in ``/proc`` or ``/dev``, or in the image. If that cannot be ruled out, the workspace is rejected, too.
    """
    for path in links:
        leads = links.resolve(links.root + b"/" + path)
        if leads == UNKNOWN:
            raise CandidateFailedError(
                FailureReason.UNSAFE_WORKSPACE,
                f"the workspace contains a link that may lead to an evaluation input or an open file, "
                f"for example through /proc, /dev, or '..' of a directory outside the workspace: "
                f"{printable_name(path)}",
            )
        below = links.below_root(leads) if leads is not None else None
        if below is not None and _is_input(below):
            raise CandidateFailedError(
                FailureReason.TAMPERED, f"the workspace contains a link to evaluation inputs: {printable_name(path)}"
            )


def _make_workdir(request: CheckRequest, workspace: Path, links: WorkspaceLinks, writer: TreeWriter) -> None:
    """Create the checker's working directory if it is in the workspace and missing.

    Raises :class:`CandidateFailedError` if the candidate has a file there, or a link that leads out of the workspace:
    the sandbox would then fail to start. Links are not followed on the host: their targets are computed.
    """
    if not is_at_or_below(request.workdir, request.target):
        return
    found = links.resolve(os.fsencode(request.workdir))
    below = None if found is None else links.below_root(found)
    # A link can lead to a path that is too long for a directory: a failure of the candidate, not of the machine.
    if below is not None and len(below) <= _MAX_WORKDIR and max(map(len, below.split(b"/"))) <= _MAX_NAME:
        directory = workspace / os.fsdecode(below)
        nearest = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
        if stat.S_ISDIR(nearest.lstat().st_mode):
            if nearest != directory and not _is_input(below):
                writer.make_directory(below)
            return
    raise CandidateFailedError(
        FailureReason.NO_VERDICT, "the checker's working directory is not a directory of the workspace"
    )


def _require_read_only_assets(workspace: Path, covers: tuple[tuple[str, str], ...]) -> None:
    """Raise :class:`CandidateFailedError` if a read-only asset was changed or removed."""
    for path, digest in covers[1:]:
        try:
            same = asset_digest(workspace, path) == digest
        except TreeRefusedError:
            same = False
        if not same:
            raise CandidateFailedError(FailureReason.TAMPERED, f"a read-only asset was changed or removed: {path}")
