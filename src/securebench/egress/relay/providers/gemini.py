"""Google's Gemini API: ``generateContent``, streamed or whole."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

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
    part,
    shown,
    tool_refused,
    total,
    trouble_of,
    within_budget,
)
from securebench.egress.relay.refusals import RefusedError, RelayRefusal
from securebench.money import CachedTokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from securebench.egress.model import RelayPlan
    from securebench.resources import JsonValue

_FIELDS: Final = frozenset(
    {
        "contents",
        "generationConfig",
        "model",
        "safetySettings",
        "serviceTier",
        "systemInstruction",
        "toolConfig",
        "tools",
    }
)
"""The allowed parameters. Excluded: ``cachedContent``, which refers to data that the provider stores; ``store``, which
controls whether the provider stores the request; ``labels``, which appear on bills."""

_GENERATION: Final = frozenset(
    {
        "_responseJsonSchema",
        "candidateCount",
        "enableEnhancedCivicAnswers",
        "frequencyPenalty",
        "logprobs",
        "maxOutputTokens",
        "mediaResolution",
        "presencePenalty",
        "responseJsonSchema",
        "responseLogprobs",
        "responseMimeType",
        "responseModalities",
        "responseSchema",
        "seed",
        "stopSequences",
        "temperature",
        "thinkingConfig",
        "topK",
        "topP",
    }
)
"""The allowed fields of ``generationConfig``. Excluded: those that request speech or images, which cost more than text,
and those that choose other models."""

_TOOL_CONFIG: Final = frozenset({"functionCallingConfig", "includeServerSideToolInvocations", "retrievalConfig"})
_TOOLS: Final = frozenset({"computerUse", "functionDeclarations"})
"""The kinds of tools that the agent runs. Each key of a tool object names a kind."""
_PROVIDER_TOOLS: Final = frozenset({"codeExecution", "googleSearch", "googleSearchRetrieval", "urlContext"})

_CONTENT: Final = frozenset({"parts", "role"})
_PARTS: Final = frozenset(
    {
        "functionCall",
        "functionResponse",
        "inlineData",
        "mediaResolution",
        "partMetadata",
        "text",
        "thought",
        "thoughtSignature",
        "videoMetadata",
    }
)
"""The allowed fields of a part. Excluded: ``fileData``, a file that the provider stores or fetches."""
_PROVIDER_PARTS: Final = frozenset({"codeExecutionResult", "executableCode", "toolCall", "toolResponse"})
_INLINE: Final = frozenset({"data", "displayName", "mimeType"})
_FUNCTION_RESPONSE: Final = frozenset({"id", "name", "parts", "response", "scheduling", "willContinue"})

_TEXT_ONLY: Final[tuple[JsonValue, ...]] = (None, [], ["TEXT"])
_SERVICE_TIERS: Final = frozenset({"flex", "standard", "unspecified"})

_TARGET: Final = re.compile(
    r"/v1(?:beta)?/models/([A-Za-z0-9._@+-]+):(countTokens|generateContent|streamGenerateContent)(?:\?([!-~]*))?"
)
_STREAMED: Final = "streamGenerateContent"
_EVENTS: Final = "alt=sse"
_KEY: Final = "key="
"""Some clients send their key in the query. It is removed, like every credential of an agent."""
_VERSIONS: Final = ("/v1beta", "/v1")
_DELAY: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")
_SNAKE: Final = re.compile(r"(?<=[A-Za-z0-9])_([a-z0-9])")
_MOST_TOKENS: Final = 16

_BLOCKED: Final = frozenset(
    {
        "BLOCKLIST",
        "ESCALATION",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_SAFETY",
        "MODEL_ARMOR",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)
"""The finish reasons of answers that a policy stopped."""
_DISABLED: Final = "PUP_LIMITED_DISABLED"
"""The finish reason of an answer that stopped because the account was limited or disabled."""
_UNFINISHED: Final = "FINISH_REASON_UNSPECIFIED"

_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
}
_FIRST_ERROR: Final = 400
_BUDGET: Final[Object] = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "SecureBenchBudgetPerDay", "description": "the task's budget is used up"}],
}
"""The error detail for a used-up budget. It looks like a daily quota error, because clients do not retry after one."""


class Gemini(Dialect):
    """The Gemini API. The paths that agents send begin with the API version and contain the model.

    Like Google's servers, the relay accepts both forms of field names: ``inlineData`` and ``inline_data``.
    """

    marks = (b"{",)  # every event is parsed: events have no types
    routes = {}  # noqa: RUF012 - see find
    request_headers = frozenset({b"x-goog-api-client", b"x-server-timeout"})
    answer_headers = frozenset()
    answer_prefixes = ()

    def find(self, target: str) -> Route | None:
        """See :meth:`Dialect.find`. A stream must be requested as server-sent events."""
        if (found := _TARGET.fullmatch(target)) is None:
            return None
        model, method, query = found.groups()
        options = [option for option in (query or "").split("&") if option and not option.startswith(_KEY)]
        streams = method == _STREAMED
        if options != ([_EVENTS] if streams else []):
            return None
        path = f"/models/{model}:{method}{'?' + _EVENTS if streams else ''}"
        return Route(path, is_model=method != "countTokens", model=model, streams=streams)

    def local_answer(self, method: str, target: str, model: str) -> bytes | None:
        """See :meth:`Dialect.local_answer`. The list of models contains only the configured one."""
        described: Object = {
            "name": f"models/{model}",
            "displayName": model,
            "supportedGenerationMethods": ["generateContent"],
        }
        known: dict[str, Object] = {"": {"models": [described]}, f"/{model}": {**described}}
        path = next(
            (target.removeprefix(f"{version}/models") for version in _VERSIONS if target.startswith(version)), "?"
        )
        return json.dumps(known[path]).encode() if method == "GET" and path in known else None

    def authorise(self, key: str) -> Header:
        """Return the header that carries the key."""
        return (b"x-goog-api-key", key.encode())

    def upstream_path(self, base: str, route: Route) -> str:
        """Return the request target. The base URL contains the version."""
        return base + route.path

    def check_headers(self, given: Collection[Header], plan: RelayPlan) -> None:
        """Accept all: no forwarded header enables anything that the body does not request."""

    def check(self, body: Object, plan: RelayPlan) -> None:
        """Check the parameters, the model, the tools and every part of the contents. Raises :class:`RefusedError`."""
        if "model" in body and body["model"] not in (plan.model, f"models/{plan.model}"):
            raise RefusedError(RelayRefusal.MODEL, f"the model {shown(body['model'])} is not the configured one")
        given = _fields(body, "the body", _FIELDS)
        if str(given.get("serviceTier", "standard")).lower() not in _SERVICE_TIERS:
            raise RefusedError(RelayRefusal.FIELD, "this serviceTier is not allowed")
        _check_generation(given.get("generationConfig"), plan)
        _fields(given.get("toolConfig"), "toolConfig", _TOOL_CONFIG)
        tools = _TOOLS | _PROVIDER_TOOLS if plan.provider_tools else _TOOLS
        for tool in _objects(given.get("tools"), "tools"):
            for name in _named(tool, "a tool"):
                if name not in tools:
                    raise tool_refused(name)
        parts = _PARTS | _PROVIDER_PARTS if plan.provider_tools else _PARTS
        for name in ("systemInstruction", "contents"):
            for content in _objects(given.get(name), name):
                _check_parts(_fields(content, name, _CONTENT).get("parts"), parts)

    def retry_delay(self, body: Object) -> float | None:
        """See :meth:`Dialect.retry_delay`. The delay, such as ``34.5s``, is in an error detail and not in a header."""
        delays = [str(detail.get("retryDelay")) for detail in _details(part(body, "error"))]
        return next((float(found[1]) for delay in delays if (found := _DELAY.fullmatch(delay))), None)

    def max_output_tokens(self, body: Object) -> int | None:
        """See :meth:`Dialect.max_output_tokens`."""
        config = _named(part(_named(body, "the body"), "generationConfig"), "generationConfig")
        thoughts = _named(part(config, "thinkingConfig"), "thinkingConfig")
        limits = (config.get("maxOutputTokens"), thoughts.get("thinkingBudget"))
        return max(count(limit) or 0 for limit in limits) or None

    def question(self, base: str, model: str) -> ProbeRequest:
        """See :meth:`Dialect.question`."""
        contents: list[JsonValue] = [{"role": "user", "parts": [{"text": QUESTION}]}]
        body: Object = {"contents": contents, "generationConfig": {"maxOutputTokens": _MOST_TOKENS}}
        return ProbeRequest(f"{base}/models/{quote(model, safe='')}:{_STREAMED}?{_EVENTS}", body)

    def is_unknown_model(self, body: Object) -> bool:
        """See :meth:`Dialect.is_unknown_model`. A 404 whose message names no model may be about the path."""
        error = part(body, "error")
        return error.get("status") == "NOT_FOUND" and "models/" in str(error.get("message"))

    def error(self, status: int, message: str) -> Object:
        """Return an error in the API's format. For 429 it is a quota error that clients do not retry."""
        error: Object = {"code": status, "message": message, "status": _STATUSES.get(status, _STATUSES[400])}
        return {"error": {**error, "details": [_BUDGET]} if status == 429 else error}  # noqa: PLR2004 - a status is its own name

    def read(self, event: Object) -> EventReading:
        """Return what an event reports. An event has the form of a whole answer, and gives the total usage so far."""
        if not event:
            return NOTHING
        found, usage = event.get("candidates"), part(event, "usageMetadata")
        candidates = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        reasons = {reason for one in candidates if isinstance(reason := one.get("finishReason"), str)} - {_UNFINISHED}
        is_blocked = part(event, "promptFeedback").get("blockReason") is not None
        trouble = Trouble.DECLINED if is_blocked or reasons & _BLOCKED else None
        if _DISABLED in reasons:
            trouble = Trouble.REFUSED
        if event.get("error") is not None:
            trouble = _trouble(part(event, "error"), Trouble.FAILED)
        model = event.get("modelVersion")
        return EventReading(
            input_tokens=total(usage, "promptTokenCount", "toolUsePromptTokenCount"),
            output_tokens=total(usage, "candidatesTokenCount", "thoughtsTokenCount"),
            ended=is_blocked or bool(reasons),
            trouble=trouble,
            model=model if isinstance(model, str) else "",
            cached=CachedTokens(read=count(usage.get("cachedContentTokenCount")) or 0) if usage else None,
        )

    def read_whole(self, answer: Object) -> EventReading:
        """Return the usage and the outcome of an answer."""
        return self.read(answer)

    def error_trouble(self, status: int, body: Object) -> Trouble:
        """Classify an error. A wrong key and a malformed request both have the status 400; only the reason differs."""
        return _trouble(part(body, "error"), trouble_of(status))


def _check_generation(given: JsonValue, plan: RelayPlan) -> None:
    """Refuse a request for several answers, for anything but text, or for more tokens than the task's budget."""
    config = _fields(given, "generationConfig", _GENERATION)
    amount = config.get("candidateCount", 1)
    if amount != 1 or not isinstance(amount, int) or isinstance(amount, bool):
        raise RefusedError(RelayRefusal.FIELD, "'candidateCount' must be 1: send a separate request for each answer")
    if config.get("responseModalities") not in _TEXT_ONLY:
        raise RefusedError(RelayRefusal.FIELD, "'responseModalities' must be [\"TEXT\"]")
    within_budget(config, "maxOutputTokens", plan)


def _check_parts(given: JsonValue, known: frozenset[str]) -> None:
    """Check parts, which may have the fields ``known``. Parts in a function's result may only have ``inlineData``."""
    for piece in _objects(given, "parts"):
        found = _fields(piece, "a part", known, RelayRefusal.CONTENT)
        result = _fields(found.get("functionResponse"), "functionResponse", _FUNCTION_RESPONSE, RelayRefusal.CONTENT)
        _fields(found.get("inlineData"), "inlineData", _INLINE, RelayRefusal.CONTENT)
        _check_parts(result.get("parts"), frozenset({"inlineData"}))


def _objects(value: JsonValue, what: str) -> Iterator[Object]:
    """Yield the objects in a list, or a single object, which Google's servers accept instead of a list."""
    for member in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(member, dict):
            raise RefusedError(RelayRefusal.FIELD, f"{what} contains a value that is not an object")
        yield member


def _named(given: Object, what: str) -> Object:
    """Return the fields that are set, by their names in camel case. Raises :class:`RefusedError` for a duplicate."""
    found: Object = {}
    for name, value in given.items():
        camel = _SNAKE.sub(lambda match: match[1].upper(), name)
        if value is None:
            continue
        if camel in found:
            raise RefusedError(RelayRefusal.FIELD, f"{what} has {shown(camel)} twice")
        found[camel] = value
    return found


def _fields(given: JsonValue, what: str, known: frozenset[str], reason: RelayRefusal = RelayRefusal.FIELD) -> Object:
    """Return the fields of an object. Raises :class:`RefusedError` for another type or a field not in ``known``."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise RefusedError(RelayRefusal.FIELD, f"{what} is not an object")
    found = _named(given, what)
    if unknown := sorted(found.keys() - known):
        raise RefusedError(reason, f"{shown(unknown[0])} in {what} is not allowed")
    return found


def _details(error: Object) -> list[Object]:
    found = error.get("details")
    return [detail for detail in found if isinstance(detail, dict)] if isinstance(found, list) else []


def _trouble(error: Object, otherwise: Trouble) -> Trouble:
    """Classify an error object by its status and the reasons in its details, or by its code.

    Returns ``otherwise`` if they do not show the kind of trouble.
    """
    code, reasons = error.get("code"), [str(detail.get("reason")) for detail in _details(error)]
    if any(reason.startswith("API_KEY_") for reason in reasons) or error.get("status") == "FAILED_PRECONDITION":
        return Trouble.REFUSED  # FAILED_PRECONDITION: billing is required, or the country is not supported
    if isinstance(code, int) and not isinstance(code, bool) and code >= _FIRST_ERROR:
        return trouble_of(code)
    return otherwise
