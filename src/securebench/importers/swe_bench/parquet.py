"""Parquet files. They need the optional dependency pyarrow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.importers.sources import MAX_SOURCE_BYTES
from securebench.importers.swe_bench.records import FIELDS
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_ROWS: Final = 100_000
"""Maximum rows of a file. The largest known data set has 20,000."""


def parquet_records(path: Path) -> Iterable[tuple[SourceLocation, Any]]:
    """Yield the location of each row and its columns in ``FIELDS``. The line of a location is the row's number, from 1.

    Raises :class:`ConfigError`: ``import-extra-missing`` without pyarrow, ``import-archive-invalid``,
    ``import-too-large``, and the errors of :func:`open_regular`.
    """
    parquet = _pyarrow()
    with open_regular(path, "source", follow=True) as file:
        try:
            rows = _rows(parquet, file, path)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - a native reader raises anything on a malformed file
            hint = "it may be truncated: download it again"
            raise ConfigError(f"cannot read {path}: {error}", code="import-archive-invalid", hint=hint) from None
    for number, row in enumerate(rows, start=1):
        yield SourceLocation(str(path), number), row


def _rows(parquet: Any, file: Any, path: Path) -> list[dict[str, Any]]:
    """Return all rows, after checking the sizes in the footer: compressed columns can expand a thousandfold."""
    table = parquet.ParquetFile(file)
    metadata = table.metadata
    groups = range(metadata.num_row_groups)
    if metadata.num_rows > MAX_ROWS or sum(metadata.row_group(i).total_byte_size for i in groups) > MAX_SOURCE_BYTES:
        message = f"{path} contains more than {MAX_ROWS} rows or {MAX_SOURCE_BYTES} bytes uncompressed"
        raise ConfigError(message, code="import-too-large")
    columns = [name for name in table.schema_arrow.names if name in FIELDS]
    rows: list[dict[str, Any]] = table.read(columns=columns).to_pylist()
    return rows


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "reading Parquet files needs pyarrow, which is not installed",
            code="import-extra-missing",
            hint="run 'pip install pyarrow', or pass the same rows as JSON Lines",
        ) from None
