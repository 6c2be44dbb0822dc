"""Build a root file system from Debian's packages with ``mmdebstrap``, for machines without access to a registry.

The build uses the mirrors, proxies and certificates of this machine's apt. If apt has no Debian mirror, ``mmdebstrap``
chooses the mirror.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from securebench.errors import ImageError
from securebench.images.build.bootstrap import PROGRAM, query

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator

    from securebench.images.build.bootstrap import Bootstrap
    from securebench.images.build.recipe_kinds import SystemRecipe

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_CHUNK = 1024 * 1024
_LAST_LINES = 5
_POCKETS = ("", "updates", "security")
_APT_SETTINGS = ("Acquire::http", "Acquire::https", "Acquire::Check-")
"""Prefixes of apt's settings for reaching mirrors and checking the dates of their files.

The build uses these settings, and the image does not keep them.
"""

_DPKG_OPTIONS = (
    "force-unsafe-io",  # skips fsync, which saves a quarter of the time; a failed build is discarded
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)


@contextmanager
def root_file_system(
    bootstrap: Bootstrap, recipe: SystemRecipe, directory: Path, log: Path, report: Callable[[str], None]
) -> Iterator[Iterator[bytes]]:
    """Run ``mmdebstrap`` and yield an iterator over the pieces of its tar archive, which are read as they are written.

    ``directory`` is for temporary files. The program's stderr goes to ``log``, and its stages to ``report``. The
    iterator raises :class:`ImageError` (``image-build-failed``) at its end if the program failed.
    """
    argv = (*bootstrap.prefix, "env", f"TMPDIR={directory}", *mmdebstrap_command(recipe, bootstrap.mode))
    with subprocess.Popen(  # noqa: S603 - a fixed program with values of a checked recipe
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        log_reader = threading.Thread(target=_read_log, args=(process.stderr, log, report))
        log_reader.start()
        try:
            yield _pieces(process, log_reader, log)
        finally:
            process.stdout.close()
            _stop(process, bootstrap.stop)
            log_reader.join()


def mmdebstrap_command(recipe: SystemRecipe, mode: str) -> tuple[str, ...]:
    """Return the command that writes the recipe's root file system to stdout."""
    return (
        PROGRAM,
        f"--mode={mode}",
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(recipe.packages)}",
        *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        *(f"--aptopt={setting}" for setting in _apt_settings()),
        '--customize-hook=rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"',
        recipe.suite,
        "-",
        *machine_mirrors(recipe.suite),
    )


def machine_mirrors(suite: str) -> tuple[str, ...]:
    """Return source lines of apt for Debian's ``suite``, from the mirrors of this machine's apt.

    If apt uses mirrors only for other Debian releases, these mirrors are returned: they have ``suite``, too. If apt has
    no Debian mirror (as on Ubuntu, or without apt), the result is empty and mmdebstrap uses its default.
    """
    shape = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)"
    rows = [line.split(" ", 3) for line in _apt("apt-get", "indextargets", "--format", shape, "Created-By: Packages")]
    main = [(uri, release) for uri, release, component, origin in rows if component == "main" and _is_debian(origin)]
    own = [(uri, release) for uri, release in main if release.partition("-")[0] == suite]
    trusted = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    lines = [
        f"deb {trusted}{uri} {'-'.join(filter(None, (suite, pocket)))} main"
        for uri, release in own or main
        if (pocket := release.partition("-")[2]) in _POCKETS
    ]
    return tuple(dict.fromkeys(lines))


def _is_debian(origin: str) -> bool:
    """Return whether ``origin`` is, or may be, Debian: apt does not know the origin before its first update."""
    return origin in {"Debian", "$(ORIGIN)"}


def _apt_settings() -> list[str]:
    return [line for line in _apt("apt-config", "dump") if line.startswith(_APT_SETTINGS) and not line.endswith('"";')]


def _apt(*command: str) -> list[str]:
    """Return the output lines of an apt command, or an empty list if apt is not installed."""
    return query(command).stdout.splitlines() if shutil.which(command[0]) else []


def _read_log(stream: IO[bytes], log: Path, report: Callable[[str], None]) -> None:
    """Save the program's stderr, and report its stages (``I: extracting archives...``), except those with a path."""
    with log.open("wb") as kept:
        for line in stream:
            kept.write(line)
            kept.flush()
            if line.startswith(b"I: ") and line.endswith(b"...\n") and b"/" not in line:
                report(line[3:].decode(errors="replace").strip(" .\n"))


def _pieces(process: subprocess.Popen[bytes], log_reader: threading.Thread, log: Path) -> Iterator[bytes]:
    assert process.stdout is not None
    while piece := process.stdout.read(_CHUNK):
        yield piece
    if process.wait() != 0:
        log_reader.join()  # afterwards, the log is complete
        raise ImageError(
            f"{PROGRAM} failed with exit code {process.returncode}:\n{_tail(log)}",
            code="image-build-failed",
            hint=f"its full output is in {log}",
        )


def _stop(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        with suppress(PermissionError):  # raised under sudo; the process ends anyway, as its stdout is closed
            os.killpg(process.pid, number)
        process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    return "\n".join(f"    {line}" for line in lines)
