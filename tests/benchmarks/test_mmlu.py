"""MMLU abstract algebra, imported: right labels and texts pass; wrong answers, empty answers and cheats fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.authors_data import data_folder
from benchmarks.packs import BENCHMARKS, judged
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.importers.lock import load_lock
from securebench.importers.mmlu import BENCHMARK, MANIFEST, mmlu_document, mmlu_rows
from securebench.importers.pack_output import write_pack
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.importers.row import ImportedRow
    from securebench.tasks import SecureBenchTask

LABELS = "ABCD"


@pytest.fixture(scope="module")
def rows() -> list[ImportedRow]:
    """Return the rows of the authors' test file."""
    name, data = mmlu_document(str(data_folder() / "mmlu"), "abstract_algebra", "test")
    return mmlu_rows([("abstract_algebra", name, data)], "test")


@pytest.fixture(scope="module")
def tasks(rows: list[ImportedRow], tmp_path_factory: pytest.TempPathFactory) -> tuple[SecureBenchTask, ...]:
    """Return all tasks, compiled from a pack that was written and loaded."""
    directory = tmp_path_factory.mktemp("mmlu")
    written = write_pack(directory, rows, MANIFEST, force=False).tasks
    return compile_benchmark_pack(load_benchmark_pack(directory / "manifest.yaml", written))


def test_the_recipe_is_what_its_lock_says(rows: list[ImportedRow]) -> None:
    """The lock of mmlu-abstract-algebra-mini lists the first ten test rows with digests of the authors' records."""
    lock = load_lock(BENCHMARKS / "mmlu-abstract-algebra-mini" / "lock.json", BENCHMARK)
    assert [row.id for row in lock.rows_in(rows)] == [f"mmlu/abstract_algebra/test/{n}" for n in range(10)]


def test_every_row_is_judged_by_label_and_by_text(tasks: tuple[SecureBenchTask, ...], tmp_path: Path) -> None:
    """In each of the 100 rows, the right label, its text and both together pass; every other label fails."""
    assert len(tasks) == 100
    for task in tasks:
        right = str(task.resources["answer"].value)
        choices = task.resources["choices"].value
        assert isinstance(choices, list)
        text = choices[LABELS.index(right)]
        for answer in (right, f"({right})", f"{text}", f"{right}. {text}", f"So\n\nThe answer is **{right}**."):
            assert judged(task, answer, ScriptedDriver(), tmp_path).reason is None, (task.id, answer)
        for wrong in set(LABELS) - {right}:
            assert judged(task, f"Answer: {wrong}", ScriptedDriver(), tmp_path).reason is not None


@pytest.mark.parametrize("answer", ["", " ", "\u200b", "A B C D", "A or B or C or D", "none", "E", "{}", "A, B"])
def test_no_evasion_passes_any_row(answer: str, tasks: tuple[SecureBenchTask, ...], tmp_path: Path) -> None:
    """E01, E03: an answer that is empty, names several choices or names no choice fails every row."""
    for task in tasks:
        assert judged(task, answer, ScriptedDriver(), tmp_path).reason is not None, task.id


@pytest.mark.parametrize("separator", [", ", " ", " or ", " / "])
def test_no_list_of_all_choices_passes(separator: str, tasks: tuple[SecureBenchTask, ...], tmp_path: Path) -> None:
    """E03: an answer that lists the texts of all choices, in order or reversed, fails every row."""
    for task in tasks:
        choices = task.resources["choices"].value
        assert isinstance(choices, list)
        for order in (choices, choices[::-1]):
            answer = separator.join(map(str, order))
            assert judged(task, answer, ScriptedDriver(), tmp_path).reason is not None, task.id
