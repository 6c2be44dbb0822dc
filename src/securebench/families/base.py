"""The declaration of a family, from which everything about the rows of the family is derived.

A family has Pydantic models of its input and its eval fields. Each eval field is annotated with its lane, and with
:data:`TAKES_FILES` if its value may be a file of the pack::

    class Eval(WireModel):
        tests: Annotated[Tests, Visibility.EVALUATION_INPUTS]
        gold_patch: Annotated[Text, Visibility.HIDDEN] = OPTIONAL

Values in eval fields are secret, unless they refer to files, or their field is annotated with :data:`STRUCTURE` or has
a fixed set of values. Single words of a :data:`COMMAND` are not secret either.

The validator, the lanes, the JSON Schema and the documentation are all derived from the declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from securebench import plugins
from securebench.resources import Visibility
from securebench.strict_input.models import WireModel, fit
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from securebench.plugins import Identity
    from securebench.strict_input.faults import Fault
    from securebench.tasks import Environment


@dataclass(frozen=True, slots=True)
class _TakesFiles:
    """Marks an eval field whose value may be a file reference or a list of file references."""

    mounted: bool = False


TAKES_FILES: Final = _TakesFiles()

TAKES_A_MOUNTED_FILE: Final = _TakesFiles(mounted=True)
"""Like :data:`TAKES_FILES`, but for a field with arbitrary data. An object in the data refers to a file only if it has
a ``path``, and a ``mount`` below the directory of the field's lane (:data:`~securebench.pack_paths.LANE_ROOTS`)."""


@dataclass(frozen=True, slots=True)
class _Structure:
    """Marks a field that defines where and how a task is judged, not the expected result. It is never redacted."""


STRUCTURE: Final = _Structure()


@dataclass(frozen=True, slots=True)
class _Command:
    """Marks a field that holds a command. The whole command is secret, but its individual words are not."""


COMMAND: Final = _Command()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One benchmark family. ``check`` validates a row as a whole, after input and eval are valid on their own.

    ``warn`` looks for likely mistakes in a valid row. If a family is not ``active``, its rows can be loaded and
    compiled, but not judged yet. They are not validated against the family's models, which then only declare fields and
    lanes.
    """

    name: str
    summary: str
    candidate_kind: CandidateKind
    input_model: type[WireModel]
    eval_model: type[WireModel]
    active: bool = True
    check: Callable[[dict[str, Any], dict[str, Any], Environment], Iterable[Fault]] | None = None
    warn: Callable[[dict[str, Any], dict[str, Any], Environment], Iterable[Fault]] | None = None
    lanes: Mapping[str, Visibility] = field(init=False)
    """The lane of each declared eval field. An eval field that is not declared is hidden."""
    file_fields: frozenset[str] = field(init=False)
    """The eval fields that accept file references."""
    mounted_file_fields: frozenset[str] = field(init=False)
    """The eval fields for arbitrary data. In them, an object is a file reference only if it has a path and a mount."""

    def __post_init__(self) -> None:
        marks = {name: info.metadata for name, info in self.eval_model.model_fields.items()}
        lanes = {name: _lane(name, its) for name, its in marks.items()}
        object.__setattr__(self, "lanes", MappingProxyType(lanes))
        for attribute, mark in (("file_fields", TAKES_FILES), ("mounted_file_fields", TAKES_A_MOUNTED_FILE)):
            object.__setattr__(self, attribute, frozenset(name for name, its in marks.items() if mark in its))

    @property
    def workspace_required(self) -> bool:
        """Whether the candidate is a patch or a workspace rather than text or code."""
        return self.candidate_kind in (CandidateKind.PATCH, CandidateKind.WORKSPACE)

    def identity(self) -> Identity | None:
        """Return the identity of the family's code, for ``run.json`` and records; ``None`` for a family of SecureBench.

        A run can be resumed only while the identity is unchanged. Raises :class:`ConfigError` (``plugin-no-source``).
        """
        return plugins.identity_of(self.eval_model)

    def faults(self, inputs: dict[str, Any], evals: dict[str, Any], environment: Environment) -> list[Fault]:
        """Return the faults of a row's ``input`` and ``eval``. No message shows an eval value."""
        if not self.active:
            return []
        of_input = [fault.below(("input",)) for fault in fit(self.input_model, inputs)[1]]
        of_eval = [fault.below(("eval",)) for fault in fit(self.eval_model, evals, secret=True)[1]]
        if of_input or of_eval or self.check is None:
            return of_input + of_eval
        return list(self.check(inputs, evals, environment))

    def warnings(self, inputs: dict[str, Any], evals: dict[str, Any], environment: Environment) -> list[Fault]:
        """Return the warnings about a row that has no :meth:`faults`."""
        return list(self.warn(inputs, evals, environment)) if self.active and self.warn else []


def _lane(name: str, marks: Iterable[Any]) -> Visibility:
    """Return the lane in a field's annotation.

    Raises ``TypeError`` if the annotation has no lane or several lanes, which is a programming error.
    """
    lanes = [mark for mark in marks if isinstance(mark, Visibility)]
    if len(lanes) != 1:
        raise TypeError(f"the eval field {name!r} must be annotated with one lane")
    return lanes[0]
