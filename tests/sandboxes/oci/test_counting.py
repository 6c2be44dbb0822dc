"""Separate process counts: a runtime with a process limit gets its own user namespace.

In this namespace, each id is the same as in the supervisor's namespace.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from securebench.sandboxes.oci.supervisor.processes import RuntimeCall, RuntimeProcess
from workspaces.users import as_ordinary_user, open_directory

LOOK = """
import os, resource
with open("/proc/self/uid_map") as users:
    limit = resource.getrlimit(resource.RLIMIT_NPROC)
    print(os.readlink("/proc/self/ns/user"), limit, os.getuid(), *users.read().split())
"""


def seen(directory: Path, processes: int | None) -> tuple[int, str, str]:
    """Start a runtime that prints its user namespace, limit and ids. Return its wait status, its output and its log."""
    out, log = (directory / "out").open("w+"), directory / "log"
    with out, socket.socket() as channel:
        streams = [os.dup(number) for number in (0, out.fileno(), out.fileno())]
        process = RuntimeProcess(channel, str(log), str(directory / "started"), 60, streams=streams)
        runtime = RuntimeCall(["/usr/bin/python3", "-c", LOOK], str(directory), str(log), processes=processes)
        process.start(runtime, lambda: None)
        status = os.waitpid(process.pid, 0)[1]
        out.seek(0)
        return status, out.read().strip(), log.read_text() if log.exists() else ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may map every user, as a supervisor may all of its namespace")
def test_a_runtime_is_in_a_namespace_with_all_users(tmp_path: Path) -> None:
    """A runtime with a process limit gets this limit and its own user namespace, in which every id is unchanged.

    A runtime without a process limit stays in the supervisor's user namespace.
    """
    own = str(Path("/proc/self/ns/user").readlink())
    status, output, log = seen(tmp_path, 50)
    assert (status, log) == (0, "")
    assert output.split(" ", 1)[0] != own
    assert output.split(" ", 1)[1] == "(50, 50) 0 0 0 4294967295"
    assert seen(tmp_path, None)[1].startswith(own)


def test_a_namespace_without_users_runs_nothing() -> None:
    """If the supervisor may not write the id maps, the runtime is not started, and its log reports this."""

    def try_it() -> None:
        status, output, log = seen(directory, 50)
        assert (os.waitstatus_to_exitcode(status), output) == (127, "")
        assert "could not be started" in log

    with open_directory() as directory:
        as_ordinary_user(try_it)
