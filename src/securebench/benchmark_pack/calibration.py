"""The calibration set of a pack: responses with known grades, to measure how well a judge model agrees with them.

It is a JSON Lines file below the directory ``asset_roots.eval``. Each line has the id of a ``task``, a ``candidate``
and its ``grade``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from securebench.errors import ConfigError, SourceLocation
from securebench.families.fields import Text
from securebench.families.model_graded import is_model_graded
from securebench.limits import MIB
from securebench.strict_input.faults import Fault, Problems
from securebench.strict_input.files import read_text
from securebench.strict_input.json_text import JsonSource, UnfitJsonError, decode_json, json_faults
from securebench.strict_input.models import WireModel, fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from securebench.benchmark_pack.model import BenchmarkRow

MAX_ITEMS: Final = 1000
_MAX_BYTES: Final = 16 * MIB


class CalibrationModel(WireModel):
    """One line of a calibration set."""

    task: str
    candidate: Text
    grade: Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class CalibrationItem:
    """A response to a task, and whether it passes."""

    task_id: str
    candidate: str
    passes: bool


def load_calibration(path: Path, rows: Mapping[str, BenchmarkRow]) -> tuple[CalibrationItem, ...]:
    """Read a calibration set. Raises :class:`ConfigError` with all problems."""
    text, _ = read_text(path, "calibration set", _MAX_BYTES)
    problems = Problems()
    items: list[CalibrationItem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        value, faults = _value(line, number)
        faults = faults or fit(CalibrationModel, value, secret=True)[1] or list(_task_faults(value["task"], rows))
        problems.extend(faults, JsonSource(str(path), line, number))
        if not faults:
            items.append(CalibrationItem(value["task"], value["candidate"], value["grade"] == "pass"))
    problems.raise_if_any()
    if len(items) > MAX_ITEMS or len({item.passes for item in items}) < 2:  # noqa: PLR2004 - both grades
        raise ConfigError(
            f"the calibration set must have at most {MAX_ITEMS} responses, and at least one of each grade",
            code="calibration-unfit",
            hint="list responses that pass and responses that fail, within this limit",
            location=SourceLocation(str(path)),
        )
    return tuple(items)


def _value(line: str, number: int) -> tuple[Any, list[Fault]]:
    try:
        return decode_json(line)[0], []
    except UnfitJsonError:
        return None, json_faults(line, number)


def _task_faults(task: str, rows: Mapping[str, BenchmarkRow]) -> Iterator[Fault]:
    if task not in rows or not is_model_graded(rows[task].eval):
        message = "the pack has no 'model_graded' task with this id"
        yield Fault("calibration-unfit", message, ("task",), "use the id of a row with a 'model_graded' rubric")
