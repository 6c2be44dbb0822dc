"""The events of the Codex CLI, as ``codex exec --json`` prints them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from securebench.egress.model import Trouble
from securebench.harnesses.provider.events.stream import number_of, object_of, objects_of, text_of
from securebench.harnesses.provider.self_report import MAX_TEXT, EventParser, trouble_of_status

if TYPE_CHECKING:
    from securebench.harnesses.provider.events.stream import Event

_TOKENS: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
_STATUS: Final = re.compile(r"\b(?:unexpected status|last status:) ([1-5][0-9]{2})\b")
_WORDS: Final = (
    ('"invalid_request_error"', Trouble.REJECTED),
    ("experiencing high demand", Trouble.FAILED),
    ("stream disconnected", Trouble.FAILED),
    ("waiting for network", Trouble.UNREACHABLE),
    ("Connection failed", Trouble.UNREACHABLE),
)
"""Parts of Codex's error messages that contain no HTTP status, and what each means, as of version 0.169."""


class CodexEventParser(EventParser):
    """Parses Codex's events. The kind of provider trouble is recognized by the text of an error message."""

    def take(self, event: Event) -> None:
        """See :meth:`EventParser.take`."""
        match event.get("type"):
            case "turn.started":
                self.self_report.turns += 1
            case "item.started" if object_of(event.get("item")).get("type") != "error":
                self.self_report.answer()
            case "item.completed":
                self._take_item(object_of(event.get("item")))
            case "error":
                self._fail(event.get("message"), _trouble(event.get("message")))
            case "turn.failed":
                message = object_of(event.get("error")).get("message")
                self._fail(message, _trouble(message) or self.self_report.trouble)
                self.self_report.failed, self.self_report.finished = True, False
            case "turn.completed":
                self._complete(object_of(event.get("usage")))

    def _take_item(self, item: Event) -> None:
        kind = text_of(item.get("type"), MAX_TEXT)
        if kind == "error":  # a warning, for example about an unknown model
            message = text_of(item.get("message"), MAX_TEXT)
            self.self_report.warn(message)
            self.trajectory.add("error", text=message)
            return
        self.self_report.answer()
        match kind:
            case "agent_message":
                self._say(item.get("text"))
            case "reasoning":
                self.trajectory.add("thought", text=text_of(item.get("text"), MAX_TEXT))
            case "command_execution":
                self._take_command(item)
            case "file_change":
                paths = [text_of(change.get("path"), MAX_TEXT) for change in objects_of(item.get("changes"))]
                self.trajectory.add("change", text="\n".join(paths))
            case _:
                self.trajectory.add("other", text=kind)

    def _take_command(self, item: Event) -> None:
        code = item.get("exit_code")
        self.trajectory.add("command", command=text_of(item.get("command"), MAX_TEXT))
        self.trajectory.add(
            "result",
            output=text_of(item.get("aggregated_output"), MAX_TEXT),
            exit_code=code if isinstance(code, int) and abs(code) < 2**32 else None,
        )
        self.self_report.denials += item.get("status") == "declined"

    def _complete(self, usage: Event) -> None:
        self.self_report.answer()
        self.self_report.finished, self.self_report.failed = True, False
        self.self_report.tokens = {name: number_of(usage.get(name)) for name in _TOKENS if name in usage}
        self.trajectory.add("usage", **self.self_report.tokens)


def _trouble(message: object) -> Trouble | None:
    text = text_of(message, MAX_TEXT)
    if status := _STATUS.search(text):
        return trouble_of_status(int(status[1]))
    return next((trouble for words, trouble in _WORDS if words in text), None)
