"""The steps of a scripted model, and faults in its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class AnswerUsage:
    """The tokens of one answer. ``cached`` is a part of ``input``. ``reasoning`` is a part of ``output``."""

    input: int = 1200
    cached: int = 1000
    output: int = 34
    reasoning: int = 10


@dataclass(frozen=True, slots=True)
class Shell:
    """The model runs a shell command with the client's shell tool."""

    command: str
    usage: AnswerUsage = field(default_factory=AnswerUsage)


@dataclass(frozen=True, slots=True)
class Say:
    """The model writes text. With ``refused``, the API marks the text as a refusal."""

    text: str
    usage: AnswerUsage = field(default_factory=AnswerUsage)
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """An error of the API instead of an answer.

    ``retry_after`` is a header, in seconds. ``echo_key`` puts the client's key into the message. If the client wants a
    stream, ``in_stream`` starts a normal answer with status 200, and aborts it with an error event.
    """

    status: int
    retry_after: int | None = None
    echo_key: bool = False
    in_stream: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """The provider sends no data for this many seconds, and then sends the answer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends within the answer, after this many bytes of its body."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Slow:
    """A pause of this many seconds before each piece of the answer."""

    seconds_a_piece: float


@dataclass(frozen=True, slots=True)
class Garble:
    """The answer contains invalid JSON."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect to another URL, with status 307."""

    location: str


Act = Shell | Say
Fault = Fail | Hang | Cut | Slow | Garble | Redirect
Step = Act | Fault

Script = tuple[Step, ...]
"""The steps of a model in one conversation.

Each ``Shell`` ends an answer. The next answer begins when the agent has sent the result of the command. If an agent
requests an answer again, the faults in it apply again.
"""

NOTHING_LEFT: Final = Say("There is nothing left to do.")


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One answer of a model: texts, then at most one command, and the faults of the answer."""

    acts: tuple[Act, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def usage(self) -> AnswerUsage:
        """The token counts of the answer. The last text or command of the answer has them."""
        return self.acts[-1].usage


def answer_at(script: Script, results: int) -> ModelAnswer:
    """Return the answer after this many results of commands.

    It says ``NOTHING_LEFT`` if the script has no text or command for this answer.
    """
    answers: list[list[Step]] = [[]]
    for step in script:
        answers[-1].append(step)
        if isinstance(step, Shell):
            answers.append([])
    steps = answers[results] if results < len(answers) else []
    acts = tuple(step for step in steps if isinstance(step, Act))
    return ModelAnswer(acts or (NOTHING_LEFT,), tuple(step for step in steps if isinstance(step, Fault)))
