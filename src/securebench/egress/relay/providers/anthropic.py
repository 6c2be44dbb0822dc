"""Anthropic's Messages API, as Claude Code uses it."""

from __future__ import annotations

import re
from dataclasses import replace
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
    total,
    trouble_of,
    whole_number,
)
from securebench.egress.relay.refusals import RefusedError, RelayRefusal
from securebench.money import CachedTokens

if TYPE_CHECKING:
    from collections.abc import Collection

    from securebench.egress.model import RelayPlan
    from securebench.resources import JsonValue

_FIELDS: Final = frozenset(
    {
        "cache_control",
        "context_management",
        "diagnostics",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "service_tier",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    }
)
"""The allowed parameters. Excluded: ``container`` and ``mcp_servers``, because the provider would use or contact them;
``fallbacks``, which names other models; ``speed``, which may cost more than the tester expects."""

_LINES: Final = ("fable", "haiku", "opus", "sonnet")
_ALIASES: Final = {line: (line,) for line in _LINES} | {
    "best": _LINES,
    "default": _LINES,
    "opusplan": ("opus", "sonnet"),
}
"""Each alias, and the model lines (such as ``opus``) from which Claude Code chooses, depending on its version."""

_LONG_CONTEXT: Final = "[1m]"
"""A suffix of model names that only Claude Code understands. Claude Code removes it and requests a beta feature."""

_CLIENT_TOOL: Final = re.compile(r"(?:bash|computer|memory|text_editor|tool_search_tool_(?:bm25|regex))_\d{8}")
"""Matches the ``type`` of the provider's tools that do not need the setting ``provider_tools``."""
_PROVIDER_TOOL: Final = re.compile(r"(?:code_execution|web_fetch|web_search)_\d{8}")

_BLOCKS: Final = frozenset(
    {
        "compaction",
        "document",
        "image",
        "redacted_thinking",
        "search_result",
        "text",
        "thinking",
        "tool_reference",
        "tool_result",
        "tool_search_tool_result",
        "tool_use",
    }
)
_PROVIDER_BLOCKS: Final = frozenset(
    {
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
        "server_tool_use",
        "text_editor_code_execution_tool_result",
        "web_fetch_tool_result",
        "web_search_tool_result",
    }
)
_NESTING: Final = frozenset({"search_result", "tool_result"})
_SOURCES: Final = frozenset({"base64", "content", "text"})

_REFUSED_BETAS: Final = ("advisor-", "files-api-", "managed-agents-", "mcp-", "server-side-fallback-", "skills-")
_LONG_CONTEXT_BETA: Final = "context-1m-"
_DEAR_BETAS: Final = ("fast-mode-",)
"""Betas that change the prices, in addition to :data:`_LONG_CONTEXT_BETA`."""
_PROVIDER_BETAS: Final = ("code-execution-", "web-fetch-", "web-search-")

_MODEL: Final = Route("/v1/messages")

_TROUBLES: Final = {
    "authentication_error": Trouble.REFUSED,
    "billing_error": Trouble.REFUSED,
    "permission_error": Trouble.REFUSED,
    "rate_limit_error": Trouble.RATE_LIMITED,
    "invalid_request_error": Trouble.REJECTED,
    "not_found_error": Trouble.REJECTED,
    "request_too_large": Trouble.REJECTED,
}
_VERSION: Final = (b"anthropic-version", b"2023-06-01")
_READ: Final = "cache_read_input_tokens"
_WRITTEN: Final = "cache_creation_input_tokens"
_REFUSAL: Final = "refusal"
_FILTERED: Final = "content filtering policy"
"""Part of the message of a policy refusal. Its error type is the same as for a malformed request."""
_SPENT: Final = "spend_limit_reached"
"""The suffix of the error codes for an account at its spending limit. The status is 429, as for a rate limit."""
_NO_CREDIT: Final = "credit balance is too low"
"""Part of the message for an account without credit. The status is 400, as for a malformed request."""


class Anthropic(Dialect):
    """The Messages API. The paths that agents send begin with the API version, ``/v1``."""

    marks = (b"message_start", b"message_delta", b"message_stop", b'"error"')
    routes = {  # noqa: RUF012 - see Dialect
        "/v1/messages": _MODEL,
        "/v1/messages?beta=true": Route("/v1/messages?beta=true"),
        "/v1/messages/count_tokens": Route("/v1/messages/count_tokens", is_model=False),
        "/v1/messages/count_tokens?beta=true": Route("/v1/messages/count_tokens?beta=true", is_model=False),
    }
    request_headers = frozenset(
        {
            b"anthropic-beta",
            b"anthropic-dangerous-direct-browser-access",
            b"anthropic-version",
            b"x-app",
            b"x-claude-code-session-id",
            b"x-stainless-arch",
            b"x-stainless-helper-method",
            b"x-stainless-lang",
            b"x-stainless-os",
            b"x-stainless-package-version",
            b"x-stainless-retry-count",
            b"x-stainless-runtime",
            b"x-stainless-runtime-version",
            b"x-stainless-timeout",
        }
    )
    answer_headers = frozenset()
    answer_prefixes = (b"anthropic-ratelimit-",)

    def local_answer(self, method: str, target: str, model: str) -> bytes | None:
        """See :meth:`Dialect.local_answer`. Claude Code sends ``HEAD /`` to check that the server answers."""
        del model
        return b"" if (method, target) == ("HEAD", "/") else None

    def authorise(self, key: str) -> Header:
        """Return the header that carries the key."""
        return (b"x-api-key", key.encode())

    def upstream_path(self, base: str, route: Route) -> str:
        """Return the request target. The base URL may end in the API version, ``/v1``."""
        return base.removesuffix("/v1") + route.path

    def check_headers(self, given: Collection[Header], plan: RelayPlan) -> None:
        """Refuse beta headers for features that :meth:`check` refuses in a body. Raises :class:`RefusedError`."""
        refused = _REFUSED_BETAS if plan.provider_tools else _REFUSED_BETAS + _PROVIDER_BETAS
        values = [value.decode("latin-1").lower() for name, value in given if name == b"anthropic-beta"]
        for beta in (beta.strip() for value in values for beta in value.split(",")):
            if beta.startswith(refused):
                raise RefusedError(RelayRefusal.HEADER, f"the beta {shown(beta)} is not allowed")

    def headers(self, given: Collection[Header], plan: RelayPlan) -> list[Header]:
        """See :meth:`Dialect.headers`. If the cost is counted, betas that change the prices are left out.

        The beta of a long context is kept if the configured model asks for it, because the configured prices then apply
        to a long context.
        """
        passed = super().headers(given, plan)
        if plan.prices is None:
            return passed
        dear = _DEAR_BETAS if plan.model.endswith(_LONG_CONTEXT) else (*_DEAR_BETAS, _LONG_CONTEXT_BETA)
        usual = [(name, _without(dear, value) if name == b"anthropic-beta" else value) for name, value in passed]
        return [(name, value) for name, value in usual if value]

    def is_alias(self, configured: str, model: str) -> bool:
        """See :meth:`Dialect.is_alias`."""
        return configured in _ALIASES and model != configured and _is_model(model, configured)

    def check(self, body: Object, plan: RelayPlan) -> None:
        """Check the parameters, the model, the tools and every content block. Raises :class:`RefusedError`."""
        only(body, _FIELDS)
        if not _is_model(body.get("model"), plan.model):
            raise RefusedError(RelayRefusal.MODEL, f"the model {shown(body.get('model'))} is not the configured one")
        whole_number(body, "max_tokens")
        checks = _Checks(provider_tools=plan.provider_tools)
        checks.tools(body.get("tools"))
        checks.blocks(body.get("system"))
        for message in objects(body.get("messages"), "messages"):
            checks.blocks(message.get("content"))

    def question(self, base: str, model: str) -> ProbeRequest:
        """See :meth:`Dialect.question`. The model's answer is streamed, as for the requests of Claude Code."""
        base, name = base.removesuffix("/v1"), model.removesuffix(_LONG_CONTEXT)
        if name in _ALIASES:
            return ProbeRequest(f"{base}/v1/models?limit=1", None, (_VERSION,))
        messages: list[JsonValue] = [{"role": "user", "content": QUESTION}]
        body: Object = {"model": name, "messages": messages, "max_tokens": 1, "stream": True}
        return ProbeRequest(f"{base}/v1/messages", body, (_VERSION,))

    def is_unknown_model(self, body: Object) -> bool:
        """See :meth:`Dialect.is_unknown_model`. A 404 without ``model`` in its message may be about the path."""
        error = part(body, "error")
        return error.get("type") == "not_found_error" and "model" in str(error.get("message"))

    def error(self, status: int, message: str) -> Object:
        """Return an error in the API's format."""
        kind = error_kind(status, "rate_limit_error", "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def read(self, event: Object) -> EventReading:
        """Return what an event reports.

        The first event has the input tokens. Each ``message_delta`` has the output tokens so far.
        """
        match event.get("type"):
            case "message_start":
                message = part(event, "message")
                return replace(_usage(part(message, "usage")), model=_model(message))
            case "message_delta":
                return replace(_usage(part(event, "usage")), trouble=_refusal(part(event, "delta")))
            case "message_stop":
                return EventReading(ended=True)
            case "error":
                return EventReading(trouble=_trouble(part(event, "error")) or Trouble.FAILED)
            case _:
                return NOTHING

    def read_whole(self, answer: Object) -> EventReading:
        """Return the usage and the outcome of an answer."""
        usage = _usage(part(answer, "usage"))
        return replace(usage, ended=True, trouble=_refusal(answer), model=_model(answer))

    def error_trouble(self, status: int, body: Object) -> Trouble:
        """Classify an error. Only its body distinguishes a lack of credit from a malformed request or a rate limit."""
        message = str(part(body, "error").get("message"))
        if _FILTERED in message:
            return Trouble.DECLINED
        is_spent = str(part(part(body, "error"), "details").get("error_code")).endswith(_SPENT)
        return Trouble.REFUSED if is_spent or _NO_CREDIT in message else trouble_of(status)


def _refusal(answer: Object) -> Trouble | None:
    """Return ``DECLINED`` if the stop reason is a refusal."""
    return Trouble.DECLINED if answer.get("stop_reason") == _REFUSAL else None


def _model(answer: Object) -> str:
    return model if isinstance(model := answer.get("model"), str) else ""


def _trouble(error: Object) -> Trouble | None:
    if _FILTERED in str(error.get("message")):
        return Trouble.DECLINED
    kind = error.get("type")
    return _TROUBLES.get(kind) if isinstance(kind, str) else None


def _usage(usage: Object) -> EventReading:
    """Return the token counts, ``None`` if not reported. Cached tokens count as input."""
    given = total(usage, "output_tokens")
    if count(usage.get("input_tokens")) is None:
        return EventReading(output_tokens=given)
    taken = total(usage, "input_tokens", _READ, _WRITTEN)
    read, written = count(usage.get(_READ)) or 0, count(usage.get(_WRITTEN)) or 0
    for_an_hour = min(written, count(part(usage, "cache_creation").get("ephemeral_1h_input_tokens")) or 0)
    cached = CachedTokens(read=read, written=written - for_an_hour, written_1h=for_an_hour)
    return EventReading(taken, given, cached=cached)


def _without(prefixes: tuple[str, ...], value: bytes) -> bytes:
    betas = [beta.strip() for beta in value.decode("latin-1").split(",")]
    return ",".join(beta for beta in betas if not beta.lower().startswith(prefixes)).encode("latin-1")


def _is_model(requested: JsonValue, configured: str) -> bool:
    if not isinstance(requested, str):
        return False
    name = configured.removesuffix(_LONG_CONTEXT)
    lines = _ALIASES.get(name, ())
    return requested == name or (requested.startswith("claude-") and bool(set(requested.split("-")) & set(lines)))


class _Checks:
    """Checks a request for everything that the provider would run or fetch."""

    def __init__(self, *, provider_tools: bool) -> None:
        self._provider_tools = provider_tools
        self._blocks = _BLOCKS | _PROVIDER_BLOCKS if provider_tools else _BLOCKS
        self._sources = _SOURCES | {"url"} if provider_tools else _SOURCES

    def tools(self, given: JsonValue) -> None:
        """Check a list of tools."""
        for tool in objects(given, "tools"):
            kind = kind_of(tool, "custom")
            if self._provider_tools and _PROVIDER_TOOL.fullmatch(kind):
                no_references(tool)
            elif kind != "custom" and not _CLIENT_TOOL.fullmatch(kind):
                raise tool_refused(kind)

    def blocks(self, given: JsonValue) -> None:
        """Check content: a string, or blocks that may contain further blocks."""
        if isinstance(given, str):
            return
        for block in objects(given, "content"):
            kind = kind_of(block, "")
            if kind not in self._blocks:
                raise RefusedError(RelayRefusal.CONTENT, f"content of type {shown(kind)} is not allowed")
            self._source(block)
            if kind in _NESTING:
                self.blocks(block.get("content"))

    def _source(self, block: Object) -> None:
        source = block.get("source")
        if not isinstance(source, dict):
            return
        no_references(source)
        kind = kind_of(source, "")
        if kind not in self._sources:
            raise RefusedError(RelayRefusal.CONTENT, f"a source of type {shown(kind)} is not allowed")
        self.blocks(source.get("content"))
