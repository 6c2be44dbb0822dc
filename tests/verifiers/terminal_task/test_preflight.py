"""A checker that cannot start is found before an agent runs. A candidate cannot cause this error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import FailureReason, MaterializationError
from securebench.progress import Reporter
from securebench.resources import Component, FileReference, Resource, ResourceBundle, ResourceKind, Visibility
from securebench.tasks import Environment
from securebench.testing.judging.workspace import CHECK, LIMITS, WorkspaceJob
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.terminal_task import TerminalTaskVerifier
from securebench.verifiers.terminal_task.preflight import necessary_command

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.judging.workspace import Tree

_APP = Environment(workdir="/app")
_MISSING = "no-such-program"


def check(job: WorkspaceJob, driver: SandboxDriver, root: Path) -> None:
    """Run the preflight of a task."""
    scratch = root / "before"
    scratch.mkdir(parents=True)
    context = VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter([]), limits=LIMITS, scratch=scratch
    )
    TerminalTaskVerifier().check_task(job.view(root), context)


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("python3 check.py", ["python3", "check.py"]),
        ("exec python3 -sB 'a b.py'\n", ["python3", "-sB", "a b.py"]),
        *(
            (line, [])
            for line in (
                "A=1 python3 x",
                "exec -a x y",
                "exec",
                "python3 x > /dev/null 2>&1",
                "cd x && python3 y",
                "nosuch; python3 y",
                "set -e; jq . a",
                "nosuch || python3 y",
                "if nosuch; then true; fi",
                "jq . x | grep y",
                "$TOOL x",
                "`which x`",
                "( nosuch )",
                "! nosuch",
                "nosuch &",
                "it's",
                "python3 - <<'EOF'\nimport sys\nEOF",
                "main() {\n  true\n}\nmain",
                "diff a b \\\n  --brief",
                "python3 -B \\\n  x.py",
                "PATH=/workspace/bin mytool",
                "export PATH=/workspace/bin\nmytool",
                ". .venv/bin/activate && myapp --version",
                "grep -q x out.txt ||\nnosuch",
                "X+=1 nosuch",
                "~/bin/tool",
                "./*.sh",
                "#nosuch",
                "'' x",
                "",
            )
        ),
    ],
)
def test_only_what_must_start_is_looked_at(line: str, programs: list[str]) -> None:
    """A shell line is examined only if it is one command of plain words: otherwise no program is certain to start."""
    assert necessary_command(("/bin/sh", "-c", line)) == programs


def test_arrays_are_read_as_they_are() -> None:
    """An array is used unchanged. ``/bin/sh -c`` without a line gives no command."""
    assert necessary_command(["bash", "-c", "x"]) == ["bash", "-c", "x"]
    assert necessary_command(["/bin/sh", "-c"]) == []


_UNUSABLE: dict[str, tuple[Any, dict[str, str]]] = {
    "a program that is nowhere": (["/no/such/checker"], {}),
    "a name that is nowhere": ([_MISSING, "x"], {}),
    "in a line": (f"{_MISSING} x", {}),
    "behind exec": (f"exec {_MISSING}", {}),
    "a shell's own command, in an array": (["exec", "true"], {}),
    "an interpreter that env looks for": ([CHECK], {"check.py": "#!/usr/bin/env no_such\n"}),
    "a carriage return": ([CHECK], {"check.py": "#!/bin/sh\r\nexit 0\r\n"}),
    "a carriage return, with env": ([CHECK], {"check.py": "#!/usr/bin/env sh\r\n"}),
    "no script for a shell": (["sh", "securebench/evaluation_inputs/nothing.sh"], {"check.py": ""}),
    "the same in a line": ("sh securebench/evaluation_inputs/nothing.sh", {"check.py": ""}),
    "no Python": (["python3", CHECK], {"check.py": "def f(:\n"}),
    "a module after others": (["python3", CHECK], {"check.py": "'Doc.'\nimport os\nimport no_such\n"}),
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
    """A task is refused if its checker certainly lacks a usable program, file, interpreter or module."""
    command, files = _UNUSABLE[name]
    with pytest.raises(MaterializationError, match="cannot start") as refused:
        check(WorkspaceJob(checker={"command": command}, files=files, environment=_APP), driver, tmp_path)
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
    "a shell's own command": ("cd /tmp", {}),
    "env with an interpreter": ([CHECK], {"check.py": "#!/usr/bin/env python3\nimport json\n"}),
    "a script with its interpreter, in a line": (CHECK, {"check.py": "#!/bin/sh\n"}),
    "modules of another path": (f"PYTHONPATH=/app python3 {CHECK}", {"check.py": "import solution\n"}),
    "a module after code": (["python3", CHECK], {"check.py": "import os\nos.nice(0)\nimport solution\n"}),
    "a module after a neighbour": (
        ["python3", CHECK],
        {"check.py": "import helper\nimport solution\n", "helper.py": "import sys\nsys.path.append('/app')\n"},
    ),
    "an archive to run": (["python3", CHECK], {"check.py": "#!/usr/bin/env python3\nPK\0"}),
    "a here-document": ("python3 - <<'EOF'\nimport sys\nEOF", {}),
}


@pytest.mark.parametrize("name", _USABLE)
def test_what_may_work_is_not_refused(driver: SandboxDriver, tmp_path: Path, name: str) -> None:
    """A task is not refused if the candidate may provide what is missing, or the checker may not need it."""
    command, files = _USABLE[name]
    check(WorkspaceJob(checker={"command": command}, files=files, environment=_APP), driver, tmp_path)


def test_an_executable_without_an_interpreter_is_refused_in_an_array(driver: SandboxDriver, tmp_path: Path) -> None:
    """A text file without a ``#!`` line is refused in an array.

    It is accepted in a shell line, because a shell runs it as a script.
    """
    for number, command in enumerate((CHECK, [CHECK])):
        job = WorkspaceJob(checker={"command": command}, files={"check.py": "#!"}, environment=_APP)
        root = tmp_path / str(number)
        view = job.view(root)
        (root / "hidden/check.py").write_text("exit 0\n")
        (root / "scratch").mkdir()
        context = VerifyContext(
            driver=driver,
            policy=VerificationPolicy(),
            report=Reporter([]),
            limits=LIMITS,
            scratch=root / "scratch",
        )
        if command == CHECK:
            TerminalTaskVerifier().check_task(view, context)
        else:
            with pytest.raises(MaterializationError, match="no line '#!'"):
                TerminalTaskVerifier().check_task(view, context)


def test_a_missing_checker_is_no_score(driver: SandboxDriver, tmp_path: Path) -> None:
    """D3: a checker program that the image lacks is an error of the task and no verdict, even without a preflight."""
    with pytest.raises(MaterializationError):
        WorkspaceJob(checker={"command": ["/no/such/checker"]}).judge(driver, tmp_path, {})


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
    result = WorkspaceJob(checker={"command": command}, files={"check.py": ""}).judge(driver, tmp_path, dict(tree))
    assert result.reason is FailureReason.CHECK_FAILED
    assert result.metadata["exit_code"] in {126, 127}


def test_a_malformed_checker_is_found_before(tmp_path: Path, driver: SandboxDriver) -> None:
    """A task with a malformed checker is refused before its agent runs."""
    with pytest.raises(MaterializationError, match="no checker"):
        check(WorkspaceJob(checker="nothing"), driver, tmp_path)


@pytest.mark.parametrize("content", ["{}", "{", None])
def test_a_state_that_cannot_be_read_is_found_before(
    tmp_path: Path, driver: SandboxDriver, content: str | None
) -> None:
    """A task whose expected state is in a file is refused before its agent runs, unless that file has valid JSON."""
    view = WorkspaceJob(checker={"command": ["true"]}).view(tmp_path)
    file = FileReference("state.json")
    state = Resource("expected_state", [{"path": file.path}], Visibility.HIDDEN, ResourceKind.FILE, (file,))
    view = replace(view, evaluator=ResourceBundle((state,)).visible_to(Component.EVALUATOR))
    if content is not None:
        (tmp_path / "hidden/state.json").write_text(content)
    (tmp_path / "before").mkdir()
    context = VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter([]), limits=LIMITS, scratch=tmp_path / "before"
    )
    if content == "{}":
        TerminalTaskVerifier().check_task(view, context)
    else:
        with pytest.raises(MaterializationError, match="'expected_state' cannot be read") as refused:
            TerminalTaskVerifier().check_task(view, context)
        assert refused.value.code == "asset-unsafe"
