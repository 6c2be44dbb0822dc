"""Strict YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from securebench.strict_input.faults import Fault
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, MAX_YAML_DEPTH, parse_yaml

LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        pytest.param(LAUGHS, "yaml-alias", (1, 4), id="K01-billion-laughs"),
        pytest.param("a: &x\n  b: *x\n", "yaml-alias", (1, 4), id="K01-recursive"),
        pytest.param("a: 1\nb: 2\na: 3\n", "key-duplicate", (3, 1), id="K02-duplicate"),
        pytest.param("{a: 1, 'a': 2}", "key-duplicate", (1, 8), id="K02-quoted-duplicate"),
        pytest.param("a: no", "yaml-value", (1, 4), id="K03-no"),
        pytest.param("a: On", "yaml-value", (1, 4), id="K03-on"),
        pytest.param("a: 010", "yaml-value", (1, 4), id="K03-octal"),
        pytest.param("a: 12:30:45", "yaml-value", (1, 4), id="K03-base-60"),
        pytest.param("a: 2024-01-31", "yaml-value", (1, 4), id="K03-date"),
        pytest.param("a: 2024-01-31T10:00:00Z", "yaml-value", (1, 4), id="K03-timestamp"),
        pytest.param("a: 1_000", "yaml-value", (1, 4), id="K03-digit-groups"),
        pytest.param("a: .nan", "yaml-value", (1, 4), id="K03-nan"),
        pytest.param("a: -.inf", "yaml-value", (1, 4), id="K03-inf"),
        pytest.param("a: 1e400", "yaml-value", (1, 4), id="K06-1e400"),
        pytest.param("a: 99999999999999999999", "yaml-value", (1, 4), id="K06-huge-integer"),
        pytest.param("a: 123456789012345678901", "yaml-value", (1, 4), id="K06-21-digits"),
        pytest.param(f"a: -{'9' * 5000}", "yaml-value", (1, 4), id="K06-5000-digits"),
        pytest.param("a: !!python/object/apply:os.system ['x']", "yaml-tag", (1, 4), id="K04-python-tag"),
        pytest.param("a: !!str 1", "yaml-tag", (1, 4), id="K04-standard-tag"),
        pytest.param("!x\na: 1", "yaml-tag", (1, 1), id="K04-tag-of-the-document"),
        pytest.param("? [a, b]\n: c", "yaml-key", (1, 3), id="key-that-is-a-list"),
        pytest.param("%YAML 1.1\n---\na: 1", "yaml-directive", (2, 1), id="directive"),
        pytest.param("%TAG ! tag:x,2000:\n---\na: 1", "yaml-directive", (2, 1), id="tag-directive"),
        pytest.param("a: 1\n---\nb: 2", "yaml-documents", (2, 1), id="two-documents"),
        pytest.param("a: [1", "yaml-syntax", (1, 6), id="unclosed"),
        pytest.param("\ta: 1", "yaml-syntax", (1, 1), id="tab"),
        pytest.param('a: "\\UFFFFFFFF"', "yaml-syntax", (1, 1), id="escape-beyond-unicode"),
        pytest.param('a: "\\ud800"', "yaml-value", (1, 4), id="lone-surrogate"),
        pytest.param("[" * (MAX_YAML_DEPTH + 1), "too-deep", (1, MAX_YAML_DEPTH + 1), id="too-deep"),
    ],
)
def test_what_other_readers_see_differently_is_refused(text: str, code: str, place: tuple[int, int]) -> None:
    """A text that is not strict YAML is refused, and its first fault has the right code, line and column."""
    _, source, faults = parse_yaml(text, "manifest")
    location = source.locate(faults[0])
    assert faults[0].code == code
    assert (location.line, location.column) == place


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: -2.5\nc: 1e3", {"a": 1, "b": -2.5, "c": 1000.0}),
        ("a: true\nb: False\nc: null\nd: ~\ne:", {"a": True, "b": False, "c": None, "d": None, "e": None}),
        ("a: 'no'\nb: \"010\"\nc: '2024-01-31'", {"a": "no", "b": "010", "c": "2024-01-31"}),
        ("a: python:3.11-slim\nb: 1.2.3\nc: 0.2", {"a": "python:3.11-slim", "b": "1.2.3", "c": 0.2}),
        ("a: |\n  x\n  y\nb: [1, {c: d}]", {"a": "x\ny\n", "b": [1, {"c": "d"}]}),
        ("# nothing\n", None),
        ("'no': 1", {"no": 1}),
    ],
)
def test_the_core_schema_is_read(text: str, value: object) -> None:
    """Numbers, booleans, null, quoted strings, block text and nested values are read as YAML 1.2 defines them."""
    assert parse_yaml(text, "f")[::2] == (value, [])


def test_all_faults_are_found_at_once() -> None:
    """One pass reports every ambiguous value, tag, anchor and duplicate key of a file."""
    faults = parse_yaml("a: yes\nb: !x 1\na: 010\nc: &x 1\n", "f")[2]
    assert [fault.code for fault in faults] == ["yaml-value", "yaml-tag", "key-duplicate", "yaml-value", "yaml-alias"]


def test_faults_are_placed_at_keys_values_or_around_them() -> None:
    """A fault is located at its value or, with ``at_key``, at its key.

    If its path does not exist, the fault is located at the innermost value on the path that exists.
    """
    source = parse_yaml("a:\n  b: [1, x]\n", "f")[1]
    at = [
        source.locate(Fault("x", "y", path, at_key=key)) for path, key in [(("a", "b", 1), False), (("a", "b"), True)]
    ]
    around = source.locate(Fault("x", "y", ("a", "z", 3)))
    assert [(place.line, place.column) for place in (*at, around)] == [(2, 10), (2, 3), (2, 3)]
    assert around.pointer == "/a/z/3"


def test_a_hostile_file_takes_bounded_time() -> None:
    """K01: a file of the maximum size that consists only of nested lists or mappings is refused in seconds."""
    with processor_seconds(10):
        assert parse_yaml("[" * MAX_YAML_BYTES, "f")[2]
        assert parse_yaml("{a: " * (MAX_YAML_BYTES // 4), "f")[2]


@given(st.text(alphabet=st.sampled_from("ab01:-,[]{}&*!|>'\"%#?\\ \n\t_.~\u0085\u2028\ufeff"), max_size=40))
def test_any_text_is_read_or_explained(text: str) -> None:
    """No text raises an exception, and every reported fault has a line."""
    _, source, faults = parse_yaml(text, "f")
    assert all(source.locate(fault).line for fault in faults)
