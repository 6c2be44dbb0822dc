"""``securebench run``, mostly with a suite file: dry runs, a killed and resumed suite, and exit codes for CI."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pack_files import row, write_pack
from securebench.cli import cli
from securebench.cli.run_command import EXIT_BELOW, gate
from securebench.errors import ConfigError
from securebench.results.records.record import VerificationStatus, comparable
from securebench.results.suite import RecordedSuite, read_runs, write_suite
from synthetic_run import record, write_run

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SUITE = """\
schema_version: "0.2"
suite: {{id: both, output_dir: {output}}}
packs: [{benchmarks}/text-smoke, {benchmarks}/code-completion-smoke]
agents:
  - name: demo
    harness:
      type: command
      config: {{command: [python3, /opt/securebench/agent/agent.py], agent_dir: {benchmarks}/demo-agent}}
  - name: silent
    harness: {{type: command, config: {{command: ["true"]}}}}
run: {{trials: 2, max_workers: 2}}
"""
RUNS = 4
TRIALS = 2 * 2 * (12 + 3)


def suite_file(root: Path, output: str) -> Path:
    """Write a suite file with two agents and two packs, and return its path."""
    path = root / f"{output}.yaml"
    path.write_text(SUITE.format(output=root / output, benchmarks=BENCHMARKS))
    return path


def command(path: Path, *options: str) -> list[str]:
    """Return the command that runs a suite."""
    return [sys.executable, "-m", "securebench", "run", str(path), "--driver", "oci", *options]


def outcome(directory: Path) -> dict[str, list[str]]:
    """Return the records of each run of a suite, without the keys that differ between equal runs."""
    return {
        run.run_id: sorted(json.dumps(comparable(record.raw), sort_keys=True) for record in run.records())
        for run in read_runs(directory)
    }


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """A dry run of a suite prints the packs, runs and trials, and writes nothing."""
    result = CliRunner().invoke(cli, ["run", str(suite_file(tmp_path, "out")), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "benchmark: text-smoke 1, 12 tasks, 2 trials each" in result.output
    assert result.output.endswith(f"{RUNS} runs, {TRIALS} trials. Nothing was run.\n")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_a_single_run(tmp_path: Path) -> None:
    """``--dry-run --json`` of a single run lists each selected task."""
    arguments = ["run", str(BENCHMARKS / "text-smoke" / "tester.yaml"), "--dry-run", "--json", "--limit", "2"]
    result = CliRunner().invoke(cli, [*arguments, "--output-dir", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (len(found["tasks"]), found["pack_tasks"], found["trials"]) == (2, 12, 1)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_limits_the_workers_of_auto(tmp_path: Path) -> None:
    """With ``--workers auto`` and one task, a dry run prints one worker and what limits the workers.

    A word other than ``auto`` is wrong usage.
    """
    arguments = ["run", str(BENCHMARKS / "text-smoke" / "tester.yaml"), "--dry-run", "--limit", "1"]
    result = CliRunner().invoke(cli, [*arguments, "--workers", "auto", "--output-dir", str(tmp_path / "out")])
    assert re.search(r"workers:   auto: 1 worker, limited by (tasks \(.*\)|.*tasks 1\))", result.output)
    result = CliRunner().invoke(cli, [*arguments, "--workers", "few"])
    assert result.exit_code == 2
    assert "'few' is not a valid integer range" in result.output


def test_a_dry_run_names_the_driver_of_the_command_line(tmp_path: Path) -> None:
    """``--driver`` replaces the driver of the configuration."""
    arguments = ["run", str(BENCHMARKS / "text-smoke" / "tester.yaml"), "--dry-run", "--driver", "oci"]
    result = CliRunner().invoke(cli, [*arguments, "--output-dir", str(tmp_path / "out")])
    assert "driver oci, images" in result.output


def test_a_dry_run_does_not_check_images_driver_and_provider(tmp_path: Path) -> None:
    """A missing image, an unreachable driver and an unreachable provider are no errors, and the help says so."""
    text = " ".join(CliRunner().invoke(cli, ["run", "--help"]).output.split())
    assert "Images, driver, agent programs and providers are not checked." in text
    (tmp_path / "pack").mkdir()
    manifest, tasks = write_pack(tmp_path / "pack", row(environment={"image": "none.invalid/none:1"}))
    provider = {"dialect": "chat_completions", "model": "m", "base_url": "https://none.invalid/v1"}
    config = {
        "schema_version": "0.2",
        "run": {"id": "r", "output_dir": "out"},
        "benchmark": {"manifest": str(manifest), "tasks": str(tasks)},
        "harness": {"type": "model", "config": provider},
    }
    (tmp_path / "tester.yaml").write_text(json.dumps(config))
    arguments = ["run", str(tmp_path / "tester.yaml"), "--dry-run", "--driver", "docker"]
    result = CliRunner().invoke(cli, arguments, env={"OPENAI_API_KEY": "k", "DOCKER_HOST": "tcp://none.invalid:1"})
    assert result.exit_code == 0, result.exception
    assert "driver docker, images none.invalid/none:1" in result.output


@pytest.mark.parametrize("harness", ["model", "command", "codex"])
def test_a_dry_run_notices_a_missing_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harness: str) -> None:
    """A dry run fails if the key of a provider is not set."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("CODEX_API_KEY", raising=False)
    provider = {"dialect": "chat_completions", "model": "m"}
    settings = {"model": provider, "command": {"command": ["x"], "provider": provider}, "codex": {"model": "m"}}
    pack = BENCHMARKS / "text-smoke"
    config = {
        "schema_version": "0.2",
        "run": {"id": "r", "output_dir": "out"},
        "benchmark": {"manifest": str(pack / "manifest.yaml"), "tasks": str(pack / "tasks.jsonl")},
        "harness": {"type": harness, "config": settings[harness]},
    }
    (tmp_path / "tester.yaml").write_text(json.dumps(config))
    arguments = ["run", str(tmp_path / "tester.yaml"), "--dry-run"]
    with pytest.raises(ConfigError) as raised:
        CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert raised.value.code == "env-missing"
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert CliRunner().invoke(cli, arguments).exit_code == 0


def test_a_dry_run_refuses_a_directory_in_use(tmp_path: Path) -> None:
    """An output directory that already contains a run or suite is refused without ``--resume``."""
    file = suite_file(tmp_path, "out")
    write_run(tmp_path / "run", 1)
    (tmp_path / "out").mkdir()
    write_suite(tmp_path / "out", RecordedSuite("both", {"text-smoke/silent": {}}))
    tester = BENCHMARKS / "text-smoke" / "tester.yaml"
    for arguments in ([str(file)], [str(tester), "--output-dir", str(tmp_path / "run")]):
        with pytest.raises(ConfigError, match="already contains") as caught:
            CliRunner().invoke(cli, ["run", *arguments, "--dry-run"], catch_exceptions=False)
        assert "pass --resume" in str(caught.value)
        assert CliRunner().invoke(cli, ["run", *arguments, "--dry-run", "--resume"]).exit_code == 0


@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.usefixtures("oci_driver")
def test_a_suite_is_killed_and_resumed(tmp_path: Path, base_image: ResolvedImage) -> None:
    """A suite that was killed and resumed has the same records as a suite that was not killed."""
    del base_image
    with subprocess.Popen(
        command(suite_file(tmp_path, "killed"), "--quiet"), stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        second = tmp_path / "killed" / "text-smoke" / "silent" / "candidates.jsonl"
        deadline = time.monotonic() + 60
        while not (second.exists() and second.read_bytes().count(b"\n") > 3):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    assert 1 < len(read_runs(tmp_path / "killed")) < RUNS
    resumed = subprocess.run(
        command(tmp_path / "killed.yaml", "--resume"), check=True, capture_output=True, text=True, timeout=120
    )
    clean = subprocess.run(
        command(suite_file(tmp_path, "clean"), "--json", "--quiet"), check=True, capture_output=True, timeout=120
    )
    last = resumed.stdout.splitlines()[-2:]
    assert last == [f"Results: {tmp_path / 'killed'}", f"Compare: securebench compare {tmp_path / 'killed'}"]
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "clean")
    passed = {(one["pack"], one["agent"]): one["summary"]["passed"] for one in json.loads(clean.stdout)}
    assert passed == {
        ("text-smoke", "demo"): 20,
        ("text-smoke", "silent"): 0,
        ("code-completion-smoke", "demo"): 4,
        ("code-completion-smoke", "silent"): 0,
    }
    assert "text-smoke 83.3 [55.2, 95.3], code-completion-smoke 66.7 [20.8, 93.9], mean 75.0" in resumed.stdout
    found = CliRunner().invoke(cli, ["compare", str(tmp_path / "clean"), "--json"])
    assert [pair["difference"] for pair in json.loads(found.output)] == pytest.approx([-10 / 12, -2 / 3])


@pytest.mark.oci
@pytest.mark.usefixtures("oci_driver")
@pytest.mark.parametrize(
    ("options", "code"), [(["0.83"], 0), (["0.84"], 4), (["0.56", "--lower-bound"], 4), (["0.55", "--lower-bound"], 0)]
)
def test_a_gate_for_continuous_integration(
    tmp_path: Path, base_image: ResolvedImage, options: list[str], code: int
) -> None:
    """``--fail-under`` sets the exit code, and ``--junit`` writes the results.

    The demo agent passes 10 of 12 tasks: 83.3 %, with an interval from 55.2 to 95.3 %.
    """
    del base_image
    junit = tmp_path / "results.xml"
    arguments = [str(BENCHMARKS / "text-smoke" / "tester.yaml"), "--driver", "oci", "--workers", "2", "--quiet"]
    arguments += ["--output-dir", str(tmp_path / "out"), "--junit", str(junit), "--fail-under", *options]
    result = CliRunner().invoke(cli, ["run", *arguments])
    assert result.exit_code == code, result.output
    assert ("below --fail-under" in result.output) is (code == 4)
    assert junit.read_text().count("<testcase") == 12
    assert junit.read_text().count("<failure") == 2


def test_a_gate_refuses_a_run_without_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without a verdict has no pass rate, so even ``--fail-under 0`` is not reached."""
    write_run(tmp_path, [record(status=VerificationStatus.ERROR)])
    assert gate([tmp_path], {"junit": None, "fail_under": 0.0, "lower_bound": False}) == EXIT_BELOW
    assert "no task has a verdict" in capsys.readouterr().err


def test_a_gate_needs_a_rate() -> None:
    """``--lower-bound`` without ``--fail-under`` is wrong usage."""
    result = CliRunner().invoke(cli, ["run", "tester.yaml", "--lower-bound"])
    assert (result.exit_code, "--fail-under" in result.output) == (2, True)
