"""What a pack sets for a judge model: defaults for its rubrics, and the calibration set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.benchmark_pack import BenchmarkPack

GOOD = [{"task": "a", "candidate": "x", "grade": "pass"}, {"task": "a", "candidate": "y", "grade": "fail"}]
TEMPLATE = "{{task}} {{criteria}} {{candidate}}"


def load(root: Path, judge: dict[str, Any] | None, *lines: Any, rubric: dict[str, Any] | None = None) -> BenchmarkPack:
    """Load and compile a pack with calibration ``lines`` and two tasks: ``a`` is model-graded, ``b`` is not."""
    (root / "hidden").mkdir(exist_ok=True)
    (root / "hidden" / "known.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    manifest = {"id": "pack", "version": 1, **({} if judge is None else {"judge": judge})}
    (root / "manifest.yaml").write_text(json.dumps(manifest))
    rubrics = {
        "a": {"type": "model_graded", "criteria": "It is good.", **(rubric or {})},
        "b": {"type": "contains_any", "accepted_answers": ["x"]},
    }
    rows = [
        {"id": name, "family": "free_response", "input": {"prompt": "?"}, "eval": {"rubric": given}}
        for name, given in rubrics.items()
    ]
    (root / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pack = load_benchmark_pack(root / "manifest.yaml", root / "tasks.jsonl")
    compile_benchmark_pack(pack)
    return pack


def test_the_manifest_has_the_defaults_of_rubrics(tmp_path: Path) -> None:
    """A model-graded rubric gets the manifest's defaults, but keeps its own values; other rubrics are unchanged."""
    defaults = {"votes": 5, "max_bytes": 100}
    one, other = load(tmp_path, {**defaults, "template": TEMPLATE}, rubric={"votes": 1}).rows
    assert one.eval["rubric"] == {
        "type": "model_graded",
        "criteria": "It is good.",
        "votes": 1,
        "max_bytes": 100,
        "template": TEMPLATE,
    }
    assert other.eval["rubric"].keys() == {"type", "accepted_answers"}


def test_the_calibration_set_is_part_of_the_pack(tmp_path: Path) -> None:
    """A change of the calibration set is detected and changes the pack's digest, but not its public digest."""
    pack = load(tmp_path, {"calibration": "known.jsonl", "min_kappa": 0.5}, *GOOD)
    assert [(item.task_id, item.candidate, item.passes) for item in pack.calibration] == [
        ("a", "x", True),
        ("a", "y", False),
    ]
    assert pack.min_kappa == 0.5
    other = load(tmp_path, {"calibration": "known.jsonl", "min_kappa": 0.5}, *GOOD, {**GOOD[0], "candidate": "z"})
    assert (pack.digest == other.digest, pack.public_digest == other.public_digest) == (False, True)
    with pytest.raises(ConfigError, match="changed"):
        pack.verify_unchanged()


@pytest.mark.parametrize(
    ("judge", "lines", "code"),
    [
        ({"votes": 2}, [], "rubric-votes"),
        ({"votes": 17}, [], "field-value"),
        ({"template": "{{task}} {{candidate}}"}, [], "rubric-template"),
        ({"template": TEMPLATE + "{{task}}"}, [], "rubric-template"),
        ({"template": TEMPLATE + "{{key}}"}, [], "rubric-template"),
        ({"max_bytes": 0}, [], "field-value"),
        ({"min_kappa": 0.5}, [], "calibration-unfit"),
        ({"min_kappa": 2, "calibration": "known.jsonl"}, GOOD, "field-value"),
        ({"model": "m"}, [], "field-unknown"),
        ({"calibration": "../manifest.yaml"}, [], "path-unsafe"),
        ({"calibration": "missing.jsonl"}, [], "asset-missing"),
        ({"calibration": "known.jsonl"}, [], "calibration-unfit"),
        ({"calibration": "known.jsonl"}, GOOD[:1], "calibration-unfit"),
        ({"calibration": "known.jsonl"}, [*GOOD, {**GOOD[0], "task": "b"}], "calibration-unfit"),
        ({"calibration": "known.jsonl"}, [*GOOD, {**GOOD[0], "task": "c"}], "calibration-unfit"),
        ({"calibration": "known.jsonl"}, [*GOOD, {**GOOD[0], "grade": "good"}], "field-value"),
        ({"calibration": "known.jsonl"}, [*GOOD, {"task": "a"}], "field-missing"),
        ({"calibration": "known.jsonl"}, [*GOOD, 7], "field-type"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, judge: dict[str, Any], lines: list[Any], code: str) -> None:
    """An invalid ``judge`` section or calibration set is refused with its code when the pack is loaded."""
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, judge, *lines)
    assert code in {problem.code for problem in raised.value.problems}


@pytest.mark.parametrize(
    ("rubric", "code"),
    [
        ({"votes": 4}, "rubric-votes"),
        ({"template": "x"}, "rubric-template"),
        ({"criteria": " "}, "field-empty"),
        ({"accepted_answers": ["x"]}, "field-unknown"),
        ({"type": "model-graded"}, "field-value"),
    ],
)
def test_a_wrong_rubric_is_refused(tmp_path: Path, rubric: dict[str, Any], code: str) -> None:
    """An invalid rubric is refused with its code, and the message does not show the criteria."""
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, None, rubric=rubric)
    assert code in {problem.code for problem in raised.value.problems}
    assert "It is good" not in str(raised.value)


def test_a_bad_line_is_named_without_its_text(tmp_path: Path) -> None:
    """The error for an invalid calibration line gives the line number, but not the text, which is hidden content."""
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, {"calibration": "known.jsonl"}, GOOD[0], {"task": "a", "candidate": "canary", "grade": "canary"})
    (problem,) = raised.value.problems
    assert (problem.location and problem.location.line, "canary" in str(raised.value)) == (2, False)
