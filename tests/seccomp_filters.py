"""Tools to test seccomp filters: evaluate a filter, read the filter of a process, run a function under a filter."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

X86_64, I386, AARCH64 = 0xC000003E, 0x40000003, 0xC00000B7
X32_BIT = 0x40000000

ALLOW = "allow"

_INSTRUCTION = struct.Struct("=HBBI")
_ACTIONS = {0x7FFF: ALLOW, 0x0000: "kill", 0x8000: "kill"}
_JUMPS = {0x15: "__eq__", 0x25: "__gt__", 0x35: "__ge__", 0x45: "__and__"}
_LOAD, _AND, _JUMP, _RETURN = 0x20, 0x54, 0x05, 0x06

_PTRACE_ATTACH, _PTRACE_DETACH, _PTRACE_SECCOMP_GET_FILTER = 16, 17, 0x420C
_WALL = 0x40000000
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2


class Filter:
    """A compiled filter, interpreted in the same way as by the kernel."""

    def __init__(self, program: bytes) -> None:
        self.steps = list(_INSTRUCTION.iter_unpack(program))

    def answer(self, number: int, *arguments: int, architecture: int = X86_64) -> str:
        """Return the filter's result for a system call: ``allow``, ``kill``, or the name of an error."""
        words = [number, architecture, 0, 0]
        for argument in (*arguments, *(0 for _ in range(6 - len(arguments)))):
            words += [argument & 0xFFFFFFFF, argument >> 32]
        place = accumulator = 0
        while True:
            code, if_true, if_false, value = self.steps[place]
            place += 1
            if code == _LOAD:
                accumulator = words[value // 4]
            elif code == _AND:
                accumulator &= value
            elif code == _JUMP:
                place += value
            elif code == _RETURN:
                return _ACTIONS.get(value >> 16) or errno.errorcode[value & 0xFFFF]
            else:
                place += if_true if getattr(accumulator, _JUMPS[code])(value) else if_false

    def load(self) -> None:
        """Install the filter in this process. It cannot be removed."""
        code = b"".join(_INSTRUCTION.pack(*step) for step in self.steps)
        buffer = ctypes.create_string_buffer(code)
        program = struct.pack("HxxxxxxP", len(self.steps), ctypes.addressof(buffer))
        libc = ctypes.CDLL(None, use_errno=True)
        for arguments in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0)):
            if libc.prctl(*arguments) != 0:
                raise OSError(ctypes.get_errno(), "prctl")


def filter_of(pid: int) -> Filter:
    """Return the seccomp filter of a process that has one. Requires root."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long

    def trace(request: int, buffer: ctypes.Array[ctypes.c_char] | None = None) -> int:
        result = int(libc.ptrace(request, pid, None, buffer))
        if result == -1:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")
        return result

    trace(_PTRACE_ATTACH)
    try:
        os.waitpid(pid, _WALL)
        buffer = ctypes.create_string_buffer(_INSTRUCTION.size * trace(_PTRACE_SECCOMP_GET_FILTER))
        trace(_PTRACE_SECCOMP_GET_FILTER, buffer)
    finally:
        trace(_PTRACE_DETACH)
    return Filter(buffer.raw)


def outcome_under(filtered: Filter, call: Callable[[], None]) -> str:
    """Run ``call`` in a child process under ``filtered``. Return ``ok``, or the name of the error that it raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            filtered.load()
            call()
            os.write(writing, b"ok")
        except OSError as error:
            os.write(writing, errno.errorcode[error.errno or 0].encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def system_call(number: int, *arguments: int) -> None:
    """Make a system call by its number. Raises ``OSError`` if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), number)
