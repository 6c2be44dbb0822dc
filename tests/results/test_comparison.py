"""Paired comparisons, checked against independent computations and with directories from strangers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.results.comparison import compare, tally
from securebench.results.read import read_run
from securebench.results.records.commitment import KEY_FILE
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.files import SUITE
from securebench.results.suite import RecordedSuite, read_runs, write_suite
from synthetic_run import header, record, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from securebench.results.comparison import Comparison, PairTally

_STATUS = {"1": VerificationStatus.PASSED, "0": VerificationStatus.FAILED, "e": VerificationStatus.ERROR}


def _run(directory: Path, verdicts: Sequence[str]) -> PairTally:
    """Write a run and return its tally. ``verdicts`` has a string for each trial, with a character for each task."""
    given = [
        record(number, _STATUS[verdict], trial=trial)
        for trial, line in enumerate(verdicts, start=1)
        for number, verdict in enumerate(line)
    ]
    write_run(directory, given, header(len(given), trials=len(verdicts)))
    return tally(read_run(directory))


def _compare(path: Path, a: Sequence[str], b: Sequence[str]) -> Comparison:
    return compare(_run(path / "a", a), _run(path / "b", b))


def test_one_trial_uses_mcnemar(tmp_path: Path, stats: Any) -> None:
    """Pairs are counted by task, and the p-value equals that of scipy's exact test on the discordant pairs."""
    found = _compare(tmp_path, ["1111100000"], ["1100011111"])
    assert (len(found.only_a), len(found.only_b), found.tasks) == (3, 5, 10)
    assert found.method == "mcnemar"
    assert found.difference == pytest.approx(0.2)
    assert found.p_value == pytest.approx(stats.binomtest(3, 8).pvalue)
    assert found.agreement == pytest.approx(0.2)


def test_tasks_without_a_verdict_in_one_run_are_not_counted(tmp_path: Path) -> None:
    """A task that ended in an error in one run is left out of both rates, and a note reports it."""
    found = _compare(tmp_path, ["11e0"], ["1011"])
    assert found.tasks == 3
    assert found.rate_a.value == pytest.approx(2 / 3)
    assert found.rate_b.value == pytest.approx(2 / 3)
    assert any("1 task without a verdict" in note for note in found.notes)


def test_several_trials_use_the_bootstrap(tmp_path: Path) -> None:
    """Runs with several trials are compared with the bootstrap, and their rates are means over tasks."""
    found = _compare(tmp_path, ["110100", "100100", "110100"], ["111110", "110111", "111010"])
    assert found.method == "bootstrap"
    assert found.rate_a.value == pytest.approx((3 + 2 + 0 + 3 + 0 + 0) / 18)
    assert found.difference == pytest.approx(14 / 18 - 8 / 18)
    assert found.interval.low <= found.difference <= found.interval.high


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"benchmark": {"id": "made-up", "version": "2"}}, "versions of the benchmark: '1' and '2'"),
        ({"pack": {"commitment": "cd" * 32, "public_digest": "cd" * 32, "tasks": 2}}, "different packs"),
    ],
)
def test_different_packs_are_refused(tmp_path: Path, section: dict[str, dict[str, object]], expected: str) -> None:
    """Runs of different packs are not paired, and the error names the difference."""
    a = _run(tmp_path / "a", ["10"])
    write_run(tmp_path / "b", [record(0), record(1)], header(2, **section))  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        compare(a, tally(read_run(tmp_path / "b")))
    assert expected in str(caught.value)


def test_a_changed_row_is_refused(tmp_path: Path) -> None:
    """Runs of different rows are refused even if their headers agree: each record has the digest of its row."""
    a = _run(tmp_path / "a", ["10"])
    row = {"row": {"commitment": "ef" * 32, "public_digest": "ef" * 32}}
    write_run(tmp_path / "b", [record(0), record(1, provenance=row)], header(2))
    with pytest.raises(ConfigError, match="different rows for 'made-up/task-00001'"):
        compare(a, tally(read_run(tmp_path / "b")))


def test_runs_with_one_key_must_have_the_same_hidden_content(tmp_path: Path) -> None:
    """Different commitments with the same key are refused. With different keys, a note says what is unchecked."""
    a = _run(tmp_path / "a", ["10"])
    pack = {"commitment": "cd" * 32, "public_digest": "ab" * 32, "tasks": 2}
    write_run(tmp_path / "b", [record(0), record(1)], header(2, pack=pack))  # type: ignore[arg-type]
    b = tally(read_run(tmp_path / "b"))
    assert "hidden content was not compared" in " ".join(compare(a, b).notes)
    (tmp_path / "b" / KEY_FILE).write_bytes((tmp_path / "a" / KEY_FILE).read_bytes())
    with pytest.raises(ConfigError, match="different hidden content"):
        compare(a, b)


def test_a_key_file_that_is_a_fifo_is_not_opened(tmp_path: Path) -> None:
    """A FIFO in place of a key file, in a directory from a stranger, does not block the comparison."""
    a, b = _run(tmp_path / "a", ["10"]), _run(tmp_path / "b", ["11"])
    (tmp_path / "b" / KEY_FILE).unlink()
    os.mkfifo(tmp_path / "b" / KEY_FILE)
    assert "hidden content was not compared" in " ".join(compare(a, b).notes)


def test_runs_without_a_common_task_are_refused(tmp_path: Path) -> None:
    """Runs without a common task cannot be compared."""
    a = _run(tmp_path / "a", ["1"])
    write_run(tmp_path / "b", [record(3)], header(1))
    with pytest.raises(ConfigError, match="no task has a verdict in both"):
        compare(a, tally(read_run(tmp_path / "b")))


def test_other_settings_are_noted(tmp_path: Path) -> None:
    """Runs with different sandbox limits can be compared, and a note reports the difference."""
    a = _run(tmp_path / "a", ["10"])
    limits = {"memory": 2, "pids": 2, "cpus": 2.0}
    write_run(tmp_path / "b", [record(0), record(1)], header(2, limits=limits))  # type: ignore[arg-type]
    assert "the runs used different sandbox limits" in compare(a, tally(read_run(tmp_path / "b"))).notes


def test_a_suite_stands_for_its_runs(tmp_path: Path) -> None:
    """Reading a suite returns its runs, except those that were not started yet."""
    _run(tmp_path / "pack" / "one", ["10"])
    write_suite(tmp_path, RecordedSuite("suite", {"pack/one": {}, "pack/two": {}}))
    assert [run.directory.name for run in read_runs(tmp_path)] == ["one"]


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "a/../../b", "", "a//b", "./a", "a/"])
def test_a_suite_names_no_directory_outside(tmp_path: Path, path: str) -> None:
    """A suite file, which may come from a stranger, can only name runs by plain relative paths."""
    (tmp_path / SUITE).write_text(json.dumps({"suite_version": 1, "id": "x", "runs": {path: {}}}))
    with pytest.raises(ConfigError, match="is not a plain relative path"):
        read_runs(tmp_path)


def test_a_suite_follows_no_link_outside(tmp_path: Path) -> None:
    """A symbolic link in place of a run is refused: it would show another run as part of the suite."""
    _run(tmp_path / "elsewhere", ["10"])
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "run").symlink_to(tmp_path / "elsewhere")
    write_suite(suite, RecordedSuite("suite", {"run": {}}))
    with pytest.raises(ConfigError, match="is a link, or its path contains one"):
        read_runs(suite)


def test_a_suite_does_not_count_a_run_twice(tmp_path: Path) -> None:
    """A symbolic link to another run of the same suite is refused: that run would be counted twice."""
    _run(tmp_path / "pack" / "good", ["10"])
    (tmp_path / "pack" / "bad").symlink_to(tmp_path / "pack" / "good")
    write_suite(tmp_path, RecordedSuite("suite", {"pack/good": {}, "pack/bad": {}}))
    with pytest.raises(ConfigError, match="is a link, or its path contains one"):
        read_runs(tmp_path)
