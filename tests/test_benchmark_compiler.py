"""The compiler of packs, which assigns a lane to each field of a row."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack_files import ROWS, load, row
from securebench.benchmark_compiler import EVAL_VISIBILITY, compile_benchmark_pack, eval_visibility_for
from securebench.benchmark_pack import BenchmarkPack, BenchmarkRow
from securebench.errors import ConfigError
from securebench.families.registry import FAMILIES
from securebench.resources import FileReference, ResourceKind, Visibility

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.tasks import SecureBenchTask

EVALUATION_INPUTS = {
    "code_completion": {"tests"},
    "repo_patch": {"tests"},
    "terminal_task": {"checker", "run_tests", "test_files", "needed_commands"},
    "tool_call": {"initial_state"},
    "browser_task": {"credentials"},
}
HIDDEN = {
    "multiple_choice": {"answer"},
    "short_answer": {"accepted_answers", "tolerance"},
    "free_response": {"rubric", "reference_answer"},
    "code_completion": {"reference_solution", "canonical_solution"},
    "repo_patch": {"gold_patch"},
    "terminal_task": {"expected_state"},
    "tool_call": {"expected_calls", "expected_final_state"},
    "browser_task": {"success_check"},
    "desktop_task": {"success_check"},
    "artifact_task": {"reference_artifact", "rubric"},
    "multimodal_qa": {"answer", "rubric"},
    "preference_pair": {"preference", "rubric"},
}
"""``EVALUATION_INPUTS`` and ``HIDDEN`` repeat the lanes in the code. To change a lane, change the code and these."""


def compiled(directory: Path, *rows: dict[str, Any]) -> tuple[SecureBenchTask, ...]:
    """Return the compiled tasks of a pack with these rows."""
    return compile_benchmark_pack(load(directory, *rows))


def test_the_lanes_are_those_that_are_documented() -> None:
    """Each family has exactly the documented eval fields, each in its documented lane."""
    for family, lanes in EVAL_VISIBILITY.items():
        by_lane = {lane: {name for name, its in lanes.items() if its is lane} for lane in Visibility}
        assert by_lane[Visibility.PUBLIC] == set()
        assert by_lane[Visibility.EVALUATION_INPUTS] == EVALUATION_INPUTS.get(family, set())
        assert by_lane[Visibility.HIDDEN] == HIDDEN[family]
    assert set(EVAL_VISIBILITY) == set(FAMILIES)


@pytest.mark.parametrize(
    ("family", "key"), [("tool_call", "anything"), ("code_completion", "test"), ("nonsense", "tests")]
)
def test_f18_what_is_not_known_is_hidden(family: str, key: str) -> None:
    """F18: an eval field is in the hidden lane if its family is unknown or does not declare the field."""
    assert eval_visibility_for(family, key) is Visibility.HIDDEN


def test_the_map_of_lanes_cannot_be_changed() -> None:
    """Code that imports the table of lanes cannot move a field into another lane."""
    with pytest.raises(TypeError):
        EVAL_VISIBILITY["multiple_choice"]["answer"] = Visibility.PUBLIC  # type: ignore[index] # must be read-only


@pytest.mark.parametrize("family", sorted(ROWS))
def test_a_row_of_each_family_compiles(tmp_path: Path, family: str) -> None:
    """A task has its row's id and its family's candidate kind. The agent gets all input fields and no eval field."""
    (task,) = compiled(tmp_path, row(family))
    assert (task.id, task.benchmark_id, task.task_type) == (f"{family}/1", "my-benchmark", family)
    assert task.candidate_kind is FAMILIES[family].candidate_kind
    assert task.agent_payload() == ROWS[family]["input"]
    evals = {name for name in ROWS[family]["eval"] if eval_visibility_for(family, name) is Visibility.HIDDEN}
    assert set(task.hidden_payload()) - set(task.agent_payload()) == evals


def test_assets_and_eval_files_become_resources(tmp_path: Path) -> None:
    """The asset list becomes one public resource.

    A file in ``eval`` becomes a file resource. Its lane is that of the ``eval`` field.
    """
    for root in ("assets", "hidden"):
        (tmp_path / root).mkdir()
        (tmp_path / root / "x").write_text("x")
    asset = {"path": "x", "mount": "y", "read_only": False}
    evals = {"checker": {"command": "true"}, "test_files": {"path": "x"}, "expected_state": "done"}
    (task,) = compiled(tmp_path, row("terminal_task", assets=[asset], eval=evals))
    assets, files = task.resources["assets"], task.resources["test_files"]
    assert (assets.value, assets.kind, assets.visibility) == ([asset], ResourceKind.ASSETS, Visibility.PUBLIC)
    assert assets.files == (FileReference("x", "y", read_only=False),)
    assert (files.value, files.kind, files.visibility) == (
        {"path": "x"},
        ResourceKind.FILE,
        Visibility.EVALUATION_INPUTS,
    )
    assert files.files == (FileReference("x", "securebench/evaluation_inputs/x"),)
    assert task.resources["expected_state"].kind is ResourceKind.VALUE
    assert task.public_assets is not None
    assert task.eval_assets is not None
    assert task.public_assets.directory == tmp_path.resolve() / "assets"
    assert task.agent_view().assets == task.public_assets


def test_a_row_without_files_has_no_asset_roots(tmp_path: Path) -> None:
    """A task without files has no directory to read files from."""
    (task,) = compiled(tmp_path, row())
    assert task.public_assets is None
    assert task.eval_assets is None


def test_compiled_metadata_says_what_it_was_compiled_from(tmp_path: Path) -> None:
    """A task's metadata has the row's metadata and environment, the pack's id and version, and its asset settings.

    It has no absolute path.
    """
    (task,) = compiled(
        tmp_path, row(metadata={"source": "ours"}, environment={"image": "python:3.11", "timeout_seconds": 5})
    )
    assert task.metadata == {
        "source": "ours",
        "benchmark_pack": {"id": "my-benchmark", "version": 1, "manifest_path": "manifest.yaml"},
        "environment": {"image": "python:3.11", "timeout_seconds": 5},
        "asset_roots": {"public": "assets/", "eval": "hidden/"},
        "asset_defaults": {"read_only": True},
    }
    assert str(tmp_path) not in json.dumps(task.metadata)


def test_f03_metadata_never_reaches_the_agent(tmp_path: Path) -> None:
    """F03: an answer that an author leaves in metadata is not in the agent's view."""
    (task,) = compiled(tmp_path, row(metadata={"solution": "canary-77"}))
    assert "canary-77" not in repr(task.agent_view())


def test_the_digest_of_a_row_goes_with_its_task(tmp_path: Path) -> None:
    """A task has the digest of its row, so that its record can identify the row."""
    pack = load(tmp_path, row())
    assert compile_benchmark_pack(pack)[0].row_digest == pack.rows[0].digest != ""


def test_every_problem_of_every_row_is_raised_at_once(tmp_path: Path) -> None:
    """One error reports all rows that break the rules of their family, with their lines."""
    pack = load(tmp_path, row(eval={"answer": "Z"}), row(id="b"), row(id="c", eval={"answer": True}))
    with pytest.raises(ConfigError) as caught:
        compile_benchmark_pack(pack)
    assert [problem.location.line for problem in caught.value.problems if problem.location] == [1, 3]


def test_rows_made_by_hand_are_held_to_the_same_rules(tmp_path: Path) -> None:
    """A pack that was made in Python, without files, must obey the same rules as a pack from files."""

    def pack(made: BenchmarkRow) -> BenchmarkPack:
        return BenchmarkPack("x", 1, tmp_path, tmp_path / "m", tmp_path / "t", (made,), {})

    good = BenchmarkRow("a", "tool_call", {"x": 1}, {"y": 2})
    assert compile_benchmark_pack(pack(good))[0].agent_payload() == {"x": 1}
    for bad, code in [
        (BenchmarkRow("a", "tool_call", {"x": 1}, {"x": 2}), "resource-duplicate"),
        (BenchmarkRow("a", "tool_call", {"assets": 1}, assets=({"path": "x"},)), "resource-duplicate"),
        (BenchmarkRow("a", "nonsense"), "family-unknown"),
        (BenchmarkRow("a", "multiple_choice"), "field-missing"),
    ]:
        with pytest.raises(ConfigError) as caught:
            compile_benchmark_pack(pack(bad))
        assert caught.value.code == code


NAMES = st.text(alphabet="abcxyz_", min_size=1, max_size=6)
SECRET = st.uuids().map(lambda value: f"canary-{value}")


@given(
    family=st.sampled_from([name for name, family in FAMILIES.items() if not family.active]),
    inputs=st.dictionaries(NAMES, st.integers(-9, 9) | st.text(max_size=5), max_size=4),
    names=st.sets(NAMES | st.sampled_from(["rubric", "answer", "credentials", "initial_state", "success_check"])),
    secret=SECRET,
)
def test_f18_no_eval_value_reaches_the_agent(
    tmp_path: Path, family: str, inputs: dict[str, Any], names: set[str], secret: str
) -> None:
    """F18: an agent gets no eval value of a random row, whatever the names of its fields are."""
    evals = {name: {"deep": [secret, {"er": f"{secret}{name}"}]} for name in names if name not in inputs}
    (task,) = compiled(tmp_path, row(family, input=inputs, eval=evals, metadata={"note": secret}))
    seen = repr(task.agent_view()) + json.dumps(task.agent_payload()) + json.dumps(task.public_payload())
    assert secret not in seen
    assert base64.b64encode(secret.encode()).decode() not in seen
    assert set(task.agent_payload()) == set(inputs)
    assert set(task.hidden_payload()) | set(task.evaluation_payload()) == set(inputs) | set(evals)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.active])
def test_f18_no_eval_value_of_an_active_family_reaches_the_agent(tmp_path: Path, family: str) -> None:
    """F18: for each family with a fixed set of fields, the agent gets all input fields and no eval field."""
    (task,) = compiled(tmp_path, row(family))
    assert set(task.agent_payload()) == set(ROWS[family]["input"])
    assert not set(task.agent_payload()) & set(ROWS[family]["eval"])
