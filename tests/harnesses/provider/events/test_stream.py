"""The event stream of an agent program is read in bounded time and memory, whatever it contains."""

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
    """The events that a reader found in ``chunks``, and how many lines it skipped."""

    def __init__(self, *chunks: bytes) -> None:
        self.events: list[Event] = []
        reader = EventReader(self.events.append)
        for chunk in chunks:
            reader.feed(chunk)
        reader.finish()
        self.skipped = reader.skipped


def test_each_line_is_an_event() -> None:
    """Events keep their order, empty lines are ignored, and the last line needs no line end."""
    read = ReadEvents(b'{"a": 1}\n\n{"b": 2}\r\n{"c": 3}')
    assert read.events == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert read.skipped == 0


@given(st.lists(st.integers(0, 30), max_size=5))
def test_how_a_stream_is_cut_does_not_matter(cuts: list[int]) -> None:
    """The events of a stream do not depend on how it is split into chunks."""
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
    """L17: a line is skipped and counted if it is no JSON object, is nested too deep or has a bad number.

    A bad number is one that is not finite or has too many digits.
    """
    read = ReadEvents(line + b'\n{"good": 1}\n')
    assert read.events == [{"good": 1}]
    assert read.skipped == 1


def test_a_line_without_an_end_is_not_kept() -> None:
    """L17: at most ``MAX_LINE`` bytes of a line are kept. A longer line is skipped, and the next one is read."""
    reader = EventReader(lambda _event: None)
    for _ in range(64):
        reader.feed(b"x" * MAX_LINE)
    assert len(reader._line) <= MAX_LINE
    reader.feed(b'\n{"a": 1}\n')
    assert reader.skipped == 1


def test_too_many_events_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """L17: all events after the first ``MAX_EVENTS`` are skipped and counted."""
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    read = ReadEvents(b"{}\n" * 10)
    assert len(read.events) == 3
    assert read.skipped == 7


def test_a_flood_costs_time_in_proportion() -> None:
    """L17: sixteen megabytes of short lines take at most ten seconds of processor time."""
    with processor_seconds(10):
        ReadEvents(*[b'{"type": "x"}\n' * 500] * 2400)


def test_values_of_other_types_become_nothing() -> None:
    """A value of an unexpected type, or a number out of range, is read as empty or 0. No error is raised."""
    for odd in (None, True, -1, 10**16, "1", [1], {"a": 1}, 1.5):
        assert number_of(odd) == 0
        assert text_of(odd, 10) == ("1" if odd == "1" else "")
        assert object_of(odd) == ({"a": 1} if odd == {"a": 1} else {})
        assert list(objects_of(odd)) == []
    assert number_of(7) == 7
    assert list(objects_of([{"a": 1}, 2])) == [{"a": 1}]


def test_half_a_character_can_be_written_down() -> None:
    """A lone surrogate, which JSON can contain and UTF-8 cannot encode, is replaced. Long text is cut."""
    assert text_of("a\ud800b", 10) == "a?b"
    assert text_of("abc", 2) == "ab"


@pytest.mark.parametrize("odd", [True, -0.5, "1", None, float("nan"), float("inf"), 1e300])
def test_an_amount_is_finite_and_not_negative(odd: object) -> None:
    """A cost that is negative, not finite, too large or not a number is read as ``None``."""
    assert amount_of(odd) is None
    assert amount_of(0.123456789) == 0.123457
