"""The example packs are complete, load, and show the agent no answers."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from benchmarks.packs import BENCHMARKS, tasks_of
from securebench.families.normalization import normalize_text
from securebench.importers import gsm8k, humaneval, mmlu
from securebench.importers.lock import load_lock
from securebench.importers.swe_bench import rows as swe_bench
from securebench.importers.terminal import harbor
from securebench.resources import Visibility
from securebench.tester_config import load_tester_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.resources import JsonValue

OWN = [
    "text-smoke",
    "judge-smoke",
    "code-completion-smoke",
    "repo-patch-smoke",
    "terminal-task-smoke",
    "terminal-tasks",
]
RECIPES = {
    "humaneval-mini": humaneval.BENCHMARK,
    "mmlu-abstract-algebra-mini": mmlu.BENCHMARK,
    "gsm8k-first100": gsm8k.BENCHMARK,
}
WITH_IMAGES = {
    "swe-bench-verified-codex-smoke": (swe_bench.BENCHMARK, 5, "MIT", "/tasks.jsonl\n/images/\n"),
    "terminal-bench-first10": (harbor.BENCHMARK, 10, "Apache-2.0", "/tasks.jsonl\n/hidden/\n/images/\n"),
}
"""Recipes of packs with images: benchmark, number of rows, licence of the data, and text of ``.gitignore``."""


def _texts(value: JsonValue) -> Iterator[str]:
    """Yield every text in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    for each in value if isinstance(value, list) else []:
        yield from _texts(each)
    if isinstance(value, str):
        yield value


@pytest.mark.parametrize("pack", [*OWN, *RECIPES, *WITH_IMAGES])
def test_a_pack_has_all_its_parts(pack: str, tmp_path: Path) -> None:
    """Each pack has a manifest and README with its name, and a tester YAML that loads and writes outside the packs."""
    packs = tmp_path / "benchmarks"
    shutil.copytree(BENCHMARKS, packs)
    directory = packs / pack
    if pack in {**RECIPES, **WITH_IMAGES}:  # the rows of a recipe are not in the repository
        (directory / "tasks.jsonl").touch()
    config = load_tester_config(directory / "tester.yaml")
    assert f"id: {pack}\n" in (directory / "manifest.yaml").read_text()
    assert config.benchmark.manifest == directory / "manifest.yaml"
    assert config.benchmark.tasks == directory / "tasks.jsonl"
    assert not config.run.output_dir.is_relative_to(packs)
    assert pack in (directory / "README.md").read_text()


@pytest.mark.parametrize(
    ("pack", "count"),
    [
        ("text-smoke", 12),
        ("judge-smoke", 3),
        ("code-completion-smoke", 3),
        ("terminal-task-smoke", 1),
        ("terminal-tasks", 10),
    ],
)
def test_our_own_packs_load(pack: str, count: int) -> None:
    """Our own packs load and compile with the tasks files in the repository."""
    assert len(tasks_of(pack)) == count


@pytest.mark.parametrize(("pack", "benchmark"), RECIPES.items())
def test_a_recipe_holds_a_lock_and_no_data(pack: str, benchmark: str) -> None:
    """A recipe locks 10 or 100 rows, states source and licence, and excludes its data from git."""
    directory = BENCHMARKS / pack
    assert len(load_lock(directory / "lock.json", benchmark).rows) == (100 if pack.endswith("100") else 10)
    assert (directory / ".gitignore").read_text() == "/tasks.jsonl\n"
    readme = (directory / "README.md").read_text()
    assert "| Source |" in readme
    assert "| License of the data | MIT |" in readme
    assert f"securebench import {benchmark}" in readme


@pytest.mark.parametrize(("pack", "held"), WITH_IMAGES.items())
def test_a_recipe_with_images_holds_a_lock_and_no_data(pack: str, held: tuple[str, int, str, str]) -> None:
    """A recipe with images locks its rows, states source and licence, and excludes imported files from git."""
    benchmark, count, licence, kept_out = held
    directory = BENCHMARKS / pack
    rows = load_lock(directory / "lock.json", benchmark).rows
    assert len(rows) == count
    assert len(set(filter(None, rows.values()))) == (count if benchmark == swe_bench.BENCHMARK else 0)
    assert (directory / ".gitignore").read_text() == kept_out
    readme = (directory / "README.md").read_text()
    assert "| Source |" in readme
    assert f"| License of the data | {licence} |" in readme
    assert f"securebench import {benchmark}" in readme


@pytest.mark.parametrize("pack", OWN)
def test_no_hidden_text_stands_in_what_the_agent_sees(pack: str) -> None:
    """E14: no answer, rubric, test or solution occurs in a public field, except in a question's choices.

    Very short hidden texts are not looked for. Neither are the two texts ``inline`` and ``contains_any``.
    """
    for task in tasks_of(pack).values():
        public = {name: value for name, value in task.agent_payload().items() if name != "choices"}
        shown = normalize_text(json.dumps(public, ensure_ascii=False))
        secrets = [text for each in task.resources.secrets() for text in _texts(each.value)]
        least = 8 if task.task_type == "terminal_task" else 2  # short words of a checker's command are common words
        telling = [text for text in secrets if len(text) >= least and text not in ("inline", "contains_any")]
        assert telling or task.task_type == "multiple_choice" or "accepted_answers" in task.resources
        assert not [text for text in telling if normalize_text(text) in shown], task.id


@pytest.mark.parametrize("pack", OWN)
def test_answers_are_hidden_and_tests_are_evaluation_inputs(pack: str) -> None:
    """Tests and checkers are evaluation inputs; answers, rubrics, solutions and expected states are hidden."""
    for task in tasks_of(pack).values():
        lanes = {each.name: each.visibility for each in task.resources}
        assert lanes.pop("tests", Visibility.EVALUATION_INPUTS) is Visibility.EVALUATION_INPUTS
        checks = {"checker", "test_files"} & set(lanes)
        assert {lanes[name] for name in checks} <= {Visibility.EVALUATION_INPUTS}
        secret = {"answer", "accepted_answers", "tolerance", "rubric", "reference_answer", "reference_solution"}
        hidden = {"expected_state", *secret} & set(lanes)
        assert hidden or checks or task.task_type == "repo_patch"
        assert {lanes[name] for name in hidden} <= {Visibility.HIDDEN}
