"""An agent's output in events and records: it is bounded and decoded without errors; events contain whole lines."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from securebench.harnesses.agent_session import (
    MAX_LINE_BYTES,
    MAX_RECORDED_BYTES,
    MAX_REPORTED_BYTES,
    OutputReporter,
    recorded,
)
from securebench.progress import Event, Reporter
from securebench.sandboxes.base import Stream


def _report(*chunks: tuple[Stream, bytes]) -> list[tuple[str, str]]:
    events: list[Event] = []
    output = OutputReporter(Reporter([events.append]))
    for chunk in chunks:
        output(chunk)
    output.finish()
    return [(str(event.data["stream"]), str(event.data["text"])) for event in events]


def test_streams_are_kept_apart() -> None:
    """Output on one stream does not split a line of the other stream."""
    out, err = Stream.STDOUT, Stream.STDERR
    assert _report((out, b"one "), (err, b"oh\n"), (out, b"line\n")) == [("stderr", "oh\n"), ("stdout", "one line\n")]


@given(chunks=st.lists(st.binary(max_size=40), max_size=20))
def test_every_byte_is_reported_once_and_in_order(chunks: list[bytes]) -> None:
    """Below the limits all output is reported, however it is divided into chunks."""
    ascii_chunks = [bytes(b & 0x7F for b in chunk) for chunk in chunks]
    reported = _report(*((Stream.STDOUT, chunk) for chunk in ascii_chunks))
    assert "".join(text for _, text in reported).encode() == b"".join(ascii_chunks)


def test_a_character_that_was_cut_is_whole_again() -> None:
    """A character that is split between two chunks is decoded correctly, because a line is decoded as a whole."""
    assert _report((Stream.STDOUT, b"gr\xc3"), (Stream.STDOUT, b"\xb6\xc3\x9fe\n")) == [("stdout", "größe\n")]


def test_a_line_comes_whole_or_not_at_all() -> None:
    """I12, J15: a line that is too long is dropped as a whole, because half a secret would not be redacted."""
    out, kept = Stream.STDOUT, b"x" * (MAX_LINE_BYTES - 1)
    assert _report((out, kept), (out, b"y\n")) == [("stdout", kept.decode() + "y\n")]
    assert _report((out, b"a\n" + kept), (out, b"yy"), (out, b"y\nb\n")) == [("stdout", "a\n"), ("stdout", "b\n")]
    assert _report((out, kept), (out, b"yy\nb\n")) == [("stdout", "b\n")]
    assert _report((out, kept + b"yy"), (out, b"no end")) == []


def test_what_comes_after_the_bound_is_dropped_with_its_line() -> None:
    """I12: the line with which the output exceeds the total limit is dropped as a whole. Later lines are dropped."""
    line = b"x" * (MAX_REPORTED_BYTES // 8 - 2) + b"\n"
    reported = _report(*[(Stream.STDOUT, line)] * 9, (Stream.STDOUT, b"late\n"))
    assert [text for _, text in reported] == [line.decode()] * 8


def test_a_flood_is_dropped_after_a_while() -> None:
    """I12: of a gigabyte of output, only the first bytes up to the limit are reported, and little memory is used."""
    tracemalloc.start()
    try:
        total = 0

        def count(event: Event) -> None:
            nonlocal total
            total += len(str(event.data["text"]))

        output = OutputReporter(Reporter([count]))
        for _ in range(1024):
            output((Stream.STDOUT, b"x" * (1024 * 1024 - 1) + b"\n"))
        output.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == MAX_REPORTED_BYTES
    assert peak < 16 * 1024 * 1024


def test_a_record_keeps_the_beginning() -> None:
    """A record contains the beginning of long output and the number of bytes that were left out."""
    assert recorded(b"a\xffb") == "a\ufffdb"
    assert recorded(b"x" * MAX_RECORDED_BYTES) == "x" * MAX_RECORDED_BYTES
    assert recorded(b"x" * (MAX_RECORDED_BYTES + 5)) == "x" * MAX_RECORDED_BYTES + "\n[5 more bytes]\n"
