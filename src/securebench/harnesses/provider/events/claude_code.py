"""The events of Claude Code, as ``claude -p --output-format stream-json`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from securebench.egress.model import Trouble
from securebench.harnesses.provider.events.stream import amount_of, number_of, object_of, objects_of, text_of
from securebench.harnesses.provider.self_report import MAX_MESSAGE, MAX_TEXT, EventParser, trouble_of_status

if TYPE_CHECKING:
    from securebench.harnesses.provider.events.stream import Event

_SYNTHETIC: Final = "<synthetic>"
"""The model name in messages that the program itself writes, such as errors."""

_SHOWN: Final = ("command", "file_path", "notebook_path", "pattern", "path", "query", "url", "prompt", "description")
"""The input fields that describe a tool call best, in order of preference."""


class ClaudeEventParser(EventParser):
    """Parses Claude Code's events. Only ``is_error`` reliably shows a failure; ``subtype`` and exit code do not."""

    def take(self, event: Event) -> None:
        """See :meth:`EventParser.take`."""
        match event.get("type"):
            case "system" if event.get("subtype") == "api_retry":
                self._fail(event.get("error"), _trouble(event.get("error_status")))
            case "assistant":
                self._take_answer(object_of(event.get("message")))
            case "user":
                self._take_results(object_of(event.get("message")))
            case "result":
                self._complete(event)

    def _take_answer(self, message: Event) -> None:
        if message.get("model") == _SYNTHETIC:
            return  # the result event repeats this message, with a status
        self.self_report.answer()
        for block in objects_of(message.get("content")):
            match block.get("type"):
                case "text":
                    self._say(block.get("text"))
                case "thinking":
                    self.trajectory.add("thought", text=text_of(block.get("thinking"), MAX_TEXT))
                case "tool_use":
                    used, tool = object_of(block.get("input")), text_of(block.get("name"), MAX_TEXT)
                    self.trajectory.add("command", tool=tool, command=_shown(used))

    def _take_results(self, message: Event) -> None:
        for block in objects_of(message.get("content")):
            if block.get("type") == "tool_result":
                output, failed = _output(block.get("content")), block.get("is_error") is True
                self.trajectory.add("result", output=output, failed=failed)

    def _complete(self, event: Event) -> None:
        self_report, denials = self.self_report, event.get("permission_denials")
        self_report.turns = number_of(event.get("num_turns"))
        self_report.cost_usd = amount_of(event.get("total_cost_usd"))
        self_report.tokens = _tokens(object_of(event.get("usage")))
        self_report.denials = len(denials) if isinstance(denials, list) else 0
        self_report.failed = event.get("is_error") is not False
        self_report.finished = not self_report.failed
        self_report.refused = event.get("stop_reason") == "refusal"
        if self_report.failed:
            self._fail(event.get("result"), _trouble(event.get("api_error_status"), event.get("result")))
        else:
            self_report.answer()
            self_report.message = text_of(event.get("result"), MAX_MESSAGE) or self_report.message
        self.trajectory.add("usage", turns=self_report.turns, cost_usd=self_report.cost_usd, **self_report.tokens)


def _tokens(usage: Event) -> dict[str, int]:
    """Return the token counts. The program reports cached input separately; here it is included in the input."""
    if not usage:
        return {}
    cached, written = (
        number_of(usage.get("cache_read_input_tokens")),
        number_of(usage.get("cache_creation_input_tokens")),
    )
    return {
        "input_tokens": number_of(usage.get("input_tokens")) + cached + written,
        "cached_input_tokens": cached,
        "cache_write_input_tokens": written,
        "output_tokens": number_of(usage.get("output_tokens")),
    }


def _trouble(status: Any, message: Any = "API Error: Unable to connect") -> Trouble | None:
    """Return the trouble that an HTTP status means, or ``None``.

    Without a status, ``message`` shows whether the connection failed. If no ``message`` is passed, the
    connection is assumed to have failed.
    """
    if status is None:
        return Trouble.UNREACHABLE if text_of(message, MAX_TEXT).startswith("API Error: Unable to connect") else None
    return trouble_of_status(number_of(status))


def _shown(used: Event) -> str:
    return next((text for key in _SHOWN if (text := text_of(used.get(key), MAX_TEXT))), "")


def _output(content: Any) -> str:
    if isinstance(content, str):
        return text_of(content, MAX_TEXT)
    return "\n".join(text_of(part.get("text"), MAX_TEXT) for part in objects_of(content))[:MAX_TEXT]
