"""Run the trivial task of ``run.py`` in SecureBench.

The measured time includes everything from reading the pack to the summary. The answers are sealed.
"""

import shlex
import tempfile
from pathlib import Path

from runs import repeated
from sides import Side

ROW = {
    "family": "short_answer",
    "input": {"question": "What is six times seven?"},
    "eval": {"accepted_answers": ["42"]},
}


def docker(_image: str, command: str, count: int, at_once: int) -> list[str]:
    """Run the tasks on Docker, always in the default image."""
    return _batch(Side("docker"), command, count, at_once)


def crun(_image: str, command: str, count: int, at_once: int) -> list[str]:
    """Run the tasks on crun, always in the default image."""
    return _batch(Side("crun"), command, count, at_once)


def _batch(side: Side, command: str, count: int, at_once: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="securebench-peers-") as scratch:
        directory = Path(scratch).resolve()
        directory.chmod(0o711)
        workload = repeated(directory, ROW, count, shlex.split(command))
        workload.run_here(side, at_once, directory)  # raises SystemExit unless all answers are correct
    return ["42"] * count
