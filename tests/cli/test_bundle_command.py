"""Tests of ``securebench bundle``."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from securebench.cli import cli
from securebench.errors import ConfigError
from securebench.fs.zstd import zstd
from synthetic_run import record, sealed_text, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def bundle(*arguments: object) -> Result:
    """Run ``securebench bundle`` with these arguments."""
    return CliRunner().invoke(cli, ["bundle", *map(str, arguments)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the directory of a run with one candidate."""
    directory = tmp_path / "run"
    return write_run(directory, [record(candidate=sealed_text(directory, "Answer: 42\n"))])


def test_a_bundle_is_compressed_and_its_digest_is_printed(tmp_path: Path, run: Path) -> None:
    """Two bundles of a run are identical, and a ``.tar`` bundle is the decompressed form of a ``.tar.zst`` bundle."""
    output = tmp_path / "run.tar.zst"
    done = bundle(run, "-o", output)
    assert done.exit_code == 0, done.output
    data = output.read_bytes()
    assert done.stdout.splitlines() == [
        f"Bundle: {output} (1 run, 1 candidate, {len(data)} bytes)",
        f"sha256: {hashlib.sha256(data).hexdigest()}",
    ]
    bundle(run, "-o", tmp_path / "again.tar.zst")
    assert (tmp_path / "again.tar.zst").read_bytes() == data
    bundle(run, "-o", tmp_path / "run.tar")
    assert (tmp_path / "run.tar").read_bytes() == zstd.decompress(data)
    listed = subprocess.run(["tar", "-tf", tmp_path / "run.tar"], capture_output=True, text=True, check=True)
    assert "synthetic/run.json" in listed.stdout.splitlines()


def test_a_failure_leaves_no_file(tmp_path: Path, run: Path) -> None:
    """If a candidate is missing, no partial bundle or temporary file is left, and an older bundle stays."""
    (tmp_path / "run.tar.zst").write_text("old")
    next((run / "candidates").iterdir()).unlink()
    done = bundle(run, "-o", tmp_path / "run.tar.zst")
    assert isinstance(done.exception, ConfigError)
    assert done.exception.code == "candidate-not-stored"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.tar.zst"]
    assert (tmp_path / "run.tar.zst").read_text() == "old"


@pytest.mark.parametrize("name", ["run", "run.zip", "run.tar.gz"])
def test_other_formats_are_refused(tmp_path: Path, run: Path, name: str) -> None:
    """An output name that does not end with ``.tar`` or ``.tar.zst`` is a usage error."""
    assert bundle(run, "-o", tmp_path / name).exit_code == 2


@pytest.mark.parametrize("name", [".", "missing"])
def test_a_directory_without_a_run_is_refused(tmp_path: Path, name: str) -> None:
    """A directory that has no run, or that does not exist, is refused with the code ``run-missing``."""
    done = bundle(tmp_path / name, "-o", tmp_path / "run.tar")
    assert isinstance(done.exception, ConfigError)
    assert done.exception.code == "run-missing"
