"""The entry point of the ``securebench`` command and of ``python -m securebench``."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command line and run it.

    Until the command line is loaded, an interrupt ends the process at once, without a traceback, unless the caller has
    set SIGINT to be ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from securebench.cli import process

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    process()


if __name__ == "__main__":
    main()
