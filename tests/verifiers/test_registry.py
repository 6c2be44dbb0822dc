"""The registry returns the verifier of a family without loading unrelated verifiers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from securebench.verifiers.base import Verifier
from securebench.verifiers.registry import verifier_for
from securebench.verifiers.text.free_response import FreeResponseVerifier
from securebench.verifiers.text.multiple_choice import MultipleChoiceVerifier
from securebench.verifiers.text.short_answer import ShortAnswerVerifier


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("multiple_choice", MultipleChoiceVerifier),
        ("short_answer", ShortAnswerVerifier),
        ("free_response", FreeResponseVerifier),
    ],
)
def test_a_text_family_has_its_verifier(family: str, expected: type[Verifier]) -> None:
    """Each text family is judged by the verifier of its name."""
    verifier = verifier_for(family)
    assert isinstance(verifier, expected)
    assert verifier.family == family
    assert verifier.version


@pytest.mark.parametrize("family", ["code_completion", "repo_patch", "terminal_task"])
def test_a_family_judged_in_sandboxes_has_its_verifier(family: str) -> None:
    """A family that is judged in sandboxes has a verifier of its name."""
    verifier = verifier_for(family)
    assert isinstance(verifier, Verifier)
    assert verifier.family == family


@pytest.mark.parametrize("family", ["tool_call", "preference_pair", "multimodal_qa", "", "no_such_family"])
def test_a_family_without_a_verifier_has_none(family: str) -> None:
    """A family that is deferred or unknown has no verifier."""
    assert verifier_for(family) is None


def test_asking_for_one_verifier_loads_no_other() -> None:
    """To get the verifier of a text family, the registry loads neither the code verifier nor docker or pydantic."""
    code = (
        "import sys; from securebench.verifiers.registry import verifier_for; verifier_for('short_answer');"
        "print([m for m in sys.modules if m.startswith(('securebench.verifiers.code', 'docker', 'pydantic'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
