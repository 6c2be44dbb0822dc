"""Decide whether a sentence gives a phrase as its answer, and nothing that could be another answer.

    sentence    = before, phrase, after
    before      = filler, words of the question, and a role or verb: "the English novelist", "it is due to"
    after       = the same, then an optional description
    description = relative clause, circumstance or participle: "who ...", "in 1818", "also known as ..."
                | apposition: "the English author"
                | parenthesis: "(1797-1851)"
                | contrast with another name: "not Sydney"

The phrase is the head of the sentence, because nothing precedes it except what ``before`` allows. A sentence has only
one head, so it cannot give two answers. Except in a contrast, a description has no word of doubt and no other name. A
name after a preposition, such as a place or date, is allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from securebench.families.skeleton import skeleton
from securebench.verifiers.text.numbers import parse_number
from securebench.verifiers.text.questions import stem, stems, unit_name
from securebench.verifiers.text.vocabulary import (
    ADVERBS,
    CLAUSES,
    CONNECTORS,
    CONTRASTS,
    COPULAS,
    DISBELIEF,
    DOUBTS,
    EMPHASIS,
    FILLERS,
    FUNCTION_WORDS,
    HEDGES,
    KINDS,
    MAKERS,
    NEGATIONS,
    NOT_UNITS,
    NUMBER_WORDS,
    OTHER_ANSWERS,
    PARTICIPLES,
    POLARITY,
    PREPOSITIONS,
    PRONOUNS,
    ROLES,
    SCALES,
    VERDICTS,
)
from securebench.verifiers.text.wording import plain, position, words

MAX_OTHER_WORDS: Final = 24
"""The maximum number of words around the accepted answer. A text with more is a discussion, not an answer."""

# A shorter text could be another answer. The limit applies to descriptions that begin with an article (not counted), a
# participle or a word such as "who".
_FEW_WORDS: Final = 3
"""The minimum number of words in a description such as ``which is a metal``, if the answer is not a name."""

_GOVERNED: Final = 3
"""After this many words without a capital letter, a preposition governs no more names.

Articles and words such as ``of`` are not counted. A comma or ``and`` also ends what the preposition governs. In
``by the famous physicist Max Planck``, ``by`` governs ``Max`` and ``Planck``.
"""

_LONGEST_ABBREVIATION: Final = 6
_CHEMICAL_SYMBOL: Final = 2
"""The length of a symbol such as ``Hg``.

A capitalized word of this length, in parentheses after a longer answer, counts as its symbol: ``mercury (Hg)``.
"""

_SHORTEST_ADJECTIVE: Final = 5
"""The minimum length of a word in the question from which an adjective in the answer may be formed.

``Israel`` in the question allows ``Israeli`` in the answer. A word that ends in *-ed* is treated as a participle if it
has more letters than this.
"""

_LETTERS: Final = re.compile(r"[^\W\d_]+")

_QUOTES: Final = "*_`\"'\u201c\u201d\u2018\u2019\u00ab\u00bb"
_REJECTING: Final = DOUBTS | HEDGES | NEGATIONS | OTHER_ANSWERS | DISBELIEF | CONTRASTS
_JOINING: Final = frozenset({"of", "with", "between", "to", "that"})
_POLAR: Final = frozenset({("yes",), ("no",), ("true",), ("false",)})
_ROLE: Final = re.compile(r"[^\W\d_]{2,}(?:ist|ian|naut|tor|sor|man|woman)")
_ORIGIN: Final = re.compile(r"[^\W\d_]{2,}(?:ish|ese|ian|ean|merican|exican|frican|ench|utch|erman|wiss|reek|zech)")
_ARTICLES: Final = frozenset({"the", "a", "an"})


@dataclass(frozen=True, slots=True)
class _Token:
    """A word of a sentence: ``word`` is normalized by :func:`words`. ``written`` only lacks quotes and emphasis."""

    word: str
    written: str

    @property
    def is_name(self) -> bool:
        """Whether it begins with a capital letter and is longer than one letter, or is an initial."""
        return self._bare[:1].isupper() and (self._bare[1:2].isalpha() or self._bare[1:2] == ".")

    @property
    def is_shouted(self) -> bool:
        """Whether all its letters are capitals."""
        return self._bare.isupper()

    @property
    def opens(self) -> bool:
        """Whether it opens a parenthesis."""
        return self.written.startswith("(")

    @property
    def closes(self) -> bool:
        """Whether it closes a parenthesis."""
        return ")" in self.ends

    @property
    def ends(self) -> str:
        """The punctuation after the word."""
        return self.written[len(self.written.rstrip(".,;:!?)" + _QUOTES)) :]

    @property
    def _bare(self) -> str:
        return self.written.lstrip("(" + _QUOTES)


class Phrase:
    """An accepted answer in words, and the filler that may surround it.

    ``question`` contains the :func:`question_words`.
    """

    def __init__(self, accepted: str, question: frozenset[str]) -> None:
        self.words = words(accepted)
        self._accepted = accepted.partition(" ")[0]
        self._is_list = _is_list_of_numbers(accepted)
        self._question = question
        self._is_name = _is_written_as_name(_tokens(accepted))
        content = set(self.words) - FUNCTION_WORDS
        self._lends = not question & HEDGES and not content <= question
        self._fillers = FILLERS if content else frozenset()
        self._kinds = KINDS | ROLES if content - KINDS - ROLES else frozenset()
        if self._is_name:
            self._fillers |= MAKERS

    def is_given_by(self, answer: str) -> bool:
        """Return whether ``answer`` contains this phrase, and nothing else that could be an answer."""
        said = _tokens(answer)
        at = position(self.words, tuple(token.word for token in said))
        if at < 0 or len(said) > len(self.words) + MAX_OTHER_WORDS:
            return False
        end = at + len(self.words)
        if self.words == ("no",):
            rest = said[:at] + said[end:]
            explained = "," in said[at].ends and at == 0 and len(rest) > 0 and self._describes(rest, is_name=False)
            return explained or self._is_repeated(rest)
        return self._may_precede(said[:at]) and self._may_follow(said[end:], said[at:end])

    def is_described_by(self, sentence: str, answer: str) -> bool:
        """Return whether ``sentence``, which follows ``answer``, only describes this phrase or repeats the question."""
        said, given = _tokens(sentence), _tokens(answer)
        at = max(0, position(self.words, tuple(token.word for token in given)))
        is_name = self._is_name and _is_written_as_name(given[at : at + len(self.words)])
        return bool(said) and (self._repeats_question(said) or self._describes(said, is_name=is_name))

    def _repeats_question(self, said: list[_Token]) -> bool:
        """Return whether ``said`` repeats the question, as in ``Yes - they are fruits``. Always false after a *no*."""
        is_question = any("?" in token.ends for token in said)
        return (
            self.words != ("no",) and not is_question and all(self._is_silent(token.word, PRONOUNS) for token in said)
        )

    def _is_repeated(self, rest: list[_Token]) -> bool:
        """Return whether ``rest`` is one clause that repeats a *no*.

        True for "it is not", false for "it is not, it is".
        """
        if any(token.ends for token in rest[:-1]):
            return False
        spoken = [token.word for token in rest]
        denials = [word for word in spoken if word in NEGATIONS]
        others = [word for word in spoken if word not in denials]
        said_again = all(word in POLARITY or self._is_silent(word, PRONOUNS) for word in others)
        return len(denials) <= 1 and bool(denials) == bool(others) and said_again

    def _may_precede(self, before: list[_Token]) -> bool:
        silent = all(
            self._is_silent(token.word, CONNECTORS | PRONOUNS)
            or self._is_adjective(token, following)
            or (self._says_what(token.word) and (not token.is_name or (token is before[0] and token.word in ROLES)))
            for token, following in pairwise([*before, None])
            if token
        )
        # "the author of Mary Shelley" is another person, but "the city of Paris" is Paris.
        nouns = [token.word for token in before if token.word not in _ARTICLES]
        return silent and not (nouns[-1:] == ["of"] and any(map(_is_role, nouns[-2:-1])))

    def _may_follow(self, after: list[_Token], phrase: list[_Token]) -> bool:
        is_name = self._is_name and _is_written_as_name(phrase)
        ends, at = phrase[-1].ends, 0
        while at < len(after):
            token = after[at]
            if token.opens and not phrase[0].opens:
                close = next((i for i in range(at, len(after)) if after[i].closes), None)
                if close is None or not self._describes(after[at : close + 1], is_name=is_name):
                    return False
                at, ends = close + 1, after[close].ends
                continue
            begins = "," in ends or token.word in CLAUSES | PREPOSITIONS | {"and", "with"}
            if begins and self._describes(after[at:], is_name=is_name):
                return True
            # "Mexico City" is not Mexico, but "the Nile is the river" is the Nile.
            if not self._is_silent(token.word, frozenset() if token.is_name else self._kinds):
                return False
            at, ends = at + 1, token.ends
        return True

    def _describes(self, said: list[_Token], *, is_name: bool) -> bool:
        """Return whether ``said`` is a contrast to a name, such as ``not Sydney``, or a description of the phrase."""
        if not self._fillers:
            return False
        if is_name and self._is_contrast(said):
            return True
        spoken = [skeleton(token.word) for token in said]
        takes_back = bool(_REJECTING & {*spoken}) or any("?" in token.ends for token in said)
        several = any(set(".!;:") & {*token.ends} and len(token.word) > 1 for token in said[:-1])
        if takes_back or several:
            return False
        if self._is_note(said):
            return True
        form = self._is_a_reason if self.words in _POLAR else partial(_begins_a_description, is_name=is_name)
        return form(spoken) and not self._has_another_name(said)

    def _is_note(self, said: list[_Token]) -> bool:
        """Return whether ``said`` is a note that gives only years, a size, or the phrase's short or full form."""
        if not any(_LETTERS.search(token.word) for token in said):
            has_figures = any(character.isdigit() for token in said for character in token.word)
            return not (has_figures and self._is_list)  # "3, 5 (6)" could be a list of three
        word = said[0].word
        initial = said[0].is_shouted and len(word) <= _LONGEST_ABBREVIATION and word[0] == self.words[0][0]
        symbol = said[0].is_name and len(word) == _CHEMICAL_SYMBOL < len(self.words[0])
        is_abbreviation = len(said) == 1 and (initial or symbol)
        is_meaning = any(map(str.isupper, self._accepted[1:])) and not any(token.is_name for token in said)
        return said[0].opens and (is_abbreviation or is_meaning or _is_measured(said))

    def _is_a_reason(self, spoken: list[str]) -> bool:
        """Return whether ``spoken`` explains a yes or no and contains no other yes or no: ``No, it is a sphere``."""
        verb = next((at for at, word in enumerate(spoken) if word in COPULAS | POLARITY), -1)
        content = {*spoken[verb + 1 :]} - FUNCTION_WORDS - POLARITY
        again = EMPHASIS | NUMBER_WORDS | {word for polar in _POLAR for word in polar}
        return bool(content) and not any(word in again or self._is_silent(word) for word in content)

    def _is_contrast(self, said: list[_Token]) -> bool:
        """Return whether ``said`` only rules out other names: ``not Sydney``."""
        names = [token for token in said[1:] if token.word not in {"or", "nor"}]
        known = {*self.words} | FUNCTION_WORDS | _REJECTING | VERDICTS | EMPHASIS
        others = all(token.is_name and not token.is_shouted and token.word not in known for token in names)
        return said[0].word == "not" and bool(names) and others

    def _has_another_name(self, said: list[_Token]) -> bool:
        """Return whether ``said`` has a name that neither this phrase nor the question has.

        Names after a preposition and names that are used as adjectives are ignored.
        """
        known = {*self.words} | self._question | FUNCTION_WORDS
        governed = 0
        for at, token in enumerate(said):
            is_adjective = at + 1 < len(said) and not token.ends and not said[at + 1].is_name
            if token.is_name and token.word not in known and not governed and not is_adjective:
                return True
            if token.word in PREPOSITIONS:
                governed = _GOVERNED
            elif "," in token.ends or token.word == "and":
                governed = 0
            elif not token.is_name and token.word not in _ARTICLES | _JOINING:
                governed = max(0, governed - 1)
        return False

    def _is_silent(self, word: str, more: frozenset[str] = frozenset()) -> bool:
        """Return whether ``word`` adds nothing to the phrase: it is filler, or any form of a word of the question.

        The words in ``more`` are filler, too. Negations always add something. Words of the question add something if
        the question offers a choice (``red or blue?``) or contains the whole answer. If the phrase has only function
        words, every word adds something.
        """
        if not self._fillers:
            return False
        word, known = word.rstrip("!"), self._fillers | more
        if word in known or not self._lends:
            return word in known
        return word in self._question - NEGATIONS or (
            word not in NOT_UNITS | NEGATIONS and stem(word) in stems(self._question - NOT_UNITS)
        )

    def _says_what(self, word: str) -> bool:
        return word in self._kinds or (self._is_name and _is_role(word))

    def _is_adjective(self, token: _Token, following: _Token | None) -> bool:
        """Return whether ``token`` is an adjective of origin, such as ``English`` in ``English novelist``.

        ``Israeli`` also counts as one if the question has ``Israel``.
        """
        if not token.is_name or not self._lends or token.ends:
            return False
        if following and not following.is_name and self._says_what(following.word):
            return True
        if _ORIGIN.fullmatch(token.word):
            return True
        roots = (word[:-1] for word in self._question if len(word) >= _SHORTEST_ADJECTIVE)
        return any(token.word.startswith(root) for root in roots)


def _begins_a_description(spoken: list[str], *, is_name: bool) -> bool:
    """Return whether ``spoken`` looks like a description of the accepted phrase.

    The rules are less strict if the phrase is a name (``is_name``).
    """
    # If the phrase is a name, another answer is a name, too, and the caller finds names by their capital letters.
    first, rest = spoken[0], spoken[1:]
    if first in PREPOSITIONS:
        return bool(rest)
    if first in CLAUSES or _is_participle(first) or (first in ADVERBS and any(map(_is_participle, rest[:2]))):
        return is_name or len(spoken) >= _FEW_WORDS
    if first in _ARTICLES and len(rest) > 1:
        modified = bool({*rest[1:]} & (PREPOSITIONS | CLAUSES | _JOINING))
        return is_name or (modified and len(rest) >= _FEW_WORDS)
    if first == "with":
        return is_name and len(rest) > 1
    if first == "and":
        return is_name and any(map(_is_participle, rest[:1]))
    return is_name and first in PRONOUNS and len(rest) > 1


def _is_list_of_numbers(accepted: str) -> bool:
    """Return whether ``accepted`` has several numbers and, besides them, only variables and function words."""
    spoken = words(accepted)
    others = {run for word in spoken if word not in FUNCTION_WORDS for run in _LETTERS.findall(word) if len(run) > 1}
    is_grouped = parse_number(",".join(accepted.split())) is not None  # "10 000" is one number
    return sum(parse_number(word) is not None for word in spoken) > 1 and not others and not is_grouped


def _is_role(word: str) -> bool:
    """Return whether ``word`` is a profession or role, by a list or by its ending: ``physicist``, ``astronaut``."""
    return word in ROLES or bool(_ROLE.fullmatch(word))


def _is_measured(said: list[_Token]) -> bool:
    """Return whether ``said`` consists of numbers and units: ``0.49 km²``."""
    units = {unit for scale in SCALES for unit in scale}
    return all(token.word[0].isdigit() or unit_name(token.word.rstrip("\xb2\xb3")) in units for token in said)


def _is_participle(word: str) -> bool:
    return word in PARTICIPLES or (word.endswith("ed") and len(word) > _SHORTEST_ADJECTIVE)


def _is_written_as_name(phrase: list[_Token]) -> bool:
    """Return whether capital letters show that ``phrase`` is a name, as in ``Ludwig van Beethoven``."""
    content = [token for token in phrase if token.word not in FUNCTION_WORDS]
    return bool(content) and content[0].is_name and content[-1].is_name


def _tokens(text: str) -> list[_Token]:
    """Return the words of ``text`` without the markup around them."""
    return [_Token(word, raw.strip(_QUOTES)) for raw in plain(text).split() for word in words(raw)]
