"""The sealed candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.tasks import CandidateKind


@dataclass(frozen=True, slots=True)
class CandidateArtifact:
    """A sealed candidate: content-addressed and never modified.

    ``digest`` is the sha256 (hex) of the sealed bytes. ``path`` is the file in the store. ``text`` is the decoded
    content of a text or code candidate, or ``None`` if it is not UTF-8. For a patch that was just sealed, ``text`` is a
    unified diff. A patch that is loaded from the store has no text, because only its changed files are sealed. A
    workspace never has a text.
    """

    kind: CandidateKind
    digest: str
    size: int
    path: Path
    text: str | None = None
