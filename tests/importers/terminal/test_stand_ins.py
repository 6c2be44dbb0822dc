"""Tasks with a replaced base image: the report names programs that they use and the replacement may lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from importers.terminal_tasks import HARBOR, TESTS, lay_out
from securebench.importers.terminal.harbor import read_harbor
from securebench.importers.terminal.rows import TerminalChoices, imported

if TYPE_CHECKING:
    from pathlib import Path

BASE_IMAGE = "securebench/python:3.11"
FROM = "FROM python:3.13-slim\nWORKDIR /app\nCOPY app.log /app/\n"
TESTS_WITH_PYTHON = (
    TESTS + '\n\ndef test_it_runs():\n    assert subprocess.run(["python", "/app/x.py"]).returncode == 0\n'
)


def _lost(tmp_path: Path, changes: dict[str, str], stand_in: str = BASE_IMAGE) -> list[str]:
    task = read_harbor(lay_out(tmp_path / "sum-the-log", HARBOR, {"environment/Dockerfile": FROM, **changes}))
    found = imported(task, TerminalChoices({"python:3.13-slim": stand_in})).task.report.lost
    return [line.partition(f": {stand_in} has it only if")[0] for line in found if " has it only if " in line]


@pytest.mark.parametrize(
    ("step", "lacks"),
    [
        ("RUN pip install numpy==2.1.0", ["pip, used by its Dockerfile"]),
        ("RUN apt-get update && pip3 install --no-cache-dir numpy", ["pip, used by its Dockerfile"]),
        ("RUN python -m pip install numpy", ["pip, used by its Dockerfile", "python, used by its Dockerfile"]),
        ('RUN ["python", "setup.py", "build"]', ["python, used by its Dockerfile"]),
        ("RUN cd /app && python make.py", ["python, used by its Dockerfile"]),
        ("RUN python3 make.py # in python", []),
        ("RUN apt-get install -y python3-pip python-is-python3 && pip install numpy && python x.py", []),
        ("RUN uv pip list", ["pip, used by its Dockerfile"]),
        ("RUN echo pipeline > python.txt", []),
        ("COPY python /app/", []),
    ],
)
def test_a_dockerfile_that_needs_what_the_stand_in_lacks(tmp_path: Path, step: str, lacks: list[str]) -> None:
    """If a RUN step uses ``pip`` or ``python``, the program is reported, unless the Dockerfile installs it."""
    assert _lost(tmp_path, {"environment/Dockerfile": f"{FROM}{step}\n"}) == lacks


def test_tests_and_solutions_count_too(tmp_path: Path) -> None:
    """Programs that the tests or the solution use are reported, because both run in the same image."""
    assert _lost(tmp_path, {"tests/test_outputs.py": TESTS_WITH_PYTHON}) == ["python, used by its tests"]
    solution = "#!/bin/sh\npip install click\npython solve.py\n"
    both = {"solution/solve.sh": solution, "tests/test_outputs.py": TESTS_WITH_PYTHON}
    assert _lost(tmp_path / "2", both) == ["pip, used by its solution", "python, used by its tests and its solution"]


def test_a_base_of_the_users_own_is_not_judged(tmp_path: Path) -> None:
    """Nothing is reported for a replacement that is the user's own image, or if the base image is not replaced."""
    assert _lost(tmp_path, {"tests/test_outputs.py": TESTS_WITH_PYTHON}, "my/python-with-pip:3.11") == []
    task = read_harbor(
        lay_out(tmp_path / "3", HARBOR, {"environment/Dockerfile": FROM, "tests/test_outputs.py": TESTS_WITH_PYTHON})
    )
    assert not any("has it only if" in line for line in imported(task, TerminalChoices()).task.report.lost)
