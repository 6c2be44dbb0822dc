"""OpenAI's Responses API, as Codex uses it."""

from __future__ import annotations

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
    no_references,
    objects,
    only,
    part,
    shown,
    tool_refused,
    total,
    whole_number,
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
        "client_metadata",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""The allowed parameters. ``background``, ``conversation``, ``previous_response_id`` and ``prompt`` are excluded: with
them, a request uses data stored at the provider, or continues after the agent has exited."""

_TOOLS: Final = frozenset({"custom", "function", "local_shell"})
_GROUP: Final = "namespace"
_SEARCH: Final = "tool_search"
"""The type of a tool that searches the request's tools. The agent runs it if ``execution`` is ``client``."""

_PROVIDER_TOOLS: Final = ("web_search", "code_interpreter")

_ITEMS: Final = frozenset(
    {
        "additional_tools",
        "agent_message",
        "compaction",
        "compaction_trigger",
        "context_compaction",
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "message",
        "reasoning",
        "tool_search_call",
        "tool_search_output",
    }
)
_PROVIDER_ITEMS: Final = frozenset({"web_search_call", "code_interpreter_call"})

_PARTS: Final = frozenset(
    {
        "encrypted_content",
        "input_file",
        "input_image",
        "input_text",
        "output_text",
        "reasoning_text",
        "refusal",
        "summary_text",
        "text",
    }
)
_HELD_PARTS: Final = ("content", "output", "summary")
_INLINE: Final = "data:"

_ENDED: Final = ("response.completed", "response.incomplete")

_LEAST_OUTPUT: Final = 16
"""The minimum of ``max_output_tokens``."""


class OpenAI(OpenAIDialect):
    """The Responses API. Agents may send paths with or without the version."""

    marks = (b"response.created", b"response.completed", b"response.incomplete", b"response.failed", b'"error"')
    routes = {"/responses": Route("/responses"), "/v1/responses": Route("/responses")}  # noqa: RUF012 - see Dialect
    request_headers = frozenset(
        {
            b"openai-beta",
            b"originator",
            b"session-id",
            b"thread-id",
            b"version",
            b"x-client-request-id",
            b"x-codex-beta-features",
            b"x-codex-parent-thread-id",
            b"x-codex-root-turn-id",
            b"x-codex-turn-metadata",
            b"x-codex-turn-state",
            b"x-codex-window-id",
            b"x-openai-internal-codex-responses-lite",
            b"x-openai-subagent",
        }
    )
    answer_headers = OpenAIDialect.answer_headers | {b"x-codex-turn-state"}

    def check(self, body: Object, plan: RelayPlan) -> None:
        """Check the parameters, the model, the tools and every input item. Raises :class:`RefusedError`."""
        only(body, _FIELDS)
        check_common(body, plan, may_omit_store=False)
        whole_number(body, "max_output_tokens")
        checks = _Checks(provider_tools=plan.provider_tools)
        checks.tools(body.get("tools"))
        checks.items(body.get("input"))

    def question(self, base: str, model: str) -> ProbeRequest:
        """See :meth:`Dialect.question`. The model's answer is streamed, as for the requests of Codex."""
        body: Object = {"model": model, "input": QUESTION, "max_output_tokens": _LEAST_OUTPUT}
        return ProbeRequest(f"{base}/responses", {**body, "store": False, "stream": True})

    def read(self, event: Object) -> EventReading:
        """Return what an event reports. The last event of a stream contains the whole answer."""
        kind = event.get("type")
        if kind == "response.created":
            return EventReading(model=name_of_model(part(event, "response")))
        if kind in _ENDED:
            return self.read_whole(part(event, "response"))
        if kind == "response.failed":
            answer = part(event, "response")
            return _usage(answer, trouble=trouble_of_error(part(answer, "error")))
        return EventReading(trouble=trouble_of_error(part(event, "error") or event)) if kind == "error" else NOTHING

    def read_whole(self, answer: Object) -> EventReading:
        """Return the usage and the outcome of an answer."""
        if answer.get("status") == "failed":
            return _usage(answer, trouble=trouble_of_error(part(answer, "error")))
        if part(answer, "incomplete_details").get("reason") == FILTERED or _is_refusal(answer):
            return _usage(answer, ended=True, trouble=Trouble.DECLINED)
        return _usage(answer, ended=True)


def _is_refusal(answer: Object) -> bool:
    """Return whether the model declined explicitly: a message has a refusal as content."""
    output = answer.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    contents = [item.get("content") for item in items]
    return any(
        isinstance(piece, dict) and piece.get("type") == "refusal"
        for content in contents
        if isinstance(content, list)
        for piece in content
    )


def _usage(answer: Object, *, ended: bool = False, trouble: Trouble | None = None) -> EventReading:
    usage = part(answer, "usage")
    taken, given = total(usage, "input_tokens"), total(usage, "output_tokens")
    return EventReading(
        taken, given, ended, trouble, name_of_model(answer), cached_tokens(usage, "input_tokens_details")
    )


class _Checks:
    """Checks a request for everything that the provider would run or fetch."""

    def __init__(self, *, provider_tools: bool) -> None:
        self._tools = _PROVIDER_TOOLS if provider_tools else ()
        self._items = _ITEMS | _PROVIDER_ITEMS if provider_tools else _ITEMS

    def tools(self, given: JsonValue) -> None:
        """Check the tools of a request or an input item, and the tools that a ``namespace`` tool contains.

        With newer models, agents may send tools in the input.
        """
        for tool in objects(given, "tools"):
            kind = kind_of(tool, "")
            if kind == _GROUP:
                self.tools(tool.get("tools"))
            elif kind == _SEARCH and tool.get("execution") == "client":
                continue
            elif kind.startswith(self._tools):
                no_references(tool)
            elif kind not in _TOOLS:
                raise tool_refused(kind)

    def items(self, given: JsonValue) -> None:
        """Check the input: a string, or items that may contain content and tools."""
        if isinstance(given, str):
            return
        for item in objects(given, "input"):
            kind = kind_of(item, "message")
            if kind not in self._items:
                raise RefusedError(RelayRefusal.CONTENT, f"input of type {shown(kind)} is not allowed")
            self.tools(item.get("tools"))
            for key in _HELD_PARTS:
                self._parts(item.get(key))

    def _parts(self, given: JsonValue) -> None:
        if isinstance(given, str):
            return
        for piece in objects(given, "content"):
            kind = kind_of(piece, "text")
            if kind not in _PARTS:
                raise RefusedError(RelayRefusal.CONTENT, f"content of type {shown(kind)} is not allowed")
            no_references(piece)
            url = piece.get("image_url")
            if url is not None and not (isinstance(url, str) and url.startswith(_INLINE)):
                raise RefusedError(
                    RelayRefusal.CONTENT, "images must be part of the request: image_url must be a data URL"
                )
