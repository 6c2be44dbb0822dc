"""A Ray cluster on this machine. Its nodes share no SecureBench directory. By default it requires a token."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Self

from leftovers import family_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class RayCluster:
    """A Ray head without slots, and nodes that a test adds and kills. As a context manager, it kills all at the end."""

    def __init__(self, root: Path, *, token: bool = True) -> None:
        self.root = root
        self.port = free_port()
        self.sessions = Path(mkdtemp(prefix="sb-ray-"))  # Ray's sockets need a short path
        mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)} if token else {}
        self.variables: Mapping[str, str] = mode
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """The address of the head."""
        return f"127.0.0.1:{self.port}"

    def start_head(self) -> None:
        """Start the head. This works again after it was killed."""
        local = ("--head", "--include-dashboard=false", "--num-cpus=0")
        self._start("head", *local, f"--port={self.port}", f"--temp-dir={self.sessions}")

    def add(self, name: str, slots: int = 2) -> None:
        """Start a node with ``slots`` slots and its own directories."""
        resources = json.dumps({"securebench_slot": slots})
        self._start(name, f"--address={self.address}", f"--resources={resources}")

    def directory(self, name: str) -> Path:
        """Return the directory of a node's workers."""
        return self.root / name / "node"

    def kill(self, name: str) -> None:
        """Kill a node, including its daemons and workers, with SIGKILL. Do nothing if it does not run."""
        process = self._nodes.pop(name, None)
        if process is None:
            return
        for pid in [process.pid, *family_of(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def __enter__(self) -> Self:
        self.start_head()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._nodes):
            self.kill(name)
        shutil.rmtree(self.sessions, ignore_errors=True)

    def _start(self, name: str, *flags: str) -> None:
        """Start a node, in up to three tries: on a busy machine it may take longer than Ray's limit of 30 seconds."""
        place = self.root / name
        place.mkdir(exist_ok=True)
        own = {
            "npm_config_registry": "http://127.0.0.1:9/",
            "SECUREBENCH_NODE_DIR": str(place / "node"),
            "SECUREBENCH_IMAGES": str(place / "images"),
        }
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *flags]
        for _ in range(3):
            with (place / "output.log").open("wb") as output:
                process = subprocess.Popen(
                    [*command, "--node-ip-address=127.0.0.1", "--object-store-memory=100000000"],
                    env={**os.environ, **self.variables, **own},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._nodes[name] = process
            while process.poll() is None:
                if b"runtime started" in (place / "output.log").read_bytes():
                    return
                time.sleep(0.1)
        raise AssertionError((place / "output.log").read_text())
