"""Statements of a test that may change state outside the test are found."""

from __future__ import annotations

import ast

import pytest

from securebench.verifiers.repo_patch.evidence.source import has_effects_after


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("row.delete()", True),
        ("await row.delete()", True),
        ("row.name = 1", True),
        ("row.name: int = 1", True),
        ("row.name += 1", True),
        ("await client.assert_called()", False),
        ("await own.delete()", False),
        ("own.name: int = 1", False),
        ("row.name: int", False),
        ("count: int = 1", False),
        ("other = row.copy()", False),
    ],
)
def test_effects_after_an_assertion_are_seen(statement: str, expected: bool) -> None:
    """A call or an assignment to an attribute is an effect.

    Assertions, calls whose result is assigned, and changes to the test's own objects are no effects.
    """
    (function,) = ast.parse(f"async def test_x(row):\n    own = make()\n    assert row\n    {statement}\n").body
    assert isinstance(function, ast.AsyncFunctionDef)
    assert has_effects_after(function, function.body[1]) is expected
