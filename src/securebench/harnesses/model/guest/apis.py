"""The APIs of model providers, one class each: what a request contains, and what an answer means.

The program in the sandbox uses this module, and so does the judge model of a run.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TRUNCATED: Final = "truncated"
REFUSED: Final = "refused"
"""``TRUNCATED`` and ``REFUSED``: why an answer stopped before its end."""

SHELL: Final = "shell"
_DESCRIPTION: Final = "Run a command in a new shell, and return its output and exit code."
_PARAMETERS: Final = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "The command line, for bash or sh."}},
    "required": ["command"],
}
_TOOL: Final = {"name": SHELL, "description": _DESCRIPTION}

DEFAULT_MAX_TOKENS: Final = 8192
"""The default limit of output tokens for the Messages API, which requires a limit in every request."""

Object = dict[str, Any]


class ToolCall(NamedTuple):
    """A call of the shell tool. ``command`` is ``None`` if the call is not valid."""

    id: str
    command: str | None


class ModelReply(NamedTuple):
    """An answer of the model. ``stop`` is :data:`TRUNCATED`, :data:`REFUSED` or empty."""

    text: str
    thought: str
    calls: tuple[ToolCall, ...]
    stop: str
    input_tokens: int
    output_tokens: int


class ModelApi(ABC):
    """One conversation with a model through one API. ``setup`` has its settings, such as ``model``."""

    path: str
    headers: ClassVar[Mapping[str, str]] = {}

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self.setup = setup
        self.items: list[Object] = []
        self.transcript: list[tuple[str, str]] = []

    def say(self, role: str, text: str) -> None:
        """Add a message to the conversation and to ``transcript``. ``role`` is ``user`` or ``assistant``."""
        self.transcript.append((role, text))
        self.items.append(self.message(role, text))

    def message(self, role: str, text: str) -> Object:
        """Return a message as an item of a request."""
        return {"role": role, "content": text}

    def adapt(self, error: bytes) -> bool:
        """Change later requests to avoid the provider's ``error``, if possible, and return whether they changed."""
        del error
        return False

    @abstractmethod
    def body(self, *, with_shell: bool) -> Object:
        """Return the body of the next request."""

    @abstractmethod
    def take(self, answer: Any) -> ModelReply:
        """Add the model's answer to the conversation, and return it. Raises one of :data:`INVALID` if malformed."""

    @abstractmethod
    def results(self, outputs: Iterable[tuple[ToolCall, str]]) -> None:
        """Add the outputs of all calls of the last answer."""

    def _given(self, **fields: str) -> Object:
        """Return request fields for the settings that are given. ``fields`` maps a setting to its field."""
        return {field: self.setup[name] for name, field in fields.items() if self.setup.get(name) is not None}


INVALID: Final = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


class ChatCompletionsApi(ModelApi):
    """The Chat Completions API."""

    path = "/chat/completions"
    _LIMITS: ClassVar = ("max_completion_tokens", "max_tokens")

    def __init__(self, setup: Mapping[str, Any]) -> None:
        super().__init__(setup)
        self._limit = self._LIMITS[not setup["is_own"]]

    def adapt(self, error: bytes) -> bool:
        """Switch to the other name of the token limit if ``error`` contains the current one.

        Return whether the name changed. Some servers know only ``max_tokens``, some models only the newer name
        ``max_completion_tokens``.
        """
        if self.setup.get("max_tokens") is None or self._limit.encode() not in error:
            return False
        self._limit = self._LIMITS[self._limit == self._LIMITS[0]]
        return True

    def body(self, *, with_shell: bool) -> Object:
        """See :meth:`ModelApi.body`."""
        system = [{"role": "system", "content": text}] if (text := self.setup.get("system")) else []
        tool = {"type": "function", "function": {**_TOOL, "parameters": _PARAMETERS}}
        return {
            "model": self.setup["model"],
            "messages": [*system, *self.items],
            **self._given(temperature="temperature", seed="seed", effort="reasoning_effort", max_tokens=self._limit),
            **({"tools": [tool]} if with_shell else {}),
        }

    def take(self, answer: Any) -> ModelReply:
        """See :meth:`ModelApi.take`."""
        choice = answer["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        text, calls = _text(message.get("content")), message.get("tool_calls") or []
        found = tuple(
            ToolCall(call.get("id") or "", _command(call["function"]["name"], call["function"]["arguments"]))
            for call in calls
        )
        refused = reason == "content_filter" or bool(message.get("refusal"))
        usage = answer.get("usage") or {}
        reply = ModelReply(
            text,
            _text(message.get("reasoning_content") or message.get("reasoning")),
            found,
            REFUSED if refused else TRUNCATED if reason == "length" else "",
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
        )
        self.items.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
        return reply

    def results(self, outputs: Iterable[tuple[ToolCall, str]]) -> None:
        """See :meth:`ModelApi.results`."""
        self.items += [{"role": "tool", "tool_call_id": call.id, "content": output} for call, output in outputs]


class ResponsesApi(ModelApi):
    """The Responses API, without answers stored at the provider."""

    path = "/responses"

    def body(self, *, with_shell: bool) -> Object:
        """See :meth:`ModelApi.body`."""
        effort = self.setup.get("effort")
        # Only encrypted thoughts can be sent back. Models that do not reason reject a request that asks for them.
        thoughts = {"reasoning": {"effort": effort}, "include": ["reasoning.encrypted_content"]} if effort else {}
        tool = {"type": "function", **_TOOL, "parameters": _PARAMETERS, "strict": False}
        return {
            "model": self.setup["model"],
            "input": self.items,
            "store": False,
            **thoughts,
            **self._given(system="instructions", temperature="temperature", max_tokens="max_output_tokens"),
            **({"tools": [tool]} if with_shell else {}),
        }

    def take(self, answer: Any) -> ModelReply:
        """See :meth:`ModelApi.take`. Messages and calls are sent back without the ids that refer to stored answers."""
        status, why = answer.get("status"), (answer.get("incomplete_details") or {}).get("reason")
        if status == "failed":
            raise ValueError("the answer has the status 'failed'")
        texts, thoughts, calls, items = [], [], [], []
        refused = why == "content_filter"
        for item in answer["output"]:
            match item["type"]:
                case "message":
                    texts += [part["text"] for part in item["content"] if part["type"] == "output_text"]
                    refused = refused or any(part["type"] == "refusal" for part in item["content"])
                    items.append(self.message("assistant", _text(item["content"])))
                case "reasoning":
                    thoughts += [part["text"] for part in item.get("summary") or ()]
                    items += [item] if item.get("encrypted_content") else []
                case "function_call":
                    calls.append(ToolCall(item["call_id"], _command(item["name"], item["arguments"])))
                    items.append({key: item[key] for key in ("type", "call_id", "name", "arguments")})
        usage = answer.get("usage") or {}
        reply = ModelReply(
            "\n".join(texts),
            "\n".join(thoughts),
            tuple(calls),
            REFUSED if refused else TRUNCATED if status == "incomplete" else "",
            _count(usage.get("input_tokens")),
            _count(usage.get("output_tokens")),
        )
        self.items += items
        return reply

    def results(self, outputs: Iterable[tuple[ToolCall, str]]) -> None:
        """See :meth:`ModelApi.results`."""
        self.items += [
            {"type": "function_call_output", "call_id": call.id, "output": output} for call, output in outputs
        ]


class MessagesApi(ModelApi):
    """The Messages API."""

    path = "/messages"
    headers: ClassVar[Mapping[str, str]] = {"Anthropic-Version": "2023-06-01"}

    def body(self, *, with_shell: bool) -> Object:
        """See :meth:`ModelApi.body`."""
        effort = self.setup.get("effort")
        return {
            "model": self.setup["model"],
            "max_tokens": self.setup.get("max_tokens") or DEFAULT_MAX_TOKENS,
            "messages": self.items,
            **self._given(system="system", temperature="temperature"),
            **({"output_config": {"effort": effort}} if effort else {}),
            **({"tools": [{**_TOOL, "input_schema": _PARAMETERS}]} if with_shell else {}),
        }

    def take(self, answer: Any) -> ModelReply:
        """See :meth:`ModelApi.take`. Thoughts are sent back as they are: the provider checks their signatures."""
        content, reason = answer["content"], answer.get("stop_reason")
        usage = answer.get("usage") or {}
        cached = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        reply = ModelReply(
            "\n".join(block["text"] for block in content if block["type"] == "text"),
            "\n".join(block["thinking"] for block in content if block["type"] == "thinking"),
            tuple(
                ToolCall(block["id"], _command(block["name"], block["input"]))
                for block in content
                if block["type"] == "tool_use"
            ),
            {"refusal": REFUSED, "max_tokens": TRUNCATED, "model_context_window_exceeded": TRUNCATED}.get(reason, ""),
            sum(_count(usage.get(name)) for name in cached),
            _count(usage.get("output_tokens")),
        )
        if content:  # an empty message would be rejected
            self.items.append({"role": "assistant", "content": content})
        return reply

    def results(self, outputs: Iterable[tuple[ToolCall, str]]) -> None:
        """See :meth:`ModelApi.results`."""
        given = [{"type": "tool_result", "tool_use_id": call.id, "content": output} for call, output in outputs]
        self.items.append({"role": "user", "content": given})


class GeminiApi(ModelApi):
    """The Gemini API."""

    _REFUSALS: ClassVar = frozenset({"BLOCKLIST", "PROHIBITED_CONTENT", "RECITATION", "SAFETY", "SPII"})

    def __init__(self, setup: Mapping[str, Any]) -> None:
        super().__init__(setup)
        self.path = f"/models/{quote(setup['model'], safe='')}:generateContent"

    def message(self, role: str, text: str) -> Object:
        """See :meth:`ModelApi.message`."""
        return {"role": {"assistant": "model"}.get(role, role), "parts": [{"text": text}]}

    def body(self, *, with_shell: bool) -> Object:
        """See :meth:`ModelApi.body`."""
        config = self._given(temperature="temperature", seed="seed", max_tokens="maxOutputTokens")
        thinking = {"thinkingConfig": {"thinkingLevel": effort}} if (effort := self.setup.get("effort")) else {}
        system = {"systemInstruction": {"parts": [{"text": text}]}} if (text := self.setup.get("system")) else {}
        tool = {"functionDeclarations": [{**_TOOL, "parametersJsonSchema": _PARAMETERS}]}
        return {
            "contents": self.items,
            **system,
            **({"generationConfig": {**config, **thinking}} if config or thinking else {}),
            **({"tools": [tool]} if with_shell else {}),
        }

    def take(self, answer: Any) -> ModelReply:
        """See :meth:`ModelApi.take`. A call may have no id. Parts are sent back as they are, with any signatures."""
        blocked = (answer.get("promptFeedback") or {}).get("blockReason") is not None
        candidate = {} if blocked else answer["candidates"][0]
        parts, reason = (candidate.get("content") or {}).get("parts") or [], candidate.get("finishReason")
        usage = answer.get("usageMetadata") or {}
        called = [part["functionCall"] for part in parts if "functionCall" in part]
        reply = ModelReply(
            "".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
            "".join(part["text"] for part in parts if "text" in part and part.get("thought")),
            tuple(ToolCall(call.get("id") or "", _command(call["name"], call.get("args"))) for call in called),
            REFUSED if blocked or reason in self._REFUSALS else TRUNCATED if reason == "MAX_TOKENS" else "",
            _count(usage.get("promptTokenCount")),
            _count(usage.get("candidatesTokenCount")) + _count(usage.get("thoughtsTokenCount")),
        )
        if parts:
            self.items.append({"role": "model", "parts": parts})
        return reply

    def results(self, outputs: Iterable[tuple[ToolCall, str]]) -> None:
        """See :meth:`ModelApi.results`."""
        given = [
            {"name": SHELL, "response": {"output": output}, **({"id": call.id} if call.id else {})}
            for call, output in outputs
        ]
        self.items.append({"role": "user", "parts": [{"functionResponse": one} for one in given]})


APIS: Final[Mapping[str, type[ModelApi]]] = {
    "chat_completions": ChatCompletionsApi,
    "responses": ResponsesApi,
    "messages": MessagesApi,
    "gemini": GeminiApi,
}
"""The class for each ``dialect`` of the tester configuration."""


def _command(name: str, arguments: Any) -> str | None:
    """Return the command of a call, or ``None`` if it is not a valid call of the shell tool."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if name == SHELL and isinstance(command, str) and command.strip() else None


def _text(content: Any) -> str:
    """Return the text of a message, which some servers send in parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
