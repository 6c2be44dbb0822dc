"""Open the files of a run directory, even if the directory comes from a stranger or a run is writing to it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import count
from typing import IO, TYPE_CHECKING, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.safe_open import (
    OPEN_FILE,
    TreeRefusal,
    TreeRefusedError,
    opened_below,
    opened_root,
    refusing,
    require_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOURNAL: Final = "candidates.jsonl"
SUPERSEDED: Final = "superseded.jsonl"
"""The file for the ``error`` records of trials that were run again."""
SUITE: Final = "suite.json"
"""The file that lists the runs of a suite. It is in the directory of the suite."""


@contextmanager
def opened_run_file(directory: Path, folder: str, name: str) -> Iterator[IO[bytes]]:
    """Open the regular file ``folder/name`` of a run. Links are not followed, and no name leads out of ``directory``.

    Raises :class:`ConfigError`: ``file-missing`` or ``file-not-regular``.
    """
    location = SourceLocation(str(directory / folder / name))
    raw = name.encode("utf-8", "replace")  # no file name contains a lone surrogate
    if raw in {b"", b".", b".."} or b"/" in raw or b"\0" in raw:
        raise ConfigError("this is not a valid file name", code="file-not-regular", location=location)
    try:
        with opened_root(directory) as top, opened_below(top, [os.fsencode(folder)]) as below:
            with refusing(raw):
                descriptor = os.open(raw, OPEN_FILE, dir_fd=below)
            try:
                require_file(os.fstat(descriptor), raw)  # checked first, because fdopen() raises for a directory
                file = os.fdopen(descriptor, "rb")
            except BaseException:
                os.close(descriptor)
                raise
            with file:
                yield file
    except TreeRefusedError as error:
        code = "file-missing" if error.refusal is TreeRefusal.MISSING else "file-not-regular"
        raise ConfigError(f"cannot read the file: {error}", code=code, location=location) from None


def numbered_lines(file: IO[bytes], limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of ``file`` as it is now, with their numbers from 1. What is appended meanwhile is left out.

    The last line may lack its newline. A line longer than ``limit`` bytes is cut to ``limit`` + 1 bytes, and no
    line is yielded after it.
    """
    left = os.fstat(file.fileno()).st_size
    for number in count(1):
        line = file.readline(min(left, limit + 1))
        if not line:
            return
        left -= len(line)
        yield number, line
        if len(line) > limit:
            return
