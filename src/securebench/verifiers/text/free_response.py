"""Free response: the text meets a ``contains_any`` rubric, or a judge model grades it.

Rejected phrases are found even if they are spelled with confusable characters or split by other characters
(:func:`says_any`).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, FailureReason
from securebench.families.model_graded import is_model_graded
from securebench.families.normalization import normalize_text
from securebench.families.skeleton import skeleton
from securebench.verifiers.base import TextVerdict, TextVerifier, refusal
from securebench.verifiers.model_graded.grading import graded
from securebench.verifiers.text.vocabulary import CONTRASTS, HEDGES, NEGATIONS
from securebench.verifiers.text.wording import position, rendered, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.resources import JsonValue, ResourceBundle
    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerificationResult, VerifyContext
    from securebench.verifiers.model_graded.session import JudgeSession

MAX_WORDS: Final = 1_000
"""The maximum number of words in a response to a ``contains_any`` rubric.

A longer one could list every possible answer.
"""

_SILENT: Final = frozenset({"", "the", "a", "an", "in", "at", "on", "of", "to"})
"""Words, as :func:`skeleton` returns them, that may be between a denial or hedge and the phrase after it.

Markup becomes an empty word.
"""

_SENTENCE_END: Final = re.compile(r"(?<![.!?])[.!?][\"'*_)\u201d\u2019]*$")
"""Punctuation that ends a sentence, at the end of a word. An ellipsis does not match."""

_STOPS: Final = ".,;:!?"

_PIECE: Final = re.compile(r"[^\W_]+")
_DIGITS: Final = tuple(str.maketrans({"0": "o", "1": one}) for one in "li")
"""Digits read as the letters that they resemble: ``L0ndon``. The digit 1 is read as both ``l`` and ``i``."""

_CAPITAL_I: Final = str.maketrans(dict.fromkeys("I\u0399\u0406\u04c0\u0196\u2c92\uff29", "l"))
"""Capital letters that resemble a small ``l``: ``PoIand``."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """A ``contains_any`` rubric: accepted phrases, rejected phrases, and the lowest token F1 that passes, if any."""

    accepted: tuple[str, ...]
    rejected: tuple[str, ...] = ()
    min_token_f1: float | None = None


class FreeResponseVerifier(TextVerifier):
    """Judges a response by the phrases in ``rubric`` (hidden), or with the judge model of the run."""

    family = "free_response"
    version = "3"

    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Judge the candidate's text.

        Raises :class:`ConfigError` for a task that this verifier cannot judge. For a ``model_graded`` rubric, also
        raises the errors of :func:`graded`.
        """
        values = view.evaluator.payload()
        if candidate.text is None or refusal(candidate.text) or not is_model_graded(values):
            return super().verify(view, candidate, context)
        return graded(values, candidate.text, _judge(context), {"verifier": self.family, "version": self.version})

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:
        """Check that a task can be judged.

        Raises :class:`ConfigError`: ``judge-missing`` if the rubric needs a judge model and the run has none, or
        ``rubric-unsupported``.
        """
        if is_model_graded(view.evaluator.payload()):
            _judge(context)
        else:
            super().check_task(view, context)

    def judge(self, text: str, resources: ResourceBundle) -> TextVerdict:
        """Judge ``text``. Raises :class:`ConfigError` (``rubric-unsupported``) for any rubric but ``contains_any``."""
        return judge_response(text, rubric_of(resources["rubric"].value))


def _judge(context: VerifyContext) -> JudgeSession:
    if context.judge is None:
        raise ConfigError(
            "a 'model_graded' rubric needs a judge model, and this run has none",
            code="judge-missing",
            hint="add the section 'judge' to the tester YAML",
        )
    return context.judge


def rubric_of(value: JsonValue) -> Rubric:
    """Parse a rubric. Raises :class:`ConfigError` (``rubric-unsupported``)."""
    if not isinstance(value, dict) or value.get("type") != "contains_any" or not value.get("accepted_answers"):
        raise ConfigError(
            "unsupported rubric: expected type 'contains_any' with 'accepted_answers'",
            code="rubric-unsupported",
            hint='write {"type": "contains_any", "accepted_answers": [...]}',
        )
    fields: dict[str, Any] = value
    return Rubric(
        accepted=tuple(fields["accepted_answers"]),
        rejected=tuple(fields.get("rejected_answers") or ()),
        min_token_f1=float(fields["min_token_f1"]) if "min_token_f1" in fields else None,
    )


def judge_response(text: str, rubric: Rubric) -> TextVerdict:
    """Judge ``text`` by rejected phrases, then by accepted phrases, then by token F1.

    A text that denies or hedges an accepted phrase fails.
    """
    spoken = words(text)
    if len(spoken) > MAX_WORDS:
        return TextVerdict(FailureReason.CANDIDATE_TOO_LARGE, "length")
    if any(says_any(phrases, said) for phrases, said in _rejections(text, rubric)):
        return TextVerdict(FailureReason.REJECTED_ANSWER, "rejected")
    accepted = [words(phrase) for phrase in rubric.accepted]
    if any(_is_taken_back(phrase, view) for view in {text, rendered(text)} for phrase in accepted):
        return TextVerdict(FailureReason.AMBIGUOUS_ANSWER, "contains")
    if any(position(phrase, spoken) >= 0 for phrase in accepted):
        return TextVerdict.passing("contains")
    minimum = rubric.min_token_f1
    near = minimum is not None and any(_is_near(phrase, spoken, minimum) for phrase in accepted)
    return TextVerdict.passing("token_f1") if near else TextVerdict(FailureReason.WRONG_ANSWER, "none")


def token_f1(wanted: tuple[str, ...], given: tuple[str, ...]) -> float:
    """Return the harmonic mean of precision and recall over words (with multiplicity), from 0.0 to 1.0."""
    common = (Counter(wanted) & Counter(given)).total()
    return 2 * common / (len(wanted) + len(given)) if common else 0.0


def _positions(phrase: tuple[str, ...], spoken: tuple[str, ...]) -> Iterator[int]:
    at = position(phrase, spoken)
    while at >= 0:
        yield at
        at = position(phrase, spoken, at + 1)


def _rejections(text: str, rubric: Rubric) -> Iterator[tuple[set[str], str]]:
    """Yield sets of rejected phrases, each with the text that must not contain any of them.

    An accepted phrase may differ from a rejected one only by accents (``pêche``, ``péché``). Places where the text has
    the accepted phrase, with its accents, do not count as the rejected phrase.
    """
    looks = {phrase: skeleton(phrase) for phrase in rubric.rejected}
    accepted = {phrase: skeleton(phrase) for phrase in rubric.accepted} if looks else {}
    twins = {phrase for phrase, look in looks.items() if look in accepted.values()}
    yield set(looks) - twins, text
    if twins:
        exact = (unicodedata.normalize("NFC", phrase) for phrase, look in accepted.items() if look in looks.values())
        pattern = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in exact)
        whole = re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])", re.IGNORECASE)
        yield twins, whole.sub(" ", unicodedata.normalize("NFC", text))


def _is_taken_back(phrase: tuple[str, ...], text: str) -> bool:
    """Return whether words beside ``phrase`` deny or hedge it: ``not the X``, ``unlike X``, ``X or Y``, ``X. No.``.

    A denial must be right before the phrase in the same sentence, or right after the phrase as a clause of its own. A
    hedge must be right before or right after the phrase, and a sentence may end between the hedge and the phrase. Up to
    two words of :data:`_SILENT` may be between a denial or hedge and the phrase after it. Denials and hedges are
    also found when written with confusable letters, such as a Cyrillic ``o``.
    """
    spoken, written = words(text), normalize_text(text).split()
    for at in _positions(phrase, spoken):
        end = at + len(phrase)
        before = next((i for i in range(at - 1, max(-1, at - 4), -1) if _look(spoken[i]) not in _SILENT), None)
        if before is not None and (
            _look(spoken[before]) in HEDGES or (_denies(spoken, before) and not _SENTENCE_END.search(written[before]))
        ):
            return True
        if end < len(spoken):
            alone = written[end - 1][-1] in _STOPS and (end + 1 == len(spoken) or written[end][-1] in _STOPS)
            if _look(spoken[end]) in (HEDGES | NEGATIONS if alone else HEDGES):
                return True
    return False


def _denies(spoken: tuple[str, ...], at: int) -> bool:
    """Return whether the word at this position denies the words after it, or begins a contrast (``rather than``)."""
    word, previous = _look(spoken[at]), _look(spoken[at - 1]) if at else ""
    return word in NEGATIONS | CONTRASTS or (word == "than" and previous in {"rather", "other"})


def _look(word: str) -> str:
    return skeleton(rendered(word)).rstrip("!?")


def _is_near(phrase: tuple[str, ...], spoken: tuple[str, ...], min_token_f1: float) -> bool:
    """Return whether ``spoken`` has enough words in common with ``phrase``, and the same denials and hedges."""
    score = token_f1(phrase, spoken)
    return 0 < score >= min_token_f1 and _denials(phrase) == _denials(spoken)


def _denials(spoken: tuple[str, ...]) -> Counter[str]:
    return Counter(word for word in map(_look, spoken) if word in NEGATIONS | HEDGES | CONTRASTS)


def says_any(phrases: Iterable[str], text: str) -> bool:
    """Return whether one of ``phrases`` occurs in ``text``, either as written or as a web page would show it.

    A phrase of letters only is also found if punctuation surrounds it or splits it (``Lon-don``), or if it is spelled
    out (``L o n d o n``). Any other phrase has to match word for word, because ``-5`` and ``5`` differ only in
    punctuation.
    """
    wanted = {skeleton(phrase) for phrase in phrases}
    spelled = {phrase for phrase in wanted if all(part.isalpha() for part in phrase.split())}
    views = {text, rendered(text)}
    if exact := [words(phrase) for phrase in wanted - spelled]:
        spoken = [words(skeleton(" ".join(view.split()))) for view in views]
        if any(position(phrase, said) >= 0 for phrase in exact for said in spoken):
            return True
    if not spelled:
        return False
    looks = {skeleton(view) for view in views | {view.translate(_CAPITAL_I) for view in views}}
    spellings = [_Spelling.of(letters) for look in looks for letters in _with_letters(look)]
    return any(spelling.holds(phrase.split()) for spelling in spellings for phrase in spelled)


def _with_letters(look: str) -> set[str]:
    """Return the variants of ``look`` in which letters replace each 0 and 1 inside a word. Numbers are kept."""
    if "0" not in look and "1" not in look:
        return {look}
    return {
        _PIECE.sub(lambda piece: piece[0] if piece[0].isdigit() else piece[0].translate(digits), look)  # noqa: B023
        for digits in _DIGITS
    }


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The letters and digits of a text, without spaces and punctuation."""

    letters: str
    bounds: frozenset[int]
    """The positions in :attr:`letters` where words begin and end. A match must begin and end at one of them."""
    gaps: tuple[int, ...]
    """The positions where a word cannot continue: at a space, unless there are single letters on both sides."""

    @classmethod
    def of(cls, look: str) -> _Spelling:
        pieces = list(_PIECE.finditer(look))
        ends = list(accumulate(len(piece[0]) for piece in pieces))
        gaps = (end for end, (left, right) in zip(ends, pairwise(pieces), strict=False) if not _goes_on(left, right))
        return cls("".join(piece[0] for piece in pieces), frozenset({0, *ends}), tuple(gaps))

    def holds(self, wanted: list[str]) -> bool:
        """Return whether the ``wanted`` words occur in sequence as whole words."""
        phrase = "".join(wanted)
        ends = set(accumulate(map(len, wanted)))
        at = self.letters.find(phrase)
        while at >= 0:
            if at in self.bounds and at + len(phrase) in self.bounds:
                inside = range(bisect_right(self.gaps, at), bisect_left(self.gaps, at + len(phrase)))
                if all(self.gaps[gap] - at in ends for gap in inside):
                    return True
            at = self.letters.find(phrase, at + 1)
        return False


def _goes_on(left: re.Match[str], right: re.Match[str]) -> bool:
    """Return whether ``left`` and ``right`` may be parts of one word.

    They may if there is no space between them, or if both are single letters.
    """
    between = left.string[left.end() : right.start()]
    return " " not in between or (len(left[0]) == len(right[0]) == 1)
