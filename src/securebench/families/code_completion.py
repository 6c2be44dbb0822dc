"""code_completion: a function or module to write, judged by tests that it never sees."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from securebench.families.base import Family
from securebench.families.fields import Source, Text
from securebench.resources import Visibility
from securebench.strict_input.models import OPTIONAL, WireModel, refusal
from securebench.tasks import CandidateKind

LANGUAGES: Final = ("python", "python3")
"""The languages that the verifier can judge, in lower case."""


def _language(name: str) -> str:
    if name.lower() not in LANGUAGES:
        raise refusal("language-unsupported", "is not a language that can be judged", "only Python can")
    return name


class Input(WireModel):
    """What is to be written, and where it starts from."""

    prompt: Text
    language: Annotated[str, AfterValidator(_language)] = OPTIONAL
    starter_code: Source = OPTIONAL


class Tests(WireModel):
    """Test code that uses what the candidate defines. ``isolation: shared`` runs both in one process."""

    source: Literal["inline"]
    code: Source
    isolation: Literal["split", "shared"] = OPTIONAL


class Eval(WireModel):
    """The tests, and code that passes them."""

    tests: Annotated[Tests, Visibility.EVALUATION_INPUTS]
    reference_solution: Annotated[Source, Visibility.HIDDEN] = OPTIONAL
    canonical_solution: Annotated[Source, Visibility.HIDDEN] = OPTIONAL


FAMILY = Family(
    name="code_completion",
    summary="A function or module to write, judged by tests.",
    candidate_kind=CandidateKind.CODE,
    input_model=Input,
    eval_model=Eval,
)
