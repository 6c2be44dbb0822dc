"""Sign with a key that an ssh-agent has.

The protocol is draft-ietf-sshm-ssh-agent. Each message consists of its length, its type and its content.

The data that is signed begins with ``DSSEv1``. No message of the SSH protocol begins like this. So the signature of
a run can never be used to log in, and a signature made for a login can never be that of a run.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.signing.keys import SSH_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.signing.keys import PublicKey

SOCKET_VARIABLE: Final = "SSH_AUTH_SOCK"

_REQUEST_IDENTITIES: Final = 11
_IDENTITIES_ANSWER: Final = 12
_SIGN_REQUEST: Final = 13
_SIGN_RESPONSE: Final = 14

_MAX_MESSAGE: Final = 256 * 1024
"""Maximum size of a message, in bytes, as in OpenSSH."""
_TIMEOUT: Final = 120.0
"""How long to wait for an answer, in seconds: an ssh-agent may ask its user for a confirmation (``ssh-add -c``)."""


class AgentKey:
    """A private key in the ssh-agent, which signs with it. The key never leaves the ssh-agent."""

    def __init__(self, public: PublicKey, address: str) -> None:
        self.public = public
        self._address = address

    @classmethod
    def find(cls, public: PublicKey) -> AgentKey:
        """Find the private key for ``public`` in the ssh-agent at ``SSH_AUTH_SOCK``. Raises :class:`ConfigError`."""
        address = os.environ.get(SOCKET_VARIABLE, "")
        if not address:
            raise _unusable(
                f"the key is public: signing needs an ssh-agent with its private key, but {SOCKET_VARIABLE} is not set"
            )
        with _connected(address) as agent:
            _send(agent, bytes([_REQUEST_IDENTITIES]))
            answer = _Fields(_receive(agent, _IDENTITIES_ANSWER))
            count = answer.number()
            found = [(answer.string(), answer.string())[0] for _ in range(count)]
        if public.ssh_blob not in found:
            raise _unusable(f"the ssh-agent does not have the key {public.fingerprint}")
        return cls(public, address)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of ``data``.

        Raises :class:`ConfigError` (``key-unusable``) if the ssh-agent does not return an Ed25519 signature.
        """
        with _connected(self._address) as agent:
            fields = (_string(self.public.ssh_blob), _string(data), (0).to_bytes(4, "big"))
            _send(agent, bytes([_SIGN_REQUEST]) + b"".join(fields))
            signature = _Fields(_Fields(_receive(agent, _SIGN_RESPONSE)).string())
            name, value = signature.string(), signature.string()
        if name != SSH_NAME:
            raise _unusable("the ssh-agent signed with an algorithm other than Ed25519")
        return value


class _Fields:
    """The content of a message. Any program may listen on the ssh-agent's socket, so lengths are checked."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def string(self) -> bytes:
        return self._take(self.number())

    def _take(self, size: int) -> bytes:
        if size > len(self._data):
            raise ValueError("the answer ends in the middle of a field")
        taken, self._data = self._data[:size], self._data[size:]
        return taken


@contextmanager
def _connected(address: str) -> Iterator[socket.socket]:
    """Connect to the ssh-agent. Turns every failure in the block into :class:`ConfigError`."""
    try:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(_TIMEOUT)
            agent.connect(address)
            yield agent
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise _unusable(
            f"the ssh-agent at {SOCKET_VARIABLE}={address} does not answer as expected: {problem}"
        ) from error


def _send(agent: socket.socket, message: bytes) -> None:
    agent.sendall(_string(message))


def _receive(agent: socket.socket, expected: int) -> bytes:
    """Return the content of the answer, which must have the type ``expected``."""
    with agent.makefile("rb") as file:
        size = int.from_bytes(_exactly(file.read(4), 4), "big")
        if not 0 < size <= _MAX_MESSAGE:
            raise ValueError(f"its answer has an invalid length: {size} bytes")
        answer = _exactly(file.read(size), size)
    if answer[0] != expected:
        raise ValueError("it refuses the request")
    return answer[1:]


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ValueError("it closed the connection")
    return data


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _unusable(problem: str) -> ConfigError:
    hint = "start an ssh-agent and add the key with 'ssh-add FILE', or pass the file of the private key"
    return ConfigError(problem, code="key-unusable", hint=hint)
