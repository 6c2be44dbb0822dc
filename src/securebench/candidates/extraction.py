"""Seal an agent's result as a candidate, or return the reason why that is impossible.

Text and code are evidence, so they are sealed exactly as the agent left them. Functions that prepare them
for judging, such as :func:`code_from_text`, are pure, so that anyone can repeat them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.candidates.store import text_or_none
from securebench.errors import CandidateError, FailurePhase, FailureReason
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.limits import MIB
from securebench.patches.apply import apply_patch
from securebench.patches.model import MAX_PATCH_BYTES, PatchError
from securebench.patches.render import render
from securebench.workspaces.changes import read_changes
from securebench.workspaces.snapshot import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.candidates.store import CandidateStore
    from securebench.fs.walk import TreeLimits
    from securebench.patches.model import Delta, FileTree
    from securebench.sandboxes.collected import Collected
    from securebench.tasks import CandidateKind
    from securebench.workspaces.image_tree import HostTree

MAX_CANDIDATE_BYTES = MIB
"""The largest text or code candidate, in bytes. Honest answers are far smaller."""

_REASONS = {
    TreeRefusal.MISSING: FailureReason.CANDIDATE_MISSING,
    TreeRefusal.UNSAFE: FailureReason.UNSAFE_WORKSPACE,
    TreeRefusal.TOO_LARGE: FailureReason.CANDIDATE_TOO_LARGE,
}
_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)\Z")


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of sealing: a candidate, a failure, or both. For example, an empty text is stored but is a failure."""

    candidate: CandidateArtifact | None
    failure: CandidateError | None = None


def seal_output(store: CandidateStore, kind: CandidateKind, data: bytes, *, truncated: bool) -> Sealed:
    """Seal an agent's stdout. If it is truncated or too large, nothing is sealed, and a failure is returned."""
    if truncated or len(data) > MAX_CANDIDATE_BYTES:
        return _failed(FailureReason.CANDIDATE_TOO_LARGE, f"stdout is larger than {MAX_CANDIDATE_BYTES} bytes")
    return _seal_bytes(store, kind, data)


def seal_file(store: CandidateStore, kind: CandidateKind, workspace: Path, relative: str) -> Sealed:
    """Seal the file ``relative`` of a workspace."""
    try:
        data = read_file(workspace, relative, MAX_CANDIDATE_BYTES)
    except TreeRefusedError as refused:
        return _failed(_REASONS[refused.refusal], str(refused))
    return _seal_bytes(store, kind, data)


def seal_workspace(
    store: CandidateStore, kind: CandidateKind, workspace: Path, limits: TreeLimits | None = None
) -> Sealed:
    """Seal a whole workspace."""
    try:
        return Sealed(store.seal_tree(kind, workspace, limits))
    except TreeRefusedError as refused:
        return _failed(_REASONS[refused.refusal], f"cannot seal the workspace: {refused}")


def seal_changes(store: CandidateStore, collected: Collected, pristine: HostTree) -> tuple[Sealed, Mapping[str, int]]:
    """Seal the ``collected`` changes to the image's files. Also return how many paths were ignored, by kind."""
    try:
        changes = read_changes(collected, pristine)
    except TreeRefusedError as refused:
        return _failed(_REASONS[refused.refusal], f"cannot seal the changes: {refused}"), {}
    return _seal_delta(store, changes.delta, pristine), changes.ignored


def seal_patch_file(store: CandidateStore, workspace: Path, relative: str, pristine: FileTree) -> Sealed:
    """Apply the patch file ``relative``, a path in a workspace, to ``pristine``, and seal the resulting changes."""
    try:
        data = read_file(workspace, relative, MAX_PATCH_BYTES)
        if not data.strip():
            return _failed(FailureReason.CANDIDATE_EMPTY, "the patch is empty or blank")
        return _seal_delta(store, apply_patch(data, pristine), pristine)
    except TreeRefusedError as refused:
        return _failed(_REASONS[refused.refusal], str(refused))
    except PatchError as error:
        return _failed(error.reason, error.message)


def _seal_delta(store: CandidateStore, delta: Delta, pristine: FileTree) -> Sealed:
    """Seal changes. If there are none, an empty candidate is sealed, but a failure is returned, too."""
    try:
        candidate = store.seal_patch(delta, render(delta, pristine))
    except TreeRefusedError as refused:
        return _failed(_REASONS[refused.refusal], f"cannot seal the changes: {refused}")
    return Sealed(candidate, None if delta else _error(FailureReason.CANDIDATE_EMPTY, "the agent changed nothing"))


def decode(data: bytes) -> str:
    """Return ``data`` as text. Raises :class:`CandidateError` if it is not UTF-8, contains NUL or is blank."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _error(FailureReason.CANDIDATE_NOT_TEXT, f"byte {error.start} is not UTF-8") from None
    if "\0" in text:
        raise _error(FailureReason.CANDIDATE_NOT_TEXT, f"character {text.index(chr(0))} is NUL")
    if not text.removeprefix(_BOM).strip():
        raise _error(FailureReason.CANDIDATE_EMPTY, "the candidate is empty or blank")
    return text


def code_from_text(text: str) -> str:
    """Return the program in ``text``: the content of its only fenced block, else the whole text.

    A byte order mark is dropped, and CRLF and CR become LF. A fence is a line that begins with at least three backticks
    or tildes, after at most three spaces, and has no other backticks. A block ends at the next fence with at least as
    many of the same characters and no text after them. If there is no block, more than one, or an unclosed one, the
    whole text is returned: SecureBench never chooses between blocks.
    """
    normalised = text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")
    blocks = _fenced_blocks(normalised)
    return blocks[0] if blocks is not None and len(blocks) == 1 else normalised


def _fenced_blocks(text: str) -> list[str] | None:
    """Return the content of each fenced block, or ``None`` if one is never closed."""
    blocks: list[str] = []
    marks, content = "", ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if not marks:
            marks, content = (fence["marks"] if fence else ""), ""
        elif fence and fence["marks"].startswith(marks) and not fence["info"].strip():
            blocks.append(content)
            marks = ""
        else:
            content += f"{line}\n"
    return None if marks else blocks


def _seal_bytes(store: CandidateStore, kind: CandidateKind, data: bytes) -> Sealed:
    try:
        return Sealed(store.seal_bytes(kind, data, decode(data)))
    except CandidateError as failure:
        return Sealed(store.seal_bytes(kind, data, text_or_none(data)), failure)


def _failed(reason: FailureReason, message: str) -> Sealed:
    return Sealed(None, _error(reason, message))


def _error(reason: FailureReason, message: str) -> CandidateError:
    return CandidateError(reason, message, phase=FailurePhase.SEAL)
