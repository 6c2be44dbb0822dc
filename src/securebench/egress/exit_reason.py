"""Report an internal error of the gateway process, without text that might contain a key.

The message of an error is reported only if the OS wrote the message.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress


def write_reason(error: BaseException) -> None:
    """Write the traceback and type of ``error`` to standard error, and the message only if the OS wrote it.

    Other messages are left out: a library that rejects a header quotes it, and a header may contain a key.
    """
    kind = type(error).__name__
    reason = error.strerror if isinstance(error, OSError) else None
    with suppress(OSError):  # the size of standard error is limited
        traceback.print_tb(error.__traceback__)
        sys.stderr.write(f"{kind}: {reason}\n" if reason else f"{kind}\n")
        sys.stderr.flush()
