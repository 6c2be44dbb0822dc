"""The conversation in a request to a model, in the same form for all APIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHELL_TOOLS: Final = ("exec_command", "shell_command", "run_shell_command", "shell", "container.exec", "Bash", "bash")
"""The names that clients give to their shell tools."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the client offers: its kind in the API, its name, and the schemas of its parameters."""

    kind: str
    name: str
    parameters: Mapping[str, Any]

    def arguments(self, command: str) -> dict[str, Any]:
        """Return the arguments that make the tool run ``command``."""
        name = "cmd" if "cmd" in self.parameters else "command"
        schema = self.parameters.get(name)
        is_list = isinstance(schema, dict) and schema.get("type") == "array"
        extra = {"description": "A scripted step"} if "description" in self.parameters else {}
        return {name: ["/bin/sh", "-c", command] if is_list else command, **extra}


@dataclass(frozen=True, slots=True)
class ModelConversation:
    """The conversation so far.

    ``prompt`` is everything that the user wrote before the model's first answer. ``results`` contains the output of
    each command, in order. ``shell`` is the tool for the next command. Without such a tool, the conversation is a
    background conversation, for example to get a title or summary.
    """

    model: str
    prompt: str
    results: tuple[str, ...]
    shell: Tool | None
    streams: bool
    streams_usage: bool = True
    """Whether a streamed answer reports its tokens. Clients of Chat Completions must request this."""
    questions: tuple[str, ...] = ()
    """The user's messages, in order."""

    @property
    def is_background(self) -> bool:
        """Whether this is a background conversation, in which the model cannot run commands."""
        return self.shell is None

    @property
    def text(self) -> str:
        """The prompt and all results, joined with newlines."""
        return "\n".join((self.prompt, *self.results))

    @property
    def question(self) -> str:
        """The user's last message."""
        return self.questions[-1] if self.questions else ""


def shell_function(tools: list[Tool]) -> Tool | None:
    """Return the tool whose name comes first in :data:`SHELL_TOOLS`, or ``None``."""
    return next((tool for name in SHELL_TOOLS for tool in tools if tool.name == name), None)


def objects(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects in a list, or an empty list if ``value`` is not a list."""
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def user_texts(messages: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the texts of the user's messages.

    Messages without text, such as those that contain only tool results, are left out.
    """
    return tuple(filter(None, (text_of(one.get("content")) for one in messages if one.get("role") == "user")))


def text_of(content: object) -> str:
    """Return the text of ``content``, the content of a message or result: a string or a list of parts."""
    return content if isinstance(content, str) else "\n".join(_texts(content))


def _texts(content: object) -> Iterator[str]:
    for part in objects(content):
        if isinstance(text := part.get("text"), str):
            yield text
