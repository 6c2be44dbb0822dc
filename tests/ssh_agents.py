"""A real ssh-agent, from Debian's openssh-client, and sockets that answer like a broken or hostile agent."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_ssh_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key with ssh-keygen, and return its path."""
    _need("ssh-keygen")
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "someone@example", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def _listens(address: Path) -> bool:
    """Return whether the socket accepts connections. The file of the socket exists a little earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(address)) == 0


@contextmanager
def ssh_agent(*keys: Path) -> Iterator[str]:
    """Start an agent that has ``keys``, and yield the path of its socket."""
    _need("ssh-agent")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # the path of a socket has at most 107 bytes
        address = Path(directory, "agent")
        agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(address)], stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 30
            while not _listens(address):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            environment = {"SSH_AUTH_SOCK": str(address), "PATH": "/usr/bin:/bin"}
            for key in keys:
                subprocess.run(["ssh-add", "-q", str(key)], check=True, env=environment)
            yield str(address)
        finally:
            agent.terminate()
            agent.wait()


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """Listen on a socket and yield its path. Send each client the next of ``answers``, whatever the client sends."""

    def serve() -> None:
        for answer in answers:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(answer)

    with tempfile.TemporaryDirectory(dir="/tmp") as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{directory}/agent")
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{directory}/agent"
        thread.join(timeout=30)


def _need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is missing: install openssh-client")
