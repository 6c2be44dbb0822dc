"""short_answer: a question whose answer is a word, a phrase or a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from securebench.families.base import Family
from securebench.families.fields import Text, TextOrObject
from securebench.families.normalization import strict_decimal
from securebench.resources import Visibility
from securebench.strict_input.faults import Fault
from securebench.strict_input.models import OPTIONAL, WireModel
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.tasks import Environment

MAX_ACCEPTED_ANSWERS: Final = 1000
"""The maximum number of accepted spellings of one answer."""


class ShortAnswerInput(WireModel):
    """A question, the context needed to answer it, and the format of the answer."""

    question: Text
    answer_format: TextOrObject = OPTIONAL
    context: TextOrObject = OPTIONAL


class ShortAnswerEval(WireModel):
    """The accepted answers, and the tolerance for numbers."""

    accepted_answers: Annotated[
        list[Text | int | float], Field(min_length=1, max_length=MAX_ACCEPTED_ANSWERS), Visibility.HIDDEN
    ]
    tolerance: Annotated[float, Field(ge=0), Visibility.HIDDEN] = OPTIONAL


def _check(_inputs: dict[str, Any], evals: dict[str, Any], _environment: Environment) -> Iterable[Fault]:
    answers = evals["accepted_answers"]
    if "tolerance" in evals and all(strict_decimal(str(answer)) is None for answer in answers):
        yield Fault(
            "tolerance-without-number",
            "tolerance is given, but no accepted answer is a number",
            ("eval", "tolerance"),
            "remove tolerance, or write an answer in plain decimal digits",
        )


FAMILY = Family(
    name="short_answer",
    summary="A question whose answer is a word, a phrase or a number.",
    candidate_kind=CandidateKind.TEXT,
    input_model=ShortAnswerInput,
    eval_model=ShortAnswerEval,
    check=_check,
)
