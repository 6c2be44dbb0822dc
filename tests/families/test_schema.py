"""The JSON Schema and the reference documentation of each family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pack_files import ROWS
from securebench.families.registry import FAMILIES
from securebench.families.schema import DIALECT, family_reference, row_json_schema

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "families.md"


def definition(schema: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the definition of ``part`` in ``schema``. ``part`` is ``input`` or ``eval``."""
    name = schema["properties"][part]["$ref"].rpartition("/")[2]
    found: dict[str, Any] = schema["$defs"][name]
    return found


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_schema_says_what_the_declaration_says(family: str) -> None:
    """A family's schema has its fields and lanes.

    The schema of an active family requires ``input`` and ``eval`` and allows no unknown fields in them.
    """
    schema = row_json_schema(family)
    evals, inputs = definition(schema, "eval"), definition(schema, "input")
    declared = FAMILIES[family]
    assert schema["$schema"] == DIALECT
    assert schema["properties"]["family"]["const"] == family
    assert {name: field["x-lane"] for name, field in evals["properties"].items()} == declared.lanes
    assert set(inputs["properties"]) == set(declared.input_model.model_fields)
    assert inputs["additionalProperties"] is not declared.active
    assert evals["additionalProperties"] is not declared.active
    assert {"input", "eval"} <= set(schema["required"]) or not declared.active


@pytest.mark.parametrize("family", sorted(ROWS))
def test_the_schema_knows_every_field_of_the_example(family: str) -> None:
    """The schema has all fields of a valid example row."""
    schema = row_json_schema(family)
    for part in ("input", "eval"):
        assert set(ROWS[family][part]) <= set(definition(schema, part)["properties"])


def test_no_schema_says_null() -> None:
    """No schema contains null, neither as a type nor as a default: a field may be absent, but not null."""
    assert "null" not in json.dumps([row_json_schema(family) for family in FAMILIES])


def test_an_unknown_family_has_no_schema() -> None:
    """Asking for the schema of an unknown family raises ``KeyError``."""
    with pytest.raises(KeyError):
        row_json_schema("nonsense")


def test_the_reference_page_is_what_the_families_say() -> None:
    """The documentation page contains the generated reference word for word."""
    assert family_reference() in REFERENCE.read_text(encoding="utf-8")
