"""The parts that all attacks share: attempts, targets, and one line of JSON for each attempt."""

from __future__ import annotations

import errno
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SECONDS = 2.0
ALLOWED, DENIED, DONE, UNKNOWN = "allowed", "denied", "done", "unknown"
"""The outcomes of an attempt.

``done`` means that only a check outside the sandbox shows whether the attempt succeeded. ``unknown`` means that the
attempt raised an unexpected error.
"""


class Targets(NamedTuple):
    """The targets of attacks.

    ``proxy`` is the address of the sandbox's proxy, or ``None`` if the sandbox has no proxy. ``relay`` is the address
    of the sandbox's relay, or ``None`` if the sandbox has no relay.

    ``api`` is ``openai``, ``anthropic``, ``chat_completions`` or ``gemini``. ``model`` is the permitted model,
    ``allowed`` is a permitted domain, and ``other`` is a forbidden domain. ``host`` contains addresses of the host. A
    server listens on ``port`` at these addresses. The sandbox must not reach this server.
    """

    proxy: tuple[str, int] | None = ("127.0.0.1", 3128)
    relay: tuple[str, int] | None = ("127.0.0.1", 8788)
    api: str = "openai"
    model: str = "scripted-model"
    allowed: str = "allowed.example"
    other: str = "other.example"
    host: tuple[str, ...] = ("172.17.0.1",)
    port: int = 22


class EgressAttempt(NamedTuple):
    """One attempt. Its function returns what the attempt achieved, or raises :class:`Denied` or ``OSError``.

    If ``is_judged_outside`` is true, only a check outside the sandbox shows whether the attempt succeeded.
    """

    name: str
    function: Callable[[], str]
    is_judged_outside: bool = False


class Denied(Exception):  # noqa: N818 - the expected result
    """The attempt was blocked; the message says how."""


def make(attempts: Iterable[EgressAttempt], path: str) -> None:
    """Make all ``attempts``, and write a line for each to ``path``."""
    with ThreadPoolExecutor(16) as pool, open(path, "w", encoding="utf-8") as output:
        output.writelines(json.dumps(line) + "\n" for line in pool.map(outcome_of, attempts))


def outcome_of(attempt: EgressAttempt) -> dict[str, str]:
    """Make one attempt, and return its name, its outcome, and details of the outcome."""
    outcome = DONE if attempt.is_judged_outside else ALLOWED
    try:
        how = attempt.function()
    except Denied as denied:
        outcome, how = DENIED, str(denied)
    except OSError as error:
        outcome, how = DENIED, errno.errorcode.get(error.errno or 0, str(error) or type(error).__name__)
    except Exception as error:  # noqa: BLE001 - the other attempts must still be made
        outcome, how = UNKNOWN, f"{type(error).__name__}: {error}"
    return {"attempt": attempt.name, "outcome": outcome, "how": how[:200]}


def send(address: tuple[str, int], *messages: bytes) -> list[bytes]:
    """Send messages over one connection, each after the answer to the previous one; return the start of each answer.

    An answer is empty if the connection was closed instead. Raises ``OSError``, including on a time-out.
    """
    answers = []
    with socket.create_connection(address, SECONDS) as connection:
        for message in messages:
            connection.sendall(message)
            answers.append(connection.recv(65536))
    return answers


def judged(answer: bytes) -> str:
    """Return the status of an HTTP answer. Raises :class:`Denied` if it is 400 or more, or ``answer`` is not HTTP."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    if found is None:
        raise Denied("closed" if not answer else "no HTTP")
    status = int(found.group(1))
    if status >= 400:
        raise Denied(str(status))
    return str(status)
