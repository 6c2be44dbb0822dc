"""Errors of patches. The caller decides whether the candidate or the pack is at fault."""

from __future__ import annotations

from typing import ClassVar

from securebench.errors import FailureReason, SecureBenchError


class PatchError(SecureBenchError):
    """A patch cannot be applied; nothing was changed. ``reason`` is the failure reason if the patch is a candidate."""

    default_code = "patch-invalid"
    reason: ClassVar[FailureReason] = FailureReason.PATCH_INVALID


class PatchInvalidError(PatchError):
    """It is not a valid patch, or uses an unsupported format. Independent of the tree."""


class PatchDoesNotApplyError(PatchError):
    """It is a valid patch, but does not apply to this tree."""

    default_code = "patch-does-not-apply"
    reason = FailureReason.PATCH_DOES_NOT_APPLY
