"""The interface of a judge: the model that grades responses, as the tester configured it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.resources import JsonValue
    from securebench.verifiers.model_graded.prompt import JudgePrompt


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A reply of a judge, or else why there is none: its ``trouble``.

    ``model`` is the model that replied, as the provider named it.
    """

    text: str = ""
    trouble: str = ""
    model: str = ""


class JudgeSession(ABC):
    """A judge's replies about the candidate of one trial, in their order.

    ``replies`` are those so far. A verification that is tried again begins with them, and pays for no request twice.
    """

    def __init__(self, identity: Mapping[str, JsonValue], replies: list[JudgeReply] | None = None) -> None:
        self.identity = identity
        self.replies = replies if replies is not None else []

    @abstractmethod
    def ask(self, prompt: JudgePrompt, *, is_control: bool) -> JudgeReply:
        """Ask the judge. Raises :class:`EgressError`, and :class:`ProviderError`.

        No failure of the provider on a response is raised: the response may have provoked it. It is a ``trouble``.
        """

    def close(self) -> Mapping[str, JsonValue]:
        """Close the session, and return its usage. Never raises."""
        return {}


@dataclass(slots=True)
class Conversation:
    """One verification's questions to a judge: known replies first, then new ones."""

    session: JudgeSession
    asked: int = field(default=0, init=False)

    def ask(self, prompt: Callable[[], JudgePrompt], *, is_control: bool) -> JudgeReply:
        """Return the next reply. Raises the errors of :meth:`JudgeSession.ask`."""
        if self.asked == len(self.session.replies):
            self.session.replies.append(self.session.ask(prompt(), is_control=is_control))
        self.asked += 1
        return self.session.replies[self.asked - 1]
