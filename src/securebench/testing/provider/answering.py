"""Answer requests: choose the script, the answer and the fault. This module does not handle connections."""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from securebench.egress.relay.providers.base import QUESTION
from securebench.testing.provider.conversation import ModelConversation
from securebench.testing.provider.faults import Delivery, FaultPlan, ModelRequest, with_fault
from securebench.testing.provider.gemini_wire import addressed
from securebench.testing.provider.reply import Reply, whole
from securebench.testing.provider.steps import AnswerUsage, ModelAnswer, Say, Script, answer_at
from securebench.testing.provider.wires import CHAT_COMPLETIONS, GEMINI, key_of, wire_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.testing.provider.wires import ApiWire

ScriptBook = Callable[[ModelConversation], Script]
"""Chooses the script for a conversation. Called from the threads of the server."""

TextBook = Callable[[ModelConversation], Say]
"""Chooses the answer to a client without a shell. Called from the threads of the server."""

MAX_REQUESTS: Final = 4096
"""The maximum number of recorded requests. The oldest are dropped first."""

MAX_REQUEST_BYTES: Final = 256 * 1024 * 1024
"""The maximum size of the bodies of all recorded requests. The oldest requests are dropped first."""

_MAX_ATTEMPTS: Final = 65536

BACKGROUND: Final = ModelAnswer((Say("Scripted."),))
"""The answer to the gateway's own requests. Clients without a shell also get it if there is no :data:`TextBook`."""

BESIDE: Final = frozenset(
    {
        "batches",
        "cachedContents",
        "completions",
        "containers",
        "conversations",
        "embeddings",
        "files",
        "uploads",
        "vector_stores",
    }
)
"""Endpoints of providers' APIs for which the model has no script.

The scripted provider reports success for them, so that a test notices a request that should have been blocked. Each
name is the last part of a path. The path ``/chat/completions`` is an exception: if no script answers a request for this
path, the response is "not found".
"""


@dataclass(frozen=True, slots=True)
class Received:
    """A received request. Names of ``headers`` are in lower case. ``body`` is ``None`` if it is not a JSON object.

    ``conversation`` is set if the request asks for a model's answer. ``size`` is the size of the body in bytes.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None
    conversation: ModelConversation | None = None
    size: int = 0


class Answering:
    """A model that follows scripts. Thread safe."""

    def __init__(self, book: ScriptBook, texts: TextBook | None, plan: FaultPlan, models: tuple[str, ...]) -> None:
        self._received: deque[Received] = deque()
        self._kept = 0
        self._keys: set[str] = set()
        self._book = book
        self._texts = texts
        self._plan = plan
        self._models = models
        self._numbers = 0
        self._attempts: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Return the response for a client. Names of ``headers`` are in lower case."""
        parsed = _object(body)
        wire, kind = wire_of(path, headers), path.partition("?")[0].rstrip("/").rpartition("/")[2]
        is_answered = wire in (CHAT_COMPLETIONS, GEMINI) or kind in {"responses", "messages"}
        is_asked = method == "POST" and is_answered and parsed is not None
        conversation = wire.read(parsed) if is_asked and parsed is not None else None
        if wire is GEMINI and conversation is not None:
            conversation = addressed(conversation, path)
        self._record(Received(method, path, headers, parsed, conversation, len(body)))
        if conversation is not None:
            return self._model_answer(wire, conversation, key_of(headers))
        return Delivery(self._other_answer(wire, method, kind, headers))

    def received(self) -> tuple[Received, ...]:
        """Return the recorded requests, in order."""
        with self._lock:
            return tuple(self._received)

    def keys(self) -> frozenset[str]:
        """Return the API keys that requests contained. After 4,096 different keys, no more are added."""
        with self._lock:
            return frozenset(self._keys)

    def _record(self, received: Received) -> None:
        with self._lock:
            self._received.append(received)
            self._kept += received.size
            while len(self._received) > MAX_REQUESTS or self._kept > MAX_REQUEST_BYTES:
                self._kept -= self._received.popleft().size
            if len(self._keys) < MAX_REQUESTS:
                self._keys.update(filter(None, [key_of(received.headers)]))

    def _gateway_request(self, conversation: ModelConversation) -> ModelRequest:
        """Describe a request that the gateway itself makes.

        The request gets the number of the agent's latest request, or 0 if the agent has made none.
        """
        with self._lock:
            return ModelRequest(self._numbers, 1, conversation)

    def _model_answer(self, wire: ApiWire, conversation: ModelConversation, key: str) -> Delivery:
        is_probe = conversation.is_background and QUESTION in conversation.prompt
        if conversation.is_background and (is_probe or self._texts is None):
            delivery = Delivery(wire.render(BACKGROUND, conversation))
            planned = self._plan(self._gateway_request(conversation)) if is_probe else None
            return delivery if planned is None else with_fault(delivery, planned, wire, key)
        if conversation.is_background and self._texts is not None:
            answer = ModelAnswer((self._texts(conversation),))
        else:
            answer = answer_at(self._book(conversation), len(conversation.results))
        delivery = Delivery(wire.render(answer, conversation))
        planned = self._plan(self._next_request(conversation))
        for fault in (*answer.faults, *(() if planned is None else (planned,))):
            delivery = with_fault(delivery, fault, wire, key)
        return delivery

    def _next_request(self, conversation: ModelConversation) -> ModelRequest:
        known = sha256(f"{len(conversation.results)} {conversation.text}".encode("utf-8", "replace")).digest()
        with self._lock:
            self._numbers += 1
            if len(self._attempts) > _MAX_ATTEMPTS:
                self._attempts.clear()
            self._attempts[known] += 1
            return ModelRequest(self._numbers, self._attempts[known], conversation)

    def _other_answer(self, wire: ApiWire, method: str, kind: str, headers: Mapping[str, str]) -> Reply:
        if headers.get("upgrade", "").lower() == "websocket":
            return whole(426, wire.error(426, "WebSocket is not supported"))
        if kind == "count_tokens":
            return whole(200, {"input_tokens": AnswerUsage().input})
        if kind.endswith(":countTokens"):
            return whole(200, {"totalTokens": AnswerUsage().input})
        if kind == "models" and method == "GET":
            return whole(200, wire.models(list(self._models)))
        if method == "HEAD" or (kind in BESIDE and wire is not CHAT_COMPLETIONS):
            return whole(200, {"id": "scripted", "object": "list", "data": [], "has_more": False})
        return whole(404, wire.error(404, "not found"))


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
