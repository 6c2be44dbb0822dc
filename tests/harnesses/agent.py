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
    """Answer the question of the task file."""
    task = json.loads(Path(os.environ["SECUREBENCH_TASK_FILE"]).read_text())
    print(f"answer to {task['question']}")  # noqa: T201 - its answer
    Path("answer.txt").write_text("from a file")


def crash() -> None:
    """End badly, after good work."""
    Path("answer.txt").write_text("good work")
    raise SystemExit(3)


def hang() -> None:
    """Never end."""
    Path("answer.txt").write_text("good work")
    time.sleep(600)


def gigabyte() -> None:
    """Write a gigabyte: all of it, though gVisor takes only 64 KiB of each write to a pipe."""
    block = b"x" * (1 << 20)
    for _ in range(1024):
        sys.stdout.buffer.write(block)


def binary() -> None:
    """Write what is no text."""
    os.write(1, bytes(range(256)))


def nothing() -> None:
    """Do nothing."""


def survivor() -> None:
    """Leave a process behind that keeps changing a file."""
    subprocess.Popen([sys.executable, "-c", FLIPPER], start_new_session=True)
    while not Path("flipping").exists():
        time.sleep(0.01)


def notes() -> None:
    """Leave notes for the next task, and print those of the last one."""
    for directory in ("/tmp", "/dev/shm", ".", "/opt/securebench/agent"):
        note = Path(directory) / "note"
        print(directory, note.exists())  # noqa: T201 - its answer
        try:
            note.write_text("from the last task")
        except OSError:
            continue


def privileges() -> None:
    """Try what only a privileged process may, and print what worked."""
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
        print(name)  # noqa: T201 - its answer
    print("done")  # noqa: T201 - its answer


def read_only_asset() -> None:
    """Try to change a read-only asset in each way, and print what worked."""
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
        print(name)  # noqa: T201 - its answer
    print(asset.read_text())  # noqa: T201 - its answer


def replace_directory() -> None:
    """Put another directory in the place of the one that a read-only asset lies in."""
    Path("data").rename("away")
    Path("data").mkdir()
    Path("data/input.csv").write_text("changed")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
