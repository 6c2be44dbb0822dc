"""Compute, without a sandbox, the tree to be judged: the trusted tree, the candidate's changes, then the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from securebench.errors import FailureReason, MaterializationError
from securebench.patches.apply import apply_patch
from securebench.patches.model import Delta, FileTree, FileVersion, PatchDoesNotApplyError, PatchError
from securebench.patches.names import parents, shown
from securebench.patches.policy import MAX_SHOWN, Violation, matches, violations
from securebench.patches.render import render
from securebench.verifiers.base import CandidateFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from securebench.patches.policy import PathPolicy


class PristineTree(FileTree, Protocol):
    """The repository as the image contains it."""

    def files(self, top: bytes = b"") -> Iterable[bytes]:
        """Yield the path of every file and link at or below ``top``."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """``base`` with the changes of ``delta`` applied."""

    base: FileTree
    delta: Delta

    def get(self, path: bytes) -> FileVersion | None:
        """Return the file or link at ``path``."""
        return self.delta[path] if path in self.delta else self.base.get(path)


def require_allowed(
    candidate: Delta, pristine: FileTree, policy: PathPolicy, owned: Callable[[bytes], bool], details: dict[str, Any]
) -> None:
    """Raise :class:`CandidateFailedError` (``policy_violation``) with the first forbidden change, if there is one.

    ``owned`` returns whether a path belongs to the command's test runner.
    """
    found = list(violations(candidate, pristine, policy))
    for path in sorted(candidate):
        text = path.decode("utf-8", "surrogateescape")
        if owned(path) and not matches(text, policy.allow_sensitive_paths):
            found.append(Violation(shown(path), "is part of the test runner"))
    if not found:
        return
    details["violations"] = [{"path": one.path, "rule": one.rule} for one in found[:MAX_SHOWN]]
    details["violation_count"] = len(found)
    raise CandidateFailedError(FailureReason.POLICY_VIOLATION, f"{found[0].path}: {found[0].rule}")


def task_patch(data: bytes, base: FileTree, what: str) -> Delta:
    """Return the changes that a patch of the task makes to ``base``. ``what`` is the name of the patch's field.

    Raises :class:`MaterializationError` if the patch cannot be applied.
    """
    if not data:
        return {}
    try:
        return apply_patch(data, base)
    except PatchError as error:
        message = f"the task's {what} cannot be applied"  # without details: the patch is an evaluation input
        hint = (
            "create the patch in the task's image, with 'git add -A' and 'git diff --cached --binary'; "
            "for a test_patch, apply and commit the setup_patch first"
        )
        raise MaterializationError(message, code=error.code, hint=hint) from None


def carried_over(candidate: Delta, pristine: FileTree, setup: Delta) -> Delta:
    """Return ``candidate`` as changes to the trusted tree, which is ``pristine`` with ``setup`` applied.

    If ``candidate`` and ``setup`` changed the same file, the candidate's difference is applied to the trusted version.
    Raises :class:`CandidateFailedError` (``patch_does_not_apply``) if that is impossible.
    """
    trusted, carried = Overlay(pristine, setup), dict(candidate)
    for path in sorted(candidate.keys() & setup.keys()):
        del carried[path]
        text = render({path: candidate[path]}, pristine)
        try:
            carried.update(apply_patch(text.encode("utf-8"), trusted) if text else {})
        except PatchDoesNotApplyError:
            raise _unfit(f"the change to {shown(path)} conflicts with the task's setup_patch") from None
    return carried


def require_tree(delta: Delta, pristine: PristineTree) -> None:
    """Raise :class:`CandidateFailedError` (``patch_does_not_apply``) if a file would be inside another file."""
    final = Overlay(pristine, delta)
    for path, version in delta.items():
        if version is None:
            continue
        for directory in parents(path):
            if final.get(directory) is not None:
                raise _unfit(f"{shown(directory)} is a file or link, but must be a directory")
        if any(final.get(below) is not None for below in pristine.files(path) if below != path):
            raise _unfit(f"{shown(path)} is a directory, but must be a file")


def _unfit(message: str) -> CandidateFailedError:
    return CandidateFailedError(FailureReason.PATCH_DOES_NOT_APPLY, message)
