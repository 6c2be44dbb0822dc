"""In-toto statements are accepted only in their canonical form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from securebench.signing.statement import TEST_RESULT, Statement

if TYPE_CHECKING:
    from collections.abc import Callable

STATEMENT = Statement({"run.json": "a" * 64}, TEST_RESULT, {"result": "PASSED", "passedTests": ["b", "a"]})


def test_a_round_trip() -> None:
    """A statement is written as RFC 8785 JSON, with sorted keys and without spaces, and is read back unchanged."""
    assert Statement.from_bytes(STATEMENT.to_bytes()) == STATEMENT
    several = Statement({"suite.json": "b" * 64, "a/run.json": "a" * 64}, TEST_RESULT, {})
    assert Statement.from_bytes(several.to_bytes()) == several
    assert STATEMENT.to_bytes().startswith(b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"passedTests":')


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda content: content.update(more=1),
        lambda content: content.pop("predicate"),
        lambda content: content.update(predicate=[]),
        lambda content: content.update(predicateType=1),
        lambda content: content.update(subject=[]),
        lambda content: content["subject"].append(content["subject"][0]),
        lambda content: content["subject"][0].update(uri="x"),
        lambda content: content["subject"][0]["digest"].update(sha1="x"),
        lambda content: content["subject"][0]["digest"].update(sha256="A" * 64),
        lambda content: content["subject"][0]["digest"].update(sha256="a" * 63),
    ],
)
def test_another_statement_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    """A statement is refused if its fields are wrong, if it lists no file, or if it lists a file twice.

    Each file must have a valid SHA-256 digest and no other digest.
    """
    content = json.loads(STATEMENT.to_bytes())
    change(content)
    with pytest.raises(ValueError, match="not an in-toto statement"):
        Statement.from_bytes(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def test_only_the_canonical_form_is_accepted() -> None:
    """A statement with additional white space, another order of keys or a repeated key is refused."""
    data = STATEMENT.to_bytes()
    content = json.loads(data)
    reordered = json.dumps(dict(reversed(content.items())), separators=(",", ":"))
    for other in (data.replace(b":", b": ", 1), data + b"\n", json.dumps(content).encode(), reordered.encode()):
        with pytest.raises(ValueError, match="not an in-toto statement"):
            Statement.from_bytes(other)
    with pytest.raises(ValueError, match="duplicate key"):
        Statement.from_bytes(data.replace(b"{", b'{"_type":"x",', 1))


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{", b'{"predicate":{"x":1e999}}', b'"\\ud800"'])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    """Data that is not strict JSON, or not a JSON object, raises a ValueError."""
    with pytest.raises(ValueError, match=r"."):
        Statement.from_bytes(data)
