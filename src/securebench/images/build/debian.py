"""A root file system from Debian's packages, for machines that reach no registry: one run of ``mmdebstrap``.

The mirrors are those that this machine's own apt uses, with its proxies and certificates: none is named here.
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
"""How this machine reaches its mirrors. They hold while the image is made, and are not left in it."""

_DPKG_OPTIONS = (
    "force-unsafe-io",  # a quarter of the time goes into syncing files that a failed build throws away
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)


@contextmanager
def root_file_system(
    bootstrap: Bootstrap, recipe: SystemRecipe, directory: Path, log: Path, report: Callable[[str], None]
) -> Iterator[Iterator[bytes]]:
    """Run ``mmdebstrap`` and give its tar archive, piece by piece, while it is made.

    ``directory`` is for its temporary files; its output goes to ``log``, and its stages to ``report``. The iterator
    ends only if it has succeeded, and raises :class:`ImageError` (``image-build-failed``) otherwise.
    """
    argv = (*bootstrap.prefix, "env", f"TMPDIR={directory}", *mmdebstrap_command(recipe, bootstrap.mode))
    with subprocess.Popen(  # noqa: S603 - a fixed program, with what a checked recipe names
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        listener = threading.Thread(target=_listen, args=(process.stderr, log, report))
        listener.start()
        try:
            yield _pieces(process, listener, log)
        finally:
            process.stdout.close()
            _stop(process, bootstrap.stop)
            listener.join()


def mmdebstrap_command(recipe: SystemRecipe, mode: str) -> tuple[str, ...]:
    """Return the argv that writes the recipe's root file system to stdout."""
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
    """Return apt lines for Debian's ``suite``, from the mirrors of this machine's apt.

    A machine of another Debian suite finds this one on the same mirrors, under its own name. Where apt knows no
    Debian (on Ubuntu, or where there is no apt) the result is empty: mmdebstrap goes where it goes by default.
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
    """Say whether apt takes these packages for Debian's. Before its first update it does not know."""
    return origin in {"Debian", "$(ORIGIN)"}


def _apt_settings() -> list[str]:
    return [line for line in _apt("apt-config", "dump") if line.startswith(_APT_SETTINGS) and not line.endswith('"";')]


def _apt(*command: str) -> list[str]:
    """Return the lines of an answer of apt; none where there is no apt."""
    return query(command).stdout.splitlines() if shutil.which(command[0]) else []


def _listen(stream: IO[bytes], log: Path, report: Callable[[str], None]) -> None:
    """Keep what the program says, and report its stages: ``I: extracting archives...``, but no paths."""
    with log.open("wb") as kept:
        for line in stream:
            kept.write(line)
            kept.flush()
            if line.startswith(b"I: ") and line.endswith(b"...\n") and b"/" not in line:
                report(line[3:].decode(errors="replace").strip(" .\n"))


def _pieces(process: subprocess.Popen[bytes], listener: threading.Thread, log: Path) -> Iterator[bytes]:
    assert process.stdout is not None
    while piece := process.stdout.read(_CHUNK):
        yield piece
    if process.wait() != 0:
        listener.join()  # the log has the last words
        raise ImageError(
            f"{PROGRAM} ended with exit code {process.returncode}; its last words:\n{_tail(log)}",
            code="image-build-failed",
            hint=f"the whole of its output is in {log}",
        )


def _stop(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        with suppress(PermissionError):  # what runs under sudo takes no signal from us: it ends at its closed output
            os.killpg(process.pid, number)
        process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    return "\n".join(f"    {line}" for line in lines)
