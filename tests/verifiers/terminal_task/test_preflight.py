"""A checker that cannot start is found before an agent runs, and is nothing that a candidate can fake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import FailureReason, MaterializationError
from securebench.progress import Reporter
from securebench.tasks import Environment
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.terminal_task import TerminalTaskVerifier
from securebench.verifiers.terminal_task.preflight import necessary_commands
from verifiers.terminal_task.judging_terminal import CHECK, LIMITS, Job

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from verifiers.terminal_task.judging_terminal import Tree

_APP = Environment(workdir="/app")
_MISSING = "no-such-program"


def check(job: Job, driver: SandboxDriver, root: Path) -> None:
    """Check a task, as it is before its agent runs."""
    scratch = root / "before"
    scratch.mkdir(parents=True)
    context = VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter([]), limits=LIMITS, scratch=scratch
    )
    TerminalTaskVerifier().check_task(job.view(root), context)


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("python3 check.py", [["python3", "check.py"]]),
        ("exec python3 -sB 'a b.py'", [["python3", "-sB", "a b.py"]]),
        ("A=1 python3 x > /dev/null 2>&1", [["python3", "x"]]),
        ("cd x && python3 y", [["cd", "x"], ["python3", "y"]]),
        ("nosuch; python3 y", [["python3", "y"]]),
        ("set -e; jq . a; python3 y;\n", [["set", "-e"], ["jq", ".", "a"], ["python3", "y"]]),
        ("nosuch || python3 y", []),
        ("if nosuch; then true; fi", []),
        ("jq . x | grep y", []),
        ("$TOOL x", []),
        ("`which x`", []),
        ("( nosuch )", []),
        ("! nosuch", []),
        ("nosuch &", []),
        ("for x in y; do nosuch; done", []),
        ("it's", []),
    ],
)
def test_only_what_must_start_is_looked_at(line: str, programs: list[list[str]]) -> None:
    """What a shell may leave out, or read in another way, is no reason."""
    assert necessary_commands(("/bin/sh", "-c", line)) == programs


_UNUSABLE: dict[str, tuple[Any, dict[str, str]]] = {
    "a program that is nowhere": (["/no/such/checker"], {}),
    "a name that is nowhere": ([_MISSING, "x"], {}),
    "in a line": (f"{_MISSING} x", {}),
    "at the end of a line": (f"cd /app && {_MISSING}", {}),
    "a file that may not be executed": ([f"/app/{CHECK}"], {"check.py": "echo"}),
    "the same, relative": ([CHECK], {"check.py": "echo"}),
    "a script's interpreter": ([CHECK], {"check.py": "#!/no/such/interpreter -x\n"}),
    "no file of the task": (["securebench/evaluation_inputs/nothing.sh"], {"check.py": ""}),
    "no script of the task": (["python3", "securebench/evaluation_inputs/nothing.py"], {"check.py": ""}),
    "a module": (["python3", "-sB", CHECK], {"check.py": "import no_such_module\n"}),
    "pytest": (f"python3 -m pytest {CHECK}", {"check.py": ""}),
}


@pytest.mark.parametrize("name", _UNUSABLE)
def test_a_checker_that_cannot_start_is_refused(driver: SandboxDriver, tmp_path: Path, name: str) -> None:
    """Programs, files, interpreters and modules that are missing for certain make a task unusable."""
    command, files = _UNUSABLE[name]
    with pytest.raises(MaterializationError, match="cannot start") as refused:
        check(Job(checker={"command": command}, files=files, environment=_APP), driver, tmp_path)
    assert refused.value.code == "checker-missing"


_USABLE: dict[str, tuple[Any, dict[str, str]]] = {
    "a usual one": (["python3", CHECK], {"check.py": "import json, helper\n", "helper.py": ""}),
    "what the candidate may bring": (["./run"], {}),
    "the same in a line": ("./venv/bin/tool x && /app/other", {}),
    "its module": (["python3", "-c", "import solution"], {}),
    "a script of the candidate": (["python3", "main.py"], {}),
    "what may be left out": (f"command -v {_MISSING} && exit 1; true", {}),
    "a script with its interpreter": ([CHECK], {"check.py": "#!/bin/sh\n"}),
    "a script that is long": (["python3", CHECK], {"check.py": "#" * 1_100_000}),
    "a directory to run": (["python3", "securebench/evaluation_inputs/tool"], {"tool/__main__.py": ""}),
    "a builtin": ("test -f out.txt", {}),
}


@pytest.mark.parametrize("name", _USABLE)
def test_what_may_work_is_not_refused(driver: SandboxDriver, tmp_path: Path, name: str) -> None:
    """A task is not refused for what a candidate may bring, or a checker may do without."""
    command, files = _USABLE[name]
    check(Job(checker={"command": command}, files=files, environment=_APP), driver, tmp_path)


def test_a_missing_checker_is_no_score(driver: SandboxDriver, tmp_path: Path) -> None:
    """D3: also where nobody checked before: exit code 127 of a program that the image lacks is an error."""
    with pytest.raises(MaterializationError):
        Job(checker={"command": ["/no/such/checker"]}).judge(driver, tmp_path, {})


@pytest.mark.parametrize(
    ("command", "tree"),
    [
        (["./run"], {}),
        (["./run"], {"run": "no program"}),
        ("./run", {"run": "#!/no/such/interpreter\n"}),
        ("python3 securebench/evaluation_inputs/check.py && ./run", {}),
        ("test -f marker && ./run", {"marker": "", "run": "#!/bin/sh\nexit 127\n"}),
    ],
)
def test_a_candidate_cannot_turn_a_failure_into_an_error(
    driver: SandboxDriver, tmp_path: Path, command: Any, tree: Tree
) -> None:
    """Exit codes 126 and 127 that a candidate causes are failures of the candidate."""
    result = Job(checker={"command": command}, files={"check.py": ""}).judge(driver, tmp_path, dict(tree))
    assert result.reason is FailureReason.CHECK_FAILED
    assert result.metadata["exit_code"] in {126, 127}


def test_a_state_that_cannot_be_read_is_found_before(tmp_path: Path, driver: SandboxDriver) -> None:
    """A task without a checker that can be read is refused before its agent runs."""
    with pytest.raises(MaterializationError):
        check(Job(checker="nothing"), driver, tmp_path)
