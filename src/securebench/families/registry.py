"""All families by name, the validation of their rows, and the division of their eval fields into content and structure.

Content is the expected result: tests, answers, checkers. It is secret, and so is every eval field that the family does
not declare. Structure defines where and how a task is judged: paths, directories, limits, policies, and every field
with a fixed set of values. Structure is never redacted from a record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args, get_origin

from securebench import plugins
from securebench.errors import ConfigError
from securebench.families.base import COMMAND, STRUCTURE, Family
from securebench.plugins import ExtensionKind
from securebench.resources import ResourceKind
from securebench.strict_input.faults import Fault, Problems, did_you_mean, shown
from securebench.strict_input.models import WireModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from securebench.resources import JsonValue, Resource
    from securebench.strict_input.faults import Document
    from securebench.tasks import Environment, SecureBenchTask


@cache  # each row looks its family up several times
def _own(name: str) -> Family:
    family: Family = plugins.load(ExtensionKind.FAMILY, name)
    return family


class _Families(Mapping[str, Family]):
    """The families by name, including those of installed packages. A family is loaded on first access."""

    def __getitem__(self, name: str) -> Family:
        if name in plugins.own_names(ExtensionKind.FAMILY):
            return _own(name)
        if not plugins.is_known(ExtensionKind.FAMILY, name):
            raise KeyError(name)
        family = plugins.load(ExtensionKind.FAMILY, name)
        if not isinstance(family, Family) or family.name != name:
            raise ConfigError(
                f"the extension {name!r} is not a family, or is a family with another name", code="plugin-broken"
            )
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(plugins.names(ExtensionKind.FAMILY))

    def __len__(self) -> int:
        return len(plugins.names(ExtensionKind.FAMILY))


FAMILIES: Final[Mapping[str, Family]] = _Families()
"""Every family by name: the active ones first, then the deferred ones, then those of installed packages."""


class FamilyRow(Protocol):
    """The parts of a row that its family validates."""

    @property
    def family(self) -> str:
        """The name of the row's family."""

    @property
    def input(self) -> dict[str, Any]:
        """The row's public fields, by name."""

    @property
    def eval(self) -> dict[str, Any]:
        """The row's eval fields, by name."""

    @property
    def environment(self) -> Environment:
        """The row's environment, merged over the manifest's defaults."""

    @property
    def source(self) -> Document:
        """The document that contains the row."""


def family_faults(row: FamilyRow) -> list[Fault]:
    """Return the faults of a row by the rules of its family. A family without a verifier has no rules yet."""
    family = FAMILIES.get(row.family)
    if family is None:
        hint = did_you_mean(row.family, FAMILIES)
        return [Fault("family-unknown", f"unknown family {shown(row.family)}", ("family",), hint)]
    return family.faults(row.input, row.eval, row.environment)


def validate_benchmark_row_family(row: FamilyRow) -> None:
    """Validate a row with its family's rules. Raises :class:`ConfigError` with all problems and their locations."""
    problems = Problems()
    problems.extend(family_faults(row), row.source)
    problems.raise_if_any()


def secret_strings(task: SecureBenchTask) -> Iterator[tuple[str, str]]:
    """Yield (resource name, text) for each secret string, and for the JSON of secret lists and objects.

    Structure, such as a path, is not secret. A command that is a list is yielded as JSON and as one line. Of its
    arguments, only those that contain a space are yielded. Any other list or object is yielded as JSON if it has more
    than one element, except objects whose fields the family declares.
    """
    for resource in task.resources.secrets():
        yield from ((resource.name, text) for text, is_content in _divided(task.task_type, resource) if is_content)


def structure_strings(task: SecureBenchTask) -> Iterator[str]:
    """Yield the image and workdir of a task, and the strings in its secret lanes that are only structure.

    Structure, such as a path, is not secret.
    """
    yield from filter(None, (task.environment.image, task.environment.workdir))
    for resource in task.resources.secrets():
        yield from (text for text, is_content in _divided(task.task_type, resource) if not is_content)


def is_structure(family: str, resource: Resource) -> bool:
    """Return whether ``resource`` is a file reference or declared as structure. Its value is then not secret."""
    declared = FAMILIES[family].eval_model.model_fields.get(resource.name) if family in FAMILIES else None
    return resource.kind is ResourceKind.FILE or (declared is not None and STRUCTURE in declared.metadata)


def structure_fields(family: str) -> list[str]:
    """Return the paths of the eval fields of ``family`` that are marked with :data:`STRUCTURE`."""
    model = FAMILIES[family].eval_model
    return [path for name, info in model.model_fields.items() for path in _structure_below(name, info)]


def strings(value: JsonValue) -> Iterator[str]:
    """Yield every string in ``value`` except keys.

    Also yield the JSON of every list or object with more than one element.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        if len(value) > 1:
            yield json.dumps(value, ensure_ascii=False)
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def _divided(family: str, resource: Resource) -> Iterator[tuple[str, bool]]:
    """Yield each string of a resource, with ``True`` if it is secret content and ``False`` if it is structure.

    If a command is a list, its arguments without a space are not yielded.
    """
    if resource.kind is ResourceKind.FILE:  # the secret of a file is its content, not its reference
        yield from ((text, False) for text in strings(resource.value))
        return
    known = FAMILIES.get(family)
    field = known.eval_model.model_fields.get(resource.name) if known else None
    yield from _divided_field(resource.value, field)


def _divided_field(value: JsonValue, field: FieldInfo | None) -> Iterator[tuple[str, bool]]:
    marks = field.metadata if field else []
    fields = (
        {name: info for model in _models(field.annotation) for name, info in model.model_fields.items()}
        if field
        else {}
    )
    if STRUCTURE in marks or (field is not None and get_origin(field.annotation) is Literal):
        yield from ((text, False) for text in strings(value))
    elif COMMAND in marks and isinstance(value, list):
        # An argument without a space is a path or an option, and not secret. An argument with a space is a script.
        whole = (json.dumps(value, ensure_ascii=False), " ".join(map(str, value)))
        yield from ((text, True) for text in (*whole, *(item for item in strings(value) if " " in item)))
    elif isinstance(value, dict) and fields:
        for name, item in value.items():
            yield from _divided_field(item, fields.get(name))
    else:
        yield from ((text, True) for text in strings(value))


def _models(annotation: Any) -> Iterator[type[WireModel]]:
    """Yield the Pydantic models in a type ``annotation``."""
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
