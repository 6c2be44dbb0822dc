"""Compile a seccomp profile of an OCI configuration to a BPF program, with libseccomp through ctypes.

This module adds a few instructions before libseccomp's program. On each architecture of the machine, they return
``ENOSYS`` for calls newer than all calls that the profile names. runc does the same automatically.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RECIPE: Final = 2
"""The version of this module's output. Increase it after a change, so that cached programs are compiled again."""

_OPTIMIZE, _AS_TREE = 8, 2
"""The attribute SCMP_FLTATR_CTL_OPTIMIZE, and its value that makes the program a binary tree instead of a list.

The kernel runs a new filter once for every call number. With a tree, a sandbox therefore starts in a third less time.
"""

_NAME: Final = "libseccomp.so.2"
_INSTALL: Final = "install libseccomp 2.5 or newer (apt-get install libseccomp2), or use the docker driver"

_ACTIONS: Final = {"SCMP_ACT_ALLOW": 0x7FFF_0000, "SCMP_ACT_ERRNO": 0x0005_0000}
_COMPARISONS: Final = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
_X32: Final = 0x4000_003E
_ARCHITECTURES: Final = {
    "SCMP_ARCH_X86_64": 0xC000_003E,
    "SCMP_ARCH_X86": 0x4000_0003,
    "SCMP_ARCH_X32": _X32,
    "SCMP_ARCH_AARCH64": 0xC000_00B7,
    "SCMP_ARCH_ARM": 0x4000_0028,
}
"""The architecture numbers of linux/audit.h and, for x32, of libseccomp.

For x32 calls, the kernel reports x86-64 and sets a bit in the number of the system call.
"""
_X86_64: Final = _ARCHITECTURES["SCMP_ARCH_X86_64"]
_X32_BIT: Final = 0x4000_0000

# Classic BPF (linux/filter.h): load a word of struct seccomp_data, jump on a comparison, return.
_LOAD, _IF_EQUAL, _IF_GREATER, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_INSTRUCTION: Final = struct.Struct("=HBBI")


class _Version(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("major", "minor", "micro")]


class _Comparison(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint) for name in ("argument", "operator")),
        *((name, ctypes.c_uint64) for name in ("first", "second")),
    ]


class Library:
    """The installed libseccomp. Raises :class:`EngineError` (``seccomp-unavailable``) if it is missing."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(_NAME)
        except OSError as error:
            raise unavailable(f"{_NAME} cannot be loaded: {error}") from error
        self._library = library
        library.seccomp_init.restype = ctypes.c_void_p
        library.seccomp_version.restype = ctypes.POINTER(_Version)

    @property
    def version(self) -> str:
        """The version of the library, such as ``2.5.4``."""
        found = self._library.seccomp_version().contents
        return f"{found.major}.{found.minor}.{found.micro}"

    def compile(self, document: Mapping[str, Any]) -> bytes:
        """Return the BPF program for ``document``, the ``seccomp`` part of an OCI configuration.

        Raises :class:`EngineError` (``seccomp-unavailable``) if the library rejects the profile.
        """
        with self._filter(document) as built:
            for rule in document["syscalls"]:
                self._add(built, rule)
            return self._prelude(document) + self._export(built)

    @contextmanager
    def _filter(self, document: Mapping[str, Any]) -> Iterator[ctypes.c_void_p]:
        refused = _ACTIONS[document["defaultAction"]] | document["defaultErrnoRet"]
        built = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(refused)))
        try:
            # Before version 2.5, this fails. The filter then works, but is slower.
            self._library.seccomp_attr_set(built, _OPTIMIZE, _AS_TREE)
            for name in document["architectures"]:
                code = self._library.seccomp_arch_add(built, ctypes.c_uint32(_ARCHITECTURES[name]))
                if code != -errno.EEXIST:  # the machine's own architecture is included from the start
                    _require(code, f"the architecture {name}")
            yield built
        finally:
            self._library.seccomp_release(built)

    def _add(self, built: ctypes.c_void_p, rule: Mapping[str, Any]) -> None:
        action = ctypes.c_uint32(_ACTIONS[rule["action"]] | rule.get("errnoRet", 0))
        conditions = rule.get("args", [])
        compared = (_Comparison * len(conditions))(*(_comparison(condition) for condition in conditions))
        for name in rule["names"]:
            number = self._library.seccomp_syscall_resolve_name(name.encode())
            if number == -1:  # the library does not know this call: the default action refuses it
                continue
            _require(
                self._library.seccomp_rule_add_array(built, action, number, len(conditions), compared),
                f"the rule for {name}",
            )

    def _export(self, built: ctypes.c_void_p) -> bytes:
        descriptor = os.memfd_create("seccomp")
        with open(descriptor, "r+b") as file:  # noqa: PTH123 - a descriptor
            _require(self._library.seccomp_export_bpf(built, descriptor), "the export")
            file.seek(0)
            return file.read()

    def _prelude(self, document: Mapping[str, Any]) -> bytes:
        """Return instructions that return ``ENOSYS`` for calls with a higher number than any call in ``document``."""
        names = [name for rule in document["syscalls"] for name in rule["names"]]
        newest = {_ARCHITECTURES[name]: self._newest(_ARCHITECTURES[name], names) for name in document["architectures"]}
        x32 = newest.pop(_X32, None)
        steps = [
            step
            for architecture, number in newest.items()
            for step in _unless_newer(architecture, number, x32 if architecture == _X86_64 else None)
        ]
        return b"".join(_INSTRUCTION.pack(*step) for step in steps)

    def _newest(self, architecture: int, names: list[str]) -> int:
        resolve = self._library.seccomp_syscall_resolve_name_arch
        return max(int(resolve(ctypes.c_uint32(architecture), name.encode())) for name in names)


def unavailable(why: str, hint: str = _INSTALL) -> EngineError:
    """Return the error for a filter that cannot be created because of ``why``."""
    return EngineError(f"cannot create a system call filter: {why}", code="seccomp-unavailable", hint=hint)


def _unless_newer(architecture: int, newest: int, newest_x32: int | None) -> list[tuple[int, int, int, int]]:
    """Return BPF instructions that return ``ENOSYS`` on ``architecture`` for system call numbers above ``newest``.

    If ``newest_x32`` is not ``None``, it replaces ``newest`` for x32 calls.
    """
    # A jump is (code, number of instructions to skip if the condition is true, the same if it is false, operand).
    x32_checks = []
    if newest_x32 is not None:
        x32_checks = [(_IF_GREATER, 2, 0, newest_x32), (_IF_AT_LEAST, 2, 0, _X32_BIT)]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 0, 3 + len(x32_checks), architecture),
        (_LOAD, 0, 0, _NUMBER_AT),
        *x32_checks,
        (_IF_GREATER, 0, 1, newest),
        (_RETURN, 0, 0, _ACTIONS["SCMP_ACT_ERRNO"] | errno.ENOSYS),
    ]


def _comparison(condition: Mapping[str, Any]) -> _Comparison:
    operator = _COMPARISONS[condition["op"]]
    return _Comparison(condition["index"], operator, condition["value"], condition["valueTwo"])


def _require(code: int, what: str) -> None:
    if code < 0:
        raise unavailable(f"libseccomp refused {what}: {os.strerror(-code)}")
