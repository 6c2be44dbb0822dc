"""Multiple choice: the final answer must name one acceptable choice, and no other."""

from __future__ import annotations

import re
from itertools import dropwhile
from typing import TYPE_CHECKING, Final, cast

from securebench.errors import FailureReason
from securebench.families.multiple_choice import Answer, acceptable_choices
from securebench.families.normalization import choice_labels, normalize_text, strict_decimal
from securebench.verifiers.base import TextVerdict, TextVerifier
from securebench.verifiers.text.final_answer import AnswerReading, readings
from securebench.verifiers.text.numbers import result_of
from securebench.verifiers.text.phrases import Phrase
from securebench.verifiers.text.vocabulary import (
    CHOICE_FILLERS,
    DISBELIEF,
    DOUBTS,
    FUNCTION_WORDS,
    HEDGES,
    NAMELY,
    NEGATIONS,
    OTHER_CHOICES,
)
from securebench.verifiers.text.wording import (
    is_denied,
    is_second_thought,
    is_too_long,
    plain,
    position,
    question_words,
    sentences,
    unwrapped,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.resources import ResourceBundle

_CLINGING: Final = "()[]{}\"'`*\u201c\u201d\u2018\u2019\u00ab\u00bb.,;:!$"
_WIDE: Final = str.maketrans(
    {
        **{chr(wide): chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)},
        **dict.fromkeys("\uff08\uff3b\u3010\u3014\u300c\u300e\u3008\u300a", " ("),
        **dict.fromkeys("\uff09\uff3d\u3011\u3015\u300d\u300f\u3009\u300b", ") "),
        "\u3002": ".",
        "\u3001": ",",
    }
)
"""ASCII forms of full-width characters and East Asian brackets, which models use in Chinese and Japanese text."""

_DASHES: Final = frozenset("-\u2013\u2014=:")
_LOOSE_SPACE: Final = re.compile(r"(?<![^\W_]) | (?![^\W_])")
_OWN_LABEL: Final = re.compile(r"\s\((?:option\s)?[A-Z]{1,2}\)")
"""A label in parentheses after the text of its choice."""

_LEADING_LABEL: Final = re.compile(r"[\s*(]*([A-Z]{1,2})[*]{0,2}[).:,][*]{0,2}\s+(\S.*)", re.DOTALL)
"""A label and punctuation at the start of an answer, and the rest of the answer."""

_CONCLUSION: Final = re.compile(r"[,;.]\s+(?:and\s)?(?:so|thus|hence|therefore),?\s(?=[^,;]*$)", re.IGNORECASE)
"""Introduces the last clause of a line as a conclusion: ``..., so B is correct.``"""

_PRONOUN: Final = re.compile(
    r"\b(?:I (?=choose|chose|think|believe|pick|select|would|will|am|go|must)|A (?=[a-z]{2,}\b(?<!is)))"
)
"""``I`` as a pronoun and ``A`` as an article. They are not labels."""


class MultipleChoiceVerifier(TextVerifier):
    """Judges by ``choices`` (public) and ``answer`` (hidden). Words of ``question`` (public) may surround an answer."""

    family = "multiple_choice"
    version = "4"

    def judge(self, text: str, resources: ResourceBundle) -> TextVerdict:
        """Judge whether ``text`` names an acceptable choice, by its label or its wording."""
        choices = cast("list[str]", resources["choices"].value)
        answer = cast("Answer | list[Answer]", resources["answer"].value)
        question = resources["question"].value if "question" in resources else ""
        return judge_choice(text, choices, acceptable_choices(choices, answer), question_words(str(question)))


def judge_choice(
    text: str, choices: Sequence[str], acceptable: frozenset[int], question: frozenset[str] = frozenset()
) -> TextVerdict:
    """Pass ``text`` if its final answer names exactly one choice and that choice is acceptable."""
    found = readings(text)
    if any(reading.contradicted for reading in found):
        return TextVerdict(FailureReason.AMBIGUOUS_ANSWER, "choice")
    for part in (part for reading in found for part in reading.parts()):
        named = named_choices(part.answer, choices, question)
        stated = (rival for answer in (*part.rivals, *part.listed) for rival in AnswerReading(answer).parts())
        rivals = frozenset().union(*(named_choices(rival.answer, choices, question) for rival in stated))
        if (
            len(named) > 1
            or (named and not rivals <= named)
            or (named and _is_taken_back(part, named, choices, question))
        ):
            return TextVerdict(FailureReason.AMBIGUOUS_ANSWER, "choice")
        if named:
            return TextVerdict(None if named <= acceptable else FailureReason.WRONG_ANSWER, "choice")
    if concluded := _concluded(found, choices):
        return TextVerdict(None if concluded <= acceptable else FailureReason.WRONG_ANSWER, "choice")
    # An answer that mentions several choices is ambiguous. Any other answer is wrong.
    several = any(len(_mentioned(reading.answer, choices)) > 1 for reading in found[:1])
    return TextVerdict(FailureReason.AMBIGUOUS_ANSWER if several else FailureReason.WRONG_ANSWER, "none")


def _concluded(found: Sequence[AnswerReading], choices: Sequence[str]) -> frozenset[int]:
    """Return the choice that a line names by label as its conclusion, as in ``..., so B is correct``.

    Empty if the text before the conclusion contains a denial, a doubt or another choice.
    """
    for reading in found:
        end = _CONCLUSION.search(reading.answer)
        if end is None or reading.whole or reading.is_first or is_denied(reading.lead):
            continue
        reason, named = reading.answer[: end.start()], _by_label(reading.answer[end.end() :], choices)
        mentioned = _labels_in(reason, choices) | {
            i for i, choice in enumerate(choices) if position(words(choice), words(reason)) >= 0
        }
        if len(named) == 1 and mentioned <= named and not {*words(reason)} & (NEGATIONS | DOUBTS | HEDGES):
            return named
    return frozenset()


def named_choices(answer: str, choices: Sequence[str], question: frozenset[str] = frozenset()) -> frozenset[int]:
    """Return the choices that ``answer`` names. It may be a label, a text, a sentence or an equation.

    ``answer`` may contain filler, as in ``It is option (B)``. Words of ``question`` may surround the text of a choice.
    The result is empty if other words of ``answer`` could be another answer.
    """
    exact = _equal(answer, choices) or _equal(unwrapped(answer), [plain(choice) for choice in choices])
    if exact:
        return exact
    core = _core(words(answer), choices)
    return (
        _by_label(answer, choices)
        or _equal(" ".join(core), [" ".join(words(choice)) for choice in choices])
        or _by_label_and_sentence(answer, choices, question)
        or _in_a_sentence(answer, choices, question)
        or _as_a_result(answer, choices)
    )


def _equal(answer: str, choices: Sequence[str]) -> frozenset[int]:
    key = normalize_text(answer)
    labels = choice_labels(len(choices))
    names = [(i, normalize_text(name)) for pair in (labels, choices) for i, name in enumerate(pair)]
    exact = frozenset(i for i, name in names if name == key)
    return exact or frozenset(i for i, name in names if key and _tight(name) == _tight(key))


def _by_label(answer: str, choices: Sequence[str]) -> frozenset[int]:
    """Return the choice in ``It is option B`` or ``B: text of B``. Empty if other text surrounds the label.

    Filler may precede and follow a capital letter. Filler may precede a small letter, but must not follow it.
    """
    labels = choice_labels(len(choices))
    whole = {word for choice in choices if len(words(choice)) == 1 for word in words(choice)}
    silent = CHOICE_FILLERS - {label.casefold() for label in labels} - whole
    spoken = _shown(answer)
    named = _labels_in(answer, choices)
    if len(named) == 1 and all(word in labels or word.casefold() in silent for word in spoken):
        return named
    core = tuple(dropwhile(lambda word: word.casefold() in silent, spoken))
    if not core or core[0].upper() not in labels:
        return frozenset()
    index = labels.index(core[0].upper())
    rest = core[2:] if core[1:] and core[1] in _DASHES else core[1:]
    texts = {_bare(rest), _bare(tuple(dropwhile(lambda word: word.casefold() in NAMELY, rest)))}
    return frozenset({index}) if not core[1:] or _bare(_shown(choices[index])) in texts else frozenset()


def _by_label_and_sentence(answer: str, choices: Sequence[str], question: frozenset[str]) -> frozenset[int]:
    """Return the choice in ``B) Paris, in the north``: a label, then a sentence with the text of the same choice."""
    labelled = _LEADING_LABEL.match(answer)
    named = _labels_in(labelled[1], choices) if labelled else frozenset()
    return named if labelled and named == _in_a_sentence(labelled[2], choices, question) else frozenset()


def _core(spoken: tuple[str, ...], choices: Sequence[str]) -> tuple[str, ...]:
    """Return ``spoken`` without filler at both ends. Labels and words of choices are not filler."""
    named = {label.casefold() for label in choice_labels(len(choices))}
    fillers = CHOICE_FILLERS.difference(named, *map(words, choices))
    front = tuple(dropwhile(fillers.__contains__, spoken))
    return tuple(dropwhile(fillers.__contains__, front[::-1]))[::-1]


def _in_a_sentence(answer: str, choices: Sequence[str], question: frozenset[str]) -> frozenset[int]:
    """Return the choice whose whole text is in ``answer``.

    Filler and words of the question may surround the text. Returns an empty set if the other words of ``answer`` could
    be another answer.
    """
    spoken, phrases = words(plain(answer)), [words(choice) for choice in choices]
    standing = [i for i, phrase in enumerate(phrases) if position(phrase, spoken) >= 0]
    longest = max(standing, key=lambda i: len(phrases[i]), default=None)
    if longest is None or any(position(phrases[i], phrases[longest]) < 0 for i in standing):
        return frozenset()
    named, other = _OWN_LABEL.search(answer), re.sub(re.escape(choices[longest]), "", answer, flags=re.IGNORECASE)
    answer, other = _OWN_LABEL.sub("", answer), _OWN_LABEL.sub("", other)
    if _labels_in(other, choices) or (named and _labels_in(named[0], choices) - {longest}):
        return frozenset()
    return frozenset({longest}) if Phrase(choices[longest], question).is_given_by(answer) else frozenset()


def _as_a_result(answer: str, choices: Sequence[str]) -> frozenset[int]:
    """Return the choice that equals the result of the equation in ``answer``.

    Returns an empty set if there is no such choice, or if ``answer`` also has a label or another choice.
    """
    result = unwrapped(result_of(answer))
    if result == answer or strict_decimal(normalize_text(result)) is None or _labels_in(answer, choices):
        return frozenset()
    named = _equal(result, choices)
    stated = (_equal(part.answer, choices) for part in AnswerReading(answer).parts())
    return named if all(one <= named for one in stated) else frozenset()


def _is_taken_back(
    part: AnswerReading, named: frozenset[int], choices: Sequence[str], question: frozenset[str]
) -> bool:
    """Return whether the text around an answer denies or doubts it, names another choice, or is too long."""
    if is_denied(part.lead) or is_too_long(part.remark):
        return True
    asked = frozenset(word for word in question if word.isalpha())
    own = asked.union(*(words(choices[i]) for i in named))
    rivals = OTHER_CHOICES.union(*map(words, choices)) - FUNCTION_WORDS - own
    explained = (line for line in part.remark.splitlines() if _equal(line, choices) != named)
    for sentence in sentences("\n".join(explained)):
        said = named_choices(sentence, choices, question)
        others = (said | _labels_in(sentence, choices)) - named
        if others or (not said and not _is_aside(sentence, rivals) and is_second_thought(sentence, asked, rivals)):
            return True
    return False


def _is_aside(sentence: str, rivals: frozenset[str]) -> bool:
    """Return whether ``sentence`` is in parentheses and without numbers, ``?``, denials, doubts and ``rivals``."""
    said = frozenset(words(sentence))
    other = rivals | NEGATIONS | DOUBTS | HEDGES | DISBELIEF
    is_free = said.isdisjoint(other) and not any(word[:1].isdigit() for word in said) and "?" not in sentence
    return is_free and sentence.startswith("(") and sentence.rstrip(".").endswith(")")


def _shown(answer: str) -> list[str]:
    """Return the words of ``answer`` without the punctuation around them. Upper and lower case are kept.

    The article ``A`` and the pronoun ``I`` are left out.
    """
    return [word.strip(_CLINGING) or word for word in _PRONOUN.sub("", plain(answer).translate(_WIDE)).split()]


def _labels_in(answer: str, choices: Sequence[str]) -> frozenset[int]:
    """Return the choices whose labels occur in ``answer`` as words in capitals."""
    labels = choice_labels(len(choices))
    return frozenset(labels.index(word) for word in _shown(answer) if word in labels)


def _mentioned(answer: str, choices: Sequence[str]) -> set[int]:
    """Return the index of each choice whose label or text occurs in ``answer``."""
    spoken = words(answer)
    by_label = {i for i, label in enumerate(choice_labels(len(choices))) if label.casefold() in spoken}
    return by_label | {i for i, choice in enumerate(choices) if position(words(choice), spoken) >= 0}


def _tight(text: str) -> str:
    """Return ``text`` without spaces beside punctuation: ``0, 1`` becomes ``0,1``, but ``1 2`` is kept."""
    return _LOOSE_SPACE.sub("", text)


def _bare(shown: Sequence[str]) -> str:
    """Return words as one normalized text without spaces and commas, to compare them with the text of a choice."""
    return normalize_text("".join(shown).replace(",", ""))
