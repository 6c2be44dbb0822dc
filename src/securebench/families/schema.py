"""The JSON Schema and the reference documentation of each family, derived from its declaration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import create_model

from securebench.families.registry import FAMILIES, structure_fields
from securebench.families.row import RowModel
from securebench.strict_input.models import OPTIONAL

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def row_json_schema(family: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a row of ``family``. Raises ``KeyError`` for an unknown family.

    Each eval field has its lane as ``x-lane``. The schema cannot express rules about several fields, such as that the
    answer must name a choice. The compiler checks these rules.
    """
    declared = FAMILIES[family]
    default = ... if declared.active else OPTIONAL
    fields: dict[str, Any] = {
        "family": (Literal[family], OPTIONAL),
        "input": (declared.input_model, default),
        "eval": (declared.eval_model, default),
    }
    schema = _tidy(create_model(f"{family}_row", __base__=RowModel, **fields).model_json_schema())
    definitions = schema["$defs"]
    for name, lane in declared.lanes.items():
        definitions[declared.eval_model.__name__]["properties"][name]["x-lane"] = lane.value
    return {"$schema": DIALECT, **schema, "description": declared.summary}


def family_reference() -> str:
    """Return the reference of all families as Markdown, for ``docs/reference/families.md``."""
    return "\n".join(_family_section(name) for name in FAMILIES)


def _family_section(name: str) -> str:
    family = FAMILIES[name]
    files = ", ".join(f"`eval.{field}`" for field in sorted(family.file_fields | family.mounted_file_fields))
    structure = ", ".join(f"`eval.{path}`" for path in structure_fields(name))
    required = {part: _required(model) for part, model in (("input", family.input_model), ("eval", family.eval_model))}
    rows = [f"| `input.{field}` | {required['input'][field]} | `public` |" for field in family.input_model.model_fields]
    rows += [f"| `eval.{field}` | {required['eval'][field]} | `{lane}` |" for field, lane in family.lanes.items()]
    return "\n".join(
        [
            f"## {name}",
            "",
            family.summary,
            "",
            f"* Status: {'active' if family.active else 'deferred'}",
            f"* Candidate: {family.candidate_kind}",
            *([f"* File references in: {files}"] if files else []),
            *([f"* Never redacted: {structure}"] if structure else []),
            "",
            "| Field | Required | Lane |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _required(model: Any) -> dict[str, str]:
    return {name: "yes" if info.is_required() else "no" for name, info in model.model_fields.items()}


def _tidy(schema: Any) -> Any:
    """Return ``schema`` without titles and without defaults that are null."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"title"} if isinstance(schema.get("title"), str) else set()
    # A null default comes from OPTIONAL: a row leaves out the field instead of setting it to null.
    dropped |= {"default"} if "default" in schema and schema["default"] is None else set()
    return {key: _tidy(value) for key, value in schema.items() if key not in dropped}
