"""Make untrusted text and names safe to show: they can neither control a terminal nor hide what follows."""

from __future__ import annotations

import re
from typing import Final

_LONGEST_NAME: Final = 160
_FORMULAS: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters with which a spreadsheet formula begins, and their full-width forms."""
_MARKUP: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"} | {char: f"\\{char}" for char in "\\`*_{}[]()#!|~@"}
_LINKS: Final = re.compile(r"https?:/|ftp:/|www\.", re.IGNORECASE)
"""The beginnings of plain text that Markdown programs turn into links."""


def printable(text: str) -> str:
    """Return ``text`` with all unprintable characters escaped, except newlines and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():  # true for almost every text, and fast
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _escaped(char) for char in text)


def printable_line(text: str) -> str:
    """Return ``text`` on one line: all unprintable characters are escaped, including newlines and tabs."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def printable_name(name: bytes) -> str:
    """Return the name of a file on one line, clipped. Bytes that are not UTF-8 are escaped."""
    shown = printable_line(name.decode("utf-8", "backslashreplace"))
    return shown if len(shown) <= _LONGEST_NAME else shown[:_LONGEST_NAME] + "..."


def csv_cell(text: str) -> str:
    """Return ``text`` for a CSV file: printable, and never a formula when a spreadsheet opens it."""
    shown = printable_line(text)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown


def markdown_text(text: str) -> str:
    """Return ``text`` for a Markdown table: nothing in it is markup, a link or HTML."""
    shown = "".join(_MARKUP.get(char, char) for char in printable_line(text))
    return _LINKS.sub(lambda found: found[0][:-1] + "\\" + found[0][-1], shown)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
