"""Which tasks of a pack are run."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import FakeProducer
from securebench.errors import ConfigError
from securebench.resources import ResourceBundle
from securebench.results.run_directory.header import read_header
from securebench.tasks import SecureBenchTask
from securebench.tester_config import TaskSelection
from securebench.tester_run.planning.selection import select_tasks
from tester_run.running import make_parts, records, run, write_run

if TYPE_CHECKING:
    from pathlib import Path


def task(name: str, family: str = "short_answer", *tags: str) -> SecureBenchTask:
    """Return a task with these tags."""
    return SecureBenchTask(name, "pack", family, ResourceBundle(()), metadata={"tags": list(tags)})


TASKS = (
    task("web/login", "short_answer", "easy", "web"),
    task("web/log[0]", "short_answer", "hard", "web"),
    task("db/index", "repo_patch", "hard"),
    task("db/schema", "repo_patch"),
)


def selected(tasks: tuple[SecureBenchTask, ...] = TASKS, **criteria: Any) -> list[str]:
    """Return the ids of the selected tasks."""
    return [task.id for task in select_tasks(tasks, TaskSelection(**criteria))]


@pytest.mark.parametrize(
    ("criteria", "ids"),
    [
        ({}, ["web/login", "web/log[0]", "db/index", "db/schema"]),
        ({"task": ("web/*",)}, ["web/login", "web/log[0]"]),
        ({"task": ("*e*", "web/log?n")}, ["web/login", "web/log[0]", "db/index", "db/schema"]),
        ({"task": ("web/log[0]",)}, ["web/log[0]"]),
        ({"task": ("d[bc]/i*",)}, ["db/index"]),
        ({"tag": ("hard",)}, ["web/log[0]", "db/index"]),
        ({"tag": ("easy", "hard"), "family": ("short_answer",)}, ["web/login", "web/log[0]"]),
        ({"tag": ("hard",), "task": ("db/*",), "family": ("repo_patch",)}, ["db/index"]),
        ({"limit": 2}, ["web/login", "web/log[0]"]),
        ({"family": ("repo_patch",), "limit": 1}, ["db/index"]),
        ({"limit": 9}, ["web/login", "web/log[0]", "db/index", "db/schema"]),
    ],
    ids=str,
)
def test_what_is_selected(criteria: dict[str, Any], ids: list[str]) -> None:
    """A selected task matches a value of each criterion. The pack's order is kept, and the limit is applied last."""
    assert selected(**criteria) == ids


def test_a_shuffle_depends_on_the_seed_alone() -> None:
    """The order depends only on the seed and the ids of the tasks, so a larger limit only adds tasks."""
    tasks = tuple(task(f"task-{number}") for number in range(6))
    assert selected(tasks, shuffle=7) == ["task-1", "task-2", "task-0", "task-5", "task-4", "task-3"]
    assert selected(tasks[::-1], shuffle=7) == selected(tasks, shuffle=7)
    assert selected(tasks, shuffle=7, limit=2) == selected(tasks, shuffle=7)[:2]
    assert selected(tasks, shuffle=0) != selected(tasks, shuffle=7)
    assert selected(tasks, shuffle=0) != [one.id for one in tasks]


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ({"task": ("web/logni",)}, "the id 'web/logni' [selection-empty]\n    hint: for example: 'web/login'"),
        ({"task": ("login*",)}, "hint: for example: 'web/login'"),
        ({"task": ("shcema",)}, "hint: for example: 'db/schema'"),
        ({"tag": ("Hard",)}, "the tag 'Hard' [selection-empty]\n    hint: for example: 'hard'"),
        ({"tag": ("har*",)}, "hint: for example: 'hard'"),
        (
            {"family": ("code",)},
            "the family 'code' [selection-empty]\n    hint: for example: 'repo_patch', 'short_answer'",
        ),
        ({"task": ("web/*", "nothing*")}, "the id 'nothing*'"),
        ({"tag": ("easy",), "family": ("repo_patch",)}, "no task matches all criteria"),
        ({"task": ("\x1b[31m",)}, r"the id '\x1b[31m'"),
    ],
    ids=str,
)
def test_no_match_is_an_error(criteria: dict[str, Any], message: str) -> None:
    """Each value must match a task: a misspelled value would silently omit tasks. The hint shows similar names."""
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        selected(**criteria)
    assert caught.value.code == "selection-empty"


def test_tags_of_a_pack_without_tags() -> None:
    """If no task has a tag, the hint says so instead of showing an empty list."""
    with pytest.raises(ConfigError, match="hint: no task of the pack has any tag"):
        selected((task("a"),), tag=("x",))


def test_hostile_ids_and_tags_are_shown_safely() -> None:
    """Control characters in ids and tags of a pack are escaped in a hint, so they cannot control a terminal."""
    with pytest.raises(ConfigError) as caught:
        selected((task("red\x1b[2J\u202e", "short_answer", "tag\x07"),), task=("re",), tag=("ta",))
    assert str(caught.value).replace("\n", "").isprintable()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a pack of six tasks and a tester YAML."""
    write_run(tmp_path)
    return tmp_path


def ids(root: Path) -> list[str]:
    """Return the ids of the records without the name of the pack."""
    return [record["task_id"].removeprefix("pack/") for record in records(root)]


def write_selection(root: Path, **select: Any) -> None:
    """Add a selection to the tester YAML."""
    path = root / "tester.yaml"
    path.write_text(path.read_text().replace("  id: run\n", f"  id: run\n  select: {json.dumps(select)}\n"))


def test_the_selection_is_part_of_the_run(root: Path) -> None:
    """The selection is written to run.json, and the summary says that this was not the whole benchmark."""
    summary = run(root, task=("*-[1-4]",), shuffle=3, limit=2)
    assert len(ids(root)) == 2
    assert summary.part is not None
    assert summary.part.describe() == "2 of 6 tasks, not the whole benchmark"
    criteria = {"task": ["*-[1-4]"], "shuffle": 3, "limit": 2}
    assert summary.to_json()["part_of_pack"] == {"planned": 2, "tasks": 6, "selection": criteria}
    header = read_header(root / "results")
    assert header is not None
    assert header.decisive["selection"] == criteria
    assert header.information["planned"] == 2


def test_a_whole_benchmark_is_no_part_of_itself(root: Path) -> None:
    """If a selection contains all tasks, the summary does not mention a part of the benchmark."""
    summary = run(root, task=("*",), shuffle=1)
    assert summary.part is None
    assert summary.to_json()["part_of_pack"] is None


def test_options_replace_the_keys_of_the_tester_yaml(root: Path) -> None:
    """Each option replaces the key with its name in the tester YAML, even if its value is 0."""
    write_selection(root, task=["*-1", "*-2", "*-3"], shuffle=3, limit=1)
    run(root, task=("*-4", "*-5"), limit=2, shuffle=0)
    assert sorted(ids(root)) == ["task-4", "task-5"]
    header = read_header(root / "results")
    assert header is not None
    assert header.decisive["selection"] == {"task": ["*-4", "*-5"], "shuffle": 0, "limit": 2}


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ({"tasks": ["a"]}, "unknown key 'tasks'"),
        ({"task": "a"}, "run.select.task"),
        ({"task": [""]}, "run.select.task"),
        ({"tag": ["a", "a"]}, "contains the same name twice"),
        ({"limit": 0}, "run.select.limit must be at least 1"),
        ({"shuffle": -1}, "run.select.shuffle must be at least 0"),
        ({"shuffle": True}, "run.select.shuffle"),
    ],
    ids=str,
)
def test_a_selection_is_read_strictly(root: Path, select: dict[str, Any], message: str) -> None:
    """Unknown keys and invalid values in ``run.select`` are refused."""
    write_selection(root, **select)
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(root)


def test_a_resumed_run_has_the_same_selection(root: Path) -> None:
    """A run is not resumed with another selection: records would be missing, or belong to no task.

    Only the limit may grow.
    """
    run(root, task=("*-[0-4]",), shuffle=3, limit=2)
    first = ids(root)
    for changed in (
        {"task": ("*",), "shuffle": 3, "limit": 2},
        {"task": ("*-[0-4]",), "shuffle": 4, "limit": 2},
        {"task": ("*-[0-4]",), "limit": 2},
        {"task": ("*-[0-4]",), "shuffle": 3, "limit": 1},
        {"task": ("*-[0-4]",), "shuffle": 3, "limit": 2, "family": ("short_answer",)},
        {},
    ):
        with pytest.raises(ConfigError, match=r"cannot continue the run: selection\.") as caught:
            run(root, resume=True, **changed)  # type: ignore[arg-type]
        assert caught.value.code == "resume-mismatch"
    for limit, tasks in ((4, 4), (None, 5)):
        producer = FakeProducer()
        run(root, resume=True, task=("*-[0-4]",), shuffle=3, limit=limit, parts=make_parts(producer))
        assert len(ids(root)) == tasks
        assert ids(root)[:2] == first
    with pytest.raises(ConfigError, match=r"selection\.limit was None"):
        run(root, resume=True, task=("*-[0-4]",), shuffle=3, limit=5)
