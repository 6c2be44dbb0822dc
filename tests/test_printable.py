"""Untrusted text is shown unchanged, except for characters that could control a terminal."""

from __future__ import annotations

import pytest

from securebench.printable import printable, printable_line, printable_name


@pytest.mark.parametrize("text", ["plain", "tab\there", "zwei\nZeilen", "☃ 日本 é"])
def test_ordinary_text_stays(text: str) -> None:
    """Printable characters of any language, tabs and newlines stay unchanged."""
    assert printable(text) == text


def test_nothing_reaches_a_terminal_that_it_obeys() -> None:
    """Escape sequences, carriage returns, C1 controls, direction marks and lone surrogates are escaped."""
    assert printable("\x1b[2Jx\r\x9b\udcff\u202e") == "\\x1b[2Jx\\r\\x9b\\udcff\\u202e"


def test_a_line_stays_one_line() -> None:
    """Newlines and tabs are escaped, so a task id cannot add a line that looks like that of another task."""
    assert printable_line("a\n[b]\tc") == "a\\n[b]\\tc"


def test_a_name_is_short_whatever_its_bytes() -> None:
    """Any bytes that an agent uses as a file name are shown as printable text, clipped to 160 characters."""
    assert printable_name(b"a\n\xff\xe2\x80\xae") == "a\\n\\xff\\u202e"
    assert printable_name(b"x" * 4096) == "x" * 160 + "..."
