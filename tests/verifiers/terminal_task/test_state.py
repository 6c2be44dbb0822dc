"""The state that a checker prints is parsed strictly and compared as plain data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.benchmark_pack.assets import AssetDigest
from securebench.errors import MaterializationError
from securebench.sandboxes.base import Stream
from securebench.tasks import AssetRoot
from securebench.verifiers.terminal_task.state import MAX_STATE_BYTES, LastLine, read_expected_file, same_state

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.resources import JsonValue

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def _printed(*chunks: bytes) -> LastLine:
    line = LastLine()
    for chunk in chunks:
        line((Stream.STDOUT, chunk))
    return line


@given(_VALUES)
def test_a_state_is_the_same_as_itself(value: JsonValue) -> None:
    """A value is the same as itself, and differs from a list that contains it."""
    assert same_state(value, value)
    assert not same_state(value, [value])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (0, None, False),
        ("1", 1, False),
        ([], {}, False),
        ([1, 2], [1], False),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": [1]}, {"a": [True]}, False),
        ("a", "A", False),
    ],
)
def test_states_are_compared_as_json(one: JsonValue, other: JsonValue, same: bool) -> None:
    """Numbers are compared by value and differ from booleans. Order counts in lists but not in objects."""
    assert same_state(one, other) is same
    assert same_state(other, one) is same


@pytest.mark.parametrize(
    ("chunks", "state"),
    [
        ([b'{"a": 1}'], {"a": 1}),
        ([b'PASS\n{"a"', b": 1}\n", b"\n  \n"], {"a": 1}),
        ([b'{"a": 1}\n{"a": 2}\n'], {"a": 2}),
        ([b"x" * (3 * MAX_STATE_BYTES), b'\n{"a": 1}\n'], {"a": 1}),
        ([b"x\n" * (2 * MAX_STATE_BYTES), b'"%s"\n' % (b"a" * (MAX_STATE_BYTES - 2))], "a" * (MAX_STATE_BYTES - 2)),
    ],
)
def test_the_state_is_the_last_line_that_says_something(chunks: list[bytes], state: JsonValue) -> None:
    """The last line that is not blank is the state, whatever the checker printed before it."""
    assert _printed(*chunks).state() == state


@pytest.mark.parametrize("end", [b"", b"\n", b"\n" * 9000])
@pytest.mark.parametrize("state", [b"{}", b" " * (MAX_STATE_BYTES - 2) + b"{}"], ids=["at once", "padded"])
def test_the_end_of_a_long_line_is_not_the_state(state: bytes, end: bytes) -> None:
    """A last line that is too long is refused, even if its end is valid JSON."""
    with pytest.raises(ValueError, match=r"too long|Expecting value"):
        _printed(b"x" * (2 * MAX_STATE_BYTES), b"x" * 100, state + end).state()


def test_stderr_is_no_state() -> None:
    """Output on stderr is ignored."""
    line = _printed(b'{"a": 1}\n')
    line((Stream.STDERR, b'{"a": 2}\n'))
    assert line.state() == {"a": 1}


@pytest.mark.parametrize(
    "printed",
    [
        b"",
        b"\n\n",
        b"PASSED\n",
        b'{"a": 1} PASSED\n',
        b'{"a": 1}\nok\n',
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b'{"a": 1e999}',
        b'{"a": \xff}',
        b"[" * 100_000,
        b'{"a": "' + b"x" * MAX_STATE_BYTES + b'"}',
        b'{"a": "' + b"x" * (3 * MAX_STATE_BYTES) + b'"}',
        b'{"a":\n1}\n',
    ],
)
def test_what_is_not_strict_json_is_no_state(printed: bytes) -> None:
    """A15, A20: output has no state if its last line is missing, not strict JSON, too deeply nested or too long."""
    with pytest.raises(ValueError, match=r".*"):
        _printed(printed).state()


def test_an_expected_state_may_be_a_file(tmp_path: Path) -> None:
    """An expected state can be read from a hidden JSON file."""
    (tmp_path / "state.json").write_text('{"a": [1, 2]}\n')
    assert read_expected_file(AssetRoot(tmp_path), "state.json") == {"a": [1, 2]}


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": NaN}', b"\xff"])
def test_an_expected_file_that_cannot_be_read_is_the_tasks_fault(tmp_path: Path, content: bytes) -> None:
    """An expected state that is not strict JSON is an error of the task. The message does not show the content."""
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(MaterializationError) as caught:
        read_expected_file(AssetRoot(tmp_path), "state.json")
    assert caught.value.code == "asset-unsafe"
    assert "{" not in caught.value.message


def test_an_expected_file_that_is_missing_is_the_tasks_fault(tmp_path: Path) -> None:
    """If the file of an expected state is missing, that is an error of the task."""
    with pytest.raises(MaterializationError):
        read_expected_file(AssetRoot(tmp_path), "state.json")


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_whatever_is_printed_is_a_state_or_none(chunks: list[bytes]) -> None:
    """A15: any bytes, in any chunks, are either a state or refused with ``ValueError``."""
    line = _printed(*chunks)
    try:
        state = line.state()
    except ValueError:
        return
    assert same_state(state, state)


def test_an_expected_file_that_changed_is_used_by_nobody(tmp_path: Path) -> None:
    """A file of an expected state that changed after the pack was read is refused. Its mode does not matter."""
    (tmp_path / "state.json").write_text("1")
    digest = AssetDigest("hidden/state.json")
    digest.file(hashlib.sha256(b"1").hexdigest(), executable=True)
    digests = {"hidden/state.json": digest.hexdigest()}
    root = AssetRoot(tmp_path, name="hidden", digests=digests)
    assert read_expected_file(root, "state.json") == 1
    (tmp_path / "state.json").write_text("2")
    with pytest.raises(MaterializationError, match="has changed since the run began") as raised:
        read_expected_file(root, "state.json")
    assert raised.value.code == "asset-changed"
