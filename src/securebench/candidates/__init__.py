"""Candidates: the agents' results, sealed and content-addressed."""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.candidates.artifact import CandidateArtifact
    from securebench.candidates.extraction import code_from_text
    from securebench.candidates.store import CandidateStore

__all__ = [
    "CandidateArtifact",
    "CandidateStore",
    "code_from_text",
]

__getattr__ = lazy_names(
    __name__,
    {
        "CandidateArtifact": "artifact",
        "CandidateStore": "store",
        "code_from_text": "extraction",
    },
)
