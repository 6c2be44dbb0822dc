"""Faults: which answers they affect, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from securebench.testing.provider.reply import Reply, stream, whole
from securebench.testing.provider.steps import Cut, Fail, Fault, Garble, Hang, Redirect, Slow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.testing.provider.conversation import ModelConversation
    from securebench.testing.provider.wires import ApiWire

_GARBLED: Final = b'{"type": "message", "content": ['


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request for a model's answer, for which a :data:`FaultPlan` may choose a fault.

    ``number`` is the number of the request, from 1. ``attempt`` is its number among the requests for the same answer,
    from 1. A request of the gateway itself gets no new number: its ``number`` is that of the agent's latest request, or
    0 if there was no such request. Its ``attempt`` is always 1.
    """

    number: int
    attempt: int
    conversation: ModelConversation


FaultPlan = Callable[[ModelRequest], Fault | None]
"""Chooses the fault for the answer to a request. Called from the threads of the server."""


def always(fault: Fault) -> FaultPlan:
    """Return a plan that applies ``fault`` to every answer."""
    return lambda _request: fault


def numbered(numbers: Iterable[int], fault: Fault) -> FaultPlan:
    """Return a plan that applies ``fault`` to the answers to the requests with these numbers."""
    chosen = frozenset(numbers)
    return lambda request: fault if request.number in chosen else None


def at_first(attempts: int, fault: Fault) -> FaultPlan:
    """Return a plan that applies ``fault`` to a request if its :attr:`ModelRequest.attempt` is at most ``attempts``.

    For example, ``at_first(1, fault)`` affects an agent's first request for each answer, but not its repetitions.
    """
    return lambda request: fault if request.attempt <= attempts else None


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a reply is sent.

    It begins after ``wait`` seconds, pauses for ``pause`` seconds before each piece, and is cut after ``cut`` bytes.
    """

    reply: Reply
    wait: float = 0.0
    pause: float = 0.0
    cut: int | None = None


def with_fault(delivery: Delivery, fault: Fault, wire: ApiWire, key: str) -> Delivery:
    """Return ``delivery`` with ``fault`` applied. ``key`` is the client's API key."""
    match fault:
        case Hang(seconds):
            return replace(delivery, wait=delivery.wait + seconds)
        case Slow(seconds):
            return replace(delivery, pause=seconds)
        case Cut(size):
            return replace(delivery, cut=size)
        case Fail():
            return replace(delivery, reply=_failed(delivery.reply, fault, wire, key))
        case Garble():
            return replace(delivery, reply=_garbled(delivery.reply))
        case Redirect(location):
            body = wire.error(307, "the model has moved")
            return replace(delivery, reply=whole(307, body, {"location": location}))


def _failed(reply: Reply, fail: Fail, wire: ApiWire, key: str) -> Reply:
    message = f"scripted failure with status {fail.status}" + (f"; your key is {key}" if fail.echo_key else "")
    if fail.in_stream and reply.streams:
        broken = stream([wire.error_event(fail.status, message)])
        return replace(reply, pieces=(*reply.pieces[: len(reply.pieces) // 2], *broken.pieces))
    headers = {} if fail.retry_after is None else {"retry-after": str(fail.retry_after)}
    return whole(fail.status, wire.error(fail.status, message), headers)


def _garbled(reply: Reply) -> Reply:
    """Return ``reply`` with invalid JSON. In a stream, the first piece stays valid."""
    if not reply.streams:
        return replace(reply, pieces=(_GARBLED,))
    return replace(reply, pieces=(reply.pieces[0], *(b"data: " + _GARBLED + b"\n\n" for _ in reply.pieces[1:])))
