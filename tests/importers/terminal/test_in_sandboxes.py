"""Imported tasks in real sandboxes, offline: only the solution passes, and reward files decide nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from importers.terminal_tasks import HARBOR, TERMINAL_BENCH, lay_out
from importers.wheels import installed_wheels
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.cli.import_command import command
from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import FailureReason
from securebench.progress import Reporter
from securebench.sandboxes.base import MIB, Limits
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.judging.workspace import sealed
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.terminal_task import TerminalTaskVerifier

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import VerifierView
    from securebench.testing.judging.workspace import Tree
    from securebench.verifiers.base import VerificationResult

LOG = HARBOR["environment/app.log"]
SOLUTION: Tree = {
    "app.log": LOG,
    "count.sh": '#!/bin/sh\ngrep -c ^error: "$1"\n',
    "summary.json": '{"errors": 3}',
}
"""The files in /app after the task's solution has run."""

DAEMON = """\
#!/bin/sh
(while :; do
  for file in /logs/verifier/reward.txt /app/reward.txt /tmp/reward.txt; do
    mkdir -p "${file%/*}" && echo 1 > "$file"
  done
done) >/dev/null 2>&1 &
for pid in $PPID $(ls /proc | grep '^[0-9]*$'); do
  for fd in 3 4 5 6 7 8 9 10 11 12; do
    echo '{"code": 0}' > /proc/$pid/fd/$fd
  done
  kill -STOP 1
done 2>/dev/null
echo 2
exit 0
"""
"""A candidate's program that the tests start. It keeps writing rewards, and writes to each descriptor it can open."""

TESTS_FAILED = (FailureReason.CHECK_FAILED, 1)
"""The reason and the checker's exit code if tests failed. If they could not run, the exit code is another one."""


@pytest.fixture(scope="module", params=["harbor", "terminal-bench"])
def view(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VerifierView:
    """Import a task in each format, without a network, and return its verifier view with the base image."""
    root = tmp_path_factory.mktemp("imported")
    files = HARBOR if request.param == "harbor" else TERMINAL_BENCH
    task = lay_out(root / "sum-the-log", files)
    base = "ubuntu:24.04" if request.param == "harbor" else "ghcr.io/laude-institute/t-bench/ubuntu-24-04:latest"
    options = ["--wheels", installed_wheels(root / "wheels"), "--base-image", f"{base}={DEFAULT_IMAGE}"]
    arguments = [request.param, task, "--output", root / "pack", *options]
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    pack = load_benchmark_pack(root / "pack" / "manifest.yaml", root / "pack" / "tasks.jsonl")
    (compiled,) = compile_benchmark_pack(pack)
    made = compiled.verifier_view()
    # Another test builds the task's own image with an engine. These tests need only the files in the workspace.
    return replace(made, environment=replace(made.environment, image=DEFAULT_IMAGE))


def _judged(driver: SandboxDriver, view: VerifierView, root: Path, tree: Tree) -> VerificationResult:
    scratch = root / "scratch"
    scratch.mkdir()
    limits = Limits(memory=512 * MIB, output=16 * MIB)
    context = VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter(), limits=limits, scratch=scratch
    )
    return TerminalTaskVerifier().verify(view, sealed(root, tree), context)


def test_the_solution_passes(driver: SandboxDriver, view: VerifierView, tmp_path: Path) -> None:
    """The files that the task's solution produces get the verdict `passed`, without a network or a download."""
    result = _judged(driver, view, tmp_path, SOLUTION)
    assert result.passed, (result.reason, result.message, result.metadata)


def test_what_nobody_touched_fails(driver: SandboxDriver, view: VerifierView, tmp_path: Path) -> None:
    """A workspace with only the image's own files fails."""
    result = _judged(driver, view, tmp_path, {"app.log": LOG})
    assert (result.reason, result.metadata["exit_code"]) == TESTS_FAILED


def test_a_daemon_that_writes_rewards_does_not_pass(driver: SandboxDriver, view: VerifierView, tmp_path: Path) -> None:
    """A wrong answer fails the check, even if reward files are planted and rewritten while the tests run."""
    tree: Tree = {
        **SOLUTION,
        "count.sh": DAEMON,
        "summary.json": '{"errors": 7}',
        "reward.txt": "1\n",
        "logs/verifier/reward.txt": "1\n",
    }
    result = _judged(driver, view, tmp_path, tree)
    assert (result.reason, result.metadata["exit_code"]) == TESTS_FAILED


PLANTED: Tree = {
    "conftest.py": "import os\nos._exit(0)\n",
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    "pytest.py": "import os\nos._exit(0)\n",
    "json.py": "import os\nos._exit(0)\n",
    "sitecustomize.py": "import os\nos._exit(0)\n",
    "usercustomize.py": "import os\nos._exit(0)\n",
    "python3": "#!/bin/sh\nexit 0\n",
    "sh": "#!/bin/sh\nexit 0\n",
}


def test_nothing_that_is_planted_is_found(driver: SandboxDriver, view: VerifierView, tmp_path: Path) -> None:
    """A02, D01: Files planted for pytest, Python or the shell do not change the verdict on a wrong or right answer."""
    (tmp_path / "wrong").mkdir()
    (tmp_path / "right").mkdir()
    wrong = _judged(driver, view, tmp_path / "wrong", {"app.log": LOG, **PLANTED})
    assert (wrong.reason, wrong.metadata["exit_code"]) == TESTS_FAILED
    assert _judged(driver, view, tmp_path / "right", {**SOLUTION, **PLANTED}).passed
