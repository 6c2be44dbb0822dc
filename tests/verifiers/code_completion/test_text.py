"""The guests' JSON functions give the same results as the package ``json``, and refuse invalid input."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.verifiers.code_completion.guest import text

if TYPE_CHECKING:
    from collections.abc import Iterator

_scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
)
_values = st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@pytest.fixture(params=["compiled", "package"])
def each(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Provide the module, once with this interpreter's ``_json`` and once as if there were no ``_json``."""
    if request.param == "package":
        monkeypatch.setitem(sys.modules, "_json", None)
        importlib.reload(text)
    yield text
    monkeypatch.undo()
    importlib.reload(text)


@given(_values)
def test_it_writes_and_reads_what_the_package_does(value: Any) -> None:
    """``dumps`` and ``loads`` return the same text and the same value as ``json``."""
    written = text.dumps(value)
    assert written == json.dumps(value, separators=(",", ":"))
    assert text.loads(written.encode()) == json.loads(written) == value


def test_both_ways_agree(each: Any) -> None:
    """Text and value are the same with and without ``_json``."""
    value = {"a": [1, 2.5, None, True, "\u00e9\n"], "b": {}}
    assert each.dumps(value) == '{"a":[1,2.5,null,true,"\\u00e9\\n"],"b":{}}'
    assert each.loads(each.dumps(value).encode()) == value


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":1}x', b'{"a":1}{}', b"\xff", b'"\x01"', b"nul", b"[1,]"])
def test_what_is_no_json_is_refused(each: Any, data: bytes) -> None:
    """``loads`` raises ``ValueError`` for data that is not exactly one JSON text."""
    with pytest.raises(ValueError):  # noqa: PT011 - the message depends on the interpreter
        each.loads(data)


def test_what_is_nested_too_deeply_is_refused(each: Any) -> None:
    """``loads`` raises ``RecursionError`` for deeply nested data, so a peer cannot overflow the stack."""
    with pytest.raises(RecursionError):
        each.loads(b"[" * 200_000)


def test_what_is_not_plain_is_refused(each: Any) -> None:
    """``dumps`` raises ``TypeError`` for a value that JSON cannot represent."""
    with pytest.raises(TypeError):
        each.dumps({"a": object()})
