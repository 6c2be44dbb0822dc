"""The one rule by which an agent's final answer is read from what it wrote.

1. An answer in a marked form is the final one: ``{"answer": ...}``, ``<answer>...</answer>``, a LaTeX box, or
   ``#### ...``. Two of a form that differ contradict each other.
2. Else what follows the last cue (``Answer:``, ``The answer is``) on the last line, or at the start of an earlier one.
3. Else the last line, or the first if the last one is none. Blank lines, code fences and the lines of a LaTeX display
   do not count.
4. A text whose final answer settles nothing may still, *as a whole*, be an answer of several lines.

What follows the answer is a **remark**: verifiers check that it is an explanation and not a second answer. Every
step is linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.families.normalization import normalize_text
from securebench.verifiers.markup import boxes, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TEXT_BYTES: Final = 256 * 1024
"""More than a person would read for one answer; room for a long chain of thought before it."""

MAX_ANSWER_CHARACTERS: Final = 10_000
"""A final answer beyond this is none."""

MAX_PARTS: Final = 6
"""Ways to divide an answer and the remark after it on one line."""

MAX_RIVALS: Final = 10
"""Different answers behind earlier cues that are looked at."""

MAX_LISTED_WORDS: Final = 3
"""A list of guesses, one a line, has no longer lines."""

MAX_POLITE_CHARACTERS: Final = 200

MAX_OPERATOR_CHARACTERS: Final = 40
"""How far back from a marked answer an operator is looked for."""

CUE: Final = re.compile(
    r"\bans(?:wer)?[*_`]{0,3}\s?(?:(?::|=|is\b:?|\u2192|[-=]>)[*_`]{0,3}|[-\u2013\u2014]\s(?=\s?[^\W\d]))",
    re.IGNORECASE,
)
_OPENING_CUE: Final = re.compile(
    r"[\W_]{0,8}(?:so|thus|hence|therefore)?,?\s?(?:the|my)?\s?(?:final|correct|right)?\s?" + CUE.pattern, re.IGNORECASE
)
"""A cue at the start of a line: what an earlier line must have to hold the final answer."""

_OPENING_TAG: Final = r"(?:<(?:final_?)?answer>|\[(?:final_?)?answer\])"
_TAGGED: Final = re.compile(
    rf"{_OPENING_TAG}((?:(?!{_OPENING_TAG}).)*?)(?:</(?:final_?)?answer>|\[/(?:final_?)?answer\])",
    re.IGNORECASE | re.DOTALL,
)
_ANSWER_KEY: Final = re.compile(
    r"(?:the|my)?[ _-]?(?:final|correct|right)?[ _-]?answer[ _-]?(?:choice|label|letter|value)?", re.IGNORECASE
)
_RIVAL_KEY: Final = re.compile(
    r"answer|correct|right|wrong|valid|true|false|alternativ|other|guess|candidate|second|retract|actual", re.IGNORECASE
)
"""Keys beside the answer's whose values would be other answers, or say that it is none."""

_UNIT_KEY: Final = re.compile(r"units?|currency|scale", re.IGNORECASE)
_APPLIED: Final = re.compile(
    r"""(?x) (?<![*])[*]$ | [-]$ | ^\s*[-]$ | \s-$ | (?<![-=])> $ | [+/^<!%&\d\u00b1\u2260]$
    | [\u221a\u00d7\u00b7\u00f7\u2212]$
    | \\(?:times|cdot|div|pm|mp|neq?|neg|lnot|not|leq?|geq?|lt|gt|over|sqrt(?:\[[^\[\]]{0,9}\])?)$
    | \\(?!text|math|mbox|bf|boxed|fbox)[a-z]+(?:\[[^\[\]]{0,9}\])?(?:\{[^{}]{0,20}\})?\{$"""
)
"""What, right before a marked answer, makes another answer of it: a sign, an operator, a factor, a root."""

_CLOSED: Final = re.compile(r"\A(?:[$\])}.]|\\[\])])+")
"""What closes around a marked answer."""

_ORNAMENTS: Final = dict.fromkeys(
    [0x2705, 0x2714, 0x2611, 0x2728, 0x2B50, 0xFE0F, 0x1F389, 0x1F38A, 0x1F31F, 0x1F3AF, 0x1F44D, 0x1F600, 0x1F60A]
)
"""Signs that say yes, and nothing else, beside an answer."""

_POLITE_LINE: Final = re.compile(
    r"\W*(?:please )?(?:(?:let me know|feel free to (?:ask|reach out)) if you (?:have|need|want|would like) "
    r"(?:any |more |further |other |a ){0,3}"
    r"(?:questions?|help|explanations?|clarification|details|assistance)|i? ?hope (?:this|that|it) helps"
    r"|(?:would you like|do you want|shall i|want me to)\b[^.!?\d]{0,80}\b"
    r"(?:explain|explanation|help|details|more|further|steps|elaborate|walk|show)\b[^.!?\d]{0,80}"
    r"|confidence(?: level| score)?\W{1,6}(?:\d{1,3} ?%?|[01]?\.\d{1,4}|(?:very )?high))\W*",
    re.IGNORECASE,
)
"""A polite last line, or one that says how sure the answer is: it is no answer."""

_HASHES: Final = re.compile(r"^[ \t]*####(?!#)[ \t]*(\S.*)$", re.MULTILINE)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_FENCES: Final = ("```", "~~~")
_DISPLAY: Final = frozenset({"\\[", "\\]", "$$", "\\(", "\\)"})
_MARGIN: Final = re.compile(r"\s*(?:#{1,6}\s+|####|[\u2192\u21d2\u2234]|>\s*(?=[^\W\d_]|[*_`\"'(]))*\s*")
"""Marks of a heading or quotation at the start of a line. A dash may be a minus, and ``> 5`` is not 5."""

_EXPLANATION: Final = re.compile(
    r"[\W_]{0,8}(?:explanation|reasoning|reason|rationale|justification|because)\b", re.IGNORECASE
)
"""The beginning of a line that explains the answer on the line above it."""

_DIVISION: Final = re.compile(
    r"""(?x) (?<=[.!?;])\s+(?!\u2248|\\approx) | \n | ,?\s+(?=(?:because|since)\b)
    | ,\s+(?=(?:as|so|which|where|when|during)\b)
    | \s+[-\u2013]\s+(?![\d$.]) | \s+\u2014\s+ | \s*\u2014\s* | \s+(?=\() | :\s+""",
    re.IGNORECASE,
)
"""Where a remark may begin on the line of its answer. A dash before a number is a minus."""

_OPENING: Final = "(\"'`*“\u2018«"
_CLOSING: Final = ")\"'`*”\u2019».,;:"
"""What may cling to a word without being part of it. No sign, decimal point before a digit, or unit is among them."""


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """What may be the final answer: what precedes it in its sentence, the answer, and all that follows it."""

    answer: str
    remark: str = ""
    lead: str = ""
    contradicted: bool = False
    """The text gives another answer in the same marked form."""
    whole: bool = False
    """The whole of a text of several lines: an answer only exactly as it is."""
    rivals: tuple[str, ...] = ()
    """What follows the cues of earlier lines, where it differs: other answers, if they are answers."""
    listed: tuple[str, ...] = ()
    """The other lines of a text that has nothing but short lines: a list, if they are answers."""
    is_first: bool = False
    """The first line of a text, where the last one may be its explanation."""

    def parts(self) -> Iterator[AnswerReading]:
        """Yield the reading itself, then each way to divide its answer into an answer and a remark on one line."""
        yield replace(self, answer=unwrapped(self.answer))
        if self.whole:
            return
        for _, place in zip(range(MAX_PARTS), _DIVISION.finditer(self.answer), strict=False):
            if answer := self.answer[: place.start()].strip():
                remark = f"{self.answer[place.end() :]}\n{self.remark}"
                yield replace(self, answer=unwrapped(answer), remark=remark)


def readings(text: str) -> tuple[AnswerReading, ...]:
    """Return what may be the final answer of ``text``, most decisive first: none of an empty text, at most three."""
    shown = (_unadorned(line) for line in _LINE_END.split(text))
    lines = [line for line in shown if _counts(line)]
    while len(lines) > 1 and len(lines[-1]) < MAX_POLITE_CHARACTERS and _POLITE_LINE.fullmatch(lines[-1]):
        lines.pop()
    if not lines:
        return ()
    joined = "\n".join(lines)
    found = _marked(joined, lines) or _on_last_line(lines)
    if found is None:
        found = [*_declared(lines), *_undeclared(lines)]
    return tuple(one for one in found if len(one.answer) <= MAX_ANSWER_CHARACTERS)


def _undeclared(lines: list[str]) -> list[AnswerReading]:
    """Return the last line, then the first one with the others as a remark, then all of them."""
    shown = [_MARGIN.sub("", line, count=1) for line in lines]
    if len(lines) == 1:
        return [AnswerReading(shown[0])]
    is_list = len(lines) <= MAX_RIVALS and all(len(line.split()) <= MAX_LISTED_WORDS for line in lines)
    last = AnswerReading(shown[-1], listed=tuple(shown[:-1]) if is_list else ())
    first = AnswerReading(shown[0], "\n".join(lines[1:]), is_first=True)
    return [last, first, AnswerReading("\n".join(lines), whole=True)]


def _unadorned(line: str) -> str:
    """Return ``line`` without the ornaments beside what it says; one of ornaments alone as it is."""
    bare = line.translate(_ORNAMENTS)
    return bare.rstrip() if bare != line and bare.strip() else line


def _marked(text: str, lines: list[str]) -> list[AnswerReading] | None:
    """Return the answer that ``text`` gives in a marked form, or ``None``. The first form that is there decides."""
    if given := _json_answers(text, lines):
        return [_agreed([(0, len(text), answer) for answer in given], text)]
    tagged = [(match.start(), match.end(), match[1].strip()) for match in _TAGGED.finditer(text)]
    if found := tagged or boxes(text):
        return [_agreed(found, text)]
    hashed = [(match.start(), match.end(), match[1]) for match in _HASHES.finditer(text)]
    if hashed and (hashed[-1][1] == len(text) or _has_digit(hashed[-1][2])):
        # Other lines with four hashes may be headings: rivals are those with a number, and those right above.
        rivals = [one for one in hashed[:-1] if _has_digit(one[2])]
        above = [one for one in hashed[-2:-1] if one[1] + 1 == hashed[-1][0]]
        return [_agreed([*rivals, *above, hashed[-1]], text)]
    return None


def _agreed(given: list[tuple[int, int, str]], text: str) -> AnswerReading:
    """Return the last of several answers in one form (start, end, answer), contradicted if another differs."""
    start, end, answer = given[-1]
    differ = len({normalize_text(unwrapped(one)) for _, _, one in given}) > 1
    line = text.rfind("\n", 0, start) + 1
    lead = text[line:start].rstrip("$\\[( ")
    applied = lead not in {"*", "**", "__"} and _APPLIED.search(lead[-MAX_OPERATOR_CHARACTERS:])
    remark = _CLOSED.sub("", text[end:])
    lead = _announcement(text[:line].splitlines()[-1:]) + lead
    return AnswerReading(
        answer, remark, lead, contradicted=differ or bool(applied) or _is_continued(text[end : end + 1])
    )


def _is_continued(after: str) -> bool:
    """Whether the character right after a marked answer makes it another: ``[18]0``, ``[18]^2``, ``[18]/2``."""
    return bool(after) and (after.isalnum() or after in "^/!")


def _json_answers(text: str, lines: list[str]) -> list[str]:
    """Return the answers of a text that is one JSON object, or of each line that is one if the last line is."""
    if not lines[-1].rstrip().endswith("}"):
        return []
    if whole := _json_answer(text):
        return whole
    if not _json_answer(lines[-1]):
        return []
    return [answer for line in lines for answer in _json_answer(line)]


def _json_answer(text: str) -> list[str]:
    """Return the answer of a JSON object that has one, then the values of other keys that speak of an answer.

    Numbers stay as they are written, and a unit under a key of its own follows the answer.
    """
    if not text.lstrip().startswith("{"):
        return []
    try:
        pairs = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    named = [value for key, value in pairs if _ANSWER_KEY.fullmatch(key)]
    if not named:
        return []
    rivals = [value for key, value in pairs if _RIVAL_KEY.search(key) and not _ANSWER_KEY.fullmatch(key)]
    units = "".join(f" {value}" for key, value in pairs if _UNIT_KEY.fullmatch(key) and isinstance(value, str))
    shown = [value if isinstance(value, str) else json.dumps(_plain_json(value)) for value in [*named, *rivals]]
    return [one + units for one in shown if one != "true"]


def _plain_json(value: Any) -> Any:
    return [_plain_json(item) for item in value] if isinstance(value, list | tuple) else value


def _on_last_line(lines: list[str]) -> list[AnswerReading] | None:
    """Return what follows the last cue of the last line."""
    line = _MARGIN.sub("", lines[-1], count=1)
    cues = list(CUE.finditer(line))
    if cues and normalize_text(answer := line[cues[-1].end() :]):
        lead = _announcement(lines[-2:-1]) + line[: cues[-1].start()]
        return [_with_rivals(AnswerReading(answer, "", lead), _cued(lines[:-1]))]
    return None


def _declared(lines: list[str]) -> list[AnswerReading]:
    """Return what follows the last cue that begins a line, where everything after that line is a remark.

    Without a cue it is the first line, if the next one begins to explain it.
    """
    explained = len(lines) > 1 and _EXPLANATION.match(lines[1])
    *earlier, (number, answer) = _cued(lines[:-1]) or [(0, lines[0] if explained else "")]
    if not normalize_text(answer):
        return []
    lead = _announcement(lines[max(0, number - 1) : number])
    return [_with_rivals(AnswerReading(answer, "\n".join(lines[number + 1 :]), lead), earlier)]


def _cued(lines: list[str]) -> list[tuple[int, str]]:
    """Return the number of each line that begins with a cue, and what follows it."""
    return [(number, line[cue.end() :]) for number, line in enumerate(lines) if (cue := _OPENING_CUE.match(line))]


def _with_rivals(reading: AnswerReading, cued: list[tuple[int, str]]) -> AnswerReading:
    """Return ``reading`` with the answers of other cues that differ from its own. Too many of them contradict it."""
    answers = {normalize_text(unwrapped(answer)): answer for _, answer in cued}
    rivals = [answer for key, answer in answers.items() if key not in {"", normalize_text(unwrapped(reading.answer))}]
    return replace(reading, rivals=tuple(rivals[:MAX_RIVALS]), contradicted=len(rivals) > MAX_RIVALS)


def _announcement(line: list[str]) -> str:
    """Return the line above an answer if it ends in a colon: ``This is wrong:``, then the answer."""
    return f"{line[0].strip()} " if line and line[0].rstrip(" *_").endswith(":") else ""


def words(text: str) -> tuple[str, ...]:
    """Return the words of ``text``, normalised, without the brackets, quotes and stops that cling to them.

    A word keeps its sign, decimal point and unit: ``-5``, ``.5``, ``5%`` and ``5`` are four words.
    """
    spaced = normalize_text(text).replace("\u2019", "'").split()
    return tuple(word.lstrip(_OPENING).rstrip(_CLOSING) or word for word in spaced)


def position(part: tuple[str, ...], whole: tuple[str, ...], start: int = 0) -> int:
    """Return where ``part`` first stands in ``whole``, word for word, at or after ``start``; -1 if it does not."""
    if not part:
        return -1
    last = len(whole) - len(part)
    return next(
        (at for at in range(start, last + 1) if whole[at] == part[0] and whole[at : at + len(part)] == part), -1
    )


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _counts(line: str) -> bool:
    bare = line.strip()
    return bool(normalize_text(line)) and not bare.startswith(_FENCES) and bare not in _DISPLAY
