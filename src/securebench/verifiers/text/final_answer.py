"""Extract the final answer from an agent's text.

1. A marked answer is final: ``{"answer": ...}``, ``<answer>...</answer>``, a LaTeX box, or ``#### ...``. Two
   different answers with the same marker contradict each other.
2. If there is no marked answer, the final answer is the text after the last cue (``Answer:``, ``The answer is``). On
   the last line, a cue can be anywhere. On other lines, a cue must be at the start.
3. If there is no answer after a cue, the final answer is the last line, or the first line if the second line begins an
   explanation. In a multiple-choice task, the first line is also used if the last line names no choice.
4. If no single line is an answer, the *whole* text may still be an answer of several lines.

Blank lines, code fences and the delimiter lines of LaTeX displays are skipped. Verifiers check that the text after the
answer, its **remark**, is an explanation and not a second answer. All steps take time linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.families.normalization import normalize_text
from securebench.verifiers.text.wording import CUE, boxes, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ANSWER_CHARACTERS: Final = 10_000
"""The maximum number of characters in a final answer. A longer text is not an answer."""

MAX_PARTS: Final = 6
"""The maximum number of ways to split a line into an answer and a remark. Further ways are not tried."""

MAX_RIVALS: Final = 10
"""The maximum number of rivals of an answer, and of lines in a list of guesses.

A rival is a different answer after another cue. An answer with more rivals is marked as contradicted.
"""

MAX_LISTED_WORDS: Final = 3
"""The maximum number of words in a line of a list of guesses."""

MAX_POLITE_CHARACTERS: Final = 200

MAX_OPERATOR_CHARACTERS: Final = 40
"""How many characters before a marked answer are searched for an operator."""

_OPENING_CUE: Final = re.compile(
    r"[\W_]{0,8}(?:so|thus|hence|therefore)?,?\s?(?:the|my)?\s?(?:final|correct|right)?\s?" + CUE.pattern, re.IGNORECASE
)
"""A cue at the start of a line. On the lines before the last one, only such cues are recognized."""

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
"""Keys beside the answer in its JSON object. Their values may be other answers, or say that the answer is wrong."""

_UNIT_KEY: Final = re.compile(r"units?|currency|scale", re.IGNORECASE)
_APPLIED: Final = re.compile(
    r"""(?x) (?<![*])[*]$ | [-]$ | ^\s*[-]$ | \s-$ | (?<![-=])> $ | [+/^<!%&\d\u00b1\u2260]$
    | [\u221a\u00d7\u00b7\u00f7\u2212]$
    | \\(?:times|cdot|div|pm|mp|neq?|neg|lnot|not|leq?|geq?|lt|gt|over|sqrt(?:\[[^\[\]]{0,9}\])?)$
    | \\(?!text|math|mbox|bf|boxed|fbox)[a-z]+(?:\[[^\[\]]{0,9}\])?(?:\{[^{}]{0,20}\})?\{$"""
)
"""Matches a sign, operator, factor or root before a marked answer, such as the minus in ``-<answer>18</answer>``."""

_CLOSED: Final = re.compile(r"\A(?:[$\])}.]|\\[\])])+")
"""Closing delimiters after a marked answer."""

_ORNAMENTS: Final = dict.fromkeys(
    [0x2705, 0x2714, 0x2611, 0x2728, 0x2B50, 0xFE0F, 0x1F389, 0x1F38A, 0x1F31F, 0x1F3AF, 0x1F44D, 0x1F600, 0x1F60A]
)
"""Emoji of approval or decoration next to an answer."""

_POLITE_LINE: Final = re.compile(
    r"\W*(?:please )?(?:(?:let me know|feel free to (?:ask|reach out)) if you (?:have|need|want|would like) "
    r"(?:any |more |further |other |a ){0,3}"
    r"(?:questions?|help|explanations?|clarification|details|assistance)|i? ?hope (?:this|that|it) helps"
    r"|(?:would you like|do you want|shall i|want me to)\b[^.!?\d]{0,80}\b"
    r"(?:explain|explanation|help|details|more|further|steps|elaborate|walk|show)\b[^.!?\d]{0,80}"
    r"|confidence(?: level| score)?\W{1,6}(?:\d{1,3} ?%?|[01]?\.\d{1,4}|(?:very )?high))\W*",
    re.IGNORECASE,
)
"""A polite closing line, or a statement of confidence. Neither is an answer."""

_HASHES: Final = re.compile(r"^[ \t]*####(?!#)[ \t]*(\S.*)$", re.MULTILINE)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_FENCES: Final = ("```", "~~~")
_DISPLAY: Final = frozenset({"\\[", "\\]", "$$", "\\(", "\\)"})
_MARGIN: Final = re.compile(r"\s*(?:#{1,6}\s+|####|[\u2192\u21d2\u2234]|>\s*(?=[^\W\d_]|[*_`\"'(]))*\s*")
"""Marks at the start of a line: the mark of a heading or block quote, or an arrow.

A dash is not such a mark, because it may be a minus. ``>`` before a number, as in ``> 5``, is not such a mark either.
"""

_EXPLANATION: Final = re.compile(
    r"[\W_]{0,8}(?:explanation|reasoning|reason|rationale|justification|because)\b", re.IGNORECASE
)
"""The start of a line that explains the answer on the line above it."""

_DIVISION: Final = re.compile(
    r"""(?x) (?<=[.!?;])\s+(?!\u2248|\\approx) | \n | ,?\s+(?=(?:because|since)\b)
    | ,\s+(?=(?:as|so|which|where|when|during)\b)
    | \s+[-\u2013]\s+(?![\d$.]) | \s+\u2014\s+ | \s*\u2014\s* | \s+(?=\() | :\s+""",
    re.IGNORECASE,
)
"""Where a remark may begin on the same line as its answer. A hyphen or en dash before a number is a minus."""


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """A possible final answer, the text right before it (``lead``) and all text after it (``remark``)."""

    answer: str
    remark: str = ""
    lead: str = ""
    contradicted: bool = False
    """Whether the text contradicts the answer or changes it.

    Another answer with the same marker contradicts the answer, and so do too many ``rivals``. An operator beside the
    answer changes it.
    """
    whole: bool = False
    """Whether the answer is a whole text of several lines, which must match exactly."""
    rivals: tuple[str, ...] = ()
    """Texts that follow earlier cues and differ from the answer. Verifiers decide whether they are answers at all."""
    listed: tuple[str, ...] = ()
    """The lines before the answer, if all lines are short. If they are answers, too, the text is a list of guesses."""
    is_first: bool = False
    """Whether the answer is the first line of a text whose other lines may explain it."""

    def parts(self) -> Iterator[AnswerReading]:
        """Yield this reading, then each way to split its answer into an answer and a remark on the same line."""
        yield replace(self, answer=unwrapped(self.answer))
        if self.whole:
            return
        for _, place in zip(range(MAX_PARTS), _DIVISION.finditer(self.answer), strict=False):
            if answer := self.answer[: place.start()].strip():
                remark = f"{self.answer[place.end() :]}\n{self.remark}"
                yield replace(self, answer=unwrapped(answer), remark=remark)


def readings(text: str) -> tuple[AnswerReading, ...]:
    """Return up to four possible final answers of ``text``, the most decisive first; empty if there is none."""
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
    """Return the alternatives for the answer: the last line, and for several lines the first line and all of them."""
    shown = [_MARGIN.sub("", line, count=1) for line in lines]
    if len(lines) == 1:
        return [AnswerReading(shown[0])]
    is_list = len(lines) <= MAX_RIVALS and all(len(line.split()) <= MAX_LISTED_WORDS for line in lines)
    last = AnswerReading(shown[-1], listed=tuple(shown[:-1]) if is_list else ())
    first = AnswerReading(shown[0], "\n".join(lines[1:]), is_first=True)
    return [last, first, AnswerReading("\n".join(lines), whole=True)]


def _unadorned(line: str) -> str:
    """Return ``line`` without emoji of approval or decoration. A line of only such emoji is returned unchanged."""
    bare = line.translate(_ORNAMENTS)
    return bare.rstrip() if bare != line and bare.strip() else line


def _marked(text: str, lines: list[str]) -> list[AnswerReading] | None:
    """Return the marked answer of ``text``, or ``None``. The first kind of marker found decides."""
    if given := _json_answers(text, lines):
        return [_agreed([(0, len(text), answer) for answer in given], text)]
    tagged = [(match.start(), match.end(), match[1].strip()) for match in _TAGGED.finditer(text)]
    if found := tagged or boxes(text):
        return [_agreed(found, text)]
    hashed = [(match.start(), match.end(), match[1]) for match in _HASHES.finditer(text)]
    if hashed and (hashed[-1][1] == len(text) or _has_digit(hashed[-1][2])):
        # Other lines with four hashes may be headings. They are rivals if they have a digit or are right above
        # the last of these lines.
        rivals = [one for one in hashed[:-1] if _has_digit(one[2])]
        above = [one for one in hashed[-2:-1] if one[1] + 1 == hashed[-1][0]]
        return [_agreed([*rivals, *above, hashed[-1]], text)]
    return None


def _agreed(given: list[tuple[int, int, str]], text: str) -> AnswerReading:
    """Return the last of the ``given`` answers, and whether the text contradicts it.

    Each answer is a tuple (start, end, answer). All of them have the same marker.
    """
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
    """Return whether the character right after a marked answer changes its value: ``[18]0``, ``[18]^2``, ``[18]/2``."""
    return bool(after) and (after.isalnum() or after in "^/!")


def _json_answers(text: str, lines: list[str]) -> list[str]:
    """Return the answers in ``text`` if it is a JSON object with an answer.

    Otherwise, if the last line is such an object, return the answers in all lines that are such objects.
    """
    if not lines[-1].rstrip().endswith("}"):
        return []
    if whole := _json_answer(text):
        return whole
    if not _json_answer(lines[-1]):
        return []
    return [answer for line in lines for answer in _json_answer(line)]


def _json_answer(text: str) -> list[str]:
    """Return the answers in the JSON object ``text``, then the values of keys whose names suggest another answer.

    Such names match :data:`_RIVAL_KEY`. The list is empty if no key holds an answer. Numbers keep their spelling. A
    unit under its own key is appended to each answer and value.
    """
    if not text.lstrip().startswith("{"):
        return []
    try:
        pairs = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    named = [_json_text(value) for key, value in pairs if _ANSWER_KEY.fullmatch(key)]
    others = [_json_text(value) for key, value in pairs if _RIVAL_KEY.search(key) and not _ANSWER_KEY.fullmatch(key)]
    # A flag such as `"final_answer": true` is not an answer, unless there is no other answer.
    answers = [one for one in named if one != "true"] or named
    rivals = [one for one in others if one != "true"]
    units = "".join(f" {value}" for key, value in pairs if _UNIT_KEY.fullmatch(key) and isinstance(value, str))
    return [one + units for one in (*answers, *rivals)] if answers else []


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(_plain_json(value))


def _plain_json(value: Any) -> Any:
    return [_plain_json(item) for item in value] if isinstance(value, list | tuple) else value


def _on_last_line(lines: list[str]) -> list[AnswerReading] | None:
    """Return the text after the last cue of the last line, or ``None`` if there is no such text."""
    line = _MARGIN.sub("", lines[-1], count=1)
    cues = list(CUE.finditer(line))
    if cues and normalize_text(answer := line[cues[-1].end() :]):
        lead = _announcement(lines[-2:-1]) + line[: cues[-1].start()]
        return [_with_rivals(AnswerReading(answer, "", lead), _cued(lines[:-1]))]
    return None


def _declared(lines: list[str]) -> list[AnswerReading]:
    """Return the text after the last cue that begins a line. All lines below that line are the remark.

    The last line is not searched. Without a cue, return the first line if the second one begins an explanation.
    """
    explained = len(lines) > 1 and _EXPLANATION.match(lines[1])
    *earlier, (number, answer) = _cued(lines[:-1]) or [(0, lines[0] if explained else "")]
    if not normalize_text(answer):
        return []
    lead = _announcement(lines[max(0, number - 1) : number])
    return [_with_rivals(AnswerReading(answer, "\n".join(lines[number + 1 :]), lead), earlier)]


def _cued(lines: list[str]) -> list[tuple[int, str]]:
    """Return the number of each line that begins with a cue, and the text after the cue."""
    return [(number, line[cue.end() :]) for number, line in enumerate(lines) if (cue := _OPENING_CUE.match(line))]


def _with_rivals(reading: AnswerReading, cued: list[tuple[int, str]]) -> AnswerReading:
    """Return ``reading`` with its rivals: the answers after other cues, if they differ from its own answer.

    If there are more than ``MAX_RIVALS`` rivals, the reading is marked as contradicted.
    """
    answers = {normalize_text(unwrapped(answer)): answer for _, answer in cued}
    rivals = [answer for key, answer in answers.items() if key not in {"", normalize_text(unwrapped(reading.answer))}]
    return replace(reading, rivals=tuple(rivals[:MAX_RIVALS]), contradicted=len(rivals) > MAX_RIVALS)


def _announcement(line: list[str]) -> str:
    """Return the line above an answer if it ends in a colon, such as ``This is wrong:``."""
    return f"{line[0].strip()} " if line and line[0].rstrip(" *_").endswith(":") else ""


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _counts(line: str) -> bool:
    bare = line.strip()
    return bool(normalize_text(line)) and not bare.startswith(_FENCES) and bare not in _DISPLAY
