"""The removal of the key from data that the agent receives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from securebench.egress.relay.answer import Eraser, erased

KEY = "aab-aab-c"


def in_pieces(key: str | None, *pieces: bytes) -> bytes:
    """Return all data that an eraser forwards for ``pieces``."""
    eraser = Eraser(key)
    return b"".join(eraser.feed(piece) for piece in pieces) + eraser.finish()


@given(st.lists(st.sampled_from([b"a", b"b", b"-", b"c", KEY.encode(), b"x"]), max_size=30), st.integers(1, 7))
def test_cuts_hide_nothing(parts: list[bytes], size: int) -> None:
    """However the data is split into pieces, the key is replaced, and all other data stays."""
    data = b"".join(parts)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert in_pieces(KEY, *pieces) == data.replace(KEY.encode(), b"<redacted>")


def test_no_key_changes_nothing() -> None:
    """Without a key, all data is forwarded unchanged."""
    assert in_pieces(None, b"a", b"b") == b"ab"
    assert erased(b"ab", "") == b"ab"


def test_events_are_not_held() -> None:
    """A complete event is forwarded at once: it does not end with the beginning of a key."""
    assert Eraser(KEY).feed(b"data: {}\n\n") == b"data: {}\n\n"


def test_at_most_the_key_is_held() -> None:
    """If the last bytes may be the beginning of the key, only these bytes are held back."""
    assert Eraser(KEY).feed(b"x" * 100 + KEY[:-1].encode()) == b"x" * 100


def test_whole_key_in_one_piece() -> None:
    """Every occurrence of the key in one piece is replaced."""
    assert erased(f"{KEY} and {KEY}".encode(), KEY) == b"<redacted> and <redacted>"
