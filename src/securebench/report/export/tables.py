"""Records as tables: CSV, Markdown and Parquet. One row for each record."""

from __future__ import annotations

import csv
import importlib
from datetime import datetime
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError
from securebench.plurals import counted
from securebench.printable import csv_cell, markdown_text
from securebench.results.comparison import tally
from securebench.results.dataframe import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.results.read import RecordedRun

_BATCH: Final = 1000
"""How many records are kept in memory while Parquet is written."""

_MARKDOWN_COLUMNS: Final = ("task_id", "trial", "family", "status", "reason", "duration_seconds", "cost_usd")


def write_csv(run: RecordedRun, file: IO[str]) -> None:
    """Write the columns of :meth:`RecordedRun.to_dataframe`. The items of a list are separated by spaces."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in run.records():
        writer.writerow([_csv_value(get(record)) for _, get in COLUMNS.values()])


def write_markdown(run: RecordedRun, file: IO[str]) -> None:
    """Write the pass rate with its interval, its caveats, and a table of the records."""
    found = tally(run)
    estimate = found.estimate
    file.write(f"## {markdown_text(run.benchmark_id)}: {markdown_text(run.label)}\n\n")
    if estimate is None:
        file.write("No task has a verdict.\n\n")
    else:
        low, high = 100 * estimate.interval.low, 100 * estimate.interval.high
        file.write(f"Pass rate {100 * estimate.value:.1f} % of {counted(estimate.tasks, 'task')}, ")
        file.write(f"95 % interval {low:.1f} to {high:.1f} %.\n\n")
    for caveat in found.caveats():
        file.write(f"{markdown_text(caveat)}.\n\n")
    file.write("| " + " | ".join(_MARKDOWN_COLUMNS) + " |\n" + "|---" * len(_MARKDOWN_COLUMNS) + "|\n")
    for record in run.records():
        cells = (COLUMNS[name][1](record) for name in _MARKDOWN_COLUMNS)
        file.write("| " + " | ".join(_markdown_value(cell) for cell in cells) + " |\n")


def write_parquet(run: RecordedRun, path: Path) -> None:
    """Write a Parquet file with the columns of :func:`write_csv`. Raises :class:`ConfigError` without pyarrow."""
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError(
            "writing Parquet files needs pyarrow, which is not installed",
            code="extra-missing",
            hint="run: pip install 'securebench[parquet]' (in a clone: pip install '.[parquet]')",
        ) from error
    types = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        datetime: arrow.timestamp("us", tz="UTC"),
        list: arrow.list_(arrow.string()),
    }
    schema = arrow.schema([(name, types[kind]) for name, (kind, _) in COLUMNS.items()])
    records = run.records()
    with parquet.ParquetWriter(path, schema) as writer:
        while batch := list(islice(records, _BATCH)):
            columns = {name: [get(record) for record in batch] for name, (_, get) in COLUMNS.items()}
            writer.write_table(arrow.table(columns, schema=schema))


def _csv_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return csv_cell(" ".join(value))
    return csv_cell(value) if isinstance(value, str) else value


def _markdown_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1 else f"{value:,.1f}"
    return "" if value is None else markdown_text(str(value))
