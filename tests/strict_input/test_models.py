"""The messages for values that do not fit their model, in SecureBench's wording."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
from pydantic import Field

from securebench.strict_input.models import WireModel, fit, matching

Letters = Annotated[str, matching(re.compile("[a-z]+"), "a word")]


class Model(WireModel):
    """A model with bounded fields, a flag and a mapping whose keys are checked."""

    workers: Annotated[int, Field(ge=1, le=8)] = 1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    answers: Annotated[list[str], Field(min_length=1, max_length=2)] = Field(default_factory=list)
    name: Annotated[str, Field(min_length=1, max_length=3)] = "a"
    flag: bool = True
    ports: dict[Letters, int] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"workers": 0}, "workers must be at least 1, but is 0"),
        ({"workers": 9}, "workers must be at most 8, but is 9"),
        ({"workers": "2"}, "workers must be a whole number, but is the string '2'"),
        ({"workers": True}, "workers must be a whole number, but is true"),
        ({"share": 0.0}, "share must be greater than 0.0, but is 0.0"),
        ({"share": 1.5}, "share must be less than 1.0, but is 1.5"),
        ({"share": float("nan")}, "share must be finite, but is nan"),
        ({"answers": []}, "answers must have at least 1 item, not 0"),
        ({"answers": ["a", "b", "c"]}, "answers must have at most 2 items, not 3"),
        ({"name": ""}, "name must have at least 1 character, but is the string ''"),
        ({"name": "four"}, "name must have at most 3 characters, but is the string 'four'"),
        ({"flag": 1}, "flag must be true or false, but is 1"),
    ],
)
def test_messages(value: dict[str, Any], message: str) -> None:
    """The message for a wrong value names the field, the rule and the value in plain words."""
    fitted, faults = fit(Model, value)
    assert fitted is None
    assert [fault.message for fault in faults] == [message]


def test_a_secret_value_is_not_shown() -> None:
    """With ``secret``, a message names the type of a wrong value, but not the value."""
    _, faults = fit(Model, {"workers": 0, "name": "four"}, secret=True)
    assert [fault.message for fault in faults] == [
        "workers must be at least 1, but is a number",
        "name must have at most 3 characters, but is a string",
    ]


def test_a_wrong_key_of_a_mapping_is_reported_at_the_key() -> None:
    """In a mapping, a wrong key is reported at the key, and a wrong value at the value."""
    _, faults = fit(Model, {"ports": {"A": 1, "b": "2"}})
    assert [(fault.message, fault.path, fault.at_key) for fault in faults] == [
        ("the key 'A' is not a word", ("ports", "A"), True),
        ("ports.b must be a whole number, but is the string '2'", ("ports", "b"), False),
    ]
