"""The tester's texts that a model gets with each task: a system prompt, and few-shot examples."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.families.fields import Text
from securebench.families.registry import FAMILIES
from securebench.harnesses.provider.prompts import ANSWER_FILES
from securebench.strict_input.faults import Fault, Problems, did_you_mean, shown
from securebench.strict_input.files import read_text
from securebench.strict_input.json_text import JsonSource, UnfitJsonError, decode_json, json_faults
from securebench.strict_input.models import WireModel, fit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.tester_config import ModelConfig

MAX_BYTES: Final = 512 * 1024
"""Maximum bytes of a system prompt file or an examples file.

The text of both is passed in environment variables, whose total size is limited to 2 MiB.
"""


class ExampleModel(WireModel):
    """A few-shot example. ``input`` has the public fields of a task of ``family``; ``answer`` is the whole reply."""

    family: str
    input: dict[str, Any]
    answer: Text


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """A system prompt."""

    text: str

    def identity(self) -> dict[str, JsonValue]:
        """Return the size and digest of the text, for the run's identity."""
        return {"characters": len(self.text), "sha256": hashlib.sha256(self.text.encode()).hexdigest()}


@dataclass(frozen=True, slots=True)
class FewShotExamples:
    """Few-shot examples, in the order of the file. ``digest`` is the sha256 (hex) of the file's bytes."""

    examples: tuple[ExampleModel, ...]
    digest: str

    def of_family(self, family: str) -> list[dict[str, Any]]:
        """Return the inputs and answers of the examples of one family."""
        return [{"input": one.input, "answer": one.answer} for one in self.examples if one.family == family]

    def identity(self) -> dict[str, JsonValue]:
        """Return the number of examples and the digest of their file, for the run's identity."""
        return {"number": len(self.examples), "sha256": self.digest}


def read_system_prompt(config: ModelConfig) -> SystemPrompt | None:
    """Return the configured system prompt, if any. Raises :class:`ConfigError` if its file cannot be read."""
    path = config.system_prompt_file
    text = config.system_prompt if path is None else read_text(path, "system prompt", MAX_BYTES, follow=True)[0]
    return SystemPrompt(text) if text else None


def read_examples(path: Path | None) -> FewShotExamples | None:
    """Return the examples in a JSON Lines file; ``None`` if ``path`` is ``None``.

    Raises :class:`ConfigError` with all problems and their lines.
    """
    if path is None:
        return None
    text, data = read_text(path, "examples file", MAX_BYTES, follow=True)
    problems = Problems()
    examples: list[ExampleModel] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            example, faults = _example(line, number)
            problems.extend(faults, JsonSource(str(path), line, number))
            examples += [example] if example else []
    if not examples and not problems:
        problems.add(Fault("pack-empty", "the examples file contains no examples"), JsonSource(str(path), text))
    problems.raise_if_any()
    return FewShotExamples(tuple(examples), hashlib.sha256(data).hexdigest())


def _example(line: str, number: int) -> tuple[ExampleModel | None, list[Fault]]:
    try:
        value, _ = decode_json(line)
    except UnfitJsonError:
        return None, json_faults(line, number)
    example, faults = fit(ExampleModel, value)
    return example, faults or list(_family_faults(example) if example else ())


def _family_faults(example: ExampleModel) -> Iterator[Fault]:
    """Yield the problems of an example's family and input. The input is checked like the public fields of a row."""
    family = FAMILIES.get(example.family)
    answered = [name for name, known in FAMILIES.items() if known.active and known.candidate_kind in ANSWER_FILES]
    if family is None or example.family not in answered:
        message = f"{shown(example.family)} is not a family that is answered in one turn"
        yield Fault("field-value", message, ("family",), did_you_mean(example.family, answered))
        return
    _, faults = fit(family.input_model, example.input)
    yield from (fault.below(("input",)) for fault in faults)
