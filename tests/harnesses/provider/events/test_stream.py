"""The event stream of a program is read within bounds, whatever it holds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from securebench.harnesses.provider.events import stream as events
from securebench.harnesses.provider.events.stream import (
    MAX_LINE,
    EventReader,
    amount_of,
    number_of,
    object_of,
    objects_of,
    text_of,
)

if TYPE_CHECKING:
    from securebench.harnesses.provider.events.stream import Event


class ReadEvents:
    """What a reader handed on, and how much it skipped."""

    def __init__(self, *chunks: bytes) -> None:
        self.events: list[Event] = []
        reader = EventReader(self.events.append)
        for chunk in chunks:
            reader.feed(chunk)
        reader.finish()
        self.skipped = reader.skipped


def test_each_line_is_an_event() -> None:
    """Events come in their order, the last one also without a line end, and empty lines are nothing."""
    read = ReadEvents(b'{"a": 1}\n\n{"b": 2}\r\n{"c": 3}')
    assert read.events == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert read.skipped == 0


@given(st.lists(st.integers(0, 30), max_size=5))
def test_how_a_stream_is_cut_does_not_matter(cuts: list[int]) -> None:
    """The same events come out of a stream, however its pieces arrive."""
    stream = b'{"a": "\xc3\xa9"}\n{"b": 2}\n'
    edges = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert ReadEvents(*pieces).events == [{"a": "é"}, {"b": 2}]


@pytest.mark.parametrize(
    "line",
    [
        b"plain words",
        b'"a string"',
        b"[1, 2]",
        b"null",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": \xff}',
        b'{"a": 1} {"b": 2}',
        b'{"a": ' + b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\x00",
    ],
)
def test_what_is_no_event_is_skipped(line: bytes) -> None:
    """L17: what is not a finite JSON object, or nested without an end, is counted and does no harm to what follows."""
    read = ReadEvents(line + b'\n{"good": 1}\n')
    assert read.events == [{"good": 1}]
    assert read.skipped == 1


def test_a_line_without_an_end_is_not_kept() -> None:
    """L17: a line that is too long takes no more memory than the longest that is read, and the next one counts."""
    reader = EventReader(lambda _event: None)
    for _ in range(64):
        reader.feed(b"x" * MAX_LINE)
    assert len(reader._line) <= MAX_LINE
    reader.feed(b'\n{"a": 1}\n')
    assert reader.skipped == 1


def test_too_many_events_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """L17: a flood of events is cut off, and that is counted."""
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    read = ReadEvents(b"{}\n" * 10)
    assert len(read.events) == 3
    assert read.skipped == 7


def test_a_flood_costs_time_in_proportion() -> None:
    """L17: sixteen megabytes in pieces of one line or less are read in seconds."""
    with processor_seconds(10):
        ReadEvents(*[b'{"type": "x"}\n' * 500] * 2400)


def test_values_of_other_types_become_nothing() -> None:
    """A field that is not what it should be reads as empty: no event raises anything."""
    for odd in (None, True, -1, 10**16, "1", [1], {"a": 1}, 1.5):
        assert number_of(odd) == 0
        assert text_of(odd, 10) == ("1" if odd == "1" else "")
        assert object_of(odd) == ({"a": 1} if odd == {"a": 1} else {})
        assert list(objects_of(odd)) == []
    assert number_of(7) == 7
    assert list(objects_of([{"a": 1}, 2])) == [{"a": 1}]


def test_half_a_character_can_be_written_down() -> None:
    """A lone surrogate, which JSON can hold and no file, is replaced."""
    assert text_of("a\ud800b", 10) == "a?b"
    assert text_of("abc", 2) == "ab"


@pytest.mark.parametrize("odd", [True, -0.5, "1", None, float("nan"), float("inf"), 1e300])
def test_an_amount_is_finite_and_not_negative(odd: object) -> None:
    """A cost that cannot be is none."""
    assert amount_of(odd) is None
    assert amount_of(0.123456789) == 0.123457
