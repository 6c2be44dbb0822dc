"""The rubric ``model_graded`` of free_response: a judge model decides whether a response meets the criteria.

The row has the criteria. The manifest may have defaults for the rubric's options, and a calibration set: responses with
known grades.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from securebench.families.base import STRUCTURE
from securebench.families.fields import Text
from securebench.strict_input.models import OPTIONAL, WireModel, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL_GRADED: Final = "model_graded"

MAX_VOTES: Final = 15
"""The maximum number of votes of the judge on one response. More votes cost more, but hardly change a verdict."""

DEFAULT_VOTES: Final = 3
DEFAULT_BYTES: Final = 20_000
"""The default size limit of a response in bytes: about 5,000 tokens of English, at most 20,000 tokens of any text."""

PLACEHOLDERS: Final = ("task", "criteria", "candidate")
"""The placeholders of a template, written as ``{{task}}``. Each must occur exactly once."""

_PLACEHOLDER: Final = re.compile(r"\{\{([^{}]*)\}\}")


def _odd(votes: int) -> int:
    if votes % 2 == 0:
        raise refusal("rubric-votes", "is an even number", "use an odd number, so that there is always a majority")
    return votes


def _template(text: str) -> str:
    if sorted(_PLACEHOLDER.findall(text)) != sorted(PLACEHOLDERS):
        wanted = ", ".join(f"{{{{{name}}}}}" for name in PLACEHOLDERS)
        raise refusal("rubric-template", "has missing, repeated or unknown placeholders", f"use each once: {wanted}")
    return text


Votes: TypeAlias = Annotated[int, Field(ge=1, le=MAX_VOTES), AfterValidator(_odd), STRUCTURE]
Template: TypeAlias = Annotated[Text, Field(max_length=20_000), AfterValidator(_template), STRUCTURE]
MaxBytes: TypeAlias = Annotated[int, Field(ge=1, le=200_000), STRUCTURE]


class ModelGradedModel(WireModel):
    """A judge model decides whether the response meets the criteria. The manifest may have defaults for the options.

    ``max_bytes`` limits the size of a response in UTF-8, as the judge sees it: with escaped characters.
    """

    type: Literal["model_graded"]
    criteria: Annotated[Text, Field(max_length=50_000)]
    votes: Votes = OPTIONAL
    template: Template = OPTIONAL
    max_bytes: MaxBytes = OPTIONAL


def is_model_graded(evals: Mapping[str, Any]) -> bool:
    """Return whether ``evals``, the eval fields of a row or task, ask for a judge model."""
    rubric = evals.get("rubric")
    return isinstance(rubric, dict) and rubric.get("type") == MODEL_GRADED


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced. A placeholder inside a value is not replaced."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)
