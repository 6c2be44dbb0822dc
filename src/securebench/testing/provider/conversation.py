"""A conversation, as a request to a model tells it: the same for both APIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHELL_TOOLS: Final = ("exec_command", "shell_command", "shell", "container.exec", "Bash", "bash")
"""The names under which a client may offer its shell, as a function."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the client's that runs shell commands: its kind in the API, its name, its parameters' schemas."""

    kind: str
    name: str
    parameters: Mapping[str, Any]

    def arguments(self, command: str) -> dict[str, Any]:
        """Return what it is called with, so that it runs ``command``."""
        name = "cmd" if "cmd" in self.parameters else "command"
        schema = self.parameters.get(name)
        is_list = isinstance(schema, dict) and schema.get("type") == "array"
        extra = {"description": "A scripted step"} if "description" in self.parameters else {}
        return {name: ["/bin/sh", "-c", command] if is_list else command, **extra}


@dataclass(frozen=True, slots=True)
class ModelConversation:
    """What was said so far.

    ``prompt`` is all that the user said before the model's first word, ``results`` what each command gave, in order,
    ``shell`` the tool for the next. A conversation without such a tool is one in the background: a title, a summary.
    """

    model: str
    prompt: str
    results: tuple[str, ...]
    shell: Tool | None
    streams: bool

    @property
    def is_background(self) -> bool:
        """Whether nobody works in it."""
        return self.shell is None

    @property
    def text(self) -> str:
        """The prompt and all results, for a marker to be looked for."""
        return "\n".join((self.prompt, *self.results))


def shell_function(tools: list[Tool]) -> Tool | None:
    """Return the first of ``tools`` that has the name of a shell."""
    return next((tool for name in SHELL_TOOLS for tool in tools if tool.name == name), None)


def objects(value: object) -> list[dict[str, Any]]:
    """Return those members of a list that are objects; of anything else none."""
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def text_of(content: object) -> str:
    """Return the text of a message's or a result's content, in whichever of its shapes."""
    return content if isinstance(content, str) else "\n".join(_texts(content))


def _texts(content: object) -> Iterator[str]:
    for part in objects(content):
        if isinstance(text := part.get("text"), str):
            yield text
