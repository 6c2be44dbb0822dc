"""The version check of an agent program: its command, and what is accepted as its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.agents.model import AgentProgram
from securebench.errors import ConfigError
from securebench.harnesses.provider.program.installation import parse_version, require_version, version_command
from securebench.sandboxes.base import CommandResult

CODEX = AgentProgram(
    name="codex",
    version="0.169.0",
    platform="linux-x64",
    integrity="",
    directory=Path("/cache"),
    executable="bin/codex",
)


def test_a_program_is_asked_where_it_is_mounted() -> None:
    """The version command contains the path of the mount, not the directory on the host."""
    assert version_command(CODEX, "/opt/programs") == ("/opt/programs/bin/codex", "--version")


@pytest.mark.parametrize(
    ("name", "stdout", "version"),
    [
        ("codex", b"codex-cli 0.169.0\n", "0.169.0"),
        ("claude_code", b"2.1.197 (Claude Code)\n", "2.1.197"),
        ("codex", b"2.1.197 (Claude Code)\n", ""),
        ("claude_code", b"2.1.197\n", ""),
        ("codex", b"", ""),
        ("codex", b"codex-cli 0.169.0\nand more\n", ""),
        ("codex", b"\xff\xfe" * 1_000_000, ""),
    ],
)
def test_a_version_is_read_from_what_the_program_prints(name: str, stdout: bytes, version: str) -> None:
    """The whole output must have the format of the program; otherwise, the version is empty."""
    assert parse_version(name, stdout) == version


def test_a_program_that_answers_is_good() -> None:
    """A program that prints the installed version and exits with 0 is accepted."""
    require_version(CODEX, CommandResult(exit_code=0, stdout=b"codex-cli 0.169.0\n"))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (CommandResult(exit_code=0, stdout=b"codex-cli 0.168.0\n"), "codex-cli 0.168.0"),
        (CommandResult(exit_code=1, stdout=b"codex-cli 0.169.0\n"), "exit 1"),
        (
            CommandResult(exit_code=127, stderr=b"\x1b[31mlibc.so.6:\nversion not found"),
            r"libc.so.6: version not found",
        ),
        (CommandResult(exit_code=124, timed_out=True), "timed out"),
    ],
)
def test_a_program_that_does_not_is_unfit(result: CommandResult, expected: str) -> None:
    """A failed version check is an error. The message says how the program ended, what it printed and in which image.

    It contains no control characters of the output.
    """
    with pytest.raises(ConfigError) as caught:
        require_version(CODEX, result, "the/image:1")
    assert caught.value.code == "agent-unfit"
    assert expected in caught.value.message
    assert "the/image:1" in caught.value.message
    assert "\x1b" not in caught.value.message
