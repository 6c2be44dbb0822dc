"""Tests of the pack text-smoke: for each task, known answers pass, and empty answers and cheats fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.packs import judged, tasks_of
from benchmarks.text_answers import CHEATS, SOLUTIONS, cheats_of
from securebench.errors import FailureReason
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from pathlib import Path

TASKS = tasks_of("text-smoke")


def _cases(answers: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, answer) for name, given in answers.items() for answer in given]


def test_every_task_has_solutions_and_cheats() -> None:
    """The pack has twelve tasks, four per family, and each task has known answers and cheats."""
    names = {task_id.removeprefix("text-smoke/") for task_id in TASKS}
    assert names == set(SOLUTIONS) == set(CHEATS)
    families = [task.task_type for task in TASKS.values()]
    assert {family: families.count(family) for family in families} == {
        "multiple_choice": 4,
        "short_answer": 4,
        "free_response": 4,
    }


@pytest.mark.parametrize(("name", "answer"), _cases(SOLUTIONS))
def test_a_known_answer_passes(name: str, answer: str, tmp_path: Path) -> None:
    """Each known answer of each task passes with the full score."""
    result = judged(TASKS[f"text-smoke/{name}"], answer, ScriptedDriver(), tmp_path)
    assert (result.reason, result.score) == (None, 1.0)


@pytest.mark.parametrize("task_id", TASKS)
def test_an_empty_answer_fails(task_id: str, tmp_path: Path) -> None:
    """E01: an empty candidate fails every task, with the reason ``CANDIDATE_EMPTY``."""
    assert judged(TASKS[task_id], "", ScriptedDriver(), tmp_path).reason is FailureReason.CANDIDATE_EMPTY


@pytest.mark.parametrize(("name", "answer"), _cases({name: cheats_of(name) for name in CHEATS}))
def test_a_cheat_never_passes(name: str, answer: str, tmp_path: Path) -> None:
    """E01 to E09: lists, hedges, negations, look-alike letters, blank answers and numbers like ``nan`` never pass."""
    result = judged(TASKS[f"text-smoke/{name}"], answer, ScriptedDriver(), tmp_path)
    assert result.reason is not None
    assert result.score == 0.0
