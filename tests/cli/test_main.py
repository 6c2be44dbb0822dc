"""The command line itself: start-up, errors, exit codes."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import securebench.cli as command_line
from securebench.cli import COMMANDS, EXIT_DEFECT, EXIT_INTERRUPTED, EXIT_OUTPUT, cli, main, process
from securebench.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

HEAVY = {"docker", "pydantic", "rich", "ruamel", "requests", "urllib3", "yaml"}


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Run the command line, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["securebench", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.parametrize(("typed", "meant"), [("runn", "run"), ("docter", "doctor"), ("image", "images")])
def test_a_similar_command_is_suggested(
    typed: str, meant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error about a mistyped command suggests a similar command, if there is one."""
    assert exit_code(monkeypatch, typed) == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in capsys.readouterr().err
    assert exit_code(monkeypatch, "xyzzy") == 2
    assert "Did you mean" not in capsys.readouterr().err


@pytest.fixture
def command_that(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Return a function that makes every command raise a given exception."""

    def make(error: BaseException) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(command_line, "cli", fail)

    return make


def test_help_lists_every_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` names every command and exits with code 0."""
    assert exit_code(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` describes each command and subcommand, without click's marker for preformatted paragraphs."""
    command = cli.get_command(click.Context(cli), name)
    for arguments in ([name], *([name, below] for below in getattr(command, "commands", ()))):
        assert exit_code(monkeypatch, *arguments, "--help") == 0
        shown = capsys.readouterr().out
        usage, _, description = shown.partition("\n\n")
        assert usage.startswith("Usage:")
        assert not description.startswith(("Options:", "Commands:"))
        assert "\\b" not in shown


@pytest.mark.parametrize("arguments", [["nonsense"], ["run", "--nonsense"], ["run"], ["run", "x", "--limit", "0"]])
def test_wrong_usage(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage is reported on stderr with exit code 2."""
    assert exit_code(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error" in captured.err


@pytest.mark.parametrize(
    "error",
    [ConfigError("bad", code="some-code", hint="mend it"), EngineError("bad", code="some-code", hint="mend it")],
)
def test_errors_of_ours(
    error: Exception,
    command_that: Callable[[BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error of SecureBench is printed on stderr as one message with its code and hint; the exit code is 1."""
    command_that(error)
    assert exit_code(monkeypatch) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: bad [some-code]\n    hint: mend it\n"


def test_errors_are_not_obeyed(
    command_that: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control characters in an error, which may quote a pack, are not sent to the terminal (M13)."""
    command_that(ConfigError("bad id \x1b[2J"))
    assert exit_code(monkeypatch) == 1
    assert "\x1b[2J" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_interrupted(
    error: BaseException, command_that: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt before anything runs ends the command with exit code 130."""
    command_that(error)
    assert exit_code(monkeypatch) == EXIT_INTERRUPTED == 130


def test_a_defect(
    command_that: Callable[[BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An internal error prints the exception's type and how to get a traceback, but not the exception's text (F13)."""
    command_that(RuntimeError("the hidden answer"))
    monkeypatch.delenv("SECUREBENCH_DEBUG", raising=False)
    assert exit_code(monkeypatch) == EXIT_DEFECT
    shown = capsys.readouterr().err
    assert "RuntimeError" in shown
    assert "SECUREBENCH_DEBUG=1" in shown
    assert "hidden answer" not in shown


def test_a_defect_with_its_traceback(
    command_that: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``SECUREBENCH_DEBUG``, an unexpected exception is raised, so that Python prints its traceback."""
    command_that(RuntimeError("boom"))
    monkeypatch.setenv("SECUREBENCH_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["securebench"])
    with pytest.raises(RuntimeError, match="boom"):
        main()


def test_a_reader_who_has_had_enough() -> None:
    """If the reader of a pipe has closed it, as in ``securebench --help | head -0``, no error is printed."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-u", "-m", "securebench", "--help"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""


@pytest.mark.parametrize("code", ["import securebench", "from securebench.cli import main"])
def test_light_imports(code: str) -> None:
    """Neither ``import securebench`` nor the command line imports libraries that only commands need."""
    script = f"import sys; {code}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & HEAVY


def test_help_is_quick() -> None:
    """``securebench --help`` takes at most 0.2 seconds more processor time than an empty Python program."""
    bare = min(_processor_seconds("-c", "pass") for _ in range(5))
    ours = min(_processor_seconds("-m", "securebench", "--help") for _ in range(5))
    assert ours - bare < 0.2


def _processor_seconds(*arguments: str) -> float:
    """Return the processor time of a Python process, which depends less on the machine's load than the elapsed time."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_an_interrupt_ends_at_once_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while the process exits ends it with exit code 130, not by the signal (L12)."""
    ended: list[int] = []
    monkeypatch.setattr(sys, "argv", ["securebench", "--version"])
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(atexit, "register", lambda *_: None)  # the exit functions would end the test process
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            process()
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == [130]


_THREAD_IN_RUST = """
import sys, threading, time
from pydantic import BaseModel, field_validator
from securebench.cli import process

class Slow(BaseModel):
    field: int

    @field_validator("field")
    @classmethod
    def wait(cls, value):
        time.sleep(0.001)
        return value

def validate():
    while True:
        Slow(field=1)

threading.Thread(target=validate, daemon=True).start()
process()
"""


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--unknown", 2), ("show", 2)])
def test_a_thread_inside_a_library_does_not_abort_the_exit(argument: str, code: int) -> None:
    """A daemon thread that is inside a Rust library, as a check of ``doctor`` may be, does not change the exit code."""
    for _ in range(3):  # without the exit function, nearly every process ends with SIGABRT or SIGSEGV
        done = subprocess.run([sys.executable, "-c", _THREAD_IN_RUST, argument], capture_output=True, check=False)
        assert done.returncode == code, done.stderr
        assert done.stdout or done.stderr


def test_a_standard_output_that_takes_no_more() -> None:
    """A full disk is reported with its own exit code, not as an internal error, whether output is buffered or not."""
    for unbuffered in ("", "1"):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "securebench", "--help"],
                stdout=full,
                stderr=subprocess.PIPE,
                env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
                check=False,
            )
        assert done.returncode == EXIT_OUTPUT
        assert b"cannot write to standard output: No space left on device" in done.stderr
        assert b"Traceback" not in done.stderr


_CLOSED = """
import os, runpy, sys
for number in range(3):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from securebench.cli import open_standard_streams
open_standard_streams()
print("to nobody")
print("to nobody", file=sys.stderr)
opened = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
os.write(opened, b"%d %r" % (opened, sys.stdin.read().encode()))
"""


def test_closed_standard_streams_are_opened(tmp_path: Path) -> None:
    """If the standard streams are closed, as in a daemon, no file that is opened later gets descriptor 0, 1 or 2."""
    subprocess.run([sys.executable, "-c", _CLOSED, str(tmp_path / "file")], check=True)
    number, read = (tmp_path / "file").read_text().split()
    assert int(number) > 2
    assert read == "b''"


def test_what_an_encoding_lacks_is_written_out() -> None:
    """Characters outside the output's encoding are escaped, so that a task id with such characters cannot end a run."""
    code = "from securebench.cli import open_standard_streams; open_standard_streams(); print('caf\\xe9 \\u2713')"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert done.stdout == b"caf\\xe9 \\u2713\n"


def _at_exit(directory: Path, statement: str) -> dict[str, str]:
    """Return environment variables that make every Python process execute ``statement`` when it exits."""
    (directory / "sitecustomize.py").write_text(f"import atexit, os\natexit.register(lambda: {statement})\n")
    return {**os.environ, "PYTHONPATH": str(directory)}


def test_the_command_opens_closed_standard_streams(tmp_path: Path) -> None:
    """A command that starts with closed descriptors 0, 1 and 2 opens no other file under one of these numbers."""
    opened = tmp_path / "opened"
    statement = f"(lambda number: os.write(number, b'%d' % number))(os.open({str(opened)!r}, os.O_WRONLY | os.O_CREAT))"
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m securebench --version <&- >&- 2>&-', sys.executable],
        env=_at_exit(tmp_path, statement),
        check=False,
    )
    assert done.returncode == 0
    assert int(opened.read_text()) > 2


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_the_command_can_print_every_character(encoding: str, tmp_path: Path) -> None:
    """A command escapes characters outside the encoding of standard output."""
    environment = {**_at_exit(tmp_path, "print('\\u2713')"), "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "securebench", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.endswith(b"\n\\u2713\n")
    assert done.stderr == b""


def test_an_interrupt_while_the_command_line_loads_shows_no_traceback(tmp_path: Path) -> None:
    """Ctrl-C while the command line is being imported ends the process, and nothing is printed."""
    # This module replaces click, which takes longest to load, and sends the interrupt while it is imported.
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "securebench", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
