"""Free response: a structured rubric ``contains_any`` is met, and nothing that it rejects is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, FailureReason
from securebench.families.lookalikes import skeleton
from securebench.verifiers.final_answer import position, words
from securebench.verifiers.rejection import stands_in
from securebench.verifiers.text import Judgement, TextVerifier
from securebench.verifiers.vocabulary import HEDGES, NEGATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.resources import JsonValue, ResourceBundle

MAX_WORDS: Final = 1_000
"""A longer response could list every answer there is."""

_ARTICLES: Final = frozenset({"the", "a", "an", "in", "at", "on"})


@dataclass(frozen=True, slots=True)
class Rubric:
    """``contains_any``: phrases of which one is enough, phrases that none may be, and the token F1 that is enough."""

    accepted: tuple[str, ...]
    rejected: tuple[str, ...] = ()
    min_token_f1: float = 1.0


class FreeResponseVerifier(TextVerifier):
    """Judges by ``rubric`` (hidden)."""

    family = "free_response"
    version = "2"

    def judge(self, text: str, resources: ResourceBundle) -> Judgement:
        """Judge the whole of ``text``. Raises :class:`ConfigError` (``rubric-unsupported``) for another rubric."""
        return judge_response(text, rubric_of(resources["rubric"].value))


def rubric_of(value: JsonValue) -> Rubric:
    """Return the rubric that ``value`` describes. Raises :class:`ConfigError` (``rubric-unsupported``)."""
    if not isinstance(value, dict) or value.get("type") != "contains_any" or not value.get("accepted_answers"):
        raise ConfigError(
            "the rubric is not of type 'contains_any' with 'accepted_answers', the only kind that can be judged",
            code="rubric-unsupported",
            hint='write {"type": "contains_any", "accepted_answers": [...]}',
        )
    fields: dict[str, Any] = value
    return Rubric(
        accepted=tuple(fields["accepted_answers"]),
        rejected=tuple(fields.get("rejected_answers") or ()),
        min_token_f1=float(fields.get("min_token_f1", 1.0)),
    )


def judge_response(text: str, rubric: Rubric) -> Judgement:
    """Judge ``text``: rejection first, then a phrase that stands in it and is not taken back, then token F1."""
    spoken = words(text)
    if len(spoken) > MAX_WORDS:
        return Judgement(FailureReason.CANDIDATE_TOO_LARGE, "length")
    look = skeleton(text) if rubric.rejected else ""
    if any(stands_in(phrase, look) for phrase in rubric.rejected):
        return Judgement(FailureReason.REJECTED_ANSWER, "rejected")
    accepted = [words(phrase) for phrase in rubric.accepted]
    standing = [(phrase, at) for phrase in accepted for at in _positions(phrase, spoken)]
    if any(_is_taken_back(phrase, at, spoken) for phrase, at in standing):
        return Judgement(FailureReason.AMBIGUOUS_ANSWER, "contains")
    if standing:
        return Judgement.passing("contains")
    near = any(_is_near(phrase, spoken, rubric.min_token_f1) for phrase in accepted)
    return Judgement.passing("token_f1") if near else Judgement(FailureReason.WRONG_ANSWER, "none")


def token_f1(wanted: tuple[str, ...], given: tuple[str, ...]) -> float:
    """Return the harmonic mean of precision and recall of the words, each counted as often as it stands; 0.0 to 1.0."""
    common = (Counter(wanted) & Counter(given)).total()
    return 2 * common / (len(wanted) + len(given)) if common else 0.0


def _positions(phrase: tuple[str, ...], spoken: tuple[str, ...]) -> Iterator[int]:
    at = position(phrase, spoken)
    while at >= 0:
        yield at
        at = position(phrase, spoken, at + 1)


def _is_taken_back(phrase: tuple[str, ...], at: int, spoken: tuple[str, ...]) -> bool:
    """Whether the words right beside a phrase deny it or set another answer beside it: ``not the X``, ``X or Y``.

    A denial is one in any look-alike spelling: ``n\u043et``, with a Cyrillic letter.
    """
    before = [word for word in map(skeleton, spoken[max(0, at - 3) : at]) if word not in _ARTICLES]
    after = map(skeleton, spoken[at + len(phrase) : at + len(phrase) + 1])
    return bool({*before[-1:]} & (NEGATIONS | HEDGES) or {*after} & HEDGES)


def _is_near(phrase: tuple[str, ...], spoken: tuple[str, ...], min_token_f1: float) -> bool:
    """Whether ``spoken`` shares words with ``phrase``, and enough of them, and denies and hedges just as it does."""
    score = token_f1(phrase, spoken)
    return 0 < score >= min_token_f1 and _denials(phrase) == _denials(spoken)


def _denials(spoken: tuple[str, ...]) -> Counter[str]:
    return Counter(word for word in map(skeleton, spoken) if word in NEGATIONS | HEDGES)
