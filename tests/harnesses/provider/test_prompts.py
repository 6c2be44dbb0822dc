"""The prompt of an agent program says what to read and where to leave the answer, and contains nothing of the task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harnesses.conftest import PATCH_VIEW, VIEW, WORKSPACE_VIEW
from securebench.families.registry import FAMILIES
from securebench.harnesses.provider.prompts import ANSWER_FILES, prompt_for
from securebench.resources import Resource, ResourceBundle, Visibility
from securebench.tasks import CandidateKind

every_family = pytest.mark.parametrize("name", sorted(FAMILIES))


@every_family
def test_every_family_is_told_what_to_read_and_where_to_write(name: str) -> None:
    """The prompt names the variable with the task file's path, and the answer file or the files to change."""
    kind = FAMILIES[name].candidate_kind
    prompt = prompt_for(replace(VIEW, family=name, candidate_kind=kind))
    assert "SECUREBENCH_TASK_FILE" in prompt
    expected = {CandidateKind.PATCH: "repository", CandidateKind.WORKSPACE: "directory", **ANSWER_FILES}
    assert expected[kind] in prompt


@every_family
def test_nothing_of_a_task_is_in_its_prompt(name: str) -> None:
    """A prompt contains nothing of its task, because all processes can read a program's arguments."""
    view = replace(VIEW, family=name, candidate_kind=FAMILIES[name].candidate_kind)
    other = ResourceBundle((Resource("question", "Another", Visibility.PUBLIC),))
    assert prompt_for(view) == prompt_for(replace(view, task_id="pack/other", resources=other))


@every_family
def test_fields_that_a_prompt_names_are_those_of_the_family(name: str) -> None:
    """Each word in back quotes in a prompt is a field of the family's rows."""
    family = FAMILIES[name]
    prompt = prompt_for(replace(VIEW, family=name, candidate_kind=family.candidate_kind))
    assert set(prompt.split("`")[1::2]) <= set(family.input_model.model_fields)


def test_a_repository_is_changed_in_place() -> None:
    """C23: the prompt says to change the repository in place, not to change tests, and that no commits are needed."""
    prompt = prompt_for(PATCH_VIEW)
    assert "in place" in prompt
    assert "Do not change tests" in prompt
    assert "no commits" in prompt


@pytest.mark.parametrize("view", [VIEW, PATCH_VIEW, WORKSPACE_VIEW, replace(VIEW, candidate_kind=CandidateKind.CODE)])
def test_an_unknown_family_is_told_by_its_kind(view: object) -> None:
    """A family without its own instructions gets those of its candidate kind."""
    assert isinstance(view, type(VIEW))
    unknown = replace(view, family="another")
    assert prompt_for(unknown)
    answer = ANSWER_FILES.get(view.candidate_kind)
    assert answer is None or answer in prompt_for(unknown)
