"""Strict JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from securebench.strict_input.faults import Fault
from securebench.strict_input.json_text import (
    MAX_DEPTH,
    MAX_VALUES,
    JsonSource,
    UnfitJsonError,
    decode_json,
    json_faults,
)


def nested(depth: int) -> str:
    """Return the text of ``depth`` nested lists."""
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        pytest.param('{"a": 1, "a": 2}', "key-duplicate", 10, id="K02-duplicate"),
        pytest.param('{"a": {"b": 1, "c": [], "b": 2}}', "key-duplicate", 25, id="K02-nested-duplicate"),
        pytest.param('{"a": 1, "\\u0061": 2}', "key-duplicate", 10, id="K02-escaped-duplicate"),
        pytest.param('{"a": NaN}', "json-value", 7, id="K06-nan"),
        pytest.param('{"a": [1, -Infinity]}', "json-value", 11, id="K06-infinity"),
        pytest.param('{"a": 1e400}', "json-value", 7, id="K06-1e400"),
        pytest.param('{"a": 9223372036854775808}', "json-value", 7, id="K06-beyond-64-bits"),
        pytest.param('{"a": ' + "9" * 5001 + "}", "json-value", 7, id="K06-5001-digits"),
        pytest.param('{"a": "\\ud800"}', "json-value", 7, id="lone-surrogate"),
        pytest.param('{"\\udc00": {}}', "json-value", 12, id="lone-surrogate-key"),
        pytest.param(nested(MAX_DEPTH + 2), "too-deep", MAX_DEPTH + 2, id="too-deep"),
        pytest.param(nested(100_000), "too-deep", MAX_DEPTH + 2, id="far-too-deep"),
        pytest.param("[" + "[]," * MAX_VALUES + "[]]", "too-many-values", None, id="too-many-values"),
        pytest.param('{"a": }', "json-syntax", 7, id="no-value"),
        pytest.param('{"a": 1} x', "json-syntax", 10, id="extra-data"),
        pytest.param("{'a': 1}", "json-syntax", 2, id="single-quotes"),
        pytest.param('{"a": 1, "a": 2} ]', "json-syntax", 18, id="syntax-before-duplicates"),
        pytest.param('{"a": "\t"}', "json-syntax", 8, id="raw-control-character"),
        pytest.param("", "json-syntax", 1, id="empty"),
    ],
)
def test_what_other_readers_see_differently_is_refused(text: str, code: str, column: int | None) -> None:
    """A text that is not strict JSON is refused, and its first fault has the right code, line and column."""
    with pytest.raises(UnfitJsonError):
        decode_json(text)
    first = json_faults(text, line=7)[0]
    assert first.position is not None
    assert (first.code, first.position.line, first.position.column) == (code, 7, column)


def test_all_faults_of_a_text_are_found_at_once() -> None:
    """All faults of a text are reported together, not only the first one."""
    found = json_faults('{"a": NaN, "b": {"c": 1e999, "c": 1}, "d": "\\ud801"}')
    assert [(fault.code, fault.path) for fault in found] == [
        ("json-value", ("a",)),
        ("json-value", ("b", "c")),
        ("key-duplicate", ("b", "c")),
        ("json-value", ("d",)),
    ]


@pytest.mark.parametrize(
    "text",
    [nested(MAX_DEPTH), '{"a": "\\ud83d\\ude00"}', '{"\u2028": "\u0085"}', '{"a": -9223372036854775808, "b": 1e-5}'],
)
def test_what_is_merely_unusual_is_read(text: str) -> None:
    """Nesting up to the limit, surrogate pairs, unusual line separators and small numbers are read like other JSON."""
    assert decode_json(text)[0] == json.loads(text)


@pytest.mark.parametrize(
    ("path", "at_key", "column"),
    [
        (("c", 1, "d"), False, 42),
        (("c", 1, "d"), True, 37),
        (("c", 1, "nothing"), False, 36),
        (("nothing",), False, 1),
        (("c", 5), False, 31),
        (("a",), False, 7),
    ],
)
def test_a_fault_is_placed_at_its_value_or_around_it(path: tuple[str | int, ...], at_key: bool, column: int) -> None:
    """A fault is located at its value or, with ``at_key``, at its key.

    If its path does not exist, the fault is located at the innermost value on the path that exists.
    """
    text = '{"a": {}, "b": "x,]}{", "c":  [{}, {"d": -1}]}'
    place = JsonSource("rows", text, 3).locate(Fault("x", "y", path, at_key=at_key))
    assert (place.file, place.line, place.column) == ("rows", 3, column)


def test_slow_pass_takes_bounded_time() -> None:
    """K08: a line of almost four megabytes, with many duplicate keys, is refused and explained in seconds."""
    text = "[" + '{"a":[],"a":0},' * 250_000 + "1]"
    with processor_seconds(10):
        with pytest.raises(UnfitJsonError):
            decode_json(text)
        assert json_faults(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_every_plain_value_survives(value: object) -> None:
    """A valid value without duplicate keys or extreme numbers is read as by Python's ``json`` module."""
    text = json.dumps(value)
    assert decode_json(text)[0] == json.loads(text)


@given(st.text(alphabet=st.sampled_from('{}[],:"\\u0d8e1+-.NaInfity tr\n'), max_size=60))
def test_any_text_is_read_or_explained(text: str) -> None:
    """Any text is decoded or refused. A refused text has at least one fault, and each fault has a line."""
    try:
        decode_json(text)
    except UnfitJsonError:
        faults = json_faults(text)
        assert faults
        assert all(JsonSource("f", text).locate(fault).line is not None for fault in faults)


@given(JSON, st.lists(st.integers(0, 3) | st.text(max_size=3), max_size=4))
def test_any_path_has_a_place(value: object, path: list[str | int]) -> None:
    """A fault always gets a line and a column, even if its path does not exist in the text."""
    place = JsonSource("f", json.dumps(value)).locate(Fault("x", "y", tuple(path)))
    assert place.line == 1
    assert place.column is not None
