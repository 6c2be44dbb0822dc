"""multiple_choice: a question with choices. A row names the correct ones by label, text or zero-based index."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Field

from securebench.families.base import Family
from securebench.families.fields import Text
from securebench.families.normalization import choice_labels, normalize_text, strict_decimal
from securebench.resources import Visibility
from securebench.strict_input.faults import Fault
from securebench.strict_input.models import WireModel
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from securebench.tasks import Environment

MAX_CHOICES: Final = 100
"""The maximum number of choices of a question: more than any benchmark has, and few enough to label."""


Answer: TypeAlias = str | int | float
"""A label or the text of a choice; a zero-based index; or a number that is the text of a choice."""


class MultipleChoiceInput(WireModel):
    """A question and its choices, which are labeled A, B, C in their order."""

    question: Text
    choices: Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES)]


class MultipleChoiceEval(WireModel):
    """The correct choice, or a list of correct choices of which any one passes."""

    answer: Annotated[Answer | Annotated[list[Answer], Field(min_length=1, max_length=MAX_CHOICES)], Visibility.HIDDEN]


def acceptable_choices(choices: Sequence[str], answer: Answer | Sequence[Answer]) -> frozenset[int]:
    """Return the indexes of the choices that ``answer`` names. Values that name no choice are ignored."""
    answers = [answer] if isinstance(answer, (str, int, float)) else answer
    texts = [normalize_text(choice) for choice in choices]
    named = [_named_choice(texts, one) for one in answers]
    return frozenset(index for index in named if index is not None)


def _named_choice(texts: Sequence[str], answer: Answer) -> int | None:
    """Return the index of the choice that ``answer`` names, or ``None`` if it names no choice.

    ``texts`` are the normalized texts of the choices. An ``int`` that is a valid index is always an index. Any other
    number names the choice whose text is that number. If several texts are that number, such as ``2`` and ``2.0``, the
    answer names no choice. A string is a text or a label. In a valid row, no string names two choices.
    """
    if isinstance(answer, bool):
        return None
    if isinstance(answer, int) and 0 <= answer < len(texts):
        return answer
    if isinstance(answer, (int, float)):
        wanted_number = strict_decimal(str(answer))
        equal = [i for i, text in enumerate(texts) if strict_decimal(text) == wanted_number]
        return equal[0] if len(equal) == 1 and wanted_number is not None else None
    names = [*texts, *_normal_labels(len(texts))]
    wanted = normalize_text(answer)
    return names.index(wanted) % len(texts) if wanted in names else None


@cache
def _normal_labels(count: int) -> tuple[str, ...]:
    return tuple(map(normalize_text, choice_labels(count)))


def _check(inputs: dict[str, Any], evals: dict[str, Any], _environment: Environment) -> Iterable[Fault]:
    texts, answer = [normalize_text(choice) for choice in inputs["choices"]], evals["answer"]
    if colliding := list(_collisions(texts)):
        return colliding
    answers = answer if isinstance(answer, list) else [answer]
    last = choice_labels(len(texts))[-1]
    hint = f"use the label of a choice (A to {last}), its text, or its index from 0"
    return [
        Fault("answer-unknown", "answer names none of the choices", ("eval", "answer", *place), hint)
        for index, one in enumerate(answers)
        if _named_choice(texts, one) is None
        for place in [(index,) if isinstance(answer, list) else ()]
    ]


def _collisions(texts: list[str]) -> Iterator[Fault]:
    """Yield a fault for each choice whose normalized text equals an earlier choice or the label of another choice."""
    labels = dict(zip(_normal_labels(len(texts)), enumerate(choice_labels(len(texts))), strict=True))
    seen: dict[str, int] = {}
    for index, text in enumerate(texts):
        path = ("input", "choices", index)
        if text in seen:
            message = f"the verifier cannot distinguish choices[{index}] from choices[{seen[text]}]"
            hint = "use texts that differ in more than case, white space, quotes and a final full stop"
            yield Fault("choices-collide", message, path, hint)
        elif text in labels and labels[text][0] != index:
            other, label = labels[text]
            message = f"the text of choices[{index}] is {label!r}, the label of choices[{other}]"
            yield Fault(
                "choices-collide", message, path, "reorder or reword the choices: an answer could mean either choice"
            )
        seen.setdefault(text, index)


FAMILY = Family(
    name="multiple_choice",
    summary="A question with several choices, one or more of them correct.",
    candidate_kind=CandidateKind.TEXT,
    input_model=MultipleChoiceInput,
    eval_model=MultipleChoiceEval,
    check=_check,
)
