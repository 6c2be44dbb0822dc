"""The records of a run as a data frame of pandas, or of polars if pandas is not installed."""

from __future__ import annotations

import importlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask

COLUMNS: Final[Mapping[str, tuple[type, Callable[[RecordedTask], Any]]]] = {
    "run_id": (str, lambda task: task.run_id),
    "benchmark_id": (str, lambda task: task.benchmark_id),
    "task_id": (str, lambda task: task.task_id),
    "trial": (int, lambda task: task.trial),
    "family": (str, lambda task: task.family),
    "tags": (list, lambda task: list(task.tags)),
    "status": (str, lambda task: task.status.value),
    "passed": (bool, lambda task: task.passed),
    "assurance": (str, lambda task: task.assurance.value if task.assurance else None),
    "reason": (str, lambda task: task.reason.value if task.reason else None),
    "phase": (str, lambda task: task.phase.value if task.phase else None),
    "message": (str, lambda task: task.message or None),
    "attempt": (int, lambda task: task.attempt),
    "started_at": (datetime, lambda task: task.started_at),
    "duration_seconds": (float, lambda task: task.duration_seconds),
    "models": (list, lambda task: list(task.models)),
    "input_tokens": (int, lambda task: task.spent.input_tokens if task.spent else None),
    "output_tokens": (int, lambda task: task.spent.output_tokens if task.spent else None),
    "turns": (int, lambda task: task.spent.turns if task.spent else None),
    "cost_usd": (float, lambda task: task.spent.cost_usd if task.spent else None),
    "candidate_kind": (str, lambda task: task.candidate_kind.value if task.candidate_kind else None),
    "candidate_digest": (str, lambda task: task.candidate_digest),
}
"""The columns: the type of each, and a function that returns its value for a record.

``tags`` and ``models`` are lists of strings. Missing values are null.
"""

_PANDAS: Final = {
    str: "string",
    int: "Int64",
    float: "Float64",
    bool: "boolean",
    datetime: "datetime64[us, UTC]",
    list: "object",
}


def to_dataframe(run: RecordedRun) -> Any:
    """Return a data frame with a row for each record of ``run``. Without records, it has the same columns and types."""
    values: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for task in run.records():
        for name, (_, get) in COLUMNS.items():
            values[name].append(get(task))
    for library, make in (("pandas", _pandas), ("polars", _polars)):
        try:
            module = importlib.import_module(library)
        except ModuleNotFoundError:
            continue
        return make(module, values)
    raise ConfigError(
        "a data frame needs pandas or polars, and neither is installed",
        code="dataframe-library-missing",
        hint="pip install pandas, or pip install polars",
    )


def _pandas(pandas: Any, values: dict[str, list[Any]]) -> Any:
    columns = {name: pandas.Series(values[name], dtype=_PANDAS[kind]) for name, (kind, _) in COLUMNS.items()}
    return pandas.DataFrame(columns)


def _polars(polars: Any, values: dict[str, list[Any]]) -> Any:
    types = {
        str: polars.String,
        int: polars.Int64,
        float: polars.Float64,
        bool: polars.Boolean,
        datetime: polars.Datetime("us", "UTC"),
        list: polars.List(polars.String),
    }
    return polars.DataFrame(values, schema={name: types[kind] for name, (kind, _) in COLUMNS.items()})
