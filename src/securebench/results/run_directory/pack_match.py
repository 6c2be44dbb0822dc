"""Compare the digests in a run with those of a pack.

A public digest covers what agents may see, and metadata. Only the commitment covers hidden content too, and checking it
needs the commitment key of the run: see ADR 0016.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from securebench.benchmark_pack.model import BenchmarkPack, BenchmarkRow
    from securebench.results.records.commitment import Commitment


class Match(StrEnum):
    """How recorded digests compare with those of a pack or a row."""

    SAME = "same"
    """The pack or row has the same public content and the same hidden content as in the run."""
    SAME_PUBLIC = "same public content"
    """Public content is the same. Hidden content was not compared, because there is no commitment key."""
    OTHER_PUBLIC = "other public content"
    OTHER_HIDDEN = "other hidden content"
    """Hidden content differs, or the commitment key is that of another run."""

    @property
    def doubt(self) -> str:
        """An addition to a message about a difference. It is empty unless a wrong commitment key may be the cause."""
        return ", or the commitment key is that of another run" if self is Match.OTHER_HIDDEN else ""

    @property
    def agrees(self) -> bool:
        """Whether no difference was found."""
        return self in {Match.SAME, Match.SAME_PUBLIC}


def match_pack(recorded: Any, pack: BenchmarkPack, commitment: Commitment | None) -> Match:
    """Compare ``pack`` with ``recorded``, which is not trusted.

    ``recorded`` is the value of ``decisive.pack`` in ``run.json``, or of ``pack`` in the provenance of a record.
    """
    return _match(recorded, pack.public_digest, pack.digest, commitment)


def match_row(recorded: Any, row: BenchmarkRow, commitment: Commitment | None) -> Match:
    """Compare ``row`` with ``recorded``, which is not trusted.

    ``recorded`` is the value of the key ``row`` in the provenance of a record.
    """
    return _match(recorded, row.public_digest, row.digest, commitment)


def _match(recorded: Any, public_digest: str, digest: str, commitment: Commitment | None) -> Match:
    if not isinstance(recorded, dict) or recorded.get("public_digest") != public_digest:
        return Match.OTHER_PUBLIC
    if commitment is None:
        return Match.SAME_PUBLIC
    return Match.SAME if recorded.get("commitment") == commitment.to(digest) else Match.OTHER_HIDDEN
