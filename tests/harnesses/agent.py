"""An agent for tests, run in a sandbox as ``python3 agent.py BEHAVIOUR``. Standard library only."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FLIPPER = """
import itertools, os
for number in itertools.count():
    with open("flipping", "w") as file:
        file.write("good" if number % 2 else "bad")
"""


def honest() -> None:
    """Print an answer to the question in the task file, and write another one to ``answer.txt``."""
    task = json.loads(Path(os.environ["SECUREBENCH_TASK_FILE"]).read_text())
    print(f"answer to {task['question']}")  # noqa: T201 - the agent's answer
    Path("answer.txt").write_text("from a file")


def crash() -> None:
    """Write an answer, then exit with code 3."""
    Path("answer.txt").write_text("good work")
    raise SystemExit(3)


def hang() -> None:
    """Write an answer, then sleep for ten minutes."""
    Path("answer.txt").write_text("good work")
    time.sleep(600)


def gigabyte() -> None:
    """Write a gigabyte to stdout. The buffer repeats short writes: gVisor takes only 64 KiB per write to a pipe."""
    block = b"x" * (1 << 20)
    for _ in range(1024):
        sys.stdout.buffer.write(block)


def binary() -> None:
    """Write bytes that are not valid UTF-8."""
    os.write(1, bytes(range(256)))


def nothing() -> None:
    """Do nothing."""


def survivor() -> None:
    """Start a process that keeps changing a file, and exit without ending it."""
    subprocess.Popen([sys.executable, "-c", FLIPPER], start_new_session=True)
    while not Path("flipping").exists():
        time.sleep(0.01)


def notes() -> None:
    """Write a note for the next task into each directory, and print whether the last task left one there."""
    for directory in ("/tmp", "/dev/shm", ".", "/opt/securebench/agent"):
        note = Path(directory) / "note"
        print(directory, note.exists())  # noqa: T201 - the agent's answer
        try:
            note.write_text("from the last task")
        except OSError:
            continue


def privileges() -> None:
    """Try operations that a sandbox must prevent, and print the names of those that worked."""
    attempts: dict[str, Callable[[], object]] = {
        "device": lambda: os.mknod("device", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
        "hard link": lambda: os.link("/etc/passwd", "stolen"),
        "owner": lambda: os.chown("task.json", 0, 0),
        "mount": lambda: subprocess.run(["mount", "--bind", "/", "."], check=True, capture_output=True),
        "agent": lambda: Path("/opt/securebench/agent/agent.py").write_text("changed"),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except (OSError, subprocess.CalledProcessError):
            continue
        print(name)  # noqa: T201 - the agent's answer
    print("done")  # noqa: T201 - the agent's answer


def read_only_asset() -> None:
    """Try several ways to change a read-only asset, and print those that worked and the asset's content."""
    asset = Path("data/input.csv")
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: asset.write_text("changed"),
        "mode": lambda: asset.chmod(0o666),
        "remove": asset.unlink,
        "rename": lambda: asset.rename("data/other"),
        "replace": lambda: Path("task.json").replace(asset),
        "link": lambda: os.link(asset, "data/copy"),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        print(name)  # noqa: T201 - the agent's answer
    print(asset.read_text())  # noqa: T201 - the agent's answer


def replace_directory() -> None:
    """Replace the directory that contains a read-only asset with another directory."""
    Path("data").rename("away")
    Path("data").mkdir()
    Path("data/input.csv").write_text("changed")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
