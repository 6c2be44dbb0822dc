"""What a scripted model does, step by step, and what may go wrong on the way to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """The tokens of one answer. ``cached`` are some of ``input``, ``reasoning`` some of ``output``."""

    input: int = 1200
    cached: int = 1000
    output: int = 34
    reasoning: int = 10


@dataclass(frozen=True, slots=True)
class Shell:
    """The model has the client run a shell command, by whichever tool of the client's does that."""

    command: str
    usage: AnswerUsage = field(default_factory=AnswerUsage)


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something. ``refused``: it says so as the API marks that it will not."""

    text: str
    usage: AnswerUsage = field(default_factory=AnswerUsage)
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """An error of the API instead of an answer.

    ``retry_after`` is a header, in seconds. ``echo_key`` puts the client's key into the message. ``in_stream`` begins a
    good answer, with status 200, and breaks it off with an error event.
    """

    status: int
    retry_after: int | None = None
    echo_key: bool = False
    in_stream: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing at all, for so many seconds; then the answer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends in the middle of the answer, after so many bytes of its body."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Slow:
    """A pause of so many seconds before each piece of the answer."""

    seconds_a_piece: float


@dataclass(frozen=True, slots=True)
class Garble:
    """The answer is not JSON."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """The client is sent to another URL, with status 307."""

    location: str


Act = Shell | Say
Fault = Fail | Hang | Cut | Slow | Garble | Redirect
Step = Act | Fault

Script = tuple[Step, ...]
"""What a model does in one conversation. Each ``Shell`` ends an answer, and the next begins with its result.

A fault belongs to the answer that it stands before, each time that this answer is asked for.
"""

NOTHING_LEFT: Final = Say("There is nothing left to do.")


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One answer of a model: what it says, then at most one command, and what goes wrong with it."""

    acts: tuple[Act, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def usage(self) -> AnswerUsage:
        """The tokens of it all: those of its last act."""
        return self.acts[-1].usage


def answer_at(script: Script, results: int) -> ModelAnswer:
    """Return the answer that ``script`` has for a conversation with so many results. Beyond its end it has no more."""
    answers: list[list[Step]] = [[]]
    for step in script:
        answers[-1].append(step)
        if isinstance(step, Shell):
            answers.append([])
    steps = answers[results] if results < len(answers) else []
    acts = tuple(step for step in steps if isinstance(step, Act))
    return ModelAnswer(acts or (NOTHING_LEFT,), tuple(step for step in steps if isinstance(step, Fault)))
