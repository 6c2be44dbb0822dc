"""Lanes and the resources in them.

A task's fields are in three lanes, and each component of a run sees some of them:

====================  ===== ============ ========= ==============
visibility            agent test sandbox evaluator result summary
====================  ===== ============ ========= ==============
``public``            yes   yes          yes       value shown
``evaluation_inputs``       yes                    redacted
``hidden``                               yes       redacted
====================  ===== ============ ========= ==============

The evaluator is the verifier's own process. Pure data: nothing here reads a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

REDACTED = "<redacted>"
"""The text that replaces a redacted value in a record."""


class Visibility(StrEnum):
    """The lane of a resource."""

    PUBLIC = "public"
    EVALUATION_INPUTS = "evaluation_inputs"
    HIDDEN = "hidden"


class Component(StrEnum):
    """A part of a run that can see some of a task's resources."""

    AGENT = "agent"
    TEST_SANDBOX = "test_sandbox"
    EVALUATOR = "evaluator"


VISIBLE_TO: Mapping[Component, frozenset[Visibility]] = MappingProxyType(
    {
        Component.AGENT: frozenset({Visibility.PUBLIC}),
        Component.TEST_SANDBOX: frozenset({Visibility.PUBLIC, Visibility.EVALUATION_INPUTS}),
        Component.EVALUATOR: frozenset({Visibility.PUBLIC, Visibility.HIDDEN}),
    }
)


class ResourceKind(StrEnum):
    """What a resource consists of."""

    VALUE = "value"
    """A JSON value. In a workspace, it is the file ``<name>.json``."""
    ASSETS = "assets"
    """The public ``assets`` list: files below the directory ``asset_roots.public`` (default: ``assets/``)."""
    FILE = "file"
    """:class:`FileReference` objects for files below the directory ``asset_roots.eval`` (default: ``hidden/``)."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file or directory of the pack. ``path`` and ``mount`` are relative POSIX paths.

    ``path`` is the place below an asset root, ``mount`` the place in the workspace. If ``mount`` is ``None``, a public
    file is placed at ``path``, and any other file at ``path`` below the directory of its lane.
    """

    path: str
    mount: str | None = None
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Resource:
    """One named field of a task, in one lane. ``files`` is empty for a plain value."""

    name: str
    value: JsonValue
    visibility: Visibility
    kind: ResourceKind = ResourceKind.VALUE
    files: tuple[FileReference, ...] = ()

    def summary(self) -> dict[str, JsonValue]:
        """Return the record's entry for this resource. A value that is not public is redacted."""
        shown = self.value if self.visibility is Visibility.PUBLIC else REDACTED
        return {
            "name": self.name,
            "visibility": self.visibility.value,
            "kind": self.kind.value,
            "value": shown,
        }


@dataclass(frozen=True, slots=True)
class ResourceBundle:
    """The resources of a task, or those that one component may see, by unique name and in the order of the row.

    Raises :class:`ConfigError` (``resource-duplicate``) for a duplicate name, even in different lanes.
    """

    resources: tuple[Resource, ...] = ()
    _by_name: Mapping[str, Resource] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name: dict[str, Resource] = {}
        for resource in self.resources:
            if resource.name in by_name:
                raise ConfigError(f"resource {resource.name!r} is defined twice", code="resource-duplicate")
            by_name[resource.name] = resource
        object.__setattr__(self, "_by_name", MappingProxyType(by_name))

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.resources)

    def __len__(self) -> int:
        return len(self.resources)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Resource:
        return self._by_name[name]

    def visible_to(self, component: Component) -> ResourceBundle:
        """Return a bundle of the resources that ``component`` may see. It has no reference to other resources."""
        lanes = VISIBLE_TO[component]
        return ResourceBundle(tuple(r for r in self.resources if r.visibility in lanes))

    def payload(self) -> dict[str, JsonValue]:
        """Return the value of each resource by its name."""
        return {resource.name: resource.value for resource in self.resources}

    def summary(self) -> list[JsonValue]:
        """Return the record's entry for each resource."""
        return [dict(resource.summary()) for resource in self.resources]

    def secrets(self) -> Iterable[Resource]:
        """Yield the resources that are not public: they must not reach an agent, a log or a record."""
        return (r for r in self.resources if r.visibility is not Visibility.PUBLIC)
