"""A program that stands in for a runtime: some calls fail, all others go to the real runtime. Compiled by tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

MODES: Final = {
    1: "exit 1 with a message",
    2: "exit 1 silently",
    3: "exit 0 and nothing was run",
    4: "SIGKILL before it starts anything",
    5: "garbage in place of a process id and of output",
    6: "SIGKILL while the command runs",
    7: "it hangs until the time limit",
    8: "no memory, says its log",
    9: "SIGKILL after it started a sandbox",
    10: "it hangs after it started a sandbox",
    11: "it hangs after a command has ended",
    12: "exit 1 after it started a sandbox",
    13: "exit 0 after someone killed the sandbox",
}
ANY_MODE: Final = 0
"""The mode that fails in all of the ways above in turn."""

SYSTEM_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_SOURCE: Final = Path(__file__).with_suffix(".c")

needs_faulty_runtime = (
    pytest.mark.skipif(shutil.which("crun") is None, reason="the double stands in front of crun"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the double is compiled: a runtime is run from a copy"),
)


def compile_faulty_runtime(
    directory: Path, mode: int, *, seed: int, percent: int, spared: int = 0, runtime: str = "crun"
) -> Path:
    """Return a program in the new ``directory`` that fails in ``percent`` % of the calls that start something.

    Such a call starts a sandbox or a command. Calls for the first ``spared`` sandboxes never fail. For each call that
    is chosen to fail, a letter is appended to the file ``report`` beside the program: a for mode 1, b for mode 2, and
    so on.
    """
    directory.mkdir()
    program = directory / runtime
    numbers = {"MODE": mode, "MODES": len(MODES), "SEED": seed, "PERCENT": percent, "SPARED": spared}
    texts = {"REAL": f'"{shutil.which(runtime)}"', "REPORT": f'"{directory / "report"}"'}
    defined = numbers | texts
    options = [f"-D{name}={value}" for name, value in defined.items()]
    subprocess.run(["gcc", "-O1", "-static", "-o", program, *options, _SOURCE], check=True)
    return program
