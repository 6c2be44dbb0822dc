"""How the supervisor starts a runtime, from a copy that cannot be changed, and finds the children of a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.supervisor import context, processes
from securebench.sandboxes.oci.supervisor.processes import RuntimeCall, become, children, sealed_copy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.images.model import ResolvedImage


def output_of(call: Callable[[list[int]], None]) -> bytes:
    """Call ``call`` with standard streams in a child process. Return the child's output.

    ``call`` replaces the child process by another program.
    """
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        call([os.open(os.devnull, os.O_RDONLY), writable, writable])
        os._exit(1)
    os.close(writable)
    with os.fdopen(readable, "rb") as file:
        output = file.read()
    os.waitpid(child, 0)
    return output


def test_a_sealed_copy_cannot_be_written_to() -> None:
    """A sealed copy cannot be changed through its descriptor, or through its path in ``/proc``."""
    copy = sealed_copy("/bin/true")
    with pytest.raises(PermissionError):
        os.write(copy, b"#!")
    with pytest.raises(PermissionError):
        os.ftruncate(copy, 0)
    with pytest.raises(PermissionError):
        os.write(os.open(f"/proc/self/fd/{copy}", os.O_WRONLY), b"#!")
    os.close(copy)


def test_a_runtime_is_run_from_its_copy(tmp_path: Path) -> None:
    """A runtime with a sealed copy runs from that copy, in the requested working directory."""
    copy = sealed_copy("/bin/readlink")
    call = RuntimeCall(
        ["runtime", "/proc/self/exe", "/proc/self/cwd"], str(tmp_path), str(tmp_path / "log"), program=copy
    )
    output = output_of(lambda streams: become(call, streams)).decode().splitlines()
    os.close(copy)
    assert output == ["/memfd:runtime (deleted)", str(tmp_path)]


def test_a_script_is_run_from_where_it_is(tmp_path: Path) -> None:
    """A script is not copied: its interpreter would open the copy by a descriptor that is closed by then."""
    script = tmp_path / "runtime"
    script.write_text("#!/bin/sh\necho script $1\n")
    script.chmod(0o755)
    program = context._sealed_copy(str(script))
    assert program is None
    call = RuntimeCall([str(script), "create"], str(tmp_path), str(tmp_path / "log"), program=program)
    assert output_of(lambda streams: become(call, streams)) == b"script create\n"


@pytest.mark.oci
@pytest.mark.skipif(shutil.which("crun") is None, reason="the script stands in front of crun")
def test_a_script_may_be_the_runtime(
    tmp_path: Path, base_image: ResolvedImage, oci_driver: OciDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper script that an administrator has installed in place of a runtime is used like a program."""
    script = tmp_path / "crun"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("crun")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    with closing(OciDriver(runtime="crun")) as driver, driver.create(SandboxSpec(image=base_image)) as sandbox:
        result = sandbox.run(Command(argv=("echo", "hello"), timeout_seconds=20))
    assert (result.exit_code, result.stdout) == (0, b"hello\n")


def test_what_cannot_be_run_says_so_in_the_log(tmp_path: Path) -> None:
    """If the runtime's program does not exist, the log says that it could not be started."""
    call = RuntimeCall(["/nowhere/runtime"], str(tmp_path), str(tmp_path / "log"))
    output_of(lambda streams: become(call, streams))
    assert "/nowhere/runtime could not be started" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("listed", [True, False])
def test_children_are_found(*, listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are found through the kernel's lists or, without such lists, by a search of all processes."""
    if not listed:
        monkeypatch.setattr(processes, "_THREADS", "/nowhere/{0}")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
    assert child.pid not in children(os.getpid())


def test_children_of_any_thread_are_found() -> None:
    """Children of all threads are found. A Go runtime may create a container, which must be killed, in any thread."""
    made: list[subprocess.Popen[bytes]] = []
    ready, over = threading.Event(), threading.Event()

    def make() -> None:
        made.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        ready.set()
        over.wait(10)

    thread = threading.Thread(target=make)
    thread.start()
    ready.wait(10)
    with made[0] as child:
        assert child.pid in children(os.getpid())
    over.set()
    thread.join()
