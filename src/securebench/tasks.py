"""The compiled task, and the views through which the rest of the program sees it.

A harness receives an :class:`AgentView`, and a verifier a :class:`VerifierView`. They are separate types: no attribute
of an agent's view leads to a field that is not public.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError
from securebench.resources import Component, Resource, ResourceBundle, Visibility

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.resources import JsonValue

DEFAULT_IMAGE = "securebench/python:3.11"
"""SecureBench's base image, the default image of a task."""

WORKSPACE_TARGET = "/workspace"
"""The path of a workspace in a sandbox, unless a terminal task sets another working directory."""

MAX_TAGS = 32
"""Maximum number of tags of one task. They are copied into each of its records."""
MAX_TAG = 100
"""Maximum number of characters of a tag."""
_TAG_FIELDS = ("category", "difficulty")
"""Keys of the metadata whose values count as tags. Importers copy them from the original benchmark."""


class CandidateKind(StrEnum):
    """The kind of candidate that an agent leaves for a family."""

    TEXT = "text"
    CODE = "code"
    PATCH = "patch"
    WORKSPACE = "workspace"


CANDIDATE_KINDS: Mapping[str, CandidateKind] = MappingProxyType(
    {
        "code_completion": CandidateKind.CODE,
        "repo_patch": CandidateKind.PATCH,
        "terminal_task": CandidateKind.WORKSPACE,
    }
)
"""The kind of candidate of each family whose candidates are not text. A test checks the families against this."""

_ENVIRONMENT: Mapping[str, tuple[type, ...]] = {
    "image": (str,),
    "workdir": (str,),
    "timeout_seconds": (int, float),
    "materialize_workdir_from_image": (bool,),
}


@dataclass(frozen=True, slots=True)
class Environment:
    """A row's environment, merged with the manifest's defaults.

    ``timeout_seconds`` limits the agent and, in some families, the judgement, too.
    """

    image: str | None = None
    workdir: str | None = None
    timeout_seconds: float | None = None
    materialize_workdir_from_image: bool = False


@dataclass(frozen=True, slots=True)
class AssetRoot:
    """A directory of a pack with files for tasks. Its path is absolute on this machine and never shown to an agent."""

    directory: Path
    read_only: bool = True
    name: str = ""
    """The path of the directory in its pack."""
    digests: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Digests of the files and directories that tasks use, by path in the pack, as they were when the pack was read."""


@dataclass(frozen=True, slots=True)
class AgentView:
    """Everything that a harness may know about a task: its public resources, and how to run it."""

    task_id: str
    family: str
    candidate_kind: CandidateKind
    resources: ResourceBundle
    environment: Environment
    assets: AssetRoot | None = None

    def __post_init__(self) -> None:
        _require_lanes(self.resources, Component.AGENT)

    @property
    def payload(self) -> dict[str, JsonValue]:
        """The content of ``task.json``: only public names and values."""
        return self.resources.payload()


@dataclass(frozen=True, slots=True)
class VerifierView:
    """Everything that a verifier may know.

    The resources in ``test_sandbox`` are copied into the sandbox in which tests run. Those in ``evaluator`` stay in the
    verifier's own process.
    """

    task_id: str
    family: str
    test_sandbox: ResourceBundle
    evaluator: ResourceBundle
    environment: Environment
    public_assets: AssetRoot | None = None
    eval_assets: AssetRoot | None = None

    def __post_init__(self) -> None:
        _require_lanes(self.test_sandbox, Component.TEST_SANDBOX)
        _require_lanes(self.evaluator, Component.EVALUATOR)


@dataclass(frozen=True, slots=True)
class SecureBenchTask:
    """A compiled task: its identity, resources in lanes, and environment. Immutable; does no I/O."""

    id: str
    benchmark_id: str
    task_type: str
    resources: ResourceBundle
    candidate_kind: CandidateKind = CandidateKind.TEXT
    environment: Environment = field(default_factory=Environment)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    public_assets: AssetRoot | None = None
    eval_assets: AssetRoot | None = None
    row_digest: str = ""
    """The digest of the whole row, including hidden fields. It must never be published."""
    public_digest: str = ""
    """The digest of the row without ``eval``."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The texts in ``metadata.tags``, and ``category:VALUE`` and ``difficulty:VALUE`` if the metadata has them.

        Metadata are free-form, so some values are ignored: empty texts, long texts, and values of other types. Tags
        beyond the limit are ignored, too.
        """
        listed = self.metadata.get("tags")
        named = [(name, self.metadata.get(name)) for name in _TAG_FIELDS]
        found = [
            *(tag for tag in (listed if isinstance(listed, list) else []) if isinstance(tag, str)),
            *(f"{name}:{value}" for name, value in named if isinstance(value, str) and value),
        ]
        return tuple(dict.fromkeys(tag for tag in found if 0 < len(tag) <= MAX_TAG))[:MAX_TAGS]

    @property
    def images(self) -> frozenset[str]:
        """The references of all images that the task needs: the agent's and, if it differs, the checker's."""
        checker = self.resources["checker"].value if "checker" in self.resources else None
        own = checker.get("image") if isinstance(checker, dict) else None
        return frozenset({self.environment.image or DEFAULT_IMAGE, *([own] if isinstance(own, str) else [])})

    def agent_view(self) -> AgentView:
        """Return the view of this task that a harness gets."""
        return AgentView(
            task_id=self.id,
            family=self.task_type,
            candidate_kind=self.candidate_kind,
            resources=self.resources.visible_to(Component.AGENT),
            environment=self.environment,
            assets=self.public_assets,
        )

    def verifier_view(self) -> VerifierView:
        """Return the view of this task that a verifier gets."""
        return VerifierView(
            task_id=self.id,
            family=self.task_type,
            test_sandbox=self.resources.visible_to(Component.TEST_SANDBOX),
            evaluator=self.resources.visible_to(Component.EVALUATOR),
            environment=self.environment,
            public_assets=self.public_assets,
            eval_assets=self.eval_assets,
        )

    def component_payload(self, component: Component) -> dict[str, JsonValue]:
        """Return the names and values that ``component`` may see."""
        return self.resources.visible_to(component).payload()

    def agent_payload(self) -> dict[str, JsonValue]:
        """Return what the agent may see: public names and values."""
        return self.component_payload(Component.AGENT)

    def public_payload(self) -> dict[str, JsonValue]:
        """Return the same as :meth:`agent_payload`."""
        return self.agent_payload()

    def evaluation_payload(self) -> dict[str, JsonValue]:
        """Return what the test sandbox may see: public fields and evaluation inputs."""
        return self.component_payload(Component.TEST_SANDBOX)

    def hidden_payload(self) -> dict[str, JsonValue]:
        """Return what the verifier's own process may see: public and hidden fields, without evaluation inputs."""
        return self.component_payload(Component.EVALUATOR)


def task_from_spec(spec: Mapping[str, Any]) -> SecureBenchTask:
    """Build a task from its internal spec: ``id``, ``benchmark_id``, ``task_type``, ``resources``, ``metadata``.

    Each resource is ``{"value": ..., "visibility": ...}``; the default visibility is hidden. ``task_type`` determines
    the kind of the candidate, and ``metadata.environment`` has the environment, as in compiled tasks. Raises
    :class:`ConfigError` for a wrong spec, and ``ValueError`` for the removed field ``expose``.
    """
    unknown = sorted(set(spec) - {"id", "benchmark_id", "task_type", "metadata", "resources"})
    if unknown:
        raise ConfigError(f"unknown field {unknown[0]!r} in a task spec", code="field-unknown")
    for name in ("id", "benchmark_id", "task_type"):
        if not isinstance(spec.get(name), str) or not spec[name]:
            raise ConfigError(f"{name!r} of a task spec must be a non-empty string", code="field-type")
    resources = spec.get("resources", {})
    if not isinstance(resources, dict):
        raise ConfigError("'resources' of a task spec must be an object", code="field-type")
    metadata = spec.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ConfigError("'metadata' of a task spec must be an object", code="field-type")
    return SecureBenchTask(
        id=spec["id"],
        benchmark_id=spec["benchmark_id"],
        task_type=spec["task_type"],
        resources=ResourceBundle(tuple(_resource_from_spec(name, item) for name, item in resources.items())),
        candidate_kind=CANDIDATE_KINDS.get(spec["task_type"], CandidateKind.TEXT),
        environment=_environment_from_spec(metadata.get("environment", {})),
        metadata=dict(metadata),
    )


def _environment_from_spec(value: Any) -> Environment:
    """Return the environment of a spec. ``value`` has the same form as in the metadata of a compiled task."""
    if not isinstance(value, dict):
        raise ConfigError("'environment' in a task spec's metadata must be an object", code="field-type")
    unknown = sorted(set(value) - set(_ENVIRONMENT))
    if unknown:
        raise ConfigError(f"unknown field {unknown[0]!r} in the environment of a task spec", code="field-unknown")
    for name, item in value.items():
        kinds = _ENVIRONMENT[name]
        if not isinstance(item, kinds) or (isinstance(item, bool) and bool not in kinds):
            raise ConfigError(f"{name!r} in the environment of a task spec has the wrong type", code="field-type")
    return Environment(**value)


def _resource_from_spec(name: str, item: Any) -> Resource:
    if not isinstance(item, dict) or "value" not in item:
        raise ConfigError(f"resource {name!r} must be an object with a 'value'", code="field-type")
    if "expose" in item:
        raise ValueError(f"resource {name!r}: 'expose' was removed; use 'visibility'")
    unknown = sorted(set(item) - {"value", "visibility"})
    if unknown:
        raise ConfigError(f"unknown field {unknown[0]!r} in resource {name!r}", code="field-unknown")
    try:
        visibility = Visibility(item.get("visibility", Visibility.HIDDEN))
    except ValueError:
        lanes = ", ".join(Visibility)
        raise ConfigError(
            f"visibility of {name!r} is {item['visibility']!r}; expected one of {lanes}", code="field-value"
        ) from None
    return Resource(name, item["value"], visibility)


def _require_lanes(resources: ResourceBundle, component: Component) -> None:
    """Raise an error for a bundle with resources that ``component`` may not see."""
    if len(resources.visible_to(component)) != len(resources):
        raise ValueError(f"a bundle for the {component} contains a resource that the {component} may not see")
