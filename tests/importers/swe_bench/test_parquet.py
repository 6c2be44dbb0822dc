"""Parquet files, read with a fake of pyarrow, which is an optional dependency."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from importers.swe_records import row
from securebench.errors import ConfigError
from securebench.importers.sources import MAX_SOURCE_BYTES
from securebench.importers.swe_bench.parquet import MAX_ROWS, parquet_records

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class FakeFile:
    """A fake of pyarrow's ``ParquetFile``."""

    rows: list[dict[str, Any]]
    count: int = 1
    size: int = 100
    columns_read: list[list[str]] = field(default_factory=list)

    @property
    def metadata(self) -> SimpleNamespace:
        """Return the row count and the sizes in the file's footer."""
        group = SimpleNamespace(total_byte_size=self.size)
        return SimpleNamespace(num_rows=self.count, num_row_groups=1, row_group=lambda _: group)

    @property
    def schema_arrow(self) -> SimpleNamespace:
        """Return the names of the columns."""
        return SimpleNamespace(names=list(self.rows[0]))

    def read(self, columns: list[str]) -> SimpleNamespace:
        """Return the rows with only these columns."""
        self.columns_read.append(columns)
        kept = [{name: each[name] for name in columns} for each in self.rows]
        return SimpleNamespace(to_pylist=lambda: kept)


def _install(monkeypatch: pytest.MonkeyPatch, made: FakeFile | Exception) -> None:
    def open_file(_: object) -> FakeFile:
        if isinstance(made, Exception):
            raise made
        return made

    parquet = ModuleType("pyarrow.parquet")
    parquet.ParquetFile = open_file  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the path of an existing file."""
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1")
    return path


def test_the_columns_that_make_a_task_are_read(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    """Each record is located by its row number, and columns that no task needs are not read."""
    file = FakeFile([row(embedding="x" * 100)])
    _install(monkeypatch, file)
    ((place, record),) = parquet_records(source)
    assert place.line == 1
    assert record["instance_id"] == "pallets__flask-1"
    assert "embedding" not in file.columns_read[0]
    assert "created_at" not in record


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    """If pyarrow is not installed, the error names the command that installs it."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="pip install pyarrow") as caught:
        list(parquet_records(source))
    assert caught.value.code == "import-extra-missing"


def test_a_file_that_the_library_refuses_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    """An exception that pyarrow raises for a broken file becomes a ConfigError with a documented code."""
    _install(monkeypatch, RuntimeError("bad footer"))
    with pytest.raises(ConfigError, match="bad footer") as caught:
        list(parquet_records(source))
    assert caught.value.code == "import-archive-invalid"


@pytest.mark.parametrize(("count", "size"), [(MAX_ROWS + 1, 1), (1, MAX_SOURCE_BYTES + 1)])
def test_a_bomb_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, source: Path, count: int, size: int
) -> None:
    """H09: A file whose footer declares too many rows or bytes is refused before any column is read."""
    file = FakeFile([row()], count, size)
    _install(monkeypatch, file)
    with pytest.raises(ConfigError) as caught:
        list(parquet_records(source))
    assert caught.value.code == "import-too-large"
    assert not file.columns_read
