"""OpenAI's Responses API, as Codex uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.egress.model import Trouble
from securebench.egress.relay.providers.base import (
    NOTHING,
    QUESTION,
    Dialect,
    EventReading,
    Header,
    Object,
    ProbeRequest,
    Route,
    count,
    error_kind,
    kind_of,
    no_references,
    objects,
    only,
    part,
    shown,
    tool_refused,
    trouble_of,
)
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

if TYPE_CHECKING:
    from collections.abc import Collection

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
"""Excluded because they use data stored at the provider, or continue after the agent has exited: ``background``,
``conversation``, ``previous_response_id`` and ``prompt``."""

_TIERS: Final = (None, "auto", "default", "flex")
"""Excludes ``priority``, which costs more than the tester expects."""

_TOOLS: Final = frozenset({"custom", "function", "local_shell"})
_GROUP: Final = "namespace"
_SEARCH: Final = "tool_search"
"""A search among the request's tools. The agent runs it if ``execution`` is ``client``."""

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

_FILTERED: Final = "content_filter"
_POLICIES: Final = ("_policy", "_policy_violation")
"""Suffixes of the error codes for policy refusals: ``cyber_policy``, ``bio_policy``, ``content_policy_violation``."""

_TROUBLES: Final = {
    "insufficient_quota": Trouble.REFUSED,
    "invalid_api_key": Trouble.REFUSED,
    "rate_limit_exceeded": Trouble.RATE_LIMITED,
    "context_length_exceeded": Trouble.REJECTED,
    "invalid_prompt": Trouble.REJECTED,
}


class OpenAI(Dialect):
    """The Responses API. Agents may send paths with or without the version."""

    marks = (b"response.created", b"response.completed", b"response.incomplete", b"response.failed", b'"error"')
    routes = {"/responses": Route("/responses"), "/v1/responses": Route("/responses")}  # noqa: RUF012 - see Dialect
    local = frozenset()
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
    answer_headers = frozenset({b"openai-model", b"openai-processing-ms", b"openai-version", b"x-codex-turn-state"})
    answer_prefixes = (b"x-ratelimit-",)

    def authorise(self, key: str) -> Header:
        """Return the header that carries the key."""
        return (b"authorization", b"Bearer " + key.encode())

    def upstream_path(self, base: str, route: Route) -> str:
        """Return the request target. The base URL contains the version."""
        return base + route.path

    def check_headers(self, given: Collection[Header], plan: RelayPlan) -> None:
        """Accept all: no forwarded header enables anything that the body does not request."""

    def check(self, body: Object, plan: RelayPlan) -> None:
        """Check the parameters, the model, the tools and every input item. Raises :class:`RefusedError`."""
        only(body, _FIELDS)
        if body.get("model") != plan.model:
            raise RefusedError(RelayRefusal.MODEL, f"the model {shown(body.get('model'))} is not the configured one")
        if body.get("store") is not False:
            raise RefusedError(RelayRefusal.FIELD, "store must be false: the provider must not store data")
        if body.get("service_tier") not in _TIERS:
            raise RefusedError(RelayRefusal.FIELD, "this service_tier is not allowed")
        checks = _Checks(provider_tools=plan.provider_tools)
        checks.tools(body.get("tools"))
        checks.items(body.get("input"))

    def question(self, base: str, model: str) -> ProbeRequest:
        """See :meth:`Dialect.question`. It is streamed, like the requests of Codex."""
        body: Object = {"model": model, "input": QUESTION, "max_output_tokens": _LEAST_OUTPUT}
        return ProbeRequest(f"{base}/responses", {**body, "store": False, "stream": True})

    def is_unknown_model(self, body: Object) -> bool:
        """See :meth:`Dialect.is_unknown_model`. A 404 without a code may come from a server without this API."""
        error = part(body, "error")
        message = str(error.get("message"))
        # The second form is that of self-hosted servers such as vLLM.
        return error.get("code") == "model_not_found" or ("model" in message and "does not exist" in message)

    def error(self, status: int, message: str) -> Object:
        """Return an error in the API's format. For 429 it is a quota error, which Codex does not retry."""
        kind = error_kind(status, "insufficient_quota", "server_error")
        return {"error": {"message": message, "type": kind, "code": kind, "param": None}}

    def read(self, event: Object) -> EventReading:
        """Return the model, the usage, the end or the failure. The last event of a stream contains the whole answer."""
        kind = event.get("type")
        if kind == "response.created":
            return EventReading(model=_model(part(event, "response")))
        if kind in _ENDED:
            return self.read_whole(part(event, "response"))
        if kind == "response.failed":
            answer = part(event, "response")
            return _usage(answer, trouble=_trouble(part(answer, "error")))
        return EventReading(trouble=_trouble(part(event, "error") or event)) if kind == "error" else NOTHING

    def read_whole(self, answer: Object) -> EventReading:
        """Return the usage and the outcome of an answer."""
        if answer.get("status") == "failed":
            return _usage(answer, trouble=_trouble(part(answer, "error")))
        if part(answer, "incomplete_details").get("reason") == _FILTERED or _is_refusal(answer):
            return _usage(answer, ended=True, trouble=Trouble.DECLINED)
        return _usage(answer, ended=True)

    def error_trouble(self, status: int, body: Object) -> Trouble:
        """Classify an error by its code, which is more precise than the status."""
        return _trouble(part(body, "error"), trouble_of(status))


def _trouble(error: Object, otherwise: Trouble = Trouble.FAILED) -> Trouble:
    code = error.get("code")
    if not isinstance(code, str):
        return otherwise
    if code == _FILTERED or code.endswith(_POLICIES):
        return Trouble.DECLINED
    # A prompt rejected by policy has the same code as a malformed one; only the message differs.
    if code == "invalid_prompt" and "usage policy" in str(error.get("message")):
        return Trouble.DECLINED
    return _TROUBLES.get(code, otherwise)


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


def _model(answer: Object) -> str:
    return model if isinstance(model := answer.get("model"), str) else ""


def _usage(answer: Object, *, ended: bool = False, trouble: Trouble | None = None) -> EventReading:
    usage = part(answer, "usage")
    taken, given = (count(usage[key]) if key in usage else None for key in ("input_tokens", "output_tokens"))
    return EventReading(taken, given, ended, trouble, _model(answer))


class _Checks:
    """Checks a request for everything that the provider would run or fetch."""

    def __init__(self, *, provider_tools: bool) -> None:
        self._tools = _PROVIDER_TOOLS if provider_tools else ()
        self._items = _ITEMS | _PROVIDER_ITEMS if provider_tools else _ITEMS

    def tools(self, given: JsonValue) -> None:
        """Check a list of tools. With newer models the tools are part of the input."""
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
