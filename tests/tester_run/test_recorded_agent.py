"""What a run records about its agent: its label, its command, its directory, and the overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import securebench
from run_fakes import FakeProducer, Sink
from securebench.errors import ConfigError
from securebench.progress import RunStart
from securebench.results.records.provenance import agent_digest
from securebench.results.run_directory.header import HEADER, RunHeader, read_header
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, run_benchmark
from tester_run.running import make_parts, records, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "sk-live-0123456789"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a pack of two tasks and a tester YAML."""
    write_run(tmp_path, 2, env=["MY_MODE"])
    return tmp_path


def run_with(root: Path, *overrides: str, **options: Any) -> RunHeader:
    """Run with these overrides, and return the header of the run."""
    options = {"variables": {"MY_MODE": SECRET}, **options}
    run_benchmark(load_tester_config(root / "tester.yaml", overrides), RunOptions(**options), (), make_parts())
    header = read_header(root / "results")
    assert header is not None
    return header


def test_a_label_is_everywhere(root: Path) -> None:
    """``harness.name`` is in run.json, records, summary and events, and a resume with another name is refused."""
    path = root / "tester.yaml"
    path.write_text(path.read_text().replace("  type: command\n", "  type: command\n  name: my agent (v2)\n"))
    sink = Sink()
    summary = run(root, variables={"MY_MODE": "fast"}, sinks=[sink])
    assert summary.agent == "my agent (v2)"
    assert next(event.agent for event in sink.events if isinstance(event, RunStart)) == "my agent (v2)"
    assert [record["provenance"]["harness"]["name"] for record in records(root)] == ["my agent (v2)"] * 2
    recorded = securebench.read_run(root / "results")
    assert recorded.label == recorded.summary().agent == "my agent (v2)"
    path.write_text(path.read_text().replace("(v2)", "(v3)"))
    with pytest.raises(ConfigError, match=r"harness\.name was 'my agent \(v2\)'"):
        run(root, variables={"MY_MODE": "fast"}, resume=True)


def test_without_a_label_the_type_is_shown(root: Path) -> None:
    """Without ``harness.name``, the summary shows the harness, and records contain no name."""
    assert run(root, variables={"MY_MODE": "fast"}).agent == FakeProducer.name
    assert "name" not in records(root)[0]["provenance"]["harness"]


def test_the_directory_of_an_agent_is_recognized(root: Path) -> None:
    """An agent's directory is recorded by its name and content digest. Settings and path do not change that digest."""
    header = run_with(root)
    harness = header.decisive["harness"]
    assert isinstance(harness, dict)
    assert header.information["agent_dir"] == "agent"
    assert harness["agent_digest"] == agent_digest(root / "agent")
    assert records(root)[0]["provenance"]["harness"]["agent_digest"] == harness["agent_digest"]
    (root / "agent").rename(root / "moved")
    assert run_with(root, "harness.config.agent_dir=moved", resume=True).information["agent_dir"] == "moved"
    run_with(root, "harness.config.agent_dir=moved", "harness.config.timeout_seconds=5", output_dir=root / "other")
    other = read_header(root / "other")
    assert other is not None
    assert isinstance(other.decisive["harness"], dict)
    assert other.decisive["harness"]["agent_digest"] == harness["agent_digest"]
    assert other.decisive["harness"]["digest"] != harness["digest"]


def test_command_and_overrides_are_recorded(root: Path) -> None:
    """The command and the overrides are recorded with typed values, as they were used."""
    header = run_with(root, "harness.config.command=[python3, a.py, --fast]", "run.trials=2", "harness.name=mine")
    assert header.information["command"] == ["python3", "a.py", "--fast"]
    assert header.information["overrides"] == {
        "harness.config.command": ["python3", "a.py", "--fast"],
        "run.trials": 2,
        "harness.name": "mine",
    }
    assert header.decisive["trials"] == 2


def test_a_run_without_overrides_records_none(root: Path) -> None:
    """Without overrides, the header contains the command of the tester YAML and no overrides."""
    header = run_with(root)
    assert header.information["command"] == ["agent"]
    assert "overrides" not in header.information


@pytest.mark.parametrize("variables", [{"MY_MODE": SECRET}, {"MY_MODE": "fast", "OTHER_API_KEY": SECRET}], ids=str)
def test_no_secret_is_recorded_with_a_command(root: Path, variables: dict[str, str]) -> None:
    """Values of ``harness.env``, and of any variable that looks like a secret, are removed; long texts are cut."""
    long = "x" * 10_000
    command = f'harness.config.command=["a", "--key={SECRET}", "{long}"]'
    header = run_with(root, command, f"run.select.task=['*', '{SECRET}*', 'pack/*']", variables=variables, task=("*",))
    text = (root / "results" / HEADER).read_text()
    assert SECRET not in text
    recorded = header.information["command"]
    assert isinstance(recorded, list)
    assert recorded[1] == "--key=<redacted>"
    assert len(str(recorded[2])) < 2100


def test_a_resumed_run_needs_the_same_settings(root: Path) -> None:
    """An override changes the settings, so a run is not resumed without it."""
    run_with(root, "harness.config.timeout_seconds=5")
    with pytest.raises(ConfigError, match=r"harness\.config\.timeout_seconds was 5\.0"):
        run_with(root, resume=True)
    run_with(root, "harness.config.timeout_seconds=5", resume=True)
