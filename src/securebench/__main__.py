"""``python -m securebench`` is the command line."""

from __future__ import annotations

from securebench.cli import process

if __name__ == "__main__":
    process()
