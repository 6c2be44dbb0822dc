"""Shared by all reporters: the instructions from the host, the channel to the host, and the final nonce.

The channel is the original stdout. After start-up, stdout is redirected to stderr, so what tests and their child
processes print does not reach the channel. Each line begins with a mark that the host sent over stdin: code that does
not know the mark cannot forge a line. Code in this process can do anything that this module can; the host's other
evidence covers that. Functions for later use are bound at the start, before any code of a candidate runs.
"""

import fcntl
import json
import os
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Any

CHANNEL = 500
"""The lowest descriptor number for the channel. Programs that become daemons close low descriptors."""
LONGEST_ID = 16000


class Channel:
    """The connection to the host. ``order`` is the JSON object that the host sent, without its key ``mark``."""

    __slots__ = ("nonce", "order", "say")

    def __init__(self, order: Any, say: Any, nonce: Any) -> None:
        """Store ``order`` and two closures. Only the closure ``say`` knows the mark, with which each line begins."""
        self.order = order
        self.say = say
        self.nonce = nonce


def open_channel() -> Any:
    """Redirect stdin and stdout. Return the channel, or ``None`` if stdin ends before the host's instructions."""
    read, write, getpid, line = os.read, os.write, os.getpid, _line
    order = line(read, 0)
    if order is None:
        return None
    channel = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, CHANNEL)
    back = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, CHANNEL)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    parsed = json.loads(order.decode("ascii"))
    mark = parsed.pop("mark")
    process, count, text = getpid(), [0], encode_basestring_ascii

    def dumps(value: Any) -> str:
        """Return ``value`` as JSON. The module ``json`` is not used, because packages may change it."""
        if type(value) is dict:
            return "{" + ", ".join([text(key) + ": " + text(value[key]) for key in value]) + "}"
        return str(value) if type(value) is int else text(value)

    def say(*words: Any) -> None:
        """Send one line. A process forked by a test sends nothing."""
        if getpid() != process:
            return
        body = ", ".join([dumps(word) for word in words])
        data = f"{mark} {count[0]} [{body}]\n".encode("ascii")
        count[0] += 1
        while data:
            data = data[write(channel, data) :]

    def nonce() -> Any:
        """Return the nonce that the host sends after ``end``. Return ``None`` in a forked process, or if stdin ends."""
        if getpid() != process:
            return None
        answer = line(read, back)
        return None if answer is None else answer.decode("ascii").strip()

    return Channel(parsed, say, nonce)


def signer() -> Any:
    """Return the function that signs digests with the host's nonce."""
    sha = sha256

    def sign(digests: Any, nonce: Any) -> Any:
        return {key: sha((nonce + digests[key]).encode("utf-8")).hexdigest()[:32] for key in digests}

    return sign


def _line(read: Any, descriptor: Any) -> Any:
    """Read exactly one line. Return ``None`` if the input ends first."""
    line = b""
    while not line.endswith(b"\n"):
        piece = read(descriptor, 1)
        if not piece:
            return None
        line += piece
    return line
