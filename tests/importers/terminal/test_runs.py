"""A task in the format of Terminal-Bench 2, from its directory to a verdict, using only SecureBench's commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from importers.terminal_tasks import HARBOR, SOLUTION, lay_out
from importers.wheels import installed_wheels
from securebench.cli import cli
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.sandboxes.docker.driver import DockerDriver

pytestmark = [pytest.mark.engine, pytest.mark.slow]

AGENT = """\
case "$1" in
solution) sh /opt/securebench/agent/solve.sh ;;
nothing) : ;;
daemon)
  cp /opt/securebench/agent/daemon.sh /app/count.sh
  printf '{"errors": 7}' > /app/summary.json
  sh /app/count.sh
  ;;
esac
"""

DAEMON = """\
(while :; do
  mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt
  echo 1 > /app/reward.txt
done) >/dev/null 2>&1 &
echo 7
"""
"""A script that keeps writing rewards and prints a wrong count. The agent runs it, and so do the tests."""


def _run(*arguments: object) -> None:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def pack(docker_driver: DockerDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a pack with the imported task. Its image is built from its Dockerfile, with a replaced base image."""
    root = tmp_path_factory.mktemp("run")
    task = lay_out(root / "sum-the-log", HARBOR)
    lay_out(root / "agent", {"agent.sh": AGENT, "daemon.sh": DAEMON, "solve.sh": SOLUTION})
    options = ("--wheels", installed_wheels(root / "wheels"), "--base-image", f"ubuntu:24.04={DEFAULT_IMAGE}")
    _run("import", "harbor", task, "--output", root / "pack", *options)
    _run("images", "build", root / "pack" / "images")
    yield root / "pack"
    image = json.loads((root / "pack" / "tasks.jsonl").read_text())["environment"]["image"]
    _run("images", "remove", image)


@pytest.mark.parametrize(
    ("mode", "status", "reason"),
    [("solution", "passed", None), ("nothing", "failed", "check_failed"), ("daemon", "failed", "check_failed")],
)
def test_only_the_solution_passes(pack: Path, tmp_path: Path, mode: str, status: str, reason: str | None) -> None:
    """The solution passes offline. An agent that does nothing, or only keeps rewriting reward files, fails."""
    config = {
        "schema_version": "0.2",
        "run": {"id": mode, "output_dir": str(tmp_path / "out")},
        "benchmark": {"manifest": str(pack / "manifest.yaml"), "tasks": str(pack / "tasks.jsonl")},
        "harness": {
            "type": "command",
            "config": {
                "command": ["sh", "/opt/securebench/agent/agent.sh", mode],
                "agent_dir": str(pack.parent / "agent"),
                "timeout_seconds": 30,
            },
        },
    }
    (tmp_path / "tester.yaml").write_text(json.dumps(config))
    _run("run", "--config", tmp_path / "tester.yaml", "--quiet")
    record = json.loads((tmp_path / "out" / "candidates.jsonl").read_text())
    assert (record["verification_status"], record.get("failure_reason")) == (status, reason)
