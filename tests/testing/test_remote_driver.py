"""Tests of the example driver in ``extend.md``, which has no host mounts, forwarded ports or image files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import securebench
from pack_files import row, write_pack
from securebench import plugins
from securebench.errors import ConfigError, EgressError
from securebench.sandboxes.enforcement import DriverFeature
from securebench.testing.conformance import CHECKS
from securebench.testing.conformance.bench import run_checks
from test_extensions import write_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import DriverInfo, SandboxDriver
    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.oci, pytest.mark.usefixtures("oci_driver", "base_image")]

AGENT = """\
import json, os, pathlib
task = json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))
if "choices" in task:
    print("B")
elif "starter_code" in task:
    print("def add(a, b):\\n    return a + b")
else:
    pathlib.Path("greeting.txt").write_text(open("data/name.txt").read())
    os.symlink("greeting.txt", "link")
    os.chmod("greeting.txt", 0o600)
"""

CHECKER = """\
import os, sys
assert open("greeting.txt").read() == open("data/name.txt").read() == "Ada\\n"
assert os.readlink("link") == "greeting.txt"
assert os.stat("greeting.txt").st_mode & 0o777 == 0o600
"""

TERMINAL: dict[str, Any] = {
    "id": "terminal_task/1",
    "family": "terminal_task",
    "input": {"instructions": "Copy data/name.txt to greeting.txt."},
    "assets": [{"path": "name.txt", "mount": "data/name.txt", "read_only": True}],
    "eval": {
        "checker": {"command": ["python3", "-I", "securebench/evaluation_inputs/check.py"], "timeout_seconds": 60},
        "test_files": [{"path": "check.py"}],
    },
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the example package of ``extend.md``, put it on the import path, and undo its registrations afterwards."""
    tmp_path.chmod(0o755)
    write_files("extend.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    registered = dict(plugins._registered)
    yield tmp_path
    plugins._registered.clear()
    plugins._registered.update(registered)
    for name in [name for name in sys.modules if name.partition(".")[0] == "guessing_game"]:
        del sys.modules[name]


@pytest.fixture
def remote(site: Path) -> type[SandboxDriver]:
    """Register the driver as ``remote``, and return its class."""
    assert site.is_dir()
    from guessing_game.remote import RemoteDriver  # type: ignore[import-not-found]

    plugins.register("drivers", "remote", RemoteDriver)
    driver: type[SandboxDriver] = RemoteDriver
    return driver


@pytest.mark.long
def test_it_passes_every_check_of_what_it_has(site: Path) -> None:
    """The driver passes the conformance checks. Checks that need a feature that a driver may lack are skipped."""
    with (site / "check_remote.py").open("a") as file:
        file.write("print([outcome.check.name for outcome in skipped])\n")
    done = subprocess.run([sys.executable, "check_remote.py"], cwd=site, capture_output=True, text=True, check=False)
    skipped = [check.name for check in CHECKS if check.features]
    assert done.stdout.splitlines() == [
        f"{len(CHECKS)} checks, {len(skipped)} skipped, 0 failed",
        str(skipped),
    ], done.stdout + done.stderr


def test_a_declared_feature_that_does_not_work_fails(
    remote: type[SandboxDriver], oci_driver: OciDriver, base_image: ResolvedImage
) -> None:
    """A driver that declares host mounts, but does not have them, fails the checks of mounts."""

    class Boastful(remote):  # type: ignore[valid-type, misc]
        def info(self) -> DriverInfo:
            info: DriverInfo = super().info()
            return replace(info, lacks=())

    chosen = [check for check in CHECKS if check.name in {"mounts_are_seen", "writable_mounts_are_shared"}]
    assert [bool(outcome.problem) for outcome in run_checks(chosen, Boastful(oci_driver), base_image)] == [True, True]


def write_tester(root: Path, *rows: dict[str, Any], **harness: Any) -> Path:
    """Write a pack and a tester YAML for ``rows``."""
    pack = root / "tasks"
    pack.mkdir()
    write_pack(pack, *rows)
    (root / "agent").mkdir(mode=0o755)
    (root / "agent" / "agent.py").write_text(AGENT)
    for lane, name, text in (("assets", "name.txt", "Ada\n"), ("hidden", "check.py", CHECKER)):
        (pack / lane).mkdir()
        (pack / lane / name).write_text(text)
    config = {
        "schema_version": "0.2",
        "run": {"id": "remote", "output_dir": "results"},
        "benchmark": {"manifest": "tasks/manifest.yaml", "tasks": "tasks/tasks.jsonl"},
        "harness": {
            "type": "command",
            "config": {
                "command": ["python3", "/opt/securebench/agent/agent.py"],
                "agent_dir": "agent",
                **harness,
            },
        },
        "sandbox": {"driver": "remote"},
    }
    (root / "my-tester.yaml").write_text(json.dumps(config))
    return root / "my-tester.yaml"


@pytest.mark.usefixtures("remote")
def test_tasks_run_from_end_to_end(site: Path) -> None:
    """A text task, a code task and a terminal task pass: files are copied in, and the workspace is copied back."""
    summary = securebench.run(write_tester(site, row("multiple_choice"), row("code_completion"), TERMINAL))
    found = [json.loads(line) for line in (site / "results" / "candidates.jsonl").read_text().splitlines()]
    assert {record["task_type"]: record["verification_status"] for record in found} == dict.fromkeys(
        ("multiple_choice", "code_completion", "terminal_task"), "passed"
    ), [record.get("message") for record in found]
    assert summary.total.passed == 3
    assert {record["provenance"]["driver"]["name"] for record in found} == {"remote"}
    assert {record["provenance"]["driver"]["extension"]["name"] for record in found} == {
        "guessing_game.remote:RemoteDriver"
    }


@pytest.mark.usefixtures("remote")
def test_what_it_cannot_do_is_said_before_the_first_task(site: Path) -> None:
    """A run that needs egress or a workspace from an image stops with an error before its ``run.json`` is written."""
    with pytest.raises(EgressError) as egress:
        securebench.run(write_tester(site, row(), allowed_domains=["example.com"]))
    assert egress.value.code == "egress-unavailable"
    write_pack(site / "tasks", TERMINAL | {"environment": {"workdir": "/app", "materialize_workdir_from_image": True}})
    text = (site / "my-tester.yaml").read_text()
    (site / "my-tester.yaml").write_text(text.replace('"allowed_domains": ["example.com"]', '"timeout_seconds": 9'))
    with pytest.raises(ConfigError) as image:
        securebench.run(site / "my-tester.yaml")
    assert image.value.code == "image-tree-unavailable"
    assert not (site / "results" / "run.json").exists()


def test_its_features_are_those_that_exist(remote: type[SandboxDriver], oci_driver: OciDriver) -> None:
    """The driver declares that it lacks every feature that a driver may lack."""
    made: Any = remote
    assert set(made(oci_driver).info().lacks) == set(DriverFeature)
