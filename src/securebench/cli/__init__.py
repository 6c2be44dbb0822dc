"""The command line: one file per command, imported only when the command is used."""

from __future__ import annotations

import atexit
import errno
import importlib
import io
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import click

from securebench import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMANDS: Final[Mapping[str, str]] = {
    "run": "Run a benchmark pack against an agent.",
    "compare": "Compare runs of the same benchmark, task by task.",
    "show": "Show the results of a run, or one task in detail.",
    "status": "Show the progress of a run, including one in another terminal.",
    "reverify": "Judge the sealed candidates of a run again, without its agent.",
    "report": "Write an HTML report of runs.",
    "view": "Show runs in a browser, including runs in progress.",
    "export": "Convert a run for other programs.",
    "verify-run": "Check that a run directory is complete and unchanged.",
    "bundle": "Pack a run into one file for sharing.",
    "keys": "Make and show the keys that sign runs.",
    "validate": "Check a benchmark pack and report errors with locations.",
    "digest": "Print the public digests of a pack and its rows.",
    "doctor": "Check what this machine supports, and show how to fix problems.",
    "audit": "Run known attacks against this installation.",
    "images": "Build and list sandbox images.",
    "agents": "Install and list agent programs.",
    "import": "Make a pack from a public benchmark's own files.",
}
"""Each command and its line in ``--help``. The help is shown without importing the commands."""

EXIT_INTERRUPTED: Final = 130
EXIT_OUTPUT: Final = 74
"""Exit code (``EX_IOERR``): the output could not be written. The command itself may have succeeded."""
EXIT_DEFECT: Final = 70

_OF_OUTPUT: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

DEBUG_VARIABLE: Final = "SECUREBENCH_DEBUG"
"""If this environment variable is set, internal errors print a traceback."""


class _LazyGroup(click.Group):
    """A group that imports each command on first use, from the module ``securebench.cli.<name>_command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"securebench.cli.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if near := _similar_command(args[0]):  # click does not know the names of lazy commands
                raise click.UsageError(f"{error.format_message()} Did you mean '{near}'?", ctx) from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _similar_command(name: str) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(name, COMMANDS, n=1)), "")


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="securebench")
def cli() -> None:
    """Run benchmark packs against AI agents, and judge the results where the agents cannot interfere.

    Start with 'securebench validate PACK' and 'securebench run --config tester.yaml'.
    """


def main() -> None:
    """Run the command line and exit with its code.

    A :class:`SecureBenchError` becomes one message on stderr and code 1. Wrong usage exits with 2, an interrupt with
    130, an internal error with 70 (``EX_SOFTWARE``), and a failure to write to standard output with 74 (``EX_IOERR``).
    """
    sys.exit(_run())


def process() -> None:
    """Run the command line as the main program.

    After the command, an interrupt ends the process at once. Later, while Python unloads its modules, interrupts are
    ignored.
    """
    codes = [EXIT_DEFECT]
    atexit.register(_end_beside_threads, codes)  # registered first, so it runs after all other exit functions
    try:
        try:
            open_standard_streams()
            main()
        except SystemExit as end:
            codes.append(end.code if isinstance(end.code, int) else int(end.code is not None))
            raise
        finally:
            signal.signal(signal.SIGINT, _end_at_once)  # for interrupts while threads are joined
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # ignore it while modules are torn down
    except KeyboardInterrupt:  # raised outside the ``try`` of ``_run``, such as at the start of ``finally``
        _end_at_once()


def open_standard_streams() -> None:
    """Open descriptors 0, 1 and 2 if they are closed, and let stdout and stderr print every character.

    A daemon may start the process with closed descriptors. The next opened files would then get these numbers, and
    output would be written to those files. Characters that a stream cannot encode are printed as Python escapes.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is ``number``
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end_beside_threads(codes: Sequence[int]) -> None:
    """End the process with the last of ``codes`` if daemon threads are still at work, such as checks of ``doctor``.

    While Python shuts down, it ends such a thread when the thread next asks for the interpreter lock. If the thread is
    then inside a library in Rust or C++, such as pydantic, glibc aborts the process ("exception not rethrown").
    """
    if any(thread.daemon for thread in threading.enumerate()):
        with suppress(OSError, ValueError):  # a closed pipe or stream: nobody reads the rest
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(codes[-1])


def _end_at_once(*_: object) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)


def _run() -> int:
    from securebench.errors import SecureBenchError
    from securebench.garbage import rare_collections

    try:
        with rare_collections():  # importing a command would otherwise cause dozens of garbage collections
            code = cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SecureBenchError as error:
        complain(str(error))
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and _is_of_output(error):
            complain(f"cannot write to standard output: {error.strerror}; this does not mean that the command failed")
            return EXIT_OUTPUT
        if os.environ.get(DEBUG_VARIABLE):
            raise
        # The text of an exception may contain secrets, even an answer. The name of its type contains none.
        name = type(error).__name__
        complain(f"internal error ({name}). Please report it; {DEBUG_VARIABLE}=1 prints the traceback")
        return EXIT_DEFECT
    return code if isinstance(code, int) else 0


def _is_of_output(error: OSError) -> bool:
    """Return whether a write to standard output caused ``error``, by writing again and comparing the ``errno``.

    If the second write fails, standard output is redirected to ``/dev/null``, so that the flush at exit succeeds.
    """
    if error.errno not in _OF_OUTPUT or error.filename is not None:
        return False
    try:
        sys.stdout.write("\n")  # the buffer may be empty, and flushing an empty buffer never fails
        sys.stdout.flush()
    except OSError as again:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        return again.errno == error.errno
    return False


def complain(message: str) -> None:
    """Print an error on stderr. ``message`` may quote a pack, so control characters are escaped."""
    from securebench.printable import printable

    click.echo(f"{click.style('error:', fg='red', bold=True)} {printable(message)}", err=True)
