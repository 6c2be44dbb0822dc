"""The Chat Completions API: OpenAI's own, and that of vLLM, Ollama, llama.cpp, LiteLLM, OpenRouter and others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from securebench.egress.model import Trouble
from securebench.egress.relay.providers.base import (
    NOTHING,
    QUESTION,
    EventReading,
    Object,
    ProbeRequest,
    Route,
    kind_of,
    objects,
    only,
    part,
    shown,
    tool_refused,
    total,
    within_budget,
)
from securebench.egress.relay.providers.openai_common import (
    FILTERED,
    OpenAIDialect,
    cached_tokens,
    check_common,
    name_of_model,
    trouble_of_error,
)
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

if TYPE_CHECKING:
    from securebench.egress.model import RelayPlan
    from securebench.resources import JsonValue

_FIELDS: Final = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "model",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    }
)
"""The allowed parameters. Excluded: ``audio`` and ``modalities``, which cost more than text; ``metadata``, by which
LLM gateways choose other servers; and all parameters that make LLM gateways use other models, plug-ins or credentials
(``models``, ``fallbacks``, ``provider``, ``plugins``, ``api_base``, ``api_key``)."""

_SEARCH: Final = "web_search_options"
"""The parameter that makes the provider search the web."""

_STREAM_OPTIONS: Final = frozenset({"continuous_usage_stats", "include_obfuscation", "include_usage"})
_TOOLS: Final = frozenset({"custom", "function"})
_LIMITS: Final = ("max_completion_tokens", "max_tokens")

_MESSAGE: Final = frozenset(
    {
        "annotations",
        "content",
        "name",
        "provider_specific_fields",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "refusal",
        "role",
        "tool_call_id",
        "tool_calls",
    }
)
"""The allowed fields of a message, including those of answers that an agent sends back. Excluded: ``audio``, which
refers to an answer that the provider stores."""

_ECHOED: Final = frozenset({"reasoning_content", "refusal"})
"""The allowed fields of ``provider_specific_fields``, in which LiteLLM's client repeats parts of earlier answers."""

_PARTS: Final = {
    "file": frozenset({"file_data", "filename"}),
    "image_url": frozenset({"detail", "url"}),
    "input_audio": frozenset({"data", "format"}),
}
"""The types of content parts that keep their data in an object, and the allowed fields of this object. In the part, the
key of the object is the name of the type: ``{"type": "file", "file": {...}}``."""
_TEXTS: Final = frozenset({"refusal", "text"})
_SOURCES: Final = ("file_data", "url")
"""The fields that may contain a URL. Some servers fetch it unless it is a data URL."""
_INLINE: Final = "data:"

_MODEL: Final = Route("/chat/completions")
_LISTS: Final = frozenset({"/models", "/v1/models"})
_MOST_TOKENS: Final = 16
_FAILED: Final = "error"
"""The ``finish_reason`` with which LLM gateways mark an answer that broke off."""


class ChatCompletions(OpenAIDialect):
    """The Chat Completions API. The relay itself answers requests for the list of models."""

    marks = (b"{",)  # every event is parsed: events have no types
    routes = {"/chat/completions": _MODEL, "/v1/chat/completions": _MODEL}  # noqa: RUF012 - see Dialect
    request_headers = frozenset()

    def local_answer(self, method: str, target: str, model: str) -> bytes | None:
        """See :meth:`Dialect.local_answer`."""
        if method != "GET" or target not in _LISTS:
            return None
        described = {"id": model, "object": "model", "created": 0, "owned_by": "securebench"}
        return json.dumps({"object": "list", "data": [described]}).encode()

    def check(self, body: Object, plan: RelayPlan) -> None:
        """Check the parameters, the model, the tools and every part of a message. Raises :class:`RefusedError`."""
        only(body, _FIELDS | {_SEARCH} if plan.provider_tools else _FIELDS)
        check_common(body, plan, may_omit_store=True)
        _check_amounts(body, plan)
        _check_stream(body)
        for tool in objects(body.get("tools"), "tools"):
            _check_tool(tool)
        for message in objects(body.get("messages"), "messages"):
            _check_message(message)

    def with_usage(self, body: Object) -> Object:
        """See :meth:`Dialect.with_usage`. Without the option ``include_usage``, a stream does not report its tokens."""
        options = part(body, "stream_options")
        if body.get("stream") is not True or options.get("include_usage") is True:
            return body
        return {**body, "stream_options": {**options, "include_usage": True}}

    def is_added(self, event: Object) -> bool:
        """See :meth:`Dialect.is_added`: a last event with the usage and without a choice."""
        return event.get("choices") == [] and bool(part(event, "usage"))

    def question(self, base: str, model: str) -> ProbeRequest:
        """See :meth:`Dialect.question`. The limit is not named ``max_tokens``, which OpenAI's newer models refuse."""
        messages: list[JsonValue] = [{"role": "user", "content": QUESTION}]
        body: Object = {"model": model, "messages": messages, "max_completion_tokens": _MOST_TOKENS, "stream": True}
        return ProbeRequest(f"{base}{_MODEL.path}", self.with_usage(body))

    def read(self, event: Object) -> EventReading:
        """Return the model, the usage, the end or the failure that an event reports."""
        return _reading(event, "delta")

    def read_whole(self, answer: Object) -> EventReading:
        """Return the usage and the outcome of an answer."""
        return _reading(answer, "message")

    def error_trouble(self, status: int, body: Object) -> Trouble:
        """Classify an error.

        If OpenRouter flagged the prompt, the error is ``DECLINED``, although its status 403 usually means ``REFUSED``.
        """
        if part(part(body, "error"), "metadata").get("flagged_input") is not None:
            return Trouble.DECLINED
        return super().error_trouble(status, body)


def _check_amounts(body: Object, plan: RelayPlan) -> None:
    """Refuse a request for several answers, or for an answer that may be longer than the task's budget."""
    if (n := body.get("n")) is not None and (n != 1 or not isinstance(n, int) or isinstance(n, bool)):
        raise RefusedError(RelayRefusal.FIELD, "'n' must be 1: send a separate request for each answer")
    for name in _LIMITS:
        within_budget(body, name, plan)


def _check_stream(body: Object) -> None:
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise RefusedError(RelayRefusal.FIELD, "'stream' must be true or false")
    options = body.get("stream_options")
    if options is None:
        return
    if not isinstance(options, dict):
        raise RefusedError(RelayRefusal.FIELD, "stream_options is not an object")
    only(options, _STREAM_OPTIONS)


def _check_tool(tool: Object) -> None:
    """Refuse a tool that the agent does not run itself, or a tool in which an unknown field is set."""
    if (kind := kind_of(tool, "")) not in _TOOLS:
        raise tool_refused(kind)
    # Some LLM gateways act on unknown fields of any tool.
    if other := sorted(name for name in tool.keys() - {"type", "cache_control", kind} if tool[name] is not None):
        raise RefusedError(RelayRefusal.TOOL, f"a tool with the field {shown(other[0])} is not allowed")


def _check_message(message: Object) -> None:
    only(message, _MESSAGE)
    if (echo := message.get("provider_specific_fields")) is not None:
        for given in objects([echo], "provider_specific_fields"):
            only(given, _ECHOED)
    for call in objects(message.get("tool_calls"), "tool_calls"):
        if (kind := kind_of(call, "function")) not in _TOOLS:
            raise tool_refused(kind)
    content = message.get("content")
    if not isinstance(content, str):
        for piece in objects(content, "content"):
            _check_part(piece)


def _check_part(piece: Object) -> None:
    """Refuse content that the server would fetch.

    All fields are checked, whatever the ``type`` of the part, because some servers ignore ``type``.
    """
    kind = kind_of(piece, "")
    if kind not in _TEXTS and kind not in _PARTS:
        raise RefusedError(RelayRefusal.CONTENT, f"content of type {shown(kind)} is not allowed")
    _only_content(piece, {"type", "cache_control", kind})
    if kind in _TEXTS:
        return
    given = piece.get(kind)
    if not isinstance(given, dict):
        raise RefusedError(RelayRefusal.CONTENT, f"{kind} is not an object")
    _only_content(given, _PARTS[kind])
    for name in _SOURCES:
        source = given.get(name)
        if source is not None and not (isinstance(source, str) and source.startswith(_INLINE)):
            raise RefusedError(RelayRefusal.CONTENT, f"{kind} must be part of the request: {name} must be a data URL")


def _only_content(given: Object, known: frozenset[str] | set[str]) -> None:
    for name, value in given.items():
        if name not in known and value is not None:
            raise RefusedError(RelayRefusal.CONTENT, f"content with the field {shown(name)} is not allowed")


def _reading(answer: Object, key: str) -> EventReading:
    """Return what an event or a whole answer reports. ``key`` is ``delta`` for an event, else ``message``."""
    if not answer:
        return NOTHING
    usage, found = part(answer, "usage"), answer.get("choices")
    choices = [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []
    reasons = {reason for choice in choices if isinstance(reason := choice.get("finish_reason"), str)}
    trouble: Trouble | None = None
    if "error" in answer and answer["error"] is not None:
        trouble = trouble_of_error(part(answer, "error"))
    elif _FAILED in reasons:
        trouble = Trouble.FAILED
    elif FILTERED in reasons or any(part(choice, key).get("refusal") for choice in choices):
        trouble = Trouble.DECLINED
    return EventReading(
        input_tokens=total(usage, "prompt_tokens"),
        output_tokens=total(usage, "completion_tokens"),
        ended=bool(reasons),
        trouble=trouble,
        model=name_of_model(answer),
        cached=cached_tokens(usage, "prompt_tokens_details"),
    )
