"""Tests of ``securebench digest``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pack_files import load, row
from securebench.cli import cli
from securebench.errors import ConfigError
from securebench.results.records.commitment import KEY_FILE, Commitment
from synthetic_run import header, record, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.resources import JsonValue

KEY = Commitment(b"k" * 32)


def digest(*arguments: object) -> Result:
    """Run ``securebench digest`` with these arguments."""
    return CliRunner().invoke(cli, ["digest", *map(str, arguments)])


@pytest.fixture
def pack(tmp_path: Path) -> BenchmarkPack:
    """Return a pack with two rows."""
    (tmp_path / "pack").mkdir()
    return load(tmp_path / "pack", row(), row(id="b"))


@pytest.fixture
def run(tmp_path: Path, pack: BenchmarkPack) -> Path:
    """Return a run of the first row of the pack."""
    of_pack: JsonValue = {"public_digest": pack.public_digest, "commitment": KEY.to(pack.digest), "tasks": 2}
    of_row = {"public_digest": pack.rows[0].public_digest, "commitment": KEY.to(pack.rows[0].digest)}
    directory = tmp_path / "run"
    write_run(directory, [record(task_id=pack.rows[0].id, provenance={"row": of_row})], header(1, pack=of_pack))
    KEY.write(directory)
    return directory


def test_public_digests_are_printed_and_nothing_that_depends_on_an_answer(tmp_path: Path, pack: BenchmarkPack) -> None:
    """Two packs that differ only in an answer have the same output, as lines and as JSON."""
    done = digest(tmp_path / "pack")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"{pack.public_digest}\tpack\tmy-benchmark",
        f"{pack.rows[0].public_digest}\trow\tmultiple_choice/1",
        f"{pack.rows[1].public_digest}\trow\tb",
    ]
    as_json = digest(tmp_path / "pack", "--json").stdout
    first = json.loads(as_json)["rows"][0]
    assert first == {
        "id": "multiple_choice/1",
        "family": "multiple_choice",
        "public_digest": pack.rows[0].public_digest,
    }
    load(tmp_path / "pack", row(eval={"answer": "C"}), row(id="b"))
    assert digest(tmp_path / "pack").stdout == done.stdout
    assert digest(tmp_path / "pack", "--json").stdout == as_json


def test_a_run_of_the_pack_agrees_with_it(tmp_path: Path, run: Path) -> None:
    """With the commitment key, public and hidden content are compared. Without the key, only public content is."""
    done = digest(tmp_path / "pack", "--run", run)
    assert done.exit_code == 0
    assert [line.split("\t")[3] for line in done.stdout.splitlines()] == ["same", "same", "not run"]
    (run / KEY_FILE).rename(tmp_path / "key")
    public = digest(tmp_path / "pack", "--run", run, "--json")
    assert public.exit_code == 0
    report = json.loads(public.stdout)
    assert [report["run"], *(one["run"] for one in report["rows"])] == [
        "same public content",
        "same public content",
        "not run",
    ]
    assert report["not_in_the_pack"] == []
    with_key = digest(tmp_path / "pack", "--run", run, "--commitment-key", tmp_path / "key")
    assert with_key.stdout == done.stdout


def test_what_differs_is_named_and_the_exit_code_is_1(tmp_path: Path, run: Path) -> None:
    """A changed answer, changed public content, and a task that the pack does not have are reported."""
    load(tmp_path / "pack", row(eval={"answer": "C"}), row(id="b"))
    hidden = digest(tmp_path / "pack", "--run", run)
    assert hidden.exit_code == 1
    assert [line.split("\t")[3] for line in hidden.stdout.splitlines()] == ["other hidden content"] * 2 + ["not run"]
    load(tmp_path / "pack", row(id="b"))
    other = digest(tmp_path / "pack", "--run", run)
    assert other.exit_code == 1
    assert other.stdout.splitlines()[0].endswith("\tother public content")
    assert other.stdout.splitlines()[-1] == "-\trow\tmultiple_choice/1\tnot in the pack"
    assert json.loads(digest(tmp_path / "pack", "--run", run, "--json").stdout)["not_in_the_pack"] == [
        "multiple_choice/1"
    ]


def test_a_key_needs_a_run_and_must_be_a_key(tmp_path: Path, run: Path) -> None:
    """A key without ``--run`` is a usage error. A file without a key is refused.

    A FIFO is refused, too, and the command does not block on it.
    """
    assert digest(tmp_path / "pack", "--commitment-key", run / KEY_FILE).exit_code == 2
    (tmp_path / "key").write_text("no key")
    os.mkfifo(tmp_path / "fifo")
    for name, problem in (("key", "cannot read"), ("fifo", "not a regular file")):
        done = digest(tmp_path / "pack", "--run", run, "--commitment-key", tmp_path / name)
        assert isinstance(done.exception, ConfigError)
        assert done.exception.code == "commitment-key"
        assert problem in str(done.exception)
