"""Validate plain values against a pydantic model, with error messages for users."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from securebench.strict_input.faults import Fault, Path, did_you_mean, name_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

OPTIONAL: Any = None
"""The default of an optional field. To omit such a field, leave out its key: null is refused."""

_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""The expected types, by pydantic's error type."""

_RULES = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be finite",
    "too_short": "must have at least {min_length} items, not {actual_length}",
    "too_long": "must have at most {max_length} items, not {actual_length}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
}
"""Messages for values that have the right type but break a rule.

The keys are pydantic's names of the errors. All other errors keep pydantic's message.
"""

_ONE = re.compile(r"\b1 (item|character)s\b")
_SUBJECT = re.compile(r"^(?:Input|List|String|Value|Dictionary) (?=should )")
"""The first word of many of pydantic's messages. Our messages have the name of the field instead."""

_ModelT = TypeVar("_ModelT", bound=BaseModel)


class WireModel(BaseModel):
    """The base of file models: types are strict and unknown keys are rejected."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def refusal(code: str, message: str, hint: str = "") -> PydanticCustomError:
    """Return the error that a validator raises.

    ``code`` must contain a hyphen, unlike pydantic's error types, and be in the error reference.
    """
    return PydanticCustomError(code, "{message}", {"message": message, "hint": hint})


def matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    """Return the validator of a string that must match ``pattern`` in full. ``what`` names such strings."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise refusal("field-value", f"is not {what}")
        return text

    return AfterValidator(check)


def fit(
    model: type[_ModelT], value: Any, *, secret: bool = False, context: Mapping[str, Any] | None = None
) -> tuple[_ModelT | None, list[Fault]]:
    """Return ``value`` as a ``model`` and no faults, or ``None`` and the faults of ``value``.

    With ``secret``, no message shows a value. ``context`` is passed to the model's validators.
    """
    try:
        return model.model_validate(value, context=context), []
    except ValidationError as error:
        details = map(_of_tag, error.errors(include_url=False))
        return None, _without_branches([_fault(model, value, detail, secret=secret) for detail in details])


def describe(value: Any, *, secret: bool = False) -> str:
    """Describe ``value`` for a message: a scalar by its value, shortened, and anything else by its type.

    With ``secret``, describe every value by its type.
    """
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float)):
        kind = "a bool" if isinstance(value, bool) else "a number"
        return kind if secret else shown(str(value).lower())[1:-1]
    if isinstance(value, str):
        return "a string" if secret else f"the string {shown(value)}"
    return "a list" if isinstance(value, (list, tuple)) else "an object"


def _fault(model: type[BaseModel], value: Any, detail: ErrorDetails, *, secret: bool) -> Fault:
    kind, loc = detail["type"], detail["loc"]
    if kind in ("missing", "extra_forbidden"):
        return _key_fault(model, value, kind, loc)
    path = _path_in(value, loc)
    at_key = path != loc and loc[-1:] == ("[key]",)
    name = f"the key {shown(str(path[-1]))}" if at_key else name_of(path) or "the whole value"
    context = detail.get("ctx", {})
    if "-" in kind:
        return Fault(kind, f"{name} {context['message']}", path, context["hint"], at_key)
    got = describe(detail["input"], secret=secret)
    if kind in _EXPECTED:
        return Fault("field-type", f"{name} must be {_EXPECTED[kind]}, but is {got}", path)
    if kind == "literal_error":
        return _choice_fault(name, path, detail, got)
    if rule := _RULES.get(kind):
        counted = isinstance(detail["input"], (list, tuple))
        text = _ONE.sub(r"1 \1", rule.format(**context))
        return Fault("field-value", f"{name} {text}" if counted else f"{name} {text}, but is {got}", path)
    rule = _SUBJECT.sub("", detail["msg"])
    return Fault("field-value", f"{name} {rule}, but is {got}", path)


def _key_fault(model: type[BaseModel], value: Any, kind: str, loc: Sequence[str | int]) -> Fault:
    key = str(loc[-1])
    path = (*_path_in(value, loc[:-1]), key)
    if kind == "missing":
        return Fault("field-missing", f"{name_of(path)} is missing", path)
    hint = did_you_mean(key, _known_keys(model, loc[:-1]))
    return Fault("field-unknown", f"unknown key {shown(key)}", path, hint, at_key=True)


def _of_tag(detail: ErrorDetails) -> ErrorDetails:
    """Turn an error about the tag of a union into an error of the field that is the tag.

    The tag selects the model of an object. Other errors are returned unchanged.
    """
    if not detail["type"].startswith("union_tag_"):
        return detail
    context, given = detail["ctx"], detail["input"]
    name = context["discriminator"].strip("'")
    loc = (*detail["loc"], name)
    if name not in given:
        return {**detail, "type": "missing", "loc": loc}
    expected = context["expected_tags"].replace(", ", " or ")
    return {**detail, "type": "literal_error", "loc": loc, "input": given[name], "ctx": {"expected": expected}}


def _choice_fault(name: str, path: Path, detail: ErrorDetails, got: str) -> Fault:
    expected = detail.get("ctx", {}).get("expected", "")
    known = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
    hint = did_you_mean(str(detail["input"]), known)
    return Fault("field-value", f"{name} must be {expected}, but is {got}", path, hint)


def _path_in(value: Any, loc: Sequence[str | int]) -> Path:
    """Return the part of a pydantic location that is a path in ``value``, without the branches of unions."""
    path: list[str | int] = []
    for part in loc:
        inside = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if inside:
            value = value[part]
            path.append(part)
    return tuple(path)


def _known_keys(model: type[BaseModel], loc: Sequence[str | int]) -> set[str]:
    """Return the keys that are allowed at ``loc``."""
    models: list[type[BaseModel]] = [model]
    for part in loc:
        fields = [found.model_fields[part].annotation for found in models if part in found.model_fields]
        models = [inner for annotation in fields for inner in _models_in(annotation)] or models
    return {name for found in models for name in found.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _without_branches(faults: list[Fault]) -> list[Fault]:
    """Merge the faults that a union's branches report for one value.

    A ``field-type`` fault is dropped if there is another fault at or below its path.
    """
    joined: dict[tuple[Path, str], Fault] = {}
    for fault in faults:
        known = joined.get((fault.path, fault.code))
        joined[fault.path, fault.code] = fault if known is None else _join(known, fault)
    found = list(joined.values())
    return [fault for fault in found if fault.code != "field-type" or not _has_deeper_fault(fault, found)]


def _has_deeper_fault(fault: Fault, found: list[Fault]) -> bool:
    """Return whether another fault of ``found`` is at or below the path of ``fault``."""
    return any(other is not fault and other.path[: len(fault.path)] == fault.path for other in found)


def _join(one: Fault, other: Fault) -> Fault:
    wanted, _, got = other.message.partition(" must be ")[2].partition(", but is ")
    if one.code != "field-type" or wanted in one.message:
        return one
    before = one.message.removesuffix(f", but is {got}")
    return Fault(one.code, f"{before} or {wanted}, but is {got}", one.path)
