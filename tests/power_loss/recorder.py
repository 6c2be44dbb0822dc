"""Record what a program does to the files below a directory: every system call that changes or syncs them, in order.

strace sees the calls of all threads. It also sees the calls of code written in C, which wrappers around Python
functions would miss. To check that a recording is complete, :func:`record` replays it and compares the files with
those that the program left.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from power_loss.disk import (
    Cut,
    Disk,
    Link,
    Make,
    Move,
    Open,
    Promise,
    Recording,
    Remove,
    Sync,
    SyncAll,
    Write,
    tree_at,
)
from securebench.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from power_loss.disk import Operation

_PROMISE: Final = "/promise/"
_CALLS: Final = (
    *("open", "openat", "openat2", "creat", "lseek", "write", "pwrite64", "writev", "pwritev", "pwritev2"),
    *("sendfile", "copy_file_range", "splice", "truncate", "ftruncate", "fallocate"),
    *("fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "rename", "renameat", "renameat2", "link", "linkat"),
    *("symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "mknod", "mknodat", "readlink"),
)
# With -xx, strace writes strings and the paths of descriptors as \xNN, so they cannot be mistaken for syntax.
_LINE: Final = re.compile(r"(?P<thread>\d+) +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)(?P<end>.*)")
_UNFINISHED: Final = re.compile(r"(?P<thread>\d+) +(?P<start>.*) <unfinished \.\.\.>")
_RESUMED: Final = re.compile(r"(?P<thread>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)")
_TEXT: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_OPENED: Final = re.compile(r"(?P<number>\d+|AT_FDCWD)<(?P<path>(?:\\x[0-9a-f]{2})*)>")


def promise(text: str) -> None:
    """Record that ``text`` must be true from now on, even after a power failure. Called by the recorded program.

    It reads a link that does not exist, because strace logs this call.
    """
    try:
        Path(_PROMISE, text).readlink()
    except FileNotFoundError:
        return
    raise AssertionError


def require_strace() -> None:
    """Skip the test if ``SECUREBENCH_NO_STRACE`` is set. Its value says why there is no strace."""
    if reason := os.environ.get("SECUREBENCH_NO_STRACE"):
        pytest.skip(reason)


def record(root: Path, *commands: Sequence[str], environment: Mapping[str, str]) -> Recording:
    """Run programs one after the other, and return what they did below ``root``.

    Each program must exit with 0 or be killed by SIGKILL.
    """
    require_strace()
    strace = shutil.which("strace")
    assert strace is not None, "install strace, or explain in SECUREBENCH_NO_STRACE why it is not there"
    before = tree_at(root)
    operations: list[Operation] = []
    for command in commands:
        log = root.with_name(f"{root.name}.strace")
        traced = [strace, "-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-s", str(16 * MIB), "-e", "signal=none"]
        call = [*traced, "-e", f"trace={','.join(_CALLS)}", "-o", str(log), *command]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in {0, -signal.SIGKILL}, f"exit status {done.returncode}: {done.stderr}"
        with log.open(encoding="ascii") as lines:
            operations += _Reader(root).operations(lines)
        log.unlink()
    disk = Disk(root, before)
    for operation in operations:
        disk.apply(operation)
    assert disk.now() == tree_at(root), "the recording lacks an operation"
    return Recording(root, before, operations)


class _Opened(NamedTuple):
    """A descriptor, and the path of its file at the time of the call."""

    number: int
    path: str


class _Reader:
    """A reader of the log of strace."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}/"
        self._offsets: defaultdict[int, int | None] = defaultdict(int)
        """The position of each descriptor; ``None`` if it appends. Only one process of a recorded program may write."""

    def operations(self, lines: Iterator[str]) -> Iterator[Operation]:
        """Yield the operations below the root that succeeded, and the promises."""
        for line in _whole_lines(lines):
            found = _LINE.fullmatch(line)
            assert found, f"strace wrote: {line[:300]}"
            if (result := int(found["result"])) >= 0 or found["name"] == "readlink":
                yield from self._operation(found["name"], found["arguments"], result, found["end"])

    def _operation(self, name: str, text: str, result: int, end: str) -> Iterator[Operation]:
        strings = [bytes.fromhex(one.replace("\\x", "")) for one in _TEXT.findall(text)]
        opened = [
            _Opened(-1 if number == "AT_FDCWD" else int(number), os.fsdecode(bytes.fromhex(path.replace("\\x", ""))))
            for number, path in _OPENED.findall(text)
        ]
        match name:
            case "readlink":
                if strings[0].startswith(_PROMISE.encode()):
                    yield Promise(strings[0].decode().removeprefix(_PROMISE))
            case "open" | "openat" | "openat2" | "creat":
                yield from self._open(name, text, result, end)
            case "sync" | "syncfs" | "fsync" | "fdatasync":
                operation = Sync(opened[0].path) if name.startswith("f") else SyncAll()
                yield from self._ours(operation, opened[0].path if opened else str(self._root))
            case "lseek" | "write" | "writev" | "sendfile" | "ftruncate":
                yield from self._content(name, text, result, b"".join(strings), opened)
            case _:
                yield from self._names(name, text, strings, opened)

    def _content(
        self, name: str, text: str, result: int, data: bytes, opened: Sequence[_Opened]
    ) -> Iterator[Operation]:
        """Yield a change of the content of an open file, and note the positions of descriptors."""
        file = opened[0]
        offset = self._offsets[file.number]
        match name:
            case "ftruncate":
                yield from self._ours(Cut(file.path, int(text.rpartition(", ")[2])))
                return
            case "sendfile":  # its source must not have changed since the call
                start = re.search(r"\[(\d+)\]", text)
                with Path(opened[1].path).open("rb") as source:
                    source.seek(int(start[1]) if start else 0)
                    data = source.read(result)
        if name != "lseek":
            yield from self._ours(Write(file.path, data[:result], offset))
        if offset is not None:
            self._offsets[file.number] = result if name == "lseek" else offset + result

    def _open(self, name: str, text: str, result: int, end: str) -> Iterator[Operation]:
        path = _OPENED.search(f"{result}{end}")
        assert path, end
        flags = set(re.findall(r"O_\w+", text)) | ({"O_CREAT", "O_TRUNC"} if name == "creat" else set())
        self._offsets[result] = None if "O_APPEND" in flags else 0
        where = os.fsdecode(bytes.fromhex(path["path"].replace("\\x", "")))
        assert not (self._is_ours(where) and flags & {"O_TMPFILE", "O_SYNC", "O_DSYNC"}), text
        if flags & {"O_CREAT", "O_TRUNC"}:
            yield from self._ours(Open(where, "O_CREAT" in flags, "O_TRUNC" in flags))

    def _names(self, name: str, text: str, strings: list[bytes], opened: list[_Opened]) -> Iterator[Operation]:
        """Yield a change of names. Relative paths in calls without a directory descriptor count as outside the root."""
        bases = [one.path for one in opened] or ["/relative"] * len(strings)
        if name.startswith("symlink"):  # its target is stored as it is, so it is not resolved
            bases = ["", *bases[-1:]]
        paths = [
            os.path.normpath(os.path.join(base, os.fsdecode(one)))  # noqa: PTH118
            for base, one in zip(bases, strings, strict=True)
        ]
        match name.removesuffix("2").removesuffix("at"):
            case "mkdir":
                yield from self._ours(Make(paths[0]))
            case "rmdir" | "unlink":
                yield from self._ours(Remove(paths[0]))
            case "rename":
                yield from self._ours(Move(*paths), *paths)
            case "link":
                yield from self._ours(Link(*paths), *paths)
            case "symlink":
                yield from self._ours(Make(paths[1], os.fsdecode(strings[0])))
            case _:
                assert not any(map(self._is_ours, paths)), f"{name}({text})"
                assert not any(self._is_ours(one.path) for one in opened), f"{name}({text})"

    def _ours(self, operation: Operation, *paths: str) -> Iterator[Operation]:
        """Yield the operation if its path, or all ``paths``, are below the root. Fail if only some of them are."""
        ours = {self._is_ours(path) for path in paths or operation[:1]}
        assert len(ours) == 1, f"{operation} crosses the root"
        if True in ours:
            yield operation

    def _is_ours(self, path: str) -> bool:
        return f"{path}/".startswith(self._root) and not path.endswith(" (deleted)")


def _whole_lines(lines: Iterator[str]) -> Iterator[str]:
    """Yield one line for each call that has returned. strace splits it if another thread makes a call meanwhile."""
    started: dict[str, str] = {}
    for line in map(str.rstrip, lines):
        if found := _UNFINISHED.fullmatch(line):
            started[found["thread"]] = found["start"]
        elif found := _RESUMED.fullmatch(line):
            yield f"{found['thread']} {started.pop(found['thread'])}{found['rest']}"
        elif " +++ " not in line:
            yield line
