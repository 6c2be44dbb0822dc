"""Lanes: which component sees which resource."""

from __future__ import annotations

import pytest

from securebench.errors import ConfigError
from securebench.resources import REDACTED, Component, Resource, ResourceBundle, Visibility

PUBLIC = Resource("question", "which?", Visibility.PUBLIC)
TESTS = Resource("tests", {"code": "check()"}, Visibility.EVALUATION_INPUTS)
ANSWER = Resource("answer", "B", Visibility.HIDDEN)
BUNDLE = ResourceBundle((PUBLIC, TESTS, ANSWER))


@pytest.mark.parametrize(
    ("component", "names"),
    [
        (Component.AGENT, ["question"]),
        (Component.TEST_SANDBOX, ["question", "tests"]),
        (Component.EVALUATOR, ["question", "answer"]),
    ],
)
def test_each_component_sees_its_lanes(component: Component, names: list[str]) -> None:
    """All see the public lane. The test sandbox also sees ``evaluation_inputs``, and the evaluator ``hidden``."""
    assert [resource.name for resource in BUNDLE.visible_to(component)] == names
    assert list(BUNDLE.visible_to(component).payload()) == names


def test_a_name_stands_once_whatever_the_lane() -> None:
    """Two resources with the same name are refused, even in different lanes."""
    with pytest.raises(ConfigError, match="answer") as caught:
        ResourceBundle((ANSWER, Resource("answer", "public", Visibility.PUBLIC)))
    assert caught.value.code == "resource-duplicate"


def test_a_summary_shows_public_values_alone() -> None:
    """The summary of a resource has its lane. Its value is redacted unless the lane is public."""
    by_name = {resource.name: resource.summary() for resource in BUNDLE}
    assert by_name["question"]["value"] == "which?"
    assert by_name["tests"]["value"] == by_name["answer"]["value"] == REDACTED
    assert by_name["answer"]["visibility"] == "hidden"
    assert len(BUNDLE.summary()) == len(BUNDLE) == 3


def test_secrets_are_all_but_the_public() -> None:
    """``secrets`` returns the resources of all lanes except the public one."""
    assert [resource.name for resource in BUNDLE.secrets()] == ["tests", "answer"]


def test_a_bundle_is_looked_up_by_name() -> None:
    """A resource is found by its name. An unknown name raises KeyError."""
    assert BUNDLE["answer"] is ANSWER
    assert "tests" in BUNDLE
    assert "gold" not in BUNDLE
    with pytest.raises(KeyError):
        BUNDLE["gold"]
