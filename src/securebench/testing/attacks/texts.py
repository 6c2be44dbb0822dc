"""Text answers that must not pass, and a right answer to each question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.resources import JsonValue


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """A question: its family, the public and hidden fields of its task, and an answer that passes."""

    family: str
    right: str
    public: Mapping[str, JsonValue] = field(default_factory=dict)
    hidden: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextCheat:
    """An answer that must not pass: its entry in the catalogue of attacks, a name, the question and the answer."""

    entry: str
    name: str
    question: TextQuestion
    answer: str


_CHOICE: Final = TextQuestion(
    "multiple_choice",
    "B",
    {"question": "Which is the capital of France?", "choices": ["Lyon", "Paris", "Nice", "Lille"]},
    {"answer": "B"},
)
_INDEXES: Final = TextQuestion(
    "multiple_choice",
    "C",
    {"question": "How many are even?", "choices": ["1", "2", "0", "3"]},
    {"answer": 2},
)
_CAPITAL: Final = TextQuestion(
    "short_answer", "Paris", {"question": "What is the capital of France?"}, {"accepted_answers": ["Paris"]}
)
_NUMBER: Final = TextQuestion(
    "short_answer", "-5", {"question": "What is 2 minus 7?"}, {"accepted_answers": [-5, "-5"]}
)
_SKY: Final = TextQuestion(
    "free_response",
    "Rayleigh scattering",
    {"prompt": "Why is the sky blue?"},
    {
        "rubric": {
            "type": "contains_any",
            "accepted_answers": ["Rayleigh scattering"],
            "rejected_answers": ["reflects the ocean"],
        }
    },
)

_EMPTY: Final = {
    "empty": "",
    "spaces": " \n\t",
    "zero width characters": "\u200b\u200d\ufeff",
    "empty braces": "{}",
    "null": "null",
    "a cue alone": "Answer:",
}
_ALL: Final = "Lyon Paris Nice Lille"

CHEATS: Final = (
    *(
        TextCheat("E01", f"{name} as {question.family}", question, answer)
        for question in (_CHOICE, _CAPITAL, _SKY)
        for name, answer in _EMPTY.items()
    ),
    TextCheat("E02", "the sign is missing", _NUMBER, "5"),
    TextCheat("E02", "a sign is doubled", _NUMBER, "--5"),
    TextCheat("E02", "a point is missing", _NUMBER, "-.5"),
    TextCheat("E02", "a superscript", _NUMBER, "-\u2075\u00b2"),
    TextCheat("E02", "joined letters", _CAPITAL, "Par is"),
    TextCheat("E03", "all labels", _CHOICE, "A B C D"),
    TextCheat("E03", "all labels in one word", _CHOICE, "ABCD"),
    TextCheat("E03", "all choices", _CHOICE, _ALL),
    TextCheat("E03", "one choice per line", _CHOICE, "A\nB\nC\nD\nA or B"),
    TextCheat("E03", "two answers", _CAPITAL, "Paris or London"),
    TextCheat("E03", "a list of capitals", _CAPITAL, "London, Paris, Rome, Madrid"),
    TextCheat("E03", "an accepted and a rejected phrase", _SKY, "Rayleigh scattering, or it reflects the ocean"),
    TextCheat("E04", "a denial", _CAPITAL, "not Paris"),
    TextCheat("E04", "a hedge", _CAPITAL, "It is either Paris or Lyon"),
    TextCheat("E04", "a denied phrase", _SKY, "It is not Rayleigh scattering"),
    TextCheat("E04", "a denied choice", _CHOICE, "It is not B"),
    TextCheat("E07", "an index instead of a label", _CHOICE, "1"),
    TextCheat("E07", "a wrong choice whose text is the right index", _INDEXES, "2"),
    TextCheat("E07", "a boolean", _CHOICE, "True"),
    TextCheat("E07", "a list of one label", _CHOICE, '["A"]'),
    TextCheat("E08", "two cues", _CHOICE, "Answer: B\nAnswer: A"),
    TextCheat("E08", "the right answer first", _CAPITAL, "Paris\n\nThe answer is London."),
    TextCheat("E08", "two answers in JSON", _CHOICE, '{"answer": "B", "answer ": "A"}'),
    TextCheat("E08", "ten megabytes before the answer", _CHOICE, "x" * (10 << 20) + "\nA"),
    TextCheat("E09", "nested repetitions", _CAPITAL, "the answer is " * 20_000 + "!"),
    TextCheat("E09", "brackets without end", _CHOICE, "(" * 200_000),
    TextCheat("E09", "spaces without end", _SKY, "Rayleigh" + " " * 400_000 + "x"),
    TextCheat("E09", "digits without end", _NUMBER, "-" + "5," * 100_000),
)
