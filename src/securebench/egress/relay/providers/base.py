"""One provider's API, as a relay sees it."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from securebench.egress.model import Trouble
from securebench.egress.relay.refusals import RefusedError, RelayRefusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from securebench.egress.model import RelayPlan
    from securebench.resources import JsonValue

Object: TypeAlias = "dict[str, JsonValue]"
Header: TypeAlias = tuple[bytes, bytes]

_SHOWN: Final = 80
"""Characters of the agent's own words that a refusal repeats."""

_NOT_PLAIN: Final = re.compile(r"[^ -~]")

_REFERENCES: Final = frozenset(
    {"container", "connector_id", "file_id", "file_ids", "file_url", "server_url", "vector_store_ids"}
)
"""Keys by which a tool or a piece of content names what lies with the provider, or elsewhere."""

_HEADERS: Final = frozenset({b"accept", b"user-agent"})

_ANSWER_HEADERS: Final = frozenset({b"content-type", b"retry-after", b"request-id", b"x-request-id", b"x-should-retry"})


@dataclass(frozen=True, slots=True)
class Route:
    """A way that is open. ``path`` follows the base URL. ``is_model``: a model answers, and its tokens count."""

    path: str
    is_model: bool = True


@dataclass(frozen=True, slots=True)
class EventReading:
    """What one event of an answer, or a whole one, says. Tokens are so far in this answer, ``None`` if unsaid."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    ended: bool = False
    trouble: Trouble | None = None
    model: str = ""
    """The model that answers, where the event names it."""


NOTHING: Final = EventReading()


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """The smallest request of the gateway's own. ``path`` is upstream's, below the base URL; no ``body`` means GET."""

    path: str
    body: Object | None
    headers: tuple[Header, ...] = ()


QUESTION: Final = "Reply with the word OK."
"""What the gateway asks a model when it asks by itself."""


class Dialect(ABC):
    """How one provider is spoken to. Without state."""

    marks: ClassVar[tuple[bytes, ...]]
    """An event of a stream is read only if one of these stands in it: most hold a word of text, and no more."""
    routes: ClassVar[Mapping[str, Route]]
    """Where a model is asked by POST, by the target of the request: path and query, letter for letter."""
    local: ClassVar[frozenset[tuple[str, str]]]
    """Methods and targets that the relay answers itself, with 200 and nothing."""
    request_headers: ClassVar[frozenset[bytes]]
    answer_headers: ClassVar[frozenset[bytes]]
    answer_prefixes: ClassVar[tuple[bytes, ...]]

    def route(self, method: str, target: str, headers: Collection[Header]) -> Route:
        """Return the way that a request asks for. Raises :class:`RefusedError`."""
        if any(name == b"upgrade" for name, _ in headers):
            raise RefusedError(RelayRefusal.UPGRADE, "no other protocol over this connection: use HTTP")
        if (found := self.routes.get(target)) is None:
            raise RefusedError(RelayRefusal.PATH, "this path is not open to agents")
        if method != "POST":
            raise RefusedError(RelayRefusal.METHOD, "this path takes POST alone")
        return found

    def headers(self, given: Collection[Header]) -> list[Header]:
        """Return those of the agent's headers that are passed on: names that are known to be harmless."""
        return [(name, value) for name, value in given if name in _HEADERS | self.request_headers]

    def answered_headers(self, given: Collection[Header]) -> list[Header]:
        """Return those of the provider's headers that the agent is shown."""
        admitted = _ANSWER_HEADERS | self.answer_headers
        return [(name, value) for name, value in given if name in admitted or name.startswith(self.answer_prefixes)]

    @abstractmethod
    def authorise(self, key: str) -> Header:
        """Return the header that carries the key."""

    @abstractmethod
    def upstream_path(self, base: str, route: Route) -> str:
        """Return the target of ``route`` below the path of the base URL, which has no slash at its end."""

    @abstractmethod
    def check_headers(self, given: Collection[Header], plan: RelayPlan) -> None:
        """Look at what a header alone could ask for. Raises :class:`RefusedError`."""

    @abstractmethod
    def check(self, body: Object, plan: RelayPlan) -> None:
        """Look at all that a body asks for. Raises :class:`RefusedError`."""

    @abstractmethod
    def question(self, base: str, model: str) -> ProbeRequest:
        """Return a request that costs next to nothing and is answered if key, model and provider are well.

        ``base`` is the path of the base URL. For a name that only an agent program turns into a model's, it asks for
        the list of models, which shows the key alone.
        """

    @abstractmethod
    def is_unknown_model(self, body: Object) -> bool:
        """Return whether an error means that the provider has no such model. Raises nothing."""

    @abstractmethod
    def error(self, status: int, message: str) -> Object:
        """Return an error in the provider's own form. 429 is one that no repetition helps."""

    @abstractmethod
    def read(self, event: Object) -> EventReading:
        """Return what one event of a streamed answer says. Raises nothing, whatever the event is."""

    @abstractmethod
    def read_whole(self, answer: Object) -> EventReading:
        """Return what an answer that is no stream says. Raises nothing, whatever the answer is."""

    @abstractmethod
    def error_trouble(self, status: int, body: Object) -> Trouble:
        """Return what an error of the provider's means. Raises nothing, whatever the body is."""


def trouble_of(status: int) -> Trouble:
    """Return what a status other than 2xx means, where the body says no more."""
    if status in (401, 402, 403):
        return Trouble.REFUSED
    if status == 429:  # noqa: PLR2004 - a status is its own name
        return Trouble.RATE_LIMITED
    return Trouble.REJECTED if 400 <= status < 500 and status != 408 else Trouble.FAILED  # noqa: PLR2004 - as above


def error_kind(status: int, too_much: str, failed: str) -> str:
    """Return the name of an error of the relay's own, in a provider's words for too much and for its own failure."""
    return {429: too_much, 502: failed}.get(status, "invalid_request_error")


def only(given: Object, known: Collection[str]) -> None:
    """Raise :class:`RefusedError` for a parameter that is not among ``known``."""
    for name, value in given.items():
        if name not in known and value is not None:
            raise RefusedError(RelayRefusal.FIELD, f"the parameter {shown(name)} is not admitted")


def objects(value: JsonValue, what: str) -> Iterator[Object]:
    """Yield the objects of a list, nothing for ``None``. Raises :class:`RefusedError` for whatever else it is."""
    if value is None:
        return
    if not isinstance(value, list):
        raise RefusedError(RelayRefusal.FIELD, f"{what} is not a list")
    for member in value:
        if not isinstance(member, dict):
            raise RefusedError(RelayRefusal.FIELD, f"{what} holds what is not an object")
        yield member


def kind_of(value: Object, default: str) -> str:
    """Return the type of an item, a tool or a piece of content. Raises :class:`RefusedError`."""
    kind = value.get("type", default)
    if kind is None:
        return default
    if not isinstance(kind, str):
        raise RefusedError(RelayRefusal.FIELD, "a type is not text")
    return kind


def no_references(value: Object) -> None:
    """Raise :class:`RefusedError` if ``value`` names a file, a container or a server that is not in the request."""
    for key in sorted(_REFERENCES & value.keys()):
        found = value[key]
        if isinstance(found, dict):
            no_references(found)
        elif found is not None:
            raise RefusedError(RelayRefusal.CONTENT, f"{key} is not admitted: a request must hold what it is about")


def tool_refused(kind: str) -> RefusedError:
    """Return the refusal of a tool that is not run by the agent."""
    return RefusedError(
        RelayRefusal.TOOL,
        f"the tool {shown(kind)} is run by the provider, or not known: it is to be turned off in the agent's"
        " settings. For web search, file fetch and code execution there is harness.config.provider_tools",
    )


def shown(text: JsonValue) -> str:
    """Return the agent's own word, fit to be repeated to it."""
    return repr(_NOT_PLAIN.sub("?", str(text)[:_SHOWN]))


def count(value: JsonValue) -> int:
    """Return a number of tokens as a provider gives it, 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def part(value: JsonValue, key: str) -> Object:
    """Return the object under ``key``, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def read_object(data: bytes) -> Object:
    """Return the object that ``data`` is as JSON, and an empty one if it is none. For what a provider sends."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
