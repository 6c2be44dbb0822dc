"""``agent-trace.log``, the log of what agents print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import StorageError
from securebench.progress import AgentOutput, SandboxCommand
from securebench.results.run_directory.trace import TraceLog

if TYPE_CHECKING:
    from pathlib import Path


def agent_output(text: str) -> AgentOutput:
    """Return the event for an agent that printed ``text``."""
    return AgentOutput(task_id="pack/one", stream="stdout", text=text)


def test_keeps_what_agents_say(tmp_path: Path) -> None:
    """Each line that an agent prints is logged with the id of its task. Other events are ignored."""
    path = tmp_path / "agent-trace.log"
    with TraceLog(path) as log:
        log(agent_output("one\ntwo\n"))
        log(SandboxCommand(task_id="pack/one", command="other"))
    with TraceLog(path) as log:
        log(agent_output("three"))
    assert path.read_text() == "[pack/one] one\n[pack/one] two\n[pack/one] three\n"


def test_is_safe_to_show(tmp_path: Path) -> None:
    """Control characters are escaped, and no output can look like a line of another task (M13)."""
    with TraceLog(tmp_path / "log") as log:
        log(agent_output("\x1b[2Jx\r[pack/two] forged\x9b\udcff\u202e"))
    assert (tmp_path / "log").read_text() == "[pack/one] \\x1b[2Jx\\r[pack/two] forged\\x9b\\udcff\\u202e\n"


def test_is_never_written_through_a_link(tmp_path: Path) -> None:
    """A symbolic link at the path of the log is refused."""
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        TraceLog(tmp_path / "log")
