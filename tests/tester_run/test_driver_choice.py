"""The driver of a run: how it is requested and overridden, kept when the run is resumed, and recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.results.run_directory.header import HEADER
from securebench.sandboxes.base import DriverInfo
from securebench.strict_input.models import WireModel
from securebench.tester_config import SandboxConfig
from securebench.tester_run.options import requested_sandbox
from securebench.testing.scripted_sandbox import ScriptedDriver
from tester_run.running import make_parts, records, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.tester_config import TesterConfig

DOCKER = DriverInfo("docker", "runc", "20.10", enforced=("network",), weaker=("user-namespace",))
OCI = DriverInfo("oci", "runc", "1.1.5", enforced=("network", "user-namespace"))
ROOTLESS = DriverInfo("oci", "runc", "1.1.5", enforced=("network",), weaker=("memory", "pids"))


class Drivers:
    """A factory for scripted drivers that describe themselves as ``info``. ``requested`` lists the requests."""

    def __init__(self, info: DriverInfo) -> None:
        self.info = info
        self.requested: list[tuple[str, str | None]] = []

    def make(self, config: TesterConfig, _notify: object) -> ScriptedDriver:
        """Return a scripted driver, and note the requested driver and runtime."""
        self.requested.append((config.sandbox.driver, config.sandbox.runtime))
        driver = ScriptedDriver()
        driver.info = lambda: self.info  # type: ignore[method-assign]  # the driver pretends to be another one
        return driver


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a pack of six tasks and a tester YAML."""
    write_run(tmp_path)
    return tmp_path


def ask_for(root: Path, sandbox: str) -> None:
    """Add ``sandbox`` to the tester YAML as its sandbox settings."""
    path = root / "tester.yaml"
    path.write_text(path.read_text().replace("harness:", f"sandbox: {sandbox}\nharness:"))


def begin(root: Path, info: DriverInfo, **options: Any) -> list[tuple[str, str | None]]:
    """Run tasks on a driver described as ``info``, and return the requested drivers and runtimes."""
    drivers = Drivers(info)
    run(root, parts=make_parts(make_driver=drivers.make), **options)
    return drivers.requested


def test_by_default_the_best_is_taken(root: Path) -> None:
    """Without sandbox settings in the tester YAML, the driver ``auto`` and no particular runtime are requested."""
    assert begin(root, OCI) == [("auto", None)]


def test_the_yaml_asks_and_the_option_overrides(root: Path) -> None:
    """The option replaces the driver of the YAML, and keeps the runtime of the YAML."""
    ask_for(root, "{driver: docker, runtime: runsc}")
    assert begin(root, DOCKER, limit=1) == [("docker", "runsc")]
    assert begin(root, OCI, driver="oci", output_dir=root / "other") == [("oci", "runsc")]


@pytest.mark.parametrize(("info", "requested"), [(OCI, ("oci", "runc")), (DOCKER, ("docker", "runc"))])
def test_a_resumed_run_stays_with_what_it_began_with(
    root: Path, info: DriverInfo, requested: tuple[str, str | None]
) -> None:
    """L05: a resumed run with the driver ``auto`` requests the driver and runtime that it began with."""
    begin(root, info, limit=3)
    assert begin(root, info, resume=True) == [requested]
    assert len(records(root)) == 6


@pytest.mark.parametrize("how", ["yaml", "option"])
def test_a_run_is_not_resumed_on_another_driver(root: Path, how: str) -> None:
    """L05: a run is not resumed on another driver that the user names. The error names both; nothing is recorded."""
    begin(root, DOCKER, limit=3)
    if how == "yaml":
        ask_for(root, "{driver: oci}")
    with pytest.raises(ConfigError) as caught:
        begin(root, OCI, resume=True, driver="oci" if how == "option" else None)
    assert caught.value.code == "resume-mismatch"
    assert "sandbox.driver was 'docker' when the run began, and is 'oci' now" in str(caught.value)
    assert len(records(root)) == 3


def test_a_run_is_not_resumed_where_sandboxes_are_weaker(root: Path) -> None:
    """L05: a run is not resumed if the same driver enforces less now: its records could not be compared."""
    begin(root, OCI, limit=3)
    with pytest.raises(ConfigError, match=r"sandbox\.weaker"):
        begin(root, ROOTLESS, resume=True)


def test_what_held_is_in_each_record_and_in_the_header(root: Path) -> None:
    """M17: each record and the header list the protections that the driver enforced, and those that are weaker."""
    begin(root, ROOTLESS)
    expected = {
        "name": "oci",
        "runtime": "runc",
        "version": "1.1.5",
        "enforced": ["network"],
        "weaker": ["memory", "pids"],
    }
    assert [record["provenance"]["driver"] for record in records(root)] == [expected] * 6
    header = json.loads((root / "results" / HEADER).read_text())
    assert header["decisive"]["sandbox"] == {"driver": "oci", "runtime": "runc", "weaker": ["memory", "pids"]}
    assert header["information"]["engine"]["enforced"] == ["network"]


def test_settings_stay_with_the_driver_that_they_are_for() -> None:
    """If ``--driver`` names another driver than the YAML, the YAML's driver settings are not used."""
    theirs = SandboxConfig("oci", settings=WireModel())
    assert requested_sandbox(theirs, "docker", None).settings is None
    assert requested_sandbox(theirs, "oci", None) is theirs
    assert requested_sandbox(theirs, None, None) is theirs
