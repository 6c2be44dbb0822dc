"""code-completion-smoke: known solutions pass; mistakes, empty candidates and cheats fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.code_cheats import ANYWHERE, TEMPLATES, cheat
from benchmarks.packs import BENCHMARKS, judged, tasks_of
from securebench.errors import FailureReason

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

TASKS = {task_id.partition("/")[2]: task for task_id, task in tasks_of("code-completion-smoke").items()}
SOLUTIONS: Final[dict[str, str]] = {
    "clamp": (
        "def clamp(value, low, high):\n"
        "    if low > high:\n        raise ValueError\n"
        "    return sorted((low, value, high))[1]\n"
    ),
    "run-lengths": (
        "from itertools import groupby\n\n"
        "def run_lengths(text):\n    return [(letter, sum(1 for _ in run)) for letter, run in groupby(text)]\n"
    ),
    "move-zeros": "def move_zeros(numbers):\n    numbers.sort(key=lambda number: number == 0)\n",
}
WRONG: Final[dict[str, str]] = {
    "clamp": "def clamp(value, low, high):\n    return max(low, min(value, high))\n",
    "run-lengths": "def run_lengths(text):\n    return [(x, text.count(x)) for x in dict.fromkeys(text)]\n",
    "move-zeros": ("def move_zeros(numbers):\n    return [n for n in numbers if n] + [n for n in numbers if not n]\n"),
}


def _entry_point(name: str) -> str:
    return name.replace("-", "_")


def test_every_task_has_solutions() -> None:
    """Each task of the pack has a known solution and a plausible wrong one."""
    assert set(TASKS) == set(SOLUTIONS) == set(WRONG)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.every_driver
def test_known_solutions_pass(name: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """The pack's own reference solution and another one both pass."""
    reference = TASKS[name].resources["reference_solution"].value
    for solution in (SOLUTIONS[name], str(reference)):
        result = judged(TASKS[name], solution, driver, tmp_path)
        assert result.reason is None, result.message


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.every_driver
def test_a_plausible_mistake_fails(name: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """A solution with a common mistake fails the task's tests."""
    assert judged(TASKS[name], WRONG[name], driver, tmp_path).reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize("name", TASKS)
def test_an_empty_candidate_and_the_starter_code_fail(name: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """An empty candidate fails, and so does the starter code, unchanged or with an empty body."""
    starter = str(TASKS[name].resources["starter_code"].value)
    for answer in ("", starter, starter + "    pass\n"):
        assert judged(TASKS[name], answer, driver, tmp_path).reason is not None


@pytest.mark.parametrize(
    ("name", "attempt"),
    [(name, attempt) for attempt in TEMPLATES for name in TASKS if name == "run-lengths" or attempt in ANYWHERE],
)
def test_a_cheat_never_passes(
    name: str, attempt: str, driver: SandboxDriver, host_canary: Path, tmp_path: Path
) -> None:
    """Group B: exits, objects that equal everything, frame walks, patched builtins and printed verdicts never pass."""
    result = judged(TASKS[name], cheat(attempt, _entry_point(name)), driver, tmp_path)
    assert result.reason is not None
    assert result.score == 0.0


def test_the_demo_agent_answers_every_task() -> None:
    """The demo agent has an answer to each task, so that a failure in the demo is a wrong answer, not a missing one."""
    answers = BENCHMARKS / "demo-agent" / "answers"
    assert all((answers / f"{_entry_point(name)}.py").is_file() for name in TASKS)
