"""``securebench import``: the importers of HumanEval and MMLU, and the options that all importers share."""

from __future__ import annotations

import json
import os
import tarfile
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from fake_server import Content, FakeServer, serving
from importers.records import CSV, gzipped, lines, record, tar_of
from securebench.cli.import_command import command
from securebench.cli.validate_command import command as validate
from securebench.errors import ConfigError
from securebench.strict_input.faults import MAX_PROBLEMS
from workspaces.users import as_ordinary_user, open_directory

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

RECORDS = [record(f"Demo/{number}") for number in range(5)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a compressed file of records in HumanEval's format."""
    path = tmp_path / "records.jsonl.gz"
    path.write_bytes(gzipped(lines(*RECORDS)))
    return path


def _run(*arguments: object) -> Result:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    return result


def _ids(directory: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (directory / "tasks.jsonl").read_text().splitlines()]


def test_a_file_becomes_a_pack(source: Path, tmp_path: Path) -> None:
    """All rows of a file become a valid pack. The command prints their number, their place and the next commands."""
    result = _run("humaneval", source, "--output", tmp_path / "pack")
    assert result.exit_code == 0
    pack = tmp_path / "pack"
    assert result.output == (
        f"5 tasks in {pack / 'tasks.jsonl'}\n"
        f"next:\n  securebench validate {pack}\n"
        f"To run the pack, write a tester YAML that names an agent and this benchmark:\n"
        f"  benchmark:\n    manifest: {pack}/manifest.yaml\n    tasks: {pack}/tasks.jsonl\n"
    )
    assert CliRunner().invoke(validate, [str(pack)]).exit_code == 0
    (pack / "tester.yaml").touch()
    assert f"next:\n  securebench run {pack}/tester.yaml\n" in _run("humaneval", source, "--output", pack).output
    assert _ids(tmp_path / "pack") == [f"Demo/{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--limit", "2"], [0, 1]),
        (["--rows", "3"], [3]),
        (["--rows", "0-2,4"], [0, 1, 2, 4]),
        (["--rows", "4, 1, 4"], [4, 1]),
        (["--rows", "1-4", "--limit", "2"], [1, 2]),
    ],
)
def test_rows_are_chosen(source: Path, tmp_path: Path, options: list[str], expected: list[int]) -> None:
    """`--rows` selects rows by numbers and ranges, counted from 0. `--limit` keeps the first of the selected rows."""
    _run("humaneval", source, "--output", tmp_path / "pack", *options)
    assert _ids(tmp_path / "pack") == [f"Demo/{number}" for number in expected]


@pytest.mark.parametrize("rows", ["", "x", "3-1", "-1", "1-", "1,,2", "0-999999999", "\u0663"])
def test_row_numbers_that_are_none_are_wrong_usage(source: Path, tmp_path: Path, rows: str) -> None:
    """An invalid value of `--rows` is wrong usage, and the error shows the format."""
    result = _run("humaneval", source, "--output", tmp_path / "pack", "--rows", rows)
    assert result.exit_code == 2
    assert "write rows as 0-9,12" in result.output


def test_a_lock_is_written_and_then_held_to(source: Path, tmp_path: Path) -> None:
    """A lock in the pack's directory is used without `--lock`: it selects the rows, and changed rows are refused."""
    pack = tmp_path / "pack"
    _run("humaneval", source, "--output", pack, "--rows", "1,3", "--write-lock")
    assert list(json.loads((pack / "lock.json").read_text())["rows"]) == ["Demo/1", "Demo/3"]
    (pack / "tasks.jsonl").unlink()
    result = _run("humaneval", source, "--output", pack)
    assert f" (checked against {pack / 'lock.json'})" in result.output
    assert _ids(pack) == ["Demo/1", "Demo/3"]
    source.write_bytes(lines(RECORDS[1], {**RECORDS[3], "test": "def check(candidate):\n    pass\n"}))
    with pytest.raises(ConfigError, match="Demo/3 has digest"):
        _run("humaneval", source, "--output", pack, "--force")
    assert _ids(pack) == ["Demo/1", "Demo/3"]


def test_a_lock_may_lie_elsewhere(source: Path, tmp_path: Path) -> None:
    """`--lock` names the lock to write or to check against. A missing lock is an error."""
    lock = tmp_path / "elsewhere.json"
    _run("humaneval", source, "--output", tmp_path / "one", "--limit", 1, "--lock", lock, "--write-lock")
    _run("humaneval", source, "--output", tmp_path / "two", "--lock", lock)
    assert _ids(tmp_path / "two") == ["Demo/0"]
    with pytest.raises(ConfigError) as caught:
        _run("humaneval", source, "--output", tmp_path / "three", "--lock", tmp_path / "missing.json")
    assert caught.value.code == "file-missing"
    assert not (tmp_path / "three").exists()


def test_a_lock_of_another_benchmark_is_refused(source: Path, tmp_path: Path) -> None:
    """A lock names its benchmark, and the import of another benchmark refuses it."""
    pack = tmp_path / "pack"
    _run("humaneval", source, "--output", pack, "--write-lock")
    (tmp_path / "algebra_test.csv").write_text(CSV)
    with pytest.raises(ConfigError, match="for benchmark 'humaneval', expected 'mmlu'"):
        _run("mmlu", tmp_path / "algebra_test.csv", "--output", pack)


def test_a_file_that_differs_is_not_replaced_without_force(source: Path, tmp_path: Path) -> None:
    """An existing tasks.jsonl with other rows is replaced only with `--force`."""
    pack = tmp_path / "pack"
    _run("humaneval", source, "--output", pack)
    with pytest.raises(ConfigError) as caught:
        _run("humaneval", source, "--output", pack, "--limit", 1)
    assert caught.value.code == "import-output-exists"
    _run("humaneval", source, "--output", pack, "--limit", 1, "--force")
    assert _ids(pack) == ["Demo/0"]


def test_a_lock_that_differs_is_not_replaced_without_force(source: Path, tmp_path: Path) -> None:
    """Without `--force`, `--write-lock` does not replace an existing lock of other rows."""
    pack = tmp_path / "pack"
    _run("humaneval", source, "--output", pack, "--write-lock")
    before = (pack / "lock.json").read_bytes()
    for options in (("--lock", pack / "lock.json"), ()):
        output = tmp_path / "other" if options else pack
        with pytest.raises(ConfigError) as caught:
            _run("humaneval", source, "--output", output, "--write-lock", "--limit", 1, *options)
        assert caught.value.code == "import-output-exists"
        assert (pack / "lock.json").read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_an_output_directory_of_somebody_else_is_refused(source: Path, tmp_path: Path) -> None:
    """D5: an `--output` that the user may not read or write is the user's error, not an internal error."""
    _run("humaneval", source, "--output", tmp_path / "pack")  # imports modules that other users may be unable to read
    with open_directory() as directory:
        (directory / "theirs").mkdir()
        (directory / "closed").mkdir(mode=0o700)
        (directory / "records.gz").write_bytes(source.read_bytes())

        def look() -> None:
            for output in ("theirs", "theirs/new", "closed/new"):
                with pytest.raises(ConfigError) as caught:
                    _run("humaneval", directory / "records.gz", "--output", directory / output)
                assert caught.value.code == "import-output-unwritable"
            result = _run("humaneval", directory / "records.gz", "--output", directory / "closed")
            assert (result.exit_code, "is not readable" in result.output) == (2, True)

        as_ordinary_user(look)
        assert [path for name in ("theirs", "closed") for path in (directory / name).iterdir()] == []


def test_a_csv_file_says_its_subject_itself(tmp_path: Path) -> None:
    """A CSV file that is named as by MMLU's authors needs no options: its name contains subject and split."""
    (tmp_path / "algebra_dev.csv").write_text(CSV)
    _run("mmlu", tmp_path / "algebra_dev.csv", "--output", tmp_path / "pack")
    assert _ids(tmp_path / "pack") == ["mmlu/algebra/dev/0", "mmlu/algebra/dev/1"]


def test_an_archive_needs_a_subject(tmp_path: Path) -> None:
    """An import from an archive needs `--subject`. It reads the test split unless `--split` names another."""
    members = {f"data/{split}/algebra_{split}.csv": CSV.encode() for split in ("dev", "test")}
    archive = tar_of(tmp_path / "data.tar", members)
    result = _run("mmlu", archive, "--output", tmp_path / "pack")
    assert result.exit_code == 2
    assert "--subject" in result.output
    _run("mmlu", archive, "--subject", "algebra", "--output", tmp_path / "pack")
    assert _ids(tmp_path / "pack")[0] == "mmlu/algebra/test/0"
    _run("mmlu", archive, "--subject", "algebra", "--split", "dev", "--output", tmp_path / "other")
    assert _ids(tmp_path / "other")[0] == "mmlu/algebra/dev/0"


def test_rows_that_no_pack_may_hold_are_left_out_on_demand(tmp_path: Path) -> None:
    """A row whose choices the verifier cannot tell apart is refused.

    With `--skip-unusable`, the row is skipped and reported.
    """
    (tmp_path / "algebra_test.csv").write_text(CSV + "q,Aa,aa,A\n")
    with pytest.raises(ConfigError, match="--skip-unusable leaves such rows out"):
        _run("mmlu", tmp_path / "algebra_test.csv", "--output", tmp_path / "pack")
    result = _run("mmlu", tmp_path / "algebra_test.csv", "--output", tmp_path / "pack", "--skip-unusable")
    assert "left out: " in result.output
    assert "algebra_test.csv:3:1: mmlu/algebra/test/2: " in result.output
    assert len(_ids(tmp_path / "pack")) == 2


def test_records_that_are_no_rows_are_left_out_on_demand(tmp_path: Path) -> None:
    """Damaged records stop the import; with `--skip-unusable` they are reported, and `--rows` still counts them."""
    source = tmp_path / "records.jsonl"
    broken = record("Demo/1", prompt="x = 1\n")
    source.write_bytes(lines(record("Demo/0"), broken, record("Demo/2"), record("Demo/3")) + b"{no json\n")
    with pytest.raises(ConfigError) as caught:
        _run("humaneval", source, "--output", tmp_path / "pack")
    assert len(caught.value.problems) == 2
    assert all("--skip-unusable" in problem.hint for problem in caught.value.problems)
    result = _run("humaneval", source, "--output", tmp_path / "pack", "--skip-unusable", "--rows", "0-2")
    assert _ids(tmp_path / "pack") == ["Demo/0", "Demo/2"]
    assert f"left out: {source}:2:1: the prompt does not define double" in result.output
    assert f"left out: {source}:5:" in result.output


def test_where_no_row_is_left_the_reasons_are_given(tmp_path: Path) -> None:
    """If all rows are unusable, the reason for each is printed, and the error code is import-nothing-left."""
    (tmp_path / "algebra_test.csv").write_text("q,Aa,aa,A\nr,b,B,A\nonly,two\n")
    pack = tmp_path / "pack"
    arguments = ["mmlu", str(tmp_path / "algebra_test.csv"), "--output", str(pack), "--skip-unusable"]
    result = CliRunner().invoke(command, arguments)
    assert isinstance(result.exception, ConfigError)
    assert result.exception.code == "import-nothing-left"
    for line, why in ((1, "mmlu/algebra/test/0"), (2, "mmlu/algebra/test/1"), (3, "2 fields")):
        assert f"algebra_test.csv:{line}:1: {why}" in result.output
    assert "tasks in " not in result.output
    assert not (pack / "tasks.jsonl").exists()


@pytest.mark.parametrize(
    ("benchmark", "data"),
    [
        ("humaneval", b"{no json"),
        ("gsm8k", b"{no json"),
        ("swe-bench", b"{no json"),
        ("humaneval", gzipped(b"x" * 1000)[:-8]),
        ("mmlu", b"q,Aa,aa,A"),
        ("humaneval", None),
    ],
    ids=["humaneval", "gsm8k", "swe-bench", "damaged", "mmlu", "missing"],
)
def test_messages_do_not_contain_the_query_of_a_url(tmp_path: Path, benchmark: str, data: bytes | None) -> None:
    """Messages name a downloaded file without the query of its URL, which may contain a token."""
    with serving(FakeServer()) as server:
        if data is not None:
            server.files["/rows"] = Content(data)
        arguments = [benchmark, f"{server.url}/rows?token=s3cret", "--output", str(tmp_path / "pack")]
        result = CliRunner().invoke(command, [*arguments, *(["--subject", "all"] if benchmark == "mmlu" else [])])
    shown = f"{result.output}\n{result.exception}"
    assert isinstance(result.exception, ConfigError)
    assert f"{server.url}/rows" in shown
    assert "s3cret" not in shown


def test_more_unusable_rows_than_problems_are_told_at_once_are_all_left_out(tmp_path: Path) -> None:
    """`--skip-unusable` skips and reports all unusable rows, even if an error would list only some of them.

    The usable row is imported.
    """
    rows = "".join(f"q{number},Aa,aa,A\n" for number in range(3 * MAX_PROBLEMS))
    (tmp_path / "algebra_test.csv").write_text(f"{rows}good,yes,no,B\n")
    result = _run("mmlu", tmp_path / "algebra_test.csv", "--output", tmp_path / "pack", "--skip-unusable")
    assert _ids(tmp_path / "pack") == [f"mmlu/algebra/test/{3 * MAX_PROBLEMS}"]
    assert result.output.count("left out: ") == 3 * MAX_PROBLEMS


def test_all_subjects_come_from_a_directory_or_an_archive(tmp_path: Path) -> None:
    """`--subject all` imports every subject of the split in alphabetical order. A split without files is an error."""
    folder = tmp_path / "data" / "test"
    folder.mkdir(parents=True)
    (folder / "zoology_test.csv").write_text(CSV)
    (folder / "high_school_art_test.csv").write_text("q,Aa,aa,A\n" + CSV)
    (tmp_path / "data" / "val").mkdir()
    (tmp_path / "data" / "val" / "law_val.csv").write_text(CSV)
    archive = tmp_path / "data.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "data", "data")
    for source in (tmp_path, archive):
        pack = tmp_path / f"pack-of-{source.name}"
        _run("mmlu", source, "--subject", "all", "--output", pack, "--skip-unusable")
        assert _ids(pack) == [
            *(f"mmlu/high_school_art/test/{number}" for number in (1, 2)),
            *(f"mmlu/zoology/test/{number}" for number in (0, 1)),
        ]
    with pytest.raises(ConfigError, match="no file named <subject>_dev"):
        _run("mmlu", archive, "--subject", "all", "--split", "dev", "--output", tmp_path / "pack")


def test_a_file_without_a_subject_in_its_name_is_refused(tmp_path: Path) -> None:
    """The ids of rows contain the subject, so a file name without a subject is an error.

    With `--subject all`, the error names the file. For a single file, it recommends `--subject NAME`.
    """
    named = tmp_path / "_test.csv"
    for file in (named, tmp_path / "law_test.csv"):
        file.write_text(CSV)
    archive = tmp_path / "data.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(named, "data/_test.csv")
    for source, place in ((tmp_path, str(named)), (archive, f"{archive}!data/_test.csv")):
        with pytest.raises(ConfigError, match="contains no subject") as caught:
            _run("mmlu", source, "--subject", "all", "--output", tmp_path / "pack")
        assert caught.value.code == "import-row-invalid"
        assert str(caught.value.problems[0].location) == place
    assert "add --subject NAME" in _run("mmlu", named, "--output", tmp_path / "pack").output


def test_a_split_of_another_name_has_subjects_too(tmp_path: Path) -> None:
    """`--split` may name a split that MMLU lacks. Its files are found in a directory and in an archive."""
    (tmp_path / "law_train.csv").write_text(CSV)
    archive = tmp_path / "data.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "law_train.csv", "law_train.csv")
    for source in (tmp_path, archive):
        pack = tmp_path / f"pack-of-{source.name}"
        _run("mmlu", source, "--subject", "all", "--split", "train", "--output", pack)
        assert _ids(pack) == ["mmlu/law/train/0", "mmlu/law/train/1"]


@pytest.mark.parametrize("name", ["humaneval", "mmlu"])
def test_help_says_what_a_source_is(name: str) -> None:
    """The help of an importer shows SOURCE and the options that all importers share."""
    output = _run(name, "--help").output
    for word in ("SOURCE", "--output", "--lock", "--write-lock", "--rows", "--limit", "--force"):
        assert word in output
