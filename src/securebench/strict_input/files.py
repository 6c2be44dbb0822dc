"""Open files from users: only regular files, without blocking. Symlinks are rejected unless the caller allows them."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.errors import ConfigError, SourceLocation
from securebench.strict_input.faults import Fault, Position, pointer

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Without O_NONBLOCK, opening a FIFO blocks until a writer opens it."""

UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FileSource:
    """Locates a fault in a file by the fault's own ``position``, without reading the file."""

    path: Path

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the file with the fault's position, or with line 1 if the fault has none."""
        position = fault.position or Position(1)
        return SourceLocation(str(self.path), position.line, position.column, pointer(fault.path))


def open_regular(path: Path, what: str, *, follow: bool = False) -> BufferedReader:
    """Open a regular file for reading. Raises :class:`ConfigError`.

    A symbolic link is refused unless ``follow`` is true.
    """
    location = SourceLocation(str(path))
    try:
        descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    except FileNotFoundError:
        raise ConfigError(f"there is no {what} here", code="file-missing", location=location) from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ELOOP:
            raise _refused(f"the {what} is a symbolic link", "file-not-regular", location) from None
        raise _refused(
            f"cannot read the {what}: {getattr(error, 'strerror', error)}", "file-unreadable", location
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(f"the {what} is not a regular file", "file-not-regular", location)
    return os.fdopen(descriptor, "rb")


def read_text(path: Path, what: str, limit: int, *, follow: bool = False) -> tuple[str, bytes]:
    """Return the text and the bytes of a UTF-8 file of at most ``limit`` bytes. Raises :class:`ConfigError`."""
    with open_regular(path, what, follow=follow) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        message = f"the {what} is larger than {limit} bytes"
        raise ConfigError(message, code="file-too-large", location=SourceLocation(str(path)))
    text, fault = decode(data)
    if fault is not None:
        location = FileSource(path).locate(fault)
        raise ConfigError(fault.message, code=fault.code, hint=fault.hint, location=location)
    return text, data


def decode(data: bytes, line: int = 1) -> tuple[str, Fault | None]:
    """Return ``data`` as text and ``None``.

    If ``data`` is not UTF-8, begins with a BOM or contains a NUL, return an empty text and the fault.
    ``line`` is the line number at which ``data`` starts.
    """
    if data.startswith(UTF8_BOM):
        return "", _encoding_fault("starts with a byte order mark", Position(line, 1))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        return "", _encoding_fault(
            f"contains the byte 0x{data[error.start]:02x}, which is not UTF-8", position_at(before, line)
        )
    if "\0" in text:
        return "", _encoding_fault("contains a NUL", position_at(text[: text.index("\0")], line))
    return text, None


def position_at(before: str, line: int = 1) -> Position:
    """Return the position directly after the text ``before``, which starts at ``line``."""
    return Position(line + before.count("\n"), len(before) - (before.rfind("\n") + 1) + 1)


def _encoding_fault(message: str, position: Position) -> Fault:
    return Fault(
        "file-encoding", f"the text {message}", hint="save it as UTF-8 text without a BOM or NUL", position=position
    )


def _refused(message: str, code: str, location: SourceLocation) -> ConfigError:
    return ConfigError(message, code=code, location=location, hint="use a regular file that you can read")
