"""What every reporter shares: the order of the host, the channel back to it, and the nonce at the end.

The channel is what stdout was when the reporter started. From then on stdout is stderr, and nothing that tests print,
or programs that they start, comes to the channel. Each line begins with a mark that the host sent over stdin. This
keeps out whoever writes blindly; code in the same process can do whatever this module can, which is what the host's
other evidence is for. Functions that are used later are bound now, before any code of a candidate runs.
"""

import fcntl
import json
import os
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Any

CHANNEL = 500
"""The lowest number that the channel's descriptors may have: programs close the low ones when they become daemons."""
LONGEST_ID = 16000


class Channel:
    """The way to the host. ``order`` is what it wants: see ``evidence/channel.py``."""

    __slots__ = ("nonce", "order", "say")

    def __init__(self, order: Any, say: Any, nonce: Any) -> None:
        """Make a channel of its two functions: they hold the mark, and nothing else does."""
        self.order = order
        self.say = say
        self.nonce = nonce


def open_channel() -> Any:
    """Return the channel, or nothing where stdin ends before an order. Stdin and stdout are nobody's afterwards."""
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
    asked = json.loads(order.decode("ascii"))
    mark = asked.pop("mark")
    process, count, text = getpid(), [0], encode_basestring_ascii

    def dumps(value: Any) -> str:
        """Return ``value`` as JSON: packages may change what the module ``json`` does."""
        if type(value) is dict:
            return "{" + ", ".join([text(key) + ": " + text(value[key]) for key in value]) + "}"
        return str(value) if type(value) is int else text(value)

    def say(*words: Any) -> None:
        """Send one line. A process that a test has forked says nothing."""
        if getpid() != process:
            return
        body = ", ".join([dumps(word) for word in words])
        data = f"{mark} {count[0]} [{body}]\n".encode("ascii")
        count[0] += 1
        while data:
            data = data[write(channel, data) :]

    def nonce() -> Any:
        """Return what the host answers to the end; nothing where it does not, or in a forked process."""
        if getpid() != process:
            return None
        answer = line(read, back)
        return None if answer is None else answer.decode("ascii").strip()

    return Channel(asked, say, nonce)


def signer() -> Any:
    """Return the function that makes of digests what the host expects when it has sent its nonce."""
    sha = sha256

    def sign(digests: Any, nonce: Any) -> Any:
        return {key: sha((nonce + digests[key]).encode("utf-8")).hexdigest()[:32] for key in digests}

    return sign


def _line(read: Any, descriptor: Any) -> Any:
    """Read one line, and no more: what follows it is for later."""
    line = b""
    while not line.endswith(b"\n"):
        piece = read(descriptor, 1)
        if not piece:
            return None
        line += piece
    return line
