"""``python -m securebench`` is the command line."""

from __future__ import annotations

from securebench.cli import main

if __name__ == "__main__":
    main()
