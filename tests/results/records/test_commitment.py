"""Commitments, which a run publishes instead of digests of hidden content."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.results.records.commitment import KEY_FILE, Commitment

if TYPE_CHECKING:
    from pathlib import Path


def test_a_commitment_is_read_back(tmp_path: Path) -> None:
    """Only its owner can read the key file, and a key that is read back makes the same commitments."""
    commitment = Commitment.new()
    commitment.write(tmp_path)
    assert Commitment.read(tmp_path).to("digest") == commitment.to("digest")
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_commitments_of_two_runs_differ() -> None:
    """M12: the same content has a different commitment in every run, so no guess can be tested without the key."""
    assert Commitment.new().to("digest") != Commitment.new().to("digest")


def test_the_key_is_not_shown() -> None:
    """The ``repr`` does not show the key: with a key from a log, anyone could test guesses of hidden content."""
    assert repr(Commitment(b"secret-key")) == "Commitment(...)"


@pytest.mark.parametrize("content", [None, "", "zz", "ab" * 31, "\u00e9"])
def test_a_key_that_is_missing_or_damaged_is_refused(tmp_path: Path, content: str | None) -> None:
    """A missing or damaged key file is refused, because without it a run cannot be compared with its pack."""
    if content is not None:
        (tmp_path / KEY_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Commitment.read(tmp_path)
    assert caught.value.code == "commitment-key"
