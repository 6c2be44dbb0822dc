"""``securebench agents check``: every declared agent solves a task of each family with a scripted model."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from real_agents.test_declared_agent import declare
from securebench import plugins
from securebench.testing.agent_check import TASKS

pytestmark = [pytest.mark.oci, pytest.mark.usefixtures("_with_ports", "base_image", "oci_driver")]


def checked(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the results of a check on the oci driver."""
    command = [sys.executable, "-m", "securebench", "agents", "check", *arguments, "--driver", "oci", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", plugins.agent_names())
def test_an_agent_solves_each_family(name: str) -> None:
    """Each real agent program solves a task of each family. It is downloaded if it is not installed."""
    code, results = checked(name)
    assert [result for result in results if not result["passed"]] == []
    assert [result["family"] for result in results] == list(TASKS)
    assert {result["outcome"] for result in results} == {"worked"}
    assert code == 0


@pytest.mark.long
def test_an_agent_that_uses_another_model_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that uses a wrong model fails the check: exit code 1, a message, and a run directory that is kept."""
    monkeypatch.setenv(plugins.AGENTS_VARIABLE, str(tmp_path))
    declare(tmp_path)
    text = (tmp_path / "tiny.yaml").read_text()
    (tmp_path / "tiny.yaml").write_text(text.replace('"{model}"', '"other-model"'))
    code, (result,) = checked("tiny", "--family", "short_answer")
    assert (code, result["passed"]) == (1, False)
    assert result["message"]
    run = Path(shlex.split(result["details"])[2])
    assert (run / "run.json").is_file()
    rmtree(run.parent)
