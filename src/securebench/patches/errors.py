"""What can be wrong with a patch. Whose fault it is, a candidate's or a pack's, is for the caller to say."""

from __future__ import annotations

from typing import ClassVar

from securebench.errors import FailureReason, SecureBenchError


class PatchError(SecureBenchError):
    """A patch cannot be used; nothing of it was. ``reason`` is what it means where the patch is a candidate."""

    default_code = "patch-invalid"
    reason: ClassVar[FailureReason] = FailureReason.PATCH_INVALID


class PatchInvalidError(PatchError):
    """It is no patch, or one of a form that is not taken: whatever tree it was meant for."""


class PatchDoesNotApplyError(PatchError):
    """It is a patch, but not of this tree."""

    default_code = "patch-does-not-apply"
    reason = FailureReason.PATCH_DOES_NOT_APPLY
