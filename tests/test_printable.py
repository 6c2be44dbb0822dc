"""Untrusted text is shown as it is, except for what a terminal would obey."""

from __future__ import annotations

import pytest

from securebench.printable import printable, printable_line, printable_name


@pytest.mark.parametrize("text", ["plain", "tab\there", "zwei\nZeilen", "☃ 日本 é"])
def test_ordinary_text_stays(text: str) -> None:
    """People read it as it was written."""
    assert printable(text) == text


def test_nothing_reaches_a_terminal_that_it_obeys() -> None:
    """Escape sequences, carriage returns, C1 controls, direction marks and lone surrogates are escaped."""
    assert printable("\x1b[2Jx\r\x9b\udcff\u202e") == "\\x1b[2Jx\\r\\x9b\\udcff\\u202e"


def test_a_line_stays_one_line() -> None:
    """A task id cannot begin a line that looks like another task's."""
    assert printable_line("a\n[b]\tc") == "a\\n[b]\\tc"


def test_a_name_is_short_whatever_its_bytes() -> None:
    """Names of files are bytes, and an agent chooses them."""
    assert printable_name(b"a\n\xff\xe2\x80\xae") == "a\\n\\xff\\u202e"
    assert printable_name(b"x" * 4096) == "x" * 160 + "..."
