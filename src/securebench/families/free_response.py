"""free_response: an open prompt. Accepted and rejected phrases, or a judge model, decide whether a response passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from securebench.families.base import Family
from securebench.families.fields import Text, TextOrObject
from securebench.families.model_graded import MODEL_GRADED, ModelGradedModel
from securebench.families.skeleton import fold_confusables
from securebench.resources import Visibility
from securebench.strict_input.faults import Fault
from securebench.strict_input.models import OPTIONAL, WireModel
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.tasks import Environment

MAX_PHRASES: Final = 1000
"""The maximum number of phrases in one list of a rubric."""


class FreeResponseInput(WireModel):
    """A prompt, and the context needed to answer it."""

    prompt: Text
    context: TextOrObject = OPTIONAL


class RubricModel(WireModel):
    """A response must contain an accepted phrase and must not contain a rejected phrase.

    With ``min_token_f1``, it need not contain an accepted phrase if its token F1 with such a phrase is high enough.
    """

    type: Literal["contains_any"]
    accepted_answers: Annotated[list[Text], Field(min_length=1, max_length=MAX_PHRASES)]
    rejected_answers: Annotated[list[Text], Field(max_length=MAX_PHRASES)] = OPTIONAL
    min_token_f1: Annotated[float, Field(ge=0, le=1)] = OPTIONAL


class FreeResponseEval(WireModel):
    """How a response is judged, and a reference response."""

    rubric: Annotated[Text | Annotated[RubricModel | ModelGradedModel, Field(discriminator="type")], Visibility.HIDDEN]
    reference_answer: Annotated[TextOrObject, Visibility.HIDDEN] = OPTIONAL


def _check(_inputs: dict[str, Any], evals: dict[str, Any], _environment: Environment) -> Iterable[Fault]:
    """Reject a rubric in which a phrase is both accepted and rejected."""
    rubric = evals["rubric"]
    if isinstance(rubric, str) or rubric["type"] == MODEL_GRADED:
        return
    accepted = {fold_confusables(phrase) for phrase in rubric["accepted_answers"]}
    for index, phrase in enumerate(rubric.get("rejected_answers", ())):
        if fold_confusables(phrase) in accepted:
            message = f"rejected_answers[{index}] is also accepted: a phrase cannot be both"
            yield Fault("rubric-contradiction", message, ("eval", "rubric", "rejected_answers", index))


def _warn(_inputs: dict[str, Any], evals: dict[str, Any], _environment: Environment) -> Iterable[Fault]:
    """Warn about a rubric in prose (no verifier supports it) and about a rubric that almost any response meets."""
    rubric = evals["rubric"]
    if isinstance(rubric, dict) and rubric.get("min_token_f1") == 0:
        message = "with min_token_f1 0, a response passes if it shares one word with an accepted answer"
        yield Fault(
            "rubric-weak", message, ("eval", "rubric", "min_token_f1"), "remove min_token_f1, or set it to 0.5 or more"
        )
    if isinstance(rubric, str):
        message = "no verifier supports a rubric in prose: the task ends as an error (task_unusable) and runs no agent"
        hint = (
            'write {"type": "contains_any", "accepted_answers": [...]} or {"type": "model_graded", "criteria": "..."}'
        )
        yield Fault("rubric-unsupported", message, ("eval", "rubric"), hint)


FAMILY = Family(
    name="free_response",
    summary="An open prompt. Accepted and rejected phrases, or a judge model, decide whether a response passes.",
    candidate_kind=CandidateKind.TEXT,
    input_model=FreeResponseInput,
    eval_model=FreeResponseEval,
    check=_check,
    warn=_warn,
)
