"""Workspaces judged in real sandboxes: the known solution passes, and each cheat fails for an expected reason."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

import pytest

from securebench.candidates.store import CandidateStore
from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import FailureReason
from securebench.execution.observed import ObservedDriver
from securebench.execution.verifier_output import VerifierOutput
from securebench.progress import Reporter
from securebench.results.records.redaction import Redactor
from securebench.tasks import CandidateKind, Environment
from securebench.testing.attacks.workspaces import CHEATS, CHECKER, SOLUTION, WorkspaceCheat
from securebench.testing.judging.workspace import CHECK, TreeLink, WorkspaceJob, write_tree
from weaker import has_all_memory, possible_reasons

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.judging.workspace import Tree

_SETTLED = "import json, os, sys; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(), 'path': sys.path}))"


def _job(canary: str = "x") -> WorkspaceJob:
    return WorkspaceJob(files={"check.py": CHECKER.replace("{canary}", canary)})


def test_the_known_solution_passes(driver: SandboxDriver, tmp_path: Path) -> None:
    """The known solution passes the task that all cheats fail."""
    assert _job().judge(driver, tmp_path, SOLUTION).passed


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: f"{cheat.entry} {cheat.name}")
def test_no_cheat_passes(driver: SandboxDriver, host_canary: Path, tmp_path: Path, cheat: WorkspaceCheat) -> None:
    """A cheat fails for an expected reason and changes no file of the host. Its result shows no text of the checker."""
    canary = f"canary{secrets.token_hex(16)}"
    plant = f"#!/bin/sh\nfor f in '{host_canary}' '{host_canary.parent}/x'; do (echo x > $f) 2>/dev/null; done\n"
    tree: Tree = {**cheat.tree, "run": str(cheat.tree.get("run", "")).replace("#!/bin/sh\n", plant)}
    result = _job(canary).judge(driver, tmp_path, tree)
    assert result.reason in cheat.reasons, (result.reason, result.message)
    assert result.metadata["reason"] == result.reason
    assert result.message
    for form in (canary, canary.encode().hex(), base64.b64encode(canary.encode()).decode()[:-4]):
        assert form not in repr(result)


def test_a_checker_line_with_a_shell_cannot_be_led_astray(driver: SandboxDriver, tmp_path: Path) -> None:
    """A06, A07, D01, D11: a shell command uses programs and start-up files of the image, none of the workspace."""
    line = "set -e; test \"$(python3 -c 'print(6 * 7)')\" = 42; exit 5"
    tree = {"python3": "#!/bin/sh\necho 41\n", "sh": "#!/bin/sh\nexit 0\n", ".profile": "exit 0\n", ".env": "exit 0\n"}
    result = WorkspaceJob(checker={"command": line}).judge(driver, tmp_path, dict(tree))
    assert result.metadata["exit_code"] == 5


def test_the_checkers_surroundings_are_known_to_the_last_variable(driver: SandboxDriver, tmp_path: Path) -> None:
    """A07, D01: the checker gets fixed variables and a home outside the workspace.

    It imports no module from the workspace, except from the directory of evaluation inputs.
    """
    expected: dict[str, JsonValue] = {
        "env": {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "PYTHONSAFEPATH": "1",
            "PYTHONNOUSERSITE": "1",
            "PYTHONPATH": "/app/securebench/evaluation_inputs",
            "PERL_USE_UNSAFE_INC": "0",
            "R_PROFILE_USER": "/dev/null",
            "R_ENVIRON_USER": "/dev/null",
        },
        "cwd": "/app",
        "path": [
            "/app/securebench/evaluation_inputs",
            "/usr/lib/python311.zip",
            "/usr/lib/python3.11",
            "/usr/lib/python3.11/lib-dynload",
            "/usr/local/lib/python3.11/dist-packages",
            "/usr/lib/python3/dist-packages",
        ],
    }
    job = WorkspaceJob(
        files={"check.py": _SETTLED}, hidden={"expected_state": expected}, environment=Environment(workdir="/app")
    )
    result = job.judge(driver, tmp_path, {"json.py": "raise SystemExit(0)", ".bashrc": "export X=1"})
    assert result.passed, result.message


_SHADOW = "raise SystemExit(0)\n"
_SHADOWS: dict[str, str] = {
    **{f"{name}.py": _SHADOW for name in ("pathlib", "json", "os", "sitecustomize", "usercustomize", "helper")},
    "unittest/__init__.py": _SHADOW,
    "unittest/__main__.py": _SHADOW,
    "POSIX.pm": "exit 0; 1;\n",
    "strict.pm": "exit 0; 1;\n",
}
_IN_WORKSPACE = (
    "python3 -c 'import pathlib, sys; sys.exit(5)'",
    "python3 -c 'import json, os, sys; sys.exit(5)'",
    "python3 -m json.tool data || exit 5",
    "python3 -m unittest securebench/evaluation_inputs/check.py || exit 5",
    "cp securebench/evaluation_inputs/check.py . && python3 check.py",
    "python3 - < securebench/evaluation_inputs/check.py",
    "python3 securebench/evaluation_inputs/check.py",
    "perl -e 'use strict; use POSIX; exit 5'",
)


@pytest.mark.parametrize("line", _IN_WORKSPACE)
def test_an_interpreter_in_the_workspace_loads_nothing_of_it(driver: SandboxDriver, tmp_path: Path, line: str) -> None:
    """A06: a checker does not import a module of the workspace that is named like one of the interpreter's own.

    It does import ``helper.py``, which the pack puts beside the checker.
    """
    checks = "import helper, json, pathlib, sys\nsys.exit(helper.CODE)\n"
    job = WorkspaceJob(checker={"command": line}, files={"check.py": checks, "helper.py": "CODE = 5\n"})
    assert job.judge(driver, tmp_path, {**_SHADOWS, "data": "no JSON"}).metadata["exit_code"] == 5


def test_the_workspace_is_writable_and_the_inputs_are_not(driver: SandboxDriver, tmp_path: Path) -> None:
    """A13: the checker can change its copy of the workspace, but cannot write, delete, move or unmount the inputs."""
    line = (
        "set -e; echo y > new; echo z >> data; ln -s data link; test -x run; test ! -x data; test $(cat there) = xz;"
        " ! echo > securebench/evaluation_inputs/check.py; ! rm -f securebench/evaluation_inputs/check.py;"
        " ! mv securebench s2; ! rm -rf securebench; ! chmod 777 securebench/evaluation_inputs;"
        " ! umount securebench; test -f securebench/evaluation_inputs/check.py"
    )
    job = WorkspaceJob(checker={"command": line}, files={"check.py": "x"})
    result = job.judge(driver, tmp_path, {"data": "x", "run": "#!/bin/sh\n", "there": TreeLink("data")})
    assert result.passed, result.metadata


def test_modes_and_links_survive(driver: SandboxDriver, tmp_path: Path) -> None:
    """The checker finds the modes, links and virtual environment that the agent left. Set-id bits are removed."""
    line = (
        "set -e; test $(stat -c %a ssl/key) = 600; test $(stat -c %a ssl) = 750; test $(stat -c %a set-id) = 711;"
        " test $(stat -c %u ssl/key) = $(id -u); cat ssl/key; test $(stat -c %a closed) = 500; ! touch closed/y;"
        " test $(readlink venv/bin/python) = /usr/bin/python3; venv/bin/python -c 'import sys; sys.exit(0)';"
        " test $(readlink here) = /app/ssl; test $(cat here/key) = secret; test -L dangling; ! test -e dangling"
    )
    left = tmp_path / "left"
    write_tree(left, {"ssl/key": "secret", "closed/x": "", "set-id": "#!/bin/sh\n"})
    for name, mode in {"ssl/key": 0o600, "ssl": 0o750, "closed": 0o500, "set-id": 0o6711}.items():
        (left / name).chmod(mode)
    links = {"bin/python": "/usr/bin/python3", "lib64": "lib", "../here": "/app/ssl", "../dangling": "/nowhere"}
    (left / "venv/bin").mkdir(parents=True)
    for name, target in links.items():
        (left / "venv" / name).symlink_to(target)
    candidate = CandidateStore(tmp_path / "candidates").seal_tree(CandidateKind.WORKSPACE, left)
    job = WorkspaceJob(checker={"command": line}, environment=Environment(workdir="/app"))
    result = job.judge_sealed(driver, tmp_path, candidate)
    assert result.passed, result.metadata


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("cmp securebench/evaluation_inputs/check.py out.txt", "/proc/self/fd/3"),
        (
            "diff securebench/evaluation_inputs/check.py out.txt",
            "/dev/fd/../cwd/securebench/evaluation_inputs/check.py",
        ),
    ],
)
def test_a_comparison_with_itself_is_no_pass(driver: SandboxDriver, tmp_path: Path, line: str, target: str) -> None:
    """A13: links into ``/proc`` and ``/dev/fd`` are refused, because a checker could compare an input with itself."""
    job = WorkspaceJob(checker={"command": line}, files={"check.py": "hidden"})
    result = job.judge(driver, tmp_path, {"out.txt": TreeLink(target)})
    assert result.reason is FailureReason.UNSAFE_WORKSPACE


@pytest.mark.parametrize("target", ["there", "/app/there", "nowhere/yet", "./there/../there"])
def test_a_checker_starts_behind_a_link_of_the_workspace(driver: SandboxDriver, tmp_path: Path, target: str) -> None:
    """The checker starts in a working directory below a link of the workspace. A missing directory is created."""
    job = WorkspaceJob(
        checker={"command": "cd -P . && case $PWD in /app/*/dir) exit 0; esac; exit 4", "workdir": "/app/sub/dir"},
        environment=Environment(workdir="/app"),
    )
    result = job.judge(driver, tmp_path, {"there/x": "", "sub": TreeLink(target)})
    assert result.passed, result.metadata


def test_closed_directories_keep_nothing_from_its_place(driver: SandboxDriver, tmp_path: Path) -> None:
    """A12: assets, checker and working directory are placed even if the candidate's directories are read-only."""
    left = tmp_path / "left"
    write_tree(left, {"data/in/x.csv": "1", "securebench/public/x": "", "work/out": ""})
    for name in ("data/in/x.csv", "data/in", "data", "securebench/public", "securebench", "work"):
        (left / name).chmod(0o500 if (left / name).is_dir() else 0o400)
    candidate = CandidateStore(tmp_path / "candidates").seal_tree(CandidateKind.WORKSPACE, left)
    line = "test $(cat ../../data/in/x.csv) = 1 && python3 /app/securebench/evaluation_inputs/check.py"
    job = WorkspaceJob(
        checker={"command": line, "workdir": "/app/work/new"},
        files={"check.py": ""},
        public={"data/in/x.csv": "1"},
        environment=Environment(workdir="/app"),
    )
    result = job.judge_sealed(driver, tmp_path, candidate)
    assert result.passed, result.metadata


def test_what_a_checker_prints_can_be_kept(driver: SandboxDriver, tmp_path: Path) -> None:
    """D170: the output and exit code of a checker are kept, so that a pack's author can see why it fails."""
    printed = VerifierOutput()
    observed = ObservedDriver(driver, Reporter([]), show_output=False, printed=printed)
    result = WorkspaceJob(checker={"command": "echo found 3; echo wanted 4 >&2; exit 5"}).judge(observed, tmp_path, {})
    assert result.reason is FailureReason.CHECK_FAILED
    assert printed.text(Redactor()) == "$ /bin/sh (exit 5)\n[stdout]\nfound 3\n[stderr]\nwanted 4\n"


def test_a_printed_state_is_compared_on_the_host(driver: SandboxDriver, tmp_path: Path) -> None:
    """The state that a checker prints as JSON in its last line is compared with the hidden state."""
    printing = "import json; print('checked'); print(json.dumps({'lines': len(open('out.txt').readlines())}))"
    job = WorkspaceJob(files={"check.py": printing}, hidden={"expected_state": {"lines": 2}})
    assert job.judge(driver, tmp_path / "right", {"out.txt": "a\nb\n"}).passed
    wrong = job.judge(driver, tmp_path / "wrong", {"out.txt": "a\n"})
    assert wrong.reason is FailureReason.STATE_MISMATCH


def test_the_hidden_state_is_nowhere_in_the_sandbox(driver: SandboxDriver, tmp_path: Path) -> None:
    """A checker that searches the files of its sandbox does not find the hidden state."""
    canary = f"canary{secrets.token_hex(16)}"
    halves = f"('{canary[:9]}', '{canary[9:]}')"
    look = (
        f"import os, sys\nneedle = ''.join({halves}).encode()\n"
        "for top in ('/workspace', '/tmp', '/opt', '/run', '/proc/self', '/proc/1'):\n"
        "    for directory, _, names in os.walk(top):\n"
        "        for name in names:\n"
        "            path = os.path.join(directory, name)\n"
        "            try:\n"
        "                if os.path.isfile(path) and needle in open(path, 'rb').read(1 << 20): sys.exit(9)\n"
        "            except OSError: pass\n"
        "print('null')\n"
    )
    job = WorkspaceJob(files={"check.py": look}, hidden={"expected_state": [canary]})
    result = job.judge(driver, tmp_path, {})
    assert result.reason is FailureReason.STATE_MISMATCH, result.metadata
    assert canary not in repr(result)


def test_a_check_that_hangs_is_ended(driver: SandboxDriver, tmp_path: Path) -> None:
    """A check ends at its time limit, even if a program of the candidate still runs."""
    job = WorkspaceJob(checker={"command": "./run & sleep 60", "timeout_seconds": 1})
    result = job.judge(driver, tmp_path, {"run": "#!/bin/sh\nsetsid sleep 60\n"})
    assert result.reason is FailureReason.CANDIDATE_TIMEOUT
    assert result.metadata["exit_code"] == 124


def test_a_memory_bomb_in_the_checkers_place_is_out_of_memory(driver: SandboxDriver, tmp_path: Path) -> None:
    """A18: a check whose own process runs out of memory is a failure with that reason, and not an error to retry."""
    if has_all_memory(driver):
        pytest.skip("it is given the memory: this driver says that it does not limit it")
    job = WorkspaceJob(checker={"command": ["python3", "-c", "x = bytearray(1 << 31)"]})
    reason = job.judge(driver, tmp_path, {}).reason
    assert reason in possible_reasons(driver, {FailureReason.CANDIDATE_OUT_OF_MEMORY})


@pytest.mark.parametrize("there", ["", TreeLink("/nowhere"), TreeLink("sub")], ids=["file", "link to nothing", "loop"])
def test_a_checker_that_cannot_start_is_a_failure(driver: SandboxDriver, tmp_path: Path, there: str | TreeLink) -> None:
    """A18: a file or link of the candidate in place of the checker's working directory or program is a failure.

    It is not an error, which would be retried.
    """
    starts = WorkspaceJob(checker={"command": "exit 0", "workdir": "/workspace/sub"})
    assert starts.judge(driver, tmp_path / "workdir", {"sub": there}).reason is FailureReason.NO_VERDICT
    runs = WorkspaceJob(checker={"command": ["/workspace/sub"]})
    assert runs.judge(driver, tmp_path / "program", {"sub": there}).reason is FailureReason.CHECK_FAILED


def test_a_checker_starts_in_a_directory_that_was_left_out(driver: SandboxDriver, tmp_path: Path) -> None:
    """A working directory that is missing from the workspace is created empty."""
    job = WorkspaceJob(checker={"command": 'test -z "$(ls)"', "workdir": "/workspace/sub/dir"})
    assert job.judge(driver, tmp_path, {"sub": None}).passed


@pytest.mark.parametrize(
    ("needed", "allowed", "reason"),
    [(True, True, None), (False, True, None), (True, False, FailureReason.DANGEROUS_COMMAND_DENIED)],
)
def test_chroot_works_where_it_is_needed_and_allowed_and_nowhere_else(
    driver: SandboxDriver, tmp_path: Path, needed: bool, allowed: bool, reason: FailureReason | None
) -> None:
    """A22: a checker can use chroot if its row asks for it and the policy allows it.

    If the row does not ask for it, chroot is refused. If the row asks for it and the policy does not allow it, the
    task fails with the reason ``dangerous_command_denied``.
    """
    script = (
        "import os\nos.mkdir('made')\nopen('sub/new', 'w').close()\n"
        "try:\n    os.chroot('root')\nexcept PermissionError:\n    print('\"refused\"')\n"
        "else:\n    print('\"' + ' '.join(sorted(os.listdir('/'))) + '\"')\n"
    )
    job = WorkspaceJob(
        files={"check.py": script},
        evals={"needed_commands": ["chroot"]} if needed else {},
        hidden={"expected_state": "hello" if needed else "refused"},
        policy=VerificationPolicy(disallow_dangerous_commands=not allowed),
    )
    result = job.judge(driver, tmp_path, {"root/hello": "", "sub/old": ""})
    assert result.reason is reason, result.metadata


def test_a_file_of_the_checker_may_not_be_shadowed_from_its_directory(driver: SandboxDriver, tmp_path: Path) -> None:
    """A09: a checker among the evaluation inputs imports modules beside it, and none from the workspace."""
    job = WorkspaceJob(
        files={"check.py": "import json, helper\nraise SystemExit(helper.CODE)\n", "helper.py": "CODE = 7\n"}
    )
    result = job.judge(driver, tmp_path, {"helper.py": "CODE = 0\n", "json.py": "raise SystemExit(0)\n"})
    assert result.metadata["exit_code"] == 7
    assert CHECK.endswith("check.py")
