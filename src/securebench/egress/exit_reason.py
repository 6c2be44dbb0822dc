"""What the gateway's process says of a defect: where it happened and what kind it is. Never its text: that quotes."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress


def say(error: BaseException) -> None:
    """Write to standard error where ``error`` came from. An error of the system is named, other texts are left out.

    A library that dislikes a header says which, and a header may hold a key.
    """
    kind = type(error).__name__
    reason = error.strerror if isinstance(error, OSError) else None
    with suppress(OSError):  # there is only so much room for it
        traceback.print_tb(error.__traceback__)
        sys.stderr.write(f"{kind}: {reason}\n" if reason else f"{kind}\n")
        sys.stderr.flush()
