"""The pinned programs know the models that examples and documents name."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from securebench.agents.catalogue import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.agents.model import AgentProgram

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "benchmarks").rglob("*.yaml") if "\n    model: " in path.read_text())
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
NOT_REAL = {"scripted-model", "my-model", "my-deployment"}
"""Placeholder names in the guides.

The guides are about the scripted provider, or about agents, servers and deployments of the user.
"""
CLOUD_NAME = re.compile(r"us\.anthropic\.(.*)-v1")
"""Matches Bedrock's name of an Anthropic model. The group is Anthropic's own name."""

NOT_FOR_TASKS = re.compile(r"codex-auto-review|gpt-daybreak-.*")
"""Models in Codex's list that are not meant for coding tasks."""


def _knows(program: str, model: str) -> bool:
    return PROGRAMS[program].knows_model(PROGRAMS[program].pinned, model)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT / "benchmarks")))
def test_an_example_names_a_model_that_its_program_knows(path: Path) -> None:
    """F7: the program knows the model of its example, because an unknown model may lower the score.

    Examples of the harness ``model`` start no program and have a placeholder name.
    """
    harness = YAML(typ="safe").load(path)["harness"]
    if harness["type"] == "model":
        assert harness["config"]["model"] in NOT_REAL
    else:
        assert _knows(harness["type"], harness["config"]["model"])


def test_pages_name_models_that_a_program_knows() -> None:
    """Each ``model:`` in the README and documents is a placeholder or is known to Codex or Claude Code.

    Both programs have an example.
    """
    named = {
        model for page in PAGES for model in re.findall(r"""\bmodel: *["']?([\w.\[\]-]*\w)""", page.read_text("utf-8"))
    }
    named = {CLOUD_NAME.sub(r"\1", model) for model in named}
    assert named >= {"gpt-5.5", *NOT_REAL}
    unknown = {
        model for model in named - NOT_REAL if not any(_knows(program, model) for program in ("codex", "claude_code"))
    }
    assert not unknown
    assert {"codex.yaml", "claude_code.yaml"} <= {path.name for path in EXAMPLES}


def test_names_that_are_not_listed_are_unknown() -> None:
    """The pinned version knows the listed names, and these names followed by a date. All other names are unknown to it.

    Any other version counts as knowing every model.
    """
    assert not _knows("codex", "gpt-5-codex")
    assert not _knows("claude_code", "claude-3-5-sonnet-latest")
    assert _knows("codex", "gpt-5.5-2026-04-01")
    assert PROGRAMS["codex"].knows_model("0.1.0", "gpt-5-codex")


@pytest.mark.agents
@pytest.mark.parametrize("name", ["codex", "claude_code"])
def test_the_catalogue_lists_the_models_of_the_pinned_program(
    name: str, agent_program: Callable[[str], AgentProgram]
) -> None:
    """Codex contains exactly the listed models, as JSON; Claude Code contains each listed model in quotes."""
    program, models = agent_program(name), PROGRAMS[name].models
    with (program.directory / program.executable).open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if name == "codex":
            slugs = {slug.decode() for slug in re.findall(rb'"slug": *"([a-z0-9.-]+)"', content)}
            assert set(models) == {slug for slug in slugs if not NOT_FOR_TASKS.fullmatch(slug)}
        else:
            assert [model for model in models if content.find(f'"{model}"'.encode()) < 0] == []
