"""Untrusted text and names, made safe to show: nothing in them is obeyed by a terminal or hides what follows."""

from __future__ import annotations

from typing import Final

_LONGEST_NAME: Final = 160


def printable(text: str) -> str:
    """Return ``text`` with control, direction and invalid characters escaped. Newlines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def printable_line(text: str) -> str:
    """Return ``text`` on one line, with newlines and tabs escaped, too."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def printable_name(name: bytes) -> str:
    """Return the name of a file on one line, clipped. Bytes that are not UTF-8 are escaped."""
    shown = printable_line(name.decode("utf-8", "backslashreplace"))
    return shown if len(shown) <= _LONGEST_NAME else shown[:_LONGEST_NAME] + "..."


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
