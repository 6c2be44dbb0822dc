"""The wording of answers: their words, the markup around them, and what the sentences beside an answer say about it.

:func:`rendered`, :func:`plain` and :func:`unwrapped` remove the Markdown and LaTeX that models put around answers.
:func:`is_denied` and :func:`is_second_thought` decide whether the text around an answer explains it or takes it back.
They use closed lists of English words and the structure of sentences. In doubt, they assume that the text
takes the answer back.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

from securebench.families.normalization import normalize_text
from securebench.families.skeleton import skeleton
from securebench.verifiers.text.vocabulary import (
    ANNOUNCEMENTS,
    DISBELIEF,
    DOUBTS,
    FUNCTION_WORDS,
    HEDGES,
    NEGATIONS,
    OTHER_ANSWERS,
    POLITE,
    REASONS,
    SHARED_WORDS,
    VERDICTS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_REMARK_CHARACTERS: Final = 10_000
MAX_SENTENCES: Final = 200
"""The maximum number of sentences in an explanation. Each is compared with each choice, which takes time."""

CUE: Final = re.compile(
    r"\bans(?:wer)?[*_`]{0,3}\s?(?:(?::|=|is\b:?|\u2192|[-=]>)[*_`]{0,3}|[-\u2013\u2014]\s(?=\s?[^\W\d]))",
    re.IGNORECASE,
)

_OPENING: Final = "(\"'`*“\u2018«"
_CLOSING: Final = ")\"'`*”\u2019».,;:"
"""Punctuation that may surround a word but is not part of it. A sign, unit or leading decimal point is part of it."""

_QUESTION_WORD: Final = re.compile(r"[^\W\d_]+|\d(?:[\d.,]*\d)?")

_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n")
_CLAUSE_END: Final = re.compile(r"[.,;:!?]\s")
_FEW_WORDS: Final = 3
"""A sentence with fewer words than this may be an answer, such as ``It is London.`` Function words do not count."""

_STEP_WORDS: Final = 5
"""A sentence with fewer words and no digits may be an answer, such as ``forty-two``, not a step of a calculation."""

_FONTS: Final = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf|tt|normal)|mbox|operatorname|fbox|boxed)\s?\{([^{}]*)\}"
)
_MATH: Final = re.compile(r"(?<![$\w])\$(?!\s)([^$\n]*[^\s$])\$(?![\d$])")
"""Inline mathematics by pandoc's rule: no space after the first dollar or before the second, no digit after the second.

``$5 and $6`` is text.
"""

_SPACES: Final = re.compile(r"\\[,;:> ]|(?<=\S)~(?=\S)|\\\(|\\\)|\\\[|\\\]|\$\$|\\q?quad\b")
_GROUP: Final = re.compile(r"(?<=\d)\\,(?=\d{3}(?!\d))")
"""A LaTeX thin space as a thousands separator."""

_CALCULATION: Final = re.compile(r"<<[^<>\n]*>>(?=[$.\d])")
"""GSM8K's calculator annotations, right before their result: ``5*4=<<5*4=20>>20``."""

_LOOSE_STOP: Final = re.compile(r"(?<=\S)[ ]+([.,;:])(?=\s|$)")
"""Punctuation after spaces. The spaces may have replaced a dollar sign: ``$5$.`` becomes ``5 .``, and then ``5.``."""

_ESCAPED_DOLLAR: Final = "\ue000"
_MAX_NESTING: Final = 8

_WRAPPERS: Final = (("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ("$", "$"))
_BULLET: Final = re.compile(r"[*\u2022]\s+(?=\S)")
"""A bullet before the answer. A dash is not a bullet because it may be a minus."""

_EXCLAMATION: Final = re.compile(r"(?:(?<=[^\W\d_]{2})|(?<=[^\W\d_]{2}[*_\"'`)]))!+$")
"""Exclamation marks after a word. ``5!`` and ``n!`` are factorials and keep them."""

_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});?")
_BLOCK: Final = re.compile(
    r"</?(?:br|hr|p|div|pre|blockquote|[uod]l|li|d[td]|table|t[hdr]|h[1-6]|section|article)\b[^<>]*>", re.IGNORECASE
)
"""Tags that start a new line."""

_TAG: Final = re.compile(r"<[^<>]*>")
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^()\[\]]*\)")
_HYPHENATED: Final = re.compile(r"[-\xad\u2010][ \t]*\r?\n\s*")
_MARKS: Final = re.compile(r"[*_`~\\]")


def words(text: str) -> tuple[str, ...]:
    """Return the words of ``text``, normalized, without surrounding brackets, quotes and punctuation.

    A word keeps its sign, decimal point and unit: ``-5``, ``.5``, ``5%`` and ``5`` are four different words.
    """
    spaced = normalize_text(text).replace("\u2019", "'").split()
    return tuple(word.lstrip(_OPENING).rstrip(_CLOSING) or word for word in spaced)


def position(part: tuple[str, ...], whole: tuple[str, ...], start: int = 0) -> int:
    """Return where the words ``part`` first occur in ``whole`` at or after ``start``, or -1 if they do not."""
    if not part:
        return -1
    last = len(whole) - len(part)
    return next(
        (at for at in range(start, last + 1) if whole[at] == part[0] and whole[at : at + len(part)] == part), -1
    )


def question_words(question: str) -> frozenset[str]:
    """Return the words (sequences of letters) and the numbers in ``question``: ``x`` and ``2`` for ``x2``."""
    return frozenset(_QUESTION_WORD.findall(normalize_text(question)))


def rendered(text: str) -> str:
    """Return ``text`` roughly as a web page would show it. Used only to find rejected phrases and denials.

    Decodes HTML entities. Removes tags, comments, link targets, emphasis, code marks, backslashes, LaTeX fonts and
    hyphens at the end of a line.
    """
    decoded = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    inline = _TAG.sub("", _BLOCK.sub("\n", _HYPHENATED.sub("", decoded)))
    return _MARKS.sub("", plain(_LINK.sub(r"\1", inline)))


def plain(text: str) -> str:
    """Return ``text`` without LaTeX fonts, LaTeX spaces, math delimiters and GSM8K annotations. Resolves escapes."""
    text = text.replace("\\$", _ESCAPED_DOLLAR).replace("\\%", "%").replace("{,}", ",").replace("\\!", "")
    text = _GROUP.sub(",", _CALCULATION.sub("", text))
    for _ in range(_MAX_NESTING):
        text, count = _FONTS.subn(r"\1", text)
        if not count:
            break
    text = _MATH.sub(r" \1 ", _SPACES.sub(" ", text))
    return _LOOSE_STOP.sub(r"\1", text.replace(_ESCAPED_DOLLAR, "$"))


def unwrapped(answer: str) -> str:
    """Return ``answer`` as :func:`plain` text, without what surrounds it.

    Removes a bullet, emphasis, code marks and dollar signs around all of it, and exclamation marks after its last word.
    """
    answer = _BULLET.sub("", plain(answer).strip(), count=1) if _BULLET.match(answer.strip()) else plain(answer)
    for _ in range(_MAX_NESTING):
        answer = _EXCLAMATION.sub("", answer.strip())
        bare = answer.removesuffix(".")
        inside = (bare[len(a) : -len(b)] for a, b in _WRAPPERS if bare.startswith(a) and bare.endswith(b))
        inner = next((text for text in inside if text.strip()), None)
        if inner is None:
            break
        answer = inner
    return answer


def boxes(text: str) -> list[tuple[int, int, str]]:
    r"""Return the start, end and content of each ``\boxed{...}`` with matching braces, in one pass over ``text``."""
    found, position = [], 0
    while (start := text.find("\\boxed{", position)) >= 0:
        depth, end = 1, start + len("\\boxed{")
        opening = end
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if depth:
            break
        found.append((start, end, text[opening : end - 1]))
        position = end
    return found


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of ``text`` that have visible content."""
    yield from (part for part in _SENTENCE_END.split(plain(text)) if words(part))


def is_too_long(remark: str) -> bool:
    """Return whether ``remark`` is too long to be an explanation."""
    return len(remark) > MAX_REMARK_CHARACTERS or len(_SENTENCE_END.findall(remark)) > MAX_SENTENCES


def is_denied(lead: str, *, shared: bool = True) -> bool:
    """Return whether the text right before an answer denies or doubts it: ``I don't think it is``, ``It is a lie:``.

    Without ``shared``, ignores words of doubt that also occur in calculations.
    """
    doubts = DOUBTS if shared else DOUBTS - SHARED_WORDS
    *earlier, clause = _CLAUSE_END.split(lead)
    if {skeleton(word) for word in words(clause)} & (NEGATIONS | HEDGES | doubts | OTHER_ANSWERS):
        return True
    colon = lead[: len(lead) - len(clause)].rstrip().endswith(":")
    return bool(earlier) and _announces_a_denial(set(_normalized(earlier[-1])), colon=colon)


def _announces_a_denial(found: set[str], *, colon: bool) -> bool:
    """Return whether ``found``, the words of the sentence before an answer, deny the answer: ``It is a lie:``."""
    if not (colon or "following" in found):
        return False
    denies = found & DISBELIEF or (found & NEGATIONS and found & VERDICTS)
    announces = found & ANNOUNCEMENTS or found <= DISBELIEF
    return bool(denies and announces) and found <= FUNCTION_WORDS | NEGATIONS | DISBELIEF | VERDICTS | ANNOUNCEMENTS


def is_second_thought(sentence: str, question: frozenset[str], rivals: frozenset[str] | None = None) -> bool:
    """Return whether ``sentence``, which follows an answer, takes the answer back or could be another answer.

    ``question`` are the words of the question. ``rivals`` are the words of all other answers, if they are known. With
    ``rivals``, fewer harmless sentences are mistaken for another answer.
    """
    tokens = _normalized(sentence)
    found = set(tokens)
    if CUE.search(sentence) or found & DOUBTS or tokens[0] in HEDGES or "####" in sentence or "boxed" in sentence:
        return True
    if "or" in found and tokens[-1][:1].isdigit():
        return True
    content = _content(tokens)
    if found & NEGATIONS and (len(content) < _FEW_WORDS or found & VERDICTS):
        return True
    if _begins_with_a_reason(tokens):
        return len(content) <= 1 and not any(word[:1].isdigit() for word in content)
    # A single content word that is not in the question could be another answer.
    spare = len(content) > 1 or question.issuperset(content)
    # If the choices are numbers, other spellings of a number are rivals too.
    numeric = rivals is not None and _has_figures([*rivals]) and _has_figures(content)
    # A sentence with function words and without the words of other answers is harmless.
    if rivals is not None and spare and not numeric and found & FUNCTION_WORDS and rivals.isdisjoint(found):
        return False
    fresh = [word for word in content if word not in question]
    listed = len(content) >= _FEW_WORDS and not found & FUNCTION_WORDS and "=" not in found
    return listed or 0 < len(content) < _FEW_WORDS or 0 < len(fresh) < _FEW_WORDS


def is_working(sentence: str) -> bool:
    """Return whether ``sentence`` may be a step of a calculation: it has figures or several words, or is a heading."""
    tokens = _normalized(sentence)
    found = set(tokens)
    if CUE.search(sentence) or found & (DOUBTS - SHARED_WORDS | NEGATIONS) or "####" in sentence or "boxed" in sentence:
        return False
    if "or" in found and tokens[-1][:1].isdigit():
        return False
    return _has_figures(tokens) or len(tokens) >= _STEP_WORDS or sentence.rstrip(" *_").endswith(":")


def explains(sentence: str) -> bool:
    """Return whether ``sentence`` gives a reason of at least three words, not counting function words."""
    tokens = _normalized(sentence)
    return _begins_with_a_reason(tokens) and len(_content(tokens)) >= _FEW_WORDS


def _begins_with_a_reason(tokens: list[str]) -> bool:
    """Return whether ``tokens`` begins with ``because`` or similar, possibly after filler: ``This is because``."""
    first = next((word for word in tokens if word not in FUNCTION_WORDS), "")
    return first in REASONS


def _has_figures(tokens: list[str]) -> bool:
    return any(character.isdigit() for word in tokens for character in word)


def _normalized(sentence: str) -> list[str]:
    return [skeleton(word.rstrip("!")) or word for word in words(sentence)]


def _content(tokens: list[str]) -> list[str]:
    return [word for word in tokens if word not in FUNCTION_WORDS | NEGATIONS | POLITE | REASONS]
