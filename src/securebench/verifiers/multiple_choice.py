"""Multiple choice: the final answer must name one acceptable choice, and no other."""

from __future__ import annotations

import re
from itertools import dropwhile
from typing import TYPE_CHECKING, Final, cast

from securebench.errors import FailureReason
from securebench.families.multiple_choice import acceptable_choices
from securebench.families.normalization import choice_labels, normalize_text
from securebench.verifiers.final_answer import position, readings, words
from securebench.verifiers.text import Judgement, TextVerifier
from securebench.verifiers.vocabulary import CHOICE_FILLERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.resources import ResourceBundle

_BRACKETS: Final = "[]{}"
_DASHES: Final = frozenset("-\u2013\u2014=:")
_LOOSE_SPACE: Final = re.compile(r"(?<![^\W_]) | (?![^\W_])")


class MultipleChoiceVerifier(TextVerifier):
    """Judges ``choices`` (public) against ``answer`` (hidden)."""

    family = "multiple_choice"
    version = "1"

    def judge(self, text: str, resources: ResourceBundle) -> Judgement:
        """Judge ``text`` by label or by text of a choice."""
        choices = cast("list[str]", resources["choices"].value)
        answer = cast("str | int | list[str | int]", resources["answer"].value)
        return judge_choice(text, choices, acceptable_choices(choices, answer))


def judge_choice(text: str, choices: Sequence[str], acceptable: frozenset[int]) -> Judgement:
    """Judge ``text``: it passes if its final answer names exactly one choice, and that is an acceptable one."""
    found = readings(text)
    for answer in found:
        named = named_choices(answer, choices)
        if len(named) == 1:
            right = named <= acceptable
            return Judgement(None if right else FailureReason.WRONG_ANSWER, "choice")
        if named:
            return Judgement(FailureReason.AMBIGUOUS_ANSWER, "choice")
    several = any(len(_mentioned(answer, choices)) > 1 for answer in found[:1])
    return Judgement(FailureReason.AMBIGUOUS_ANSWER if several else FailureReason.WRONG_ANSWER, "none")


def named_choices(answer: str, choices: Sequence[str]) -> frozenset[int]:
    """Return the choices that ``answer`` is a name of: a label, a text, or a label and its own text.

    Texts are compared after normalisation, then without regard to the
    spaces beside signs and stops. Words that say nothing, as in ``It is
    option (B)``, are passed over at both ends. A choice that only occurs in ``answer`` is not named by it.
    """
    exact = _equal(answer, choices)
    if exact:
        return exact
    core = _core(words(answer), choices)
    return _by_label(core, choices) or _equal(" ".join(core), [" ".join(words(choice)) for choice in choices])


def _equal(answer: str, choices: Sequence[str]) -> frozenset[int]:
    key = normalize_text(answer)
    labels = choice_labels(len(choices))
    names = [(i, normalize_text(name)) for pair in (labels, choices) for i, name in enumerate(pair)]
    exact = frozenset(i for i, name in names if name == key)
    return exact or frozenset(i for i, name in names if key and _tight(name) == _tight(key))


def _by_label(core: tuple[str, ...], choices: Sequence[str]) -> frozenset[int]:
    """Return the choice of ``B``, or of ``B: its text``; none for a label with anything else after it."""
    labels = [label.casefold() for label in choice_labels(len(choices))]
    if not core or (label := core[0].strip(_BRACKETS)) not in labels:
        return frozenset()
    index = labels.index(label)
    rest = core[2:] if core[1:] and core[1] in _DASHES else core[1:]
    agrees = not core[1:] or _bare(rest) == _bare(words(choices[index]))
    return frozenset({index}) if agrees else frozenset()


def _core(spoken: tuple[str, ...], choices: Sequence[str]) -> tuple[str, ...]:
    """Return ``spoken`` without the fillers at its ends. No label, and no word of a choice, is a filler."""
    named = {label.casefold() for label in choice_labels(len(choices))}
    fillers = CHOICE_FILLERS.difference(named, *map(words, choices))
    front = tuple(dropwhile(fillers.__contains__, spoken))
    return tuple(dropwhile(fillers.__contains__, front[::-1]))[::-1]


def _mentioned(answer: str, choices: Sequence[str]) -> set[int]:
    """Return every choice whose label or text stands somewhere in ``answer``: it tells a list from a wrong answer."""
    spoken = words(answer)
    by_label = {i for i, label in enumerate(choice_labels(len(choices))) if label.casefold() in spoken}
    return by_label | {i for i, choice in enumerate(choices) if position(words(choice), spoken) >= 0}


def _tight(text: str) -> str:
    """Return ``text`` without the spaces beside a sign or stop: ``0, 1`` is ``0,1``, but ``1 2`` is not ``12``."""
    return _LOOSE_SPACE.sub("", text)


def _bare(spoken: tuple[str, ...]) -> str:
    """Return what a label's own text is compared by: the label has named the choice already."""
    return "".join(spoken).replace(",", "")
