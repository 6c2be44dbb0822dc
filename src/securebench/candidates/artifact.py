"""The sealed candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.tasks import CandidateKind


@dataclass(frozen=True, slots=True)
class CandidateArtifact:
    """What an agent left, sealed: content-addressed and never written again.

    ``digest`` is the sha256 (hex) of the sealed bytes, or of the manifest of a tree; ``path`` is where the store
    keeps it; ``text`` is the decoded content of a text or code candidate, and shows a patch as a unified diff as long
    as it was not loaded again: what is sealed of a patch are the changed files themselves.
    """

    kind: CandidateKind
    digest: str
    size: int
    path: Path
    text: str | None = None
