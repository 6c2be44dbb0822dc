"""What a family is: one declaration, from which everything about its rows follows.

A family names a model of its input and one of its eval fields. Each eval field is annotated with its lane, and with
:data:`TAKES_FILES` where its value may be a file of the pack. What is below it is secret unless it is annotated with
:data:`STRUCTURE`::

    class Eval(WireModel):
        tests: Annotated[Tests, Visibility.EVALUATION_INPUTS]
        gold_patch: Annotated[Text, Visibility.HIDDEN] = OPTIONAL

The validator, the map of lanes, the JSON Schema and the documentation are all derived from that.
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
    """The mark of an eval field whose value may be a file reference, or a list of them."""

    mounted: bool = False


TAKES_FILES: Final = _TakesFiles()

TAKES_A_MOUNTED_FILE: Final = _TakesFiles(mounted=True)
"""The same of a field whose value is data: only an object of ``path`` and a ``mount`` in its lane is a reference."""


@dataclass(frozen=True, slots=True)
class _Structure:
    """The mark of a field that says where and how a task is judged, not what is expected: it is never redacted."""


STRUCTURE: Final = _Structure()


@dataclass(frozen=True, slots=True)
class _Command:
    """The mark of a field that holds a command: it is secret as a whole, its words are not."""


COMMAND: Final = _Command()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One benchmark family. ``check`` looks at a row as a whole, once input and eval alone are right.

    ``warn`` looks at a row that is right, for what may still go wrong with it. The rows of a family that is not
    ``active`` load and compile, but nothing judges them yet: their models say what is documented, and are not enforced.
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
    """The lane of each eval field that the family knows. Any other is hidden."""
    file_fields: frozenset[str] = field(init=False)
    """The eval fields whose value may be a file reference."""
    mounted_file_fields: frozenset[str] = field(init=False)
    """The eval fields whose value is data, unless it is a file reference that names its mount."""

    def __post_init__(self) -> None:
        marks = {name: info.metadata for name, info in self.eval_model.model_fields.items()}
        lanes = {name: _lane(name, its) for name, its in marks.items()}
        object.__setattr__(self, "lanes", MappingProxyType(lanes))
        for attribute, mark in (("file_fields", TAKES_FILES), ("mounted_file_fields", TAKES_A_MOUNTED_FILE)):
            object.__setattr__(self, attribute, frozenset(name for name, its in marks.items() if mark in its))

    @property
    def workspace_required(self) -> bool:
        """Whether the candidate is a tree of files, and not a text."""
        return self.candidate_kind in (CandidateKind.PATCH, CandidateKind.WORKSPACE)

    def identity(self) -> Identity | None:
        """Return whose code this is, for ``run.json`` and every record: a run resumes only with the same.

        ``None`` stands for this framework. Raises :class:`ConfigError` (``plugin-no-source``).
        """
        return plugins.identity_of(self.eval_model)

    def faults(self, inputs: dict[str, Any], evals: dict[str, Any], environment: Environment) -> list[Fault]:
        """Return what is wrong with a row's ``input`` and ``eval``. No message shows an eval value."""
        if not self.active:
            return []
        of_input = [fault.below(("input",)) for fault in fit(self.input_model, inputs)[1]]
        of_eval = [fault.below(("eval",)) for fault in fit(self.eval_model, evals, secret=True)[1]]
        if of_input or of_eval or self.check is None:
            return of_input + of_eval
        return list(self.check(inputs, evals, environment))

    def warnings(self, inputs: dict[str, Any], evals: dict[str, Any], environment: Environment) -> list[Fault]:
        """Return what may go wrong with a row that :meth:`faults` finds nothing wrong with."""
        return list(self.warn(inputs, evals, environment)) if self.active and self.warn else []


def _lane(name: str, marks: Iterable[Any]) -> Visibility:
    """Return the lane that a field is annotated with. Raises ``TypeError`` for a field without: a bug of ours."""
    lanes = [mark for mark in marks if isinstance(mark, Visibility)]
    if len(lanes) != 1:
        raise TypeError(f"the eval field {name!r} must be annotated with one lane")
    return lanes[0]
