"""Overrides: values from the command line that replace those of a tester YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.tester_config import CommandConfig, load_tester_config

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.tester_config import TesterConfig

TESTER = """\
schema_version: "0.2"
run:
  id: run
  output_dir: results
benchmark:
  manifest: pack/manifest.yaml
  tasks: pack/tasks.jsonl
harness:
  type: command
  config:
    command: [agent]
    timeout_seconds: 60
"""


@pytest.fixture
def tester(tmp_path: Path) -> Path:
    """Return the path of a tester YAML."""
    (tmp_path / "pack").mkdir()
    for name in ("manifest.yaml", "tasks.jsonl"):
        (tmp_path / "pack" / name).write_text("{}")
    path = tmp_path / "tester.yaml"
    path.write_text(TESTER)
    return path


def load(tester: Path, *overrides: str) -> TesterConfig:
    """Return the configuration with these overrides."""
    return load_tester_config(tester, overrides)


def test_values_are_typed_as_in_yaml(tester: Path) -> None:
    """Values have the types that they have in YAML.

    An override can also set a list, or a key in a section that the file lacks.
    """
    config = load(
        tester,
        "harness.config.timeout_seconds=5",
        'run.id="8"',
        "run.trials=3",
        "run.select.task=[a*, 'b']",
        "sandbox.limits.memory=2g",
        "harness.name=my agent = v2",
        "harness.config.command=python3 agent.py",
    )
    settings = config.harness.config
    assert isinstance(settings, CommandConfig)
    assert settings.timeout_seconds == 5
    assert settings.command == ("/bin/sh", "-c", "python3 agent.py")
    assert (config.run.id, config.run.trials, config.run.select.task) == ("8", 3, ("a*", "b"))
    assert config.sandbox.limits.memory == 2 * 1024**3
    assert config.harness.label == "my agent = v2"
    assert config.overrides["run.id"] == "8"
    assert config.overrides["run.select.task"] == ["a*", "b"]
    assert load(tester).overrides == {}
    assert load(tester).harness.label == "command"


def test_paths_are_relative_to_the_file(tester: Path) -> None:
    """A path in an override is relative to the tester YAML, as paths in the file are."""
    (tester.parent / "mine").mkdir()
    settings = load(tester, "harness.config.agent_dir=mine").harness.config
    assert isinstance(settings, CommandConfig)
    assert settings.agent_dir == tester.parent / "mine"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["harness.config.modle=x"], "--set harness.config.modle: unknown key 'modle'"),
        (["hraness.config.x=1"], "--set hraness.config.x: unknown key 'hraness'"),
        (["run.trials=many"], "--set run.trials: run.trials must be a whole number, but is the string 'many'"),
        (["run.trials='3'"], "--set run.trials: run.trials must be a whole number"),
        (["run.trials=0"], "--set run.trials: run.trials must be at least 1"),
        (["run.trials="], "--set run.trials"),
        (["run.trials=no"], "--set run.trials"),
        (["run.id=*x"], "--set run.id:1:1"),
        (["run.output_dir=pack"], "--set run.output_dir"),
        (["harness.config.agent_dir=gone"], "--set harness.config.agent_dir"),
        (["harness.type=codx"], "--set harness.type: harness.type must be"),
        (["harness.name="], "--set harness.name"),
        (['harness.name="a\\x1b[31mb"'], "--set harness.name: harness.name is not a label"),
        (["harness.name=" + "x" * 201], "is not a label"),
        (['harness.name=" x"'], "is not a label"),
        (["run.id.x=1"], "--set run.id.x: run.id is not an object [override-invalid]"),
        (["run.id"], "'run.id' is not KEY=VALUE [override-invalid]"),
        (["=1"], "'=1' has a key with an empty part or too many parts [override-invalid]"),
        (["run..id=1"], "has a key with an empty part or too many parts [override-invalid]"),
        ([".".join("x" * 99) + "=1"], "has a key with an empty part or too many parts [override-invalid]"),
        (["run.id=a", "run.id=b"], "this key, or one above or below it, is already set [override-invalid]"),
        (
            ["run.select.limit=1", "run.select={}"],
            "this key, or one above or below it, is already set [override-invalid]",
        ),
        (["\x1b[31mrun=1"], r"--set \x1b[31mrun"),
    ],
    ids=str,
)
def test_a_wrong_override_names_its_option(tester: Path, overrides: list[str], message: str) -> None:
    """A wrong override is refused, with a message that names the option and not the file."""
    with pytest.raises(ConfigError) as caught:
        load(tester, *overrides)
    assert message in str(caught.value)
    assert "tester.yaml" not in str(caught.value)


def test_faults_of_the_file_keep_their_places(tester: Path) -> None:
    """If an override sets another key, a fault of the file is still reported at its line in the file.

    An override of the wrong value replaces it, so there is no fault.
    """
    tester.write_text(TESTER.replace("timeout_seconds: 60", "timeout_seconds: never"))
    with pytest.raises(ConfigError, match=r"tester\.yaml:12:22"):
        load(tester, "harness.config.task_file=other.json")
    assert load(tester, "harness.config.timeout_seconds=1").harness.config.timeout_seconds == 1


def test_a_missing_file_is_no_fault_of_an_override(tester: Path) -> None:
    """For a file that does not exist, the error names the file, even if there are overrides."""
    with pytest.raises(ConfigError, match=r"gone\.yaml"):
        load(tester.parent / "gone.yaml", "run.id=x")
