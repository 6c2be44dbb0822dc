"""Few-shot examples and system prompts are read strictly and identified by their content."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.harnesses.model.examples import MAX_BYTES, read_examples, read_system_prompt
from securebench.tester_config import ModelConfig

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = {"family": "short_answer", "input": {"question": "1 + 1?"}, "answer": "Answer: 2"}


def written(tmp_path: Path, *lines: Any) -> Path:
    """Write a file of lines, and return its path. A line that is not text is written as JSON."""
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_examples_are_those_of_a_family(tmp_path: Path) -> None:
    """A task gets only the examples of its family; the identity has the number of all examples and their digest."""
    other = {**EXAMPLE, "family": "free_response", "input": {"prompt": "Say hi."}, "answer": "Hi."}
    found = read_examples(written(tmp_path, EXAMPLE, "", other))
    assert found is not None
    assert found.of_family("short_answer") == [{"input": {"question": "1 + 1?"}, "answer": "Answer: 2"}]
    assert found.of_family("multiple_choice") == []
    changed = read_examples(written(tmp_path, EXAMPLE))
    assert changed is not None
    assert found.identity()["number"] == 2
    assert found.identity()["sha256"] != changed.identity()["sha256"]


def test_problems_have_lines(tmp_path: Path) -> None:
    """All problems of an examples file are reported at once, each with its line."""
    path = written(
        tmp_path,
        EXAMPLE,
        "{",
        {**EXAMPLE, "reply": "x"},
        {**EXAMPLE, "family": "terminal_task"},
        {**EXAMPLE, "input": {"query": "?"}},
        {**EXAMPLE, "answer": " "},
    )
    with pytest.raises(ConfigError) as caught:
        read_examples(path)
    found = [(problem.location.line, problem.code) for problem in caught.value.problems if problem.location]
    assert found == [
        (2, "json-syntax"),
        (3, "field-unknown"),
        (4, "field-value"),
        (5, "field-missing"),
        (5, "field-unknown"),
        (6, "field-empty"),
    ]
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """An examples file that is missing, empty or too large is refused, and so is a missing system prompt file."""
    large = written(tmp_path, "x" * MAX_BYTES)
    with pytest.raises(ConfigError, match="larger than"):
        read_examples(large)
    with pytest.raises(ConfigError, match="no examples"):
        read_examples(written(tmp_path, ""))
    with pytest.raises(ConfigError, match="there is no examples file"):
        read_examples(tmp_path / "none")
    with pytest.raises(ConfigError, match="there is no system prompt"):
        read_system_prompt(ModelConfig(dialect="messages", model="m", system_prompt_file=tmp_path / "none"))


def test_a_system_prompt_is_text_or_a_file(tmp_path: Path) -> None:
    """A system prompt in the configuration equals the same text from a file."""
    (tmp_path / "system.txt").write_text("Be brief.")
    texts: list[dict[str, Any]] = [{"system_prompt": "Be brief."}, {"system_prompt_file": tmp_path / "system.txt"}]
    found = [read_system_prompt(ModelConfig(dialect="messages", model="m", **text)) for text in texts]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].identity()["characters"] == 9
    assert read_system_prompt(ModelConfig(dialect="messages", model="m")) is None
