"""Attempts to exhaust the machine, each in its own sandbox with small limits.

If the limits hold, the attempt is stopped or its sandbox ends. An attempt that gets more than they allow has escaped.
"""

from __future__ import annotations

import functools
import mmap
import os
import signal
import socket
import sys
import threading
import time

from securebench.testing.breakout.inside.base import ALONE, ENDLESS, BreakoutAttempt, Host, Stopped, add, attempt

_MIB = 1024 * 1024
_MUCH = 512 * _MIB
_MANY = 4096
_MANY_FILES = 500_000
_STARVED = "slows down the host's other processes"


def _fill(path: str, _host: Host) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for number in range(_MUCH // _MIB):
        with open(f"{path}{number}", "wb", buffering=0) as file:
            file.write(bytes(_MIB))
    return f"{_MUCH // _MIB} MiB"


def _grow(path: str, _host: Host) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(path, "wb", buffering=0) as file:
        file.writelines(bytes(_MIB) for _ in range(_MUCH // _MIB))
    return f"{_MUCH // _MIB} MiB"


def _many_files(directory: str, _host: Host) -> str:
    for number in range(_MANY_FILES):
        os.close(os.open(f"{directory}/{number}", os.O_WRONLY | os.O_CREAT, 0o600))
    return f"{_MANY_FILES} files"


_FULL = "fills the host's disk or memory"
_FILLED = {
    "fill `/tmp`": (_fill, "/tmp/big", "I11"),
    "use up inodes in `/tmp`": (_many_files, "/tmp", "I11"),
    "fill `/dev/shm`": (_fill, "/dev/shm/big", "I11"),
    "fill `/dev`": (_fill, "/dev/big", "I11"),
    "fill the root file system": (_fill, "/var/big", "I11"),
    "write one large file into a directory that the host shares": (_grow, "/workspace/big", "I17"),
}
for _name, (_how, _path, _entry) in _FILLED.items():
    add(BreakoutAttempt(_name, _FULL, _entry, functools.partial(_how, _path), ALONE))


@attempt("use up memory", _STARVED, "I09", staging=ALONE)
def _memory(_host: Host) -> str:
    return f"{len(bytearray(b'x') * _MUCH) // _MIB} MiB"


@attempt("use up memory that no process has mapped (`memfd`)", _STARVED, "I09", staging=ALONE)
def _memfd(_host: Host) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    kept: list[int] = []
    while len(kept) * 2 * _MIB < _MUCH:
        kept.append(os.memfd_create("x"))
        os.write(kept[-1], bytes(2 * _MIB))
    return f"{_MUCH // _MIB} MiB"


@attempt("use up shared memory", _STARVED, "I09", staging=ALONE)
def _shared(_host: Host) -> str:
    kept = mmap.mmap(-1, _MUCH, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    for offset in range(0, _MUCH, mmap.PAGESIZE):
        kept[offset] = 1
    return f"{_MUCH // _MIB} MiB"


@attempt("use up memory in pipes and sockets", _STARVED, "I09", staging=ALONE)
def _pipes(_host: Host) -> str:
    kept = []
    for _ in range(_MANY):
        pair = socket.socketpair()
        kept.append(pair)
        pair[0].setblocking(False)
        try:
            while True:
                pair[0].send(bytes(65536))
        except BlockingIOError:
            continue
    return f"{_MANY} sockets"


@attempt("use up processes (a fork bomb)", _STARVED, "I08", staging=ALONE)
def _processes(_host: Host) -> str:
    for _ in range(_MANY):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    return f"{_MANY} processes"


@attempt("use up threads", _STARVED, "I08", staging=ALONE)
def _threads(_host: Host) -> str:
    threading.stack_size(65536)
    for _ in range(_MANY):
        try:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        except RuntimeError:
            raise Stopped("EAGAIN") from None
    return f"{_MANY} threads"


@attempt("use up descriptors", _STARVED, "I17", staging=ALONE)
def _descriptors(_host: Host) -> str:
    for _ in range(_MANY):
        os.dup(0)
    return f"{_MANY} descriptors"


@attempt("use processors forever", _STARVED, "I10", staging=ENDLESS)
def _processors(_host: Host) -> str:
    for _ in range(3):
        if os.fork() == 0:
            break
    while True:
        pass


@attempt("write output forever", "fills SecureBench's memory or the host's disk", "I12", staging=ALONE)
def _output(_host: Host) -> str:
    for _ in range(_MUCH // 65536):
        sys.stderr.buffer.write(bytes(65536))
    return f"{_MUCH // _MIB} MiB"
