"""A run of a small pack with the real command line and real sandboxes.

Tests let the run finish, or interfere with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leftovers import host_traces
from securebench.results.run_directory.files import JOURNAL
from securebench.sandboxes.docker.driver import RUN_LABEL, DockerDriver
from tester_run.running import comparables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.sandboxes.base import SandboxDriver

TESTS = Path(__file__).parents[1]

KNOCK = """\
import socket
with socket.create_connection(("127.0.0.1", 3128)) as connection:
    connection.sendall(b"CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n")
    assert b" 403 " in connection.recv(4096)
"""
"""What an agent with egress does first: it asks the proxy for a host that is not allowed, and is refused."""

AGENT = """\
import json, os, time
task = json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))
time.sleep({sleep})
if "choices" in task:
    print("Answer: B")
elif "starter_code" in task:
    print("def double(n):\\n    return n * 2")
elif "prompt" in task:
    print("Plants take in carbon dioxide.")
else:
    print("Answer: 212")
"""

ROWS: list[dict[str, Any]] = [
    {
        "family": "multiple_choice",
        "input": {"question": "Closest to the sun?", "choices": ["Venus", "Mercury"]},
        "eval": {"answer": "B"},
    },
    {
        "family": "short_answer",
        "input": {"question": "Water boils at how many degrees?"},
        "eval": {"accepted_answers": ["100"]},
    },
    {
        "family": "free_response",
        "input": {"prompt": "Which gas do plants take from the air?"},
        "eval": {"rubric": {"type": "contains_any", "accepted_answers": ["carbon dioxide"]}},
    },
    {
        "family": "code_completion",
        "input": {"prompt": "Write double(n).", "starter_code": "def double(n):\n"},
        "eval": {"tests": {"source": "inline", "code": "assert double(21) == 42\n"}},
    },
]
"""Four rows of different families. ``AGENT`` solves all of them except the ``short_answer`` row."""


class RealRun:
    """A pack of ``rounds`` times four tasks, a tester YAML with a unique run id, and the command that runs them.

    The run has the driver and runtime of ``driver``. With ``knock``, its agents have egress and first execute
    ``KNOCK``.
    """

    main = "tester_run.pinned_main"
    """The module that Python executes as the command line."""

    def __init__(
        self, root: Path, driver: SandboxDriver, rounds: int = 2, sleep: float = 0.0, *, knock: bool = False
    ) -> None:
        self.root = root
        self.run_id = f"test-{uuid.uuid4().hex[:12]}"
        self._driver = driver
        self._before = host_traces()
        for name in ("pack", "agent"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "agent" / "agent.py").write_text((KNOCK if knock else "") + AGENT.format(sleep=sleep))
        (root / "pack" / "manifest.yaml").write_text("id: pack\nversion: 1\n")
        rows = [{"id": f"pack/{n}-{row['family']}", **row} for n in range(rounds) for row in ROWS]
        (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        info = driver.info()
        (root / "tester.yaml").write_text(
            f'schema_version: "0.2"\nrun: {{id: {self.run_id}, output_dir: results}}\n'
            "benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}\n"
            "harness:\n  type: command\n  config:\n"
            "    command: [python3, /opt/securebench/agent/agent.py]\n    agent_dir: agent\n"
            f"{'    allowed_domains: [api.example.com]' if knock else ''}\n"
            f"sandbox: {{driver: {info.name}, runtime: {info.runtime}{', limits: {memory: 64m}' if knock else ''}}}\n"
        )

    def command(self, *flags: str) -> list[str]:
        """Return the command that starts the run."""
        return [sys.executable, "-m", self.main, "run", str(self.root / "tester.yaml"), *flags]

    @staticmethod
    def environment(extra: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables for the command: those of this process, ``PYTHONPATH`` and ``extra``."""
        path = os.pathsep.join((str(TESTS), str(TESTS.parent / "src")))
        return {**os.environ, "PYTHONPATH": path, **extra}

    def finish(
        self, *flags: str, seconds: float = 90, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Execute the run to its end, and return the finished process."""
        return subprocess.run(
            self.command(*flags),
            env=self.environment(variables or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    @contextmanager
    def begun(
        self, *flags: str, after: int, variables: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Start the run, and yield its process when it has written at least ``after`` records. Kill it at the end."""
        with subprocess.Popen(
            self.command(*flags),
            env=self.environment(variables or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                wait_for(lambda: self.written() >= after or process.poll() is not None, 60 + after)
                assert process.poll() is None, process.communicate()
                yield process
            finally:
                process.kill()

    def written(self) -> int:
        """Return the number of records in the journal."""
        path = self.root / "results" / JOURNAL
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def left(self) -> list[str]:
        """Return what is new on the machine since ``__init__``: containers, processes, mounts, cgroups, directories."""
        return sorted((host_traces() - self._before) | set(self._containers()))

    def _containers(self) -> Iterator[str]:
        if isinstance(self._driver, DockerDriver):
            label = f"{RUN_LABEL}={self.run_id}"
            found = self._driver.engine.client.containers(all=True, filters={"label": label})
            yield from (f"container {entry['Id']} {entry['State']}" for entry in found)


def anonymous(root: Path) -> list[dict[str, Any]]:
    """Return comparable records without the run id and the harness, which differ between the runs of these tests."""
    found = comparables(root)
    for record in found:
        record["run_id"] = ""
        record["provenance"]["harness"] = ""
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until ``condition`` returns true. Fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """Mount a file system of ``size`` bytes at ``place`` during a ``with`` block. Only root may do this."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)
