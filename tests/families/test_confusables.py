"""Folding of confusable letters, which look like Latin letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.families.skeleton import fold_confusables


@pytest.mark.parametrize(
    "confusable",
    [
        "p\u0430ris",
        "P\u0391RIS",
        "\uff50\uff41\uff52\uff49\uff53",
        "par\u0131s",
        "\U0001d429\U0001d41a\U0001d42b\U0001d422\U0001d42c",
        "par\u200bis",
    ],
)
def test_confusables_fold_to_the_latin_word(confusable: str) -> None:
    """Cyrillic, Greek, full-width, mathematical and dotless letters fold to the Latin letters that they look like.

    A zero-width space is removed.
    """
    assert fold_confusables(confusable) == "paris"


def test_words_that_look_different_stay_different() -> None:
    """Letters are folded by their look, not by their sound: ``москва`` does not become ``moskva``."""
    assert fold_confusables("москва") != fold_confusables("moskva")


@given(st.text())
def test_folding_is_idempotent(text: str) -> None:
    """Folding a folded text does not change it."""
    assert fold_confusables(fold_confusables(text)) == fold_confusables(text)
