"""Divide a row's eval fields into content and structure, as the models of its family declare.

Content is the expected result: tests, answers, checkers. It is secret, and so is every field without a model.
Structure defines where and how a task is judged: paths, directories, limits, policies, and every field with a fixed
set of values. It is never redacted from a record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from securebench.families.base import COMMAND, STRUCTURE
from securebench.families.registry import FAMILIES
from securebench.resources import ResourceKind
from securebench.strict_input.models import WireModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from securebench.resources import JsonValue, Resource
    from securebench.tasks import SecureBenchTask


def secret_strings(task: SecureBenchTask) -> Iterator[tuple[str, str]]:
    """Yield every content string with the name of its resource, and the JSON of content lists and objects."""
    for resource in task.resources.secrets():
        yield from ((resource.name, text) for text, is_content in _divided(task.task_type, resource) if is_content)


def structure_strings(task: SecureBenchTask) -> Iterator[str]:
    """Yield every structure string in a task's secret lanes and its environment."""
    yield from filter(None, (task.environment.image, task.environment.workdir))
    for resource in task.resources.secrets():
        yield from (text for text, is_content in _divided(task.task_type, resource) if not is_content)


def is_structure(family: str, resource: Resource) -> bool:
    """Whether ``resource`` is declared to contain no content."""
    declared = FAMILIES[family].eval_model.model_fields.get(resource.name) if family in FAMILIES else None
    return resource.kind is ResourceKind.FILE or (declared is not None and STRUCTURE in declared.metadata)


def structure_fields(family: str) -> list[str]:
    """Return the paths of the eval fields of ``family`` that are declared as structure."""
    model = FAMILIES[family].eval_model
    return [path for name, info in model.model_fields.items() for path in _structure_below(name, info)]


def strings(value: JsonValue) -> Iterator[str]:
    """Yield every string in ``value``, and the JSON of every part with more than one element."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        if len(value) > 1:
            yield json.dumps(value, ensure_ascii=False)
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def _divided(family: str, resource: Resource) -> Iterator[tuple[str, bool]]:
    """Yield the strings of a resource, and for each whether it is content."""
    if resource.kind is ResourceKind.FILE:  # the secret of a file is its content, not its reference
        yield from ((text, False) for text in strings(resource.value))
        return
    known = FAMILIES.get(family)
    field = known.eval_model.model_fields.get(resource.name) if known else None
    yield from _divided_field(resource.value, field)


def _divided_field(value: JsonValue, field: FieldInfo | None) -> Iterator[tuple[str, bool]]:
    marks = field.metadata if field else []
    model = next(_models(field.annotation), None) if field else None
    if STRUCTURE in marks or (field is not None and get_origin(field.annotation) is Literal):
        yield from ((text, False) for text in strings(value))
    elif COMMAND in marks and isinstance(value, list):
        # A single word of a command is a path or an option, so not secret. A word with a space in it is a script.
        whole = (json.dumps(value, ensure_ascii=False), " ".join(map(str, value)))
        yield from ((text, True) for text in (*whole, *(item for item in strings(value) if " " in item)))
    elif isinstance(value, dict) and model is not None:
        for name, item in value.items():
            yield from _divided_field(item, model.model_fields.get(name))
    else:
        yield from ((text, True) for text in strings(value))


def _models(annotation: Any) -> Iterator[type[WireModel]]:
    """Yield the models that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _structure_below(path: str, field: FieldInfo) -> Iterator[str]:
    if STRUCTURE in field.metadata:
        yield path
        return
    for model in _models(field.annotation):
        for name, info in model.model_fields.items():
            yield from _structure_below(f"{path}.{name}", info)
