"""An imported pack is validated and written atomically. A different tasks file is replaced only with ``force``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import ConfigError, SourceLocation
from securebench.importers.mmlu import MANIFEST
from securebench.importers.pack_output import write_pack, write_text
from securebench.importers.row import ImportedRow

if TYPE_CHECKING:
    from pathlib import Path


def _row(number: int = 0, **changes: Any) -> ImportedRow:
    task = {
        "id": f"demo/{number}",
        "input": {"question": "Q", "choices": ["one", "two"]},
        "eval": {"answer": "A"},
        **changes,
    }
    return ImportedRow(task, "record", SourceLocation("source.csv", 10 + number, 1))


def _files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_pack_is_written_that_loads(tmp_path: Path) -> None:
    """A pack written to a new directory can be loaded. It has its rows in order, a manifest and no other files."""
    tasks = write_pack(tmp_path / "new" / "pack", [_row(1), _row(0)], MANIFEST, force=False).tasks
    pack = load_benchmark_pack(tasks.parent / "manifest.yaml", tasks)
    assert [row.id for row in pack.rows] == ["demo/1", "demo/0"]
    assert _files(tasks.parent) == ["manifest.yaml", "tasks.jsonl"]
    assert tasks.stat().st_mode & 0o777 == 0o644


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    """Importing the same rows again writes the same bytes, and the existing file is no conflict."""
    first = write_pack(tmp_path, [_row()], MANIFEST, force=False).tasks.read_bytes()
    assert write_pack(tmp_path, [_row()], MANIFEST, force=False).tasks.read_bytes() == first
    assert write_pack(tmp_path / "other", [_row()], MANIFEST, force=False).tasks.read_bytes() == first


def test_another_file_is_not_replaced_without_force(tmp_path: Path) -> None:
    """An existing tasks file with other content is replaced only with ``force``."""
    (tmp_path / "tasks.jsonl").write_text("mine\n")
    with pytest.raises(ConfigError) as caught:
        write_pack(tmp_path, [_row()], MANIFEST, force=False)
    assert caught.value.code == "import-output-exists"
    assert "--force" in str(caught.value)
    assert (tmp_path / "tasks.jsonl").read_text() == "mine\n"
    assert "demo/0" in write_pack(tmp_path, [_row()], MANIFEST, force=True).tasks.read_text()
    assert _files(tmp_path) == ["manifest.yaml", "tasks.jsonl"]


@pytest.mark.parametrize("name", ["tasks.jsonl", "manifest.yaml"])
@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling link"])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, name: str, kind: str) -> None:
    """Without ``force``, a directory, FIFO or dangling link with the name of a pack file is kept.

    Nothing is written to it, and the import does not wait for it.
    """
    path = tmp_path / name
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("x")
    before = path.lstat()
    with pytest.raises(ConfigError) as caught:
        write_pack(tmp_path, [_row()], MANIFEST, force=False)
    assert caught.value.code in {"import-output-exists", "import-output-unwritable", "file-not-regular"}
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not (tmp_path / "x").exists()


def test_a_manifest_that_is_there_stays(tmp_path: Path) -> None:
    """An existing manifest, such as that of a recipe, is not replaced, even with ``force``."""
    manifest = "id: mine\nversion: 7\ndefaults:\n  family: multiple_choice\n"
    (tmp_path / "manifest.yaml").write_text(manifest)
    write_pack(tmp_path, [_row()], MANIFEST, force=True)
    assert (tmp_path / "manifest.yaml").read_text() == manifest


def test_a_row_that_no_pack_may_hold_is_told_at_its_place_in_the_source(tmp_path: Path) -> None:
    """An invalid row is reported at its place in the authors' data, and no tasks file is written."""
    rows = [_row(0), _row(1, input={"question": "Q", "choices": ["same", "Same."]}), _row(2, eval={"answer": "Z"})]
    with pytest.raises(ConfigError) as caught:
        write_pack(tmp_path, rows, MANIFEST, force=False)
    assert [problem.code for problem in caught.value.problems] == ["choices-collide", "answer-unknown"]
    assert "source.csv:11:1: demo/1: " in str(caught.value)
    assert "source.csv:12:1: demo/2: " in str(caught.value)
    assert ".import-" not in str(caught.value)
    assert _files(tmp_path) == ["manifest.yaml"]


def test_rows_that_no_pack_may_hold_are_left_out_on_demand(tmp_path: Path) -> None:
    """With `skip_unusable`, invalid rows are left out and returned with their problems; the other rows are written."""
    rows = [_row(0), _row(1, input={"question": "Q", "choices": ["same", "Same."]}), _row(2)]
    written = write_pack(tmp_path, rows, MANIFEST, force=False, skip_unusable=True)
    assert [row.id for row in written.rows] == ["demo/0", "demo/2"]
    assert [(name, [(each.code, each.location) for each in found]) for name, found in written.left_out.items()] == [
        ("demo/1", [("choices-collide", rows[1].location)])
    ]
    assert "demo/1" not in written.tasks.read_text()


def test_of_unusable_rows_alone_no_pack_is_written(tmp_path: Path) -> None:
    """No tasks file is written if every row is unusable, or if the manifest is invalid."""
    written = write_pack(tmp_path, [_row(0, eval={"answer": "Z"})], MANIFEST, force=False, skip_unusable=True)
    assert written.rows == ()
    assert [problem.code for problem in written.left_out["demo/0"]] == ["answer-unknown"]
    (tmp_path / "manifest.yaml").write_text("id: mine\n")
    with pytest.raises(ConfigError, match="version"):
        write_pack(tmp_path, [_row()], MANIFEST, force=False, skip_unusable=True)
    assert _files(tmp_path) == ["manifest.yaml"]


def test_a_wrong_manifest_is_told_as_itself(tmp_path: Path) -> None:
    """A problem in an existing manifest is reported with the path of the manifest."""
    (tmp_path / "manifest.yaml").write_text("id: mine\n")
    with pytest.raises(ConfigError) as caught:
        write_pack(tmp_path, [_row()], MANIFEST, force=False)
    assert str(tmp_path / "manifest.yaml") in str(caught.value)


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    """If the tasks file is a link, its target is not changed, and ``force`` replaces the link itself."""
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "tasks.jsonl").symlink_to(outside)
    with pytest.raises(ConfigError):
        write_pack(pack, [_row()], MANIFEST, force=False)
    write_pack(pack, [_row()], MANIFEST, force=True)
    assert outside.read_text() == "untouched"
    assert not (pack / "tasks.jsonl").is_symlink()


def test_a_directory_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    """If a file is where the output directory should be, the import fails with a ``ConfigError``."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        write_pack(tmp_path / "file" / "pack", [_row()], MANIFEST, force=False)
    assert caught.value.code == "import-output-unwritable"


def test_a_text_is_written_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing a file fails, neither the file nor its temporary file remains."""

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError) as caught:
        write_text(tmp_path / "lock.json", "text", force=True)
    assert caught.value.code == "import-output-unwritable"
    assert _files(tmp_path) == []
