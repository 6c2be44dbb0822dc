"""The interface of a provider's API as the relay uses it, with shared checks."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from securebench.egress.model import KeyForm, Trouble
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from securebench.egress.model import RelayPlan
    from securebench.money import CachedTokens
    from securebench.resources import JsonValue

Object: TypeAlias = "dict[str, JsonValue]"
Header: TypeAlias = tuple[bytes, bytes]

_SHOWN: Final = 80
"""Maximum characters of the agent's text that a refusal quotes."""

_NOT_PLAIN: Final = re.compile(r"[^ -~]")

_REFERENCES: Final = frozenset(
    {"container", "connector_id", "file_id", "file_ids", "file_url", "server_url", "vector_store_ids"}
)
"""Keys that refer to data stored at the provider or elsewhere."""

_MAX_OUTPUT_FIELDS: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")
_MOST_TOKENS: Final = 10**9
"""The largest plausible number of tokens. No answer has nearly as many."""

_HEADERS: Final = frozenset({b"accept", b"user-agent"})

_ANSWER_HEADERS: Final = frozenset({b"content-type", b"retry-after", b"request-id", b"x-request-id", b"x-should-retry"})


@dataclass(frozen=True, slots=True)
class Route:
    """An allowed API path, relative to the base URL. ``is_model``: a model answers, and its tokens are counted.

    ``model`` and ``streams`` are ``None`` if they are in the request body and not in the path.
    """

    path: str
    is_model: bool = True
    model: str | None = None
    streams: bool | None = None


@dataclass(frozen=True, slots=True)
class EventReading:
    """What the relay reads from an event or a whole answer. Tokens are totals so far, ``None`` if unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    ended: bool = False
    trouble: Trouble | None = None
    model: str = ""
    """The model that answers, if the event names it."""
    cached: CachedTokens | None = None
    """The input tokens that the provider read from its cache or wrote to it, if the event reports them."""


NOTHING: Final = EventReading()


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """The gateway's own test request. ``path`` is the full request path; without a ``body`` the method is GET."""

    path: str
    body: Object | None
    headers: tuple[Header, ...] = ()


QUESTION: Final = "Reply with the word OK."
"""The prompt of the gateway's test request."""


class Dialect(ABC):
    """A provider's API. Stateless."""

    marks: ClassVar[tuple[bytes, ...]]
    """Only stream events that contain one of these byte strings are parsed. Most events are just a piece of text."""
    routes: ClassVar[Mapping[str, Route]]
    """The allowed POST routes by request target: the exact path and query."""
    request_headers: ClassVar[frozenset[bytes]]
    answer_headers: ClassVar[frozenset[bytes]]
    answer_prefixes: ClassVar[tuple[bytes, ...]]

    def route(self, method: str, target: str, headers: Collection[Header]) -> Route:
        """Return the route of a request. Raises :class:`RefusedError`."""
        if any(name == b"upgrade" for name, _ in headers):
            raise RefusedError(
                RelayRefusal.UPGRADE,
                "protocol upgrades such as WebSocket are not allowed: send the request without an Upgrade header",
            )
        if (found := self.find(target)) is None:
            path = shown(target.partition("?")[0])
            raise RefusedError(RelayRefusal.PATH, f"the URL path {path} or its query is not allowed")
        if method != "POST":
            raise RefusedError(RelayRefusal.METHOD, "this path accepts only POST")
        return found

    def find(self, target: str) -> Route | None:
        """Return the POST route of a request target, if it is allowed."""
        return self.routes.get(target)

    def headers(self, given: Collection[Header], plan: RelayPlan) -> list[Header]:
        """Return the agent's headers that are forwarded: only names that are known to be harmless."""
        del plan
        return [(name, value) for name, value in given if name in _HEADERS | self.request_headers]

    def answered_headers(self, given: Collection[Header]) -> list[Header]:
        """Return the provider's headers that are forwarded to the agent."""
        admitted = _ANSWER_HEADERS | self.answer_headers
        return [(name, value) for name, value in given if name in admitted or name.startswith(self.answer_prefixes)]

    def local_answer(self, method: str, target: str, model: str) -> bytes | None:
        """Return the body if the relay itself answers the request (with status 200), else ``None``."""
        del method, target, model
        return None

    def with_usage(self, body: Object) -> Object:
        """Return a checked body with the option that makes the provider report the tokens of a stream.

        Returns ``body`` itself if nothing needs to be added.
        """
        return body

    def is_added(self, event: Object) -> bool:
        """Return whether the provider sends an event only because of :meth:`with_usage`. Never raises."""
        del event
        return False

    def retry_delay(self, body: Object) -> float | None:
        """Return how many seconds an error body asks the client to wait before a retry, or ``None``. Never raises."""
        del body
        return None

    def max_output_tokens(self, body: Object) -> int | None:
        """Return the maximum number of output tokens of a checked request, or ``None`` if it sets no maximum."""
        limits = [body.get(name) for name in _MAX_OUTPUT_FIELDS]
        thoughts = [part(body, "thinking").get("budget_tokens"), part(body, "reasoning").get("max_tokens")]
        return max(count(limit) or 0 for limit in limits + thoughts) or None

    def is_alias(self, configured: str, model: str) -> bool:
        """Return whether ``configured`` is an alias that the agent program may resolve to ``model``."""
        del configured, model
        return False

    def credentials(self, plan: RelayPlan) -> list[Header]:
        """Return the header that carries the key, if there is a key."""
        if plan.key is None:
            return []
        match plan.key_form:
            case KeyForm.BEARER:
                return [(b"authorization", b"Bearer " + plan.key.encode())]
            case KeyForm.AZURE:
                return [(b"api-key", plan.key.encode())]
            case KeyForm.USUAL:
                return [self.authorise(plan.key)]

    @abstractmethod
    def authorise(self, key: str) -> Header:
        """Return the header that carries the key in the usual form of the API."""

    @abstractmethod
    def upstream_path(self, base: str, route: Route) -> str:
        """Return the request target of ``route``. ``base`` is the path of the base URL without a trailing slash."""

    @abstractmethod
    def check_headers(self, given: Collection[Header], plan: RelayPlan) -> None:
        """Check the headers that can enable features. Raises :class:`RefusedError`."""

    @abstractmethod
    def check(self, body: Object, plan: RelayPlan) -> None:
        """Check everything that a body requests. Raises :class:`RefusedError`."""

    @abstractmethod
    def question(self, base: str, model: str) -> ProbeRequest:
        """Return a very cheap request that succeeds if key, model and provider work.

        ``base`` is the path of the base URL. If ``model`` is an alias that only the agent program can resolve, the
        request lists the models instead, which checks only the key.
        """

    @abstractmethod
    def is_unknown_model(self, body: Object) -> bool:
        """Return whether an error body says that the provider does not have the model. Never raises."""

    @abstractmethod
    def error(self, status: int, message: str) -> Object:
        """Return an error body in the provider's format.

        For status 429, return an error that clients do not retry, if the API has such an error.
        """

    @abstractmethod
    def read(self, event: Object) -> EventReading:
        """Read one event of a streamed answer. Never raises, whatever the event contains."""

    @abstractmethod
    def read_whole(self, answer: Object) -> EventReading:
        """Read an answer that is not streamed. Never raises, whatever the answer contains."""

    @abstractmethod
    def error_trouble(self, status: int, body: Object) -> Trouble:
        """Classify an error response of the provider. Never raises, whatever the body contains."""


def versioned(target: str, plan: RelayPlan) -> str:
    """Return the request target with the API version of Azure, if the plan has one."""
    return f"{target}?api-version={plan.api_version}" if plan.api_version else target


def trouble_of(status: int) -> Trouble:
    """Classify a status other than 2xx by its number alone."""
    if status in (401, 402, 403):
        return Trouble.REFUSED
    if status == 429:  # noqa: PLR2004 - a status is its own name
        return Trouble.RATE_LIMITED
    return Trouble.REJECTED if 400 <= status < 500 and status != 408 else Trouble.FAILED  # noqa: PLR2004 - as above


def error_kind(status: int, too_much: str, failed: str) -> str:
    """Return the error type for a response of the relay itself: ``too_much`` for 429, ``failed`` for 502.

    For all other statuses, it is ``invalid_request_error``.
    """
    return {429: too_much, 502: failed}.get(status, "invalid_request_error")


def only(given: Object, known: Collection[str]) -> None:
    """Raise :class:`RefusedError` if ``given`` sets a parameter that is not in ``known``. ``None`` does not count."""
    for name, value in given.items():
        if name not in known and value is not None:
            raise RefusedError(RelayRefusal.FIELD, f"the parameter {shown(name)} is not allowed")


def within_budget(given: Object, name: str, plan: RelayPlan) -> None:
    """Raise :class:`RefusedError` if the limit ``name`` is given, but is not a whole number within the task's budget.

    The smallest allowed number is 1, and the largest is the task's budget of tokens.
    """
    whole_number(given, name)
    if (limit := given.get(name)) is not None and not 0 < (count(limit) or 0) <= plan.tokens:
        raise RefusedError(
            RelayRefusal.FIELD, f"{name} must be a number from 1 to the task's budget of {plan.tokens} tokens"
        )


def whole_number(given: Object, name: str) -> None:
    """Raise :class:`RefusedError` if the limit ``name`` is given and not a whole number.

    The provider may interpret a value of another type in another way than the relay.
    """
    if given.get(name) is not None and count(given[name]) is None:
        raise RefusedError(RelayRefusal.FIELD, f"{name} must be a whole number of tokens")


def objects(value: JsonValue, what: str) -> Iterator[Object]:
    """Yield the objects in a list; nothing for ``None``. Raises :class:`RefusedError` for any other type."""
    if value is None:
        return
    if not isinstance(value, list):
        raise RefusedError(RelayRefusal.FIELD, f"{what} is not a list")
    for member in value:
        if not isinstance(member, dict):
            raise RefusedError(RelayRefusal.FIELD, f"{what} contains a value that is not an object")
        yield member


def kind_of(value: Object, default: str) -> str:
    """Return the ``type`` of an item, a tool or content; ``default`` if it has none. Raises :class:`RefusedError`."""
    kind = value.get("type", default)
    if kind is None:
        return default
    if not isinstance(kind, str):
        raise RefusedError(RelayRefusal.FIELD, "'type' must be a string")
    return kind


def no_references(value: Object) -> None:
    """Raise :class:`RefusedError` if ``value`` names a file, a container or a server that is not in the request."""
    for key in sorted(_REFERENCES & value.keys()):
        found = value[key]
        if isinstance(found, dict):
            no_references(found)
        elif found is not None:
            raise RefusedError(RelayRefusal.CONTENT, f"{key} is not allowed: it refers to data outside the request")


def tool_refused(kind: str) -> RefusedError:
    """Return the refusal of a tool that is unknown, or that the provider would run."""
    return RefusedError(
        RelayRefusal.TOOL,
        f"the tool {shown(kind)} is unknown or run by the provider: turn it off in the agent's settings."
        " To allow web search, web fetch and code execution, set 'provider_tools: true' in the tester YAML",
    )


def shown(text: JsonValue) -> str:
    """Return the agent's ``text`` for use in a message: shortened, in printable ASCII and in quotation marks."""
    return repr(_NOT_PLAIN.sub("?", str(text)[:_SHOWN]))


def count(value: JsonValue) -> int | None:
    """Return ``value`` if it is a plausible number of tokens, or ``None``."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MOST_TOKENS else None


def total(usage: Object, *names: str) -> int | None:
    """Return the sum of a provider's token counts, some of which may be missing.

    It is ``None`` if all are missing or one is invalid.
    """
    found = [count(usage[name]) for name in names if usage.get(name) is not None]
    known = [number for number in found if number is not None]
    return sum(known) if found and len(known) == len(found) else None


def part(value: JsonValue, key: str) -> Object:
    """Return the object under ``key``, or an empty object."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def read_object(data: bytes) -> Object:
    """Parse ``data`` from a provider as a JSON object. Returns an empty object if it is invalid."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
