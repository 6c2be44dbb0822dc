"""What every attack is made of: attempts, where they aim, and one line of JSON about each."""

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
"""What came of an attempt. ``done``: whether it was harmless shows outside only."""


class Targets(NamedTuple):
    """Where attacks aim.

    ``proxy`` and ``relay`` are the sandbox's ways out, ``None`` where there is none. ``api`` is ``openai`` or
    ``anthropic``, ``model`` the one that may be used, ``allowed`` a domain that may be reached, ``other`` one that may
    not. Something listens at ``port`` of the addresses ``host``, where nobody inside should get to.
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
    """One attempt: its function returns what it got, or raises :class:`Denied` or ``OSError``."""

    name: str
    function: Callable[[], str]
    is_judged_outside: bool = False


class Denied(Exception):  # noqa: N818 - it is what should happen
    """The attempt came to nothing; says what stopped it."""


def make(attempts: Iterable[EgressAttempt], path: str) -> None:
    """Make all ``attempts``, and write a line for each to the file at ``path``."""
    with ThreadPoolExecutor(16) as pool, open(path, "w", encoding="utf-8") as output:
        output.writelines(json.dumps(line) + "\n" for line in pool.map(outcome_of, attempts))


def outcome_of(attempt: EgressAttempt) -> dict[str, str]:
    """Make one attempt; return its line."""
    outcome = DONE if attempt.is_judged_outside else ALLOWED
    try:
        how = attempt.function()
    except Denied as denied:
        outcome, how = DENIED, str(denied)
    except OSError as error:
        outcome, how = DENIED, errno.errorcode.get(error.errno or 0, str(error) or type(error).__name__)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are still to be made
        outcome, how = UNKNOWN, f"{type(error).__name__}: {error}"
    return {"attempt": attempt.name, "outcome": outcome, "how": how[:200]}


def send(address: tuple[str, int], *messages: bytes) -> list[bytes]:
    """Send messages over one connection, each when the one before was answered; return the beginnings of the answers.

    An answer is empty where the other end closed instead. Raises ``OSError``, also if it says nothing in time.
    """
    answers = []
    with socket.create_connection(address, SECONDS) as connection:
        for message in messages:
            connection.sendall(message)
            answers.append(connection.recv(65536))
    return answers


def judged(answer: bytes) -> str:
    """Return the status of an HTTP answer that is good. Raises :class:`Denied` on any other, and on none."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    if found is None:
        raise Denied("closed" if not answer else "no HTTP")
    status = int(found.group(1))
    if status >= 400:
        raise Denied(str(status))
    return str(status)
