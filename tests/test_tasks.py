"""Tasks, and their views for the agent and the verifier."""

from __future__ import annotations

import dataclasses
import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.errors import ConfigError
from securebench.families.registry import FAMILIES
from securebench.resources import Resource, ResourceBundle, Visibility
from securebench.tasks import (
    CANDIDATE_KINDS,
    DEFAULT_IMAGE,
    AgentView,
    CandidateKind,
    Environment,
    SecureBenchTask,
    VerifierView,
    task_from_spec,
)
from securebench.trials import TrialId

CANARY = "canary-7f3a9d"
SPEC = {
    "id": "pack/one",
    "benchmark_id": "pack",
    "task_type": "code_completion",
    "metadata": {"note": CANARY},
    "resources": {
        "prompt": {"value": "write it", "visibility": "public"},
        "tests": {"value": {"code": CANARY}, "visibility": "evaluation_inputs"},
        "canonical_solution": {"value": CANARY, "visibility": "hidden"},
    },
}


def _task() -> SecureBenchTask:
    return task_from_spec(SPEC)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("code_completion", "code"), ("repo_patch", "patch"), ("terminal_task", "workspace"), ("short_answer", "text")],
)
def test_a_spec_gives_the_task_of_its_type(family: str, kind: str) -> None:
    """D20: a task from a spec has the kind of candidate of its family, and the environment from its metadata."""
    environment = {"image": "a:1", "workdir": "/app", "timeout_seconds": 5, "materialize_workdir_from_image": True}
    task = task_from_spec({**SPEC, "task_type": family, "metadata": {"environment": environment}})
    assert task.candidate_kind == kind
    assert task.environment == Environment("a:1", "/app", 5, materialize_workdir_from_image=True)


def test_families_and_specs_agree_on_candidates() -> None:
    """``CANDIDATE_KINDS`` has exactly the families whose candidate is not text, with the kinds that they declare."""
    declared = {name: family.candidate_kind for name, family in FAMILIES.items()}
    assert {name: kind for name, kind in declared.items() if kind is not CandidateKind.TEXT} == dict(CANDIDATE_KINDS)


@pytest.mark.parametrize(
    "environment", [[], {"imagine": "a"}, {"image": 1}, {"timeout_seconds": True}, {"timeout_seconds": "5"}]
)
def test_a_wrong_environment_of_a_spec(environment: object) -> None:
    """An environment that is not an object, or has an unknown key or a value of a wrong type, is refused."""
    with pytest.raises(ConfigError):
        task_from_spec({**SPEC, "metadata": {"environment": environment}})


def test_payloads_follow_the_lanes() -> None:
    """All payloads have the public values. Only that of the test sandbox has tests, only the hidden one has answers."""
    task = _task()
    assert task.agent_payload() == task.public_payload() == {"prompt": "write it"}
    assert set(task.evaluation_payload()) == {"prompt", "tests"}
    assert set(task.hidden_payload()) == {"prompt", "canonical_solution"}


def test_no_path_of_references_leads_from_an_agents_view_to_another_lane() -> None:
    """No object reachable from an agent's view contains metadata or a value of another lane (F03, F18).

    References of classes and callables are not followed.
    """
    view = _task().agent_view()
    seen: set[int] = set()
    found: list[Any] = [view]
    while found:
        thing = found.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        assert not (isinstance(thing, str) and CANARY in thing)
        assert not isinstance(thing, (SecureBenchTask, VerifierView))
        found.extend(gc.get_referents(thing))


def test_a_verifiers_view_keeps_its_two_sides_apart() -> None:
    """In a verifier's view, the part for the test sandbox has no solution, and the part for the evaluator no tests."""
    view = _task().verifier_view()
    assert "canonical_solution" not in view.test_sandbox
    assert "tests" not in view.evaluator


@pytest.mark.parametrize("lane", [Visibility.HIDDEN, Visibility.EVALUATION_INPUTS])
def test_a_view_cannot_be_made_with_more_than_its_lane(lane: Visibility) -> None:
    """An agent's view refuses resources of a lane that is not public."""
    bundle = ResourceBundle((Resource("answer", "B", lane),))
    task = _task()
    with pytest.raises(ValueError, match="may not see"):
        dataclasses.replace(task.agent_view(), resources=bundle)


def test_views_and_tasks_do_not_change() -> None:
    """The resources of an agent's view cannot be replaced, and the view has no fields for other lanes or metadata."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        _task().agent_view().resources = ResourceBundle()  # type: ignore[misc]  # the assignment must fail
    assert {field.name for field in dataclasses.fields(AgentView)}.isdisjoint({"metadata", "evaluator", "test_sandbox"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "'id'"),
        ({"task_type": 3}, "'task_type'"),
        ({"famly": "x"}, "famly"),
        ({"resources": []}, "'resources'"),
        ({"resources": {"a": {"visibility": "public"}}}, "'value'"),
        ({"resources": {"a": {"value": 1, "visibility": "secret"}}}, "secret"),
        ({"resources": {"a": {"value": 1, "lane": "public"}}}, "lane"),
    ],
)
def test_a_wrong_spec_is_refused(change: dict[str, Any], message: str) -> None:
    """A wrong task spec is refused with a message that names the mistake."""
    with pytest.raises(ConfigError, match=message):
        task_from_spec({**SPEC, **change})


def test_a_resource_without_a_lane_is_hidden() -> None:
    """A resource without ``visibility`` is hidden, and the agent does not get it (F18)."""
    task = task_from_spec({**SPEC, "resources": {"answer": {"value": "B"}}})
    assert task.agent_payload() == {}
    assert task.resources["answer"].visibility is Visibility.HIDDEN


def test_the_removed_field_expose_is_a_value_error() -> None:
    """A spec with the removed field ``expose`` is refused; the field is not ignored."""
    with pytest.raises(ValueError, match="expose"):
        task_from_spec({**SPEC, "resources": {"a": {"value": 1, "expose": True}}})


def test_trials_of_a_task_never_share_a_directory() -> None:
    """Each trial of a task has its own directory. A task whose id ends in ``-trial-2`` does not share one of them."""
    names = [TrialId("pack/one", trial).directory for trial in (1, 2, 12)]
    assert names[1:] == [f"{names[0]}-trial-2", f"{names[0]}-trial-12"]
    assert TrialId("pack/one-trial-2").directory != names[1]
    assert [str(TrialId("pack/one", trial)) for trial in (1, 2)] == ["pack/one", "pack/one (trial 2)"]


@pytest.mark.parametrize(
    ("metadata", "tags"),
    [
        ({}, ()),
        ({"tags": ["b", "a", "b", "", 3, None, ["x"]]}, ("b", "a")),
        ({"tags": "no list"}, ()),
        (
            {"tags": ["web"], "difficulty": "easy", "category": "ops", "author_name": "x"},
            ("web", "category:ops", "difficulty:easy"),
        ),
        ({"difficulty": 3, "category": ""}, ()),
        ({"tags": ["x" * 101, *map(str, range(40))]}, tuple(map(str, range(32)))),
    ],
)
def test_tags_come_from_the_metadata(metadata: dict[str, Any], tags: tuple[str, ...]) -> None:
    """The tags of a task are those in its metadata, then its category and its difficulty.

    A task has at most 32 different tags of at most 100 characters. Other values are ignored.
    """
    assert SecureBenchTask("t", "b", "f", ResourceBundle(()), metadata=metadata).tags == tags


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_ids_never_share_a_directory(one: str, other: str) -> None:
    """Directory names are short and of plain characters, and differ if and only if the task ids differ (K11)."""
    names = [TrialId(one).directory, TrialId(other).directory]
    assert (names[0] == names[1]) == (one == other)
    assert all(len(name) <= 60 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)


@pytest.mark.parametrize(("one", "other"), [("a/b", "a_b"), ("A", "a"), ("..", "."), ("x" * 300, "x" * 301)])
def test_ids_that_look_alike_have_directories_of_their_own(one: str, other: str) -> None:
    """Two task ids with equal slugs have different directories because of the hash."""
    assert TrialId(one).directory != TrialId(other).directory


@pytest.mark.parametrize(
    ("image", "checker", "images"),
    [
        (None, None, {DEFAULT_IMAGE}),
        ("task:1", {"command": "true"}, {"task:1"}),
        ("task:1", {"command": "true", "image": "check:1"}, {"task:1", "check:1"}),
        (None, "true", {DEFAULT_IMAGE}),
    ],
)
def test_a_task_names_all_its_images(image: str | None, checker: Any, images: set[str]) -> None:
    """A task needs the image of its agent, and that of its checker if the checker has its own."""
    resources = ResourceBundle((Resource("checker", checker, Visibility.EVALUATION_INPUTS),))
    task = SecureBenchTask("id", "pack", "terminal_task", resources, environment=Environment(image=image))
    assert task.images == images
