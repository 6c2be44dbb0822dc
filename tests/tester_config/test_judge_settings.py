"""The judge model in a tester YAML and in a suite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pack_files import row, write_pack
from securebench.errors import ConfigError
from securebench.tester_config import load_tester_config
from securebench.tester_config.loader import read_tester_file
from securebench.tester_config.suite import load_suite

if TYPE_CHECKING:
    from pathlib import Path

JUDGE = {"dialect": "messages", "model": "claude-sonnet-5", "effort": "low", "budget": {"tokens": 1_000_000}}
HARNESS = {"type": "command", "config": {"command": ["true"]}}


def written(root: Path, judge: Any) -> Path:
    """Write a pack and a tester YAML with this judge."""
    (root / "pack").mkdir(exist_ok=True)
    write_pack(root / "pack", row())
    config = {
        "schema_version": "0.2",
        "run": {"id": "run", "output_dir": "results"},
        "benchmark": {"manifest": "pack/manifest.yaml", "tasks": "pack/tasks.jsonl"},
        "harness": HARNESS,
        "judge": judge,
    }
    path = root / "tester.yaml"
    path.write_text(json.dumps(config))
    return path


def test_settings_and_defaults(tmp_path: Path) -> None:
    """The settings of the judge are read. Those that are missing have the documented defaults."""
    judge = load_tester_config(written(tmp_path, JUDGE)).judge
    assert judge is not None
    assert (judge.model, judge.effort, judge.budget.tokens) == ("claude-sonnet-5", "low", 1_000_000)
    assert (judge.max_tokens, judge.temperature, judge.api_key_env) == (8192, None, None)


@pytest.mark.parametrize(
    ("judge", "place"),
    [
        ({**JUDGE, "votes": 3}, "/judge/votes"),
        ({**JUDGE, "dialect": "smoke_signals"}, "/judge/dialect"),
        ({**JUDGE, "temperature": None}, "/judge/temperature"),
        ({**JUDGE, "max_tokens": 16}, "/judge/max_tokens"),
        ({**JUDGE, "provider_tools": True}, "/judge/provider_tools"),
        ({**JUDGE, "base_url": "http://judge.example.com"}, "/judge/base_url"),
        ({"dialect": "messages"}, "/judge/model"),
        ("claude-sonnet-5", "/judge"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, judge: Any, place: str) -> None:
    """A wrong setting of the judge is refused with its place in the file."""
    with pytest.raises(ConfigError) as raised:
        load_tester_config(written(tmp_path, judge))
    assert [problem.location and problem.location.pointer for problem in raised.value.problems] == [place]


def test_a_suite_has_one_judge_for_all_runs(tmp_path: Path) -> None:
    """All runs of a suite have the judge of the suite, so that their results can be compared."""
    written(tmp_path, JUDGE)
    suite = {
        "schema_version": "0.2",
        "suite": {"id": "suite", "output_dir": "runs"},
        "packs": ["pack"],
        "agents": [{"name": name, "harness": HARNESS} for name in ("one", "two")],
        "judge": JUDGE,
    }
    path = tmp_path / "suite.yaml"
    path.write_text(json.dumps(suite))
    judges = [run.config.judge for run in load_suite(read_tester_file(path)).runs]
    assert [judge and judge.model for judge in judges] == ["claude-sonnet-5"] * 2
