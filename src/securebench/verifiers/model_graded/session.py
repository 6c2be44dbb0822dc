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
    """A reply of a judge. If the provider gave no reply, ``trouble`` is the reason.

    ``model`` is the model that replied, as the provider named it.
    """

    text: str = ""
    trouble: str = ""
    model: str = ""


class JudgeSession(ABC):
    """The requests to a judge about the candidate of one trial.

    ``replies`` are the replies so far, in order. A repeated verification uses them first, so that no request is paid
    for twice.
    """

    def __init__(self, identity: Mapping[str, JsonValue], replies: list[JudgeReply] | None = None) -> None:
        self.identity = identity
        self.replies = replies if replies is not None else []

    @abstractmethod
    def ask(self, prompt: JudgePrompt, *, is_control: bool) -> JudgeReply:
        """Ask the judge, and return its reply. Raises :class:`EgressError` and :class:`ProviderError`.

        If the provider refuses the request, or keeps failing on it, the reply has a ``trouble``, because the response
        to be graded may be the cause. If ``is_control``, SecureBench itself wrote the response in the prompt, so an
        error is raised instead.
        """

    def close(self) -> Mapping[str, JsonValue]:
        """Close the session, and return its usage. Never raises."""
        return {}


@dataclass(slots=True)
class Conversation:
    """The requests to a judge in one verification. Replies that are already known are used first."""

    session: JudgeSession
    replies_used: int = field(default=0, init=False)

    def ask(self, prompt: Callable[[], JudgePrompt], *, is_control: bool) -> JudgeReply:
        """Return the next reply. Raises the errors of :meth:`JudgeSession.ask`."""
        if self.replies_used == len(self.session.replies):
            self.session.replies.append(self.session.ask(prompt(), is_control=is_control))
        self.replies_used += 1
        return self.session.replies[self.replies_used - 1]
