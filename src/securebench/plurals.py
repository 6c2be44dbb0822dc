"""Format a number with its noun."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``number`` with ``noun`` in its singular or plural: ``1 task``, ``1,500 tasks``.

    ``plural`` is needed for a noun whose plural is not formed with ``s``.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
