"""Candidates that were sealed before a power failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.candidates.store import CandidateStore
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from pathlib import Path

    from power_loss.conftest import Survive
    from power_loss.disk import State


def test_sealed_candidates_are_on_disk(root: Path, survive: Survive) -> None:
    """After a power failure, each sealed candidate can be loaded.

    Once unfinished entries are removed, every entry that remains in the store can be loaded.
    """
    (root / "tree").mkdir()
    (root / "tree" / "file").write_bytes(b"x" * 5000)
    store = CandidateStore(root / "run" / "candidates")

    def check(state: State) -> None:
        for digest in state.promises:
            store.load(CandidateKind.WORKSPACE, digest)
        store.clear_unfinished()
        for path in store.root.glob("*"):
            store.load(CandidateKind.WORKSPACE, path.name)

    survive("candidates", check=check, at_least=25)
