"""Env files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from securebench.errors import ConfigError
from securebench.tester_config import load_env_file

if TYPE_CHECKING:
    from pathlib import Path


def read(directory: Path, text: str) -> dict[str, str]:
    """Return the variables of an env file with this text."""
    (directory / ".env").write_text(text, encoding="utf-8", newline="")
    return load_env_file(directory / ".env")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("A=", ""),
        ("  A=1  ", "1"),
        ("export A=1", "1"),
        ("\texport\t A=1", "1"),
        ("A=x y", "x y"),
        ("A=x # comment", "x"),
        ("A=# comment", ""),
        ("A=x#y", "x#y"),
        ("A=a=b", "a=b"),
        ("A=it's", "it's"),
        ("A='x # y'", "x # y"),
        ("A='$HOME \\n'  # comment", "$HOME \\n"),
        ('A="x # y"', "x # y"),
        (r'A="a\nb\t\"c\"\\\$"', 'a\nb\t"c"\\$'),
        ("A=''", ""),
        ("A=$HOME", "$HOME"),
        ("A=`id`$(id)", "`id`$(id)"),
        ("A=1\r", "1"),
        ("A=é", "é"),
    ],
)
def test_k22_an_assignment_is_read_and_nothing_is_run(tmp_path: Path, line: str, value: str) -> None:
    """K22: ``export``, quotes, comments and CRLF are supported; variables and commands are not expanded."""
    assert read(tmp_path, f"\n# first\n{line}\n") == {"A": value}


def test_variables_keep_their_order(tmp_path: Path) -> None:
    """Variables keep the order of the file. Blank lines and comments are skipped; the last line needs no newline."""
    assert list(read(tmp_path, "B=1\n\n  # x\nA=2\n_c9=3")) == ["B", "A", "_c9"]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        *((line, "write KEY=VALUE") for line in ("A", "=1", "1A=1", "A-B=1", "A =1", "export", "export A", "set A=1")),
        ("\u0410=1", "write KEY=VALUE"),
        *((line, "close the quote") for line in ("A='x", 'A="x', "A='x'y", 'A="x" y', 'A="x\\"')),
        (r'A="\q"', r"use only \n"),
        ("OK=2", "remove one"),
    ],
)
def test_k22_a_bad_line_is_an_error_with_its_number(tmp_path: Path, line: str, hint: str) -> None:
    """K22: an invalid line is refused with its line number and a hint."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"OK=1\n{line}\n")
    (problem,) = caught.value.problems
    assert problem.code == "env-line"
    assert problem.hint.startswith(hint)
    assert problem.location is not None
    assert problem.location.line == 2


def test_all_bad_lines_are_told_at_once_and_no_value_is(tmp_path: Path) -> None:
    """J15: all invalid lines are reported in one error, which contains no value."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, 'A=\'secret-1\nsecret-2\nB=1\nB=secret-3\nC="\\secret-4"\n')
    assert [problem.location.line for problem in caught.value.problems if problem.location] == [1, 2, 4, 5]
    assert "secret" not in str(caught.value)


def test_a_missing_or_huge_file_is_an_error(tmp_path: Path) -> None:
    """An env file that does not exist or is too large is refused."""
    with pytest.raises(ConfigError) as caught:
        load_env_file(tmp_path / "nothing")
    assert caught.value.code == "file-missing"
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "A=" + "x" * 70_000)
    assert caught.value.code == "file-too-large"


@example("é=1")
@given(st.text(alphabet=st.sampled_from("AB= '\"#\\n$\n\r\t\u2028é"), max_size=40))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    """Any text is either read as variables with valid names, or refused with an error that has a location."""
    try:
        variables = read(tmp_path, text)
    except ConfigError as error:
        assert all(problem.location for problem in error.problems)  # noqa: PT017 - either outcome is right
    else:
        assert all(name.isascii() and name.isidentifier() for name in variables)
