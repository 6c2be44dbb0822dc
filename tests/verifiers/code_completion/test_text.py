"""JSON without the package ``json``: the same texts, the same values, the same refusals."""

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
    """Lend the module as it is here, and as it is where an interpreter has no ``_json``."""
    if request.param == "package":
        monkeypatch.setitem(sys.modules, "_json", None)
        importlib.reload(text)
    yield text
    monkeypatch.undo()
    importlib.reload(text)


@given(_values)
def test_it_writes_and_reads_what_the_package_does(value: Any) -> None:
    """Whatever crosses is the same text and the same value as with ``json``."""
    written = text.dumps(value)
    assert written == json.dumps(value, separators=(",", ":"))
    assert text.loads(written.encode()) == json.loads(written) == value


def test_both_ways_agree(each: Any) -> None:
    """With and without the compiled part the text is the same, and so is the value."""
    value = {"a": [1, 2.5, None, True, "\u00e9\n"], "b": {}}
    assert each.dumps(value) == '{"a":[1,2.5,null,true,"\\u00e9\\n"],"b":{}}'
    assert each.loads(each.dumps(value).encode()) == value


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":1}x', b'{"a":1}{}', b"\xff", b'"\x01"', b"nul", b"[1,]"])
def test_what_is_no_json_is_refused(each: Any, data: bytes) -> None:
    """A peer that sends anything else gets an error that is a ``ValueError``."""
    with pytest.raises(ValueError):  # noqa: PT011 - the contract is the class: the texts are the interpreter's
        each.loads(data)


def test_what_is_nested_too_deeply_is_refused(each: Any) -> None:
    """The stack of a guest is not a peer's to use up."""
    with pytest.raises(RecursionError):
        each.loads(b"[" * 200_000)


def test_what_is_not_plain_is_refused(each: Any) -> None:
    """Nothing is written for a value that JSON does not have."""
    with pytest.raises(TypeError):
        each.dumps({"a": object()})
