"""Scripts and the script books that choose them. The commands of scripts are run as a client would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from git_repositories import commit, git, repository
from securebench.families.registry import FAMILIES
from securebench.testing.provider import ModelConversation, Say, Script, Shell, scripts

if TYPE_CHECKING:
    from pathlib import Path

PATCH = """\
diff --git a/code.py b/code.py
--- a/code.py
+++ b/code.py
@@ -1 +1 @@
-x = 1
+x = "it's $HOME"
"""


def played(script: Script, directory: Path, *, in_sandbox: bool = True) -> list[str]:
    """Run a script's commands in a directory, and return what they printed."""
    environment = {name: value for name, value in os.environ.items() if name != "SECUREBENCH_TASK_FILE"}
    if in_sandbox:
        environment["SECUREBENCH_TASK_FILE"] = str(directory / "task.json")
    printed = []
    for step in script:
        if isinstance(step, Shell):
            argv = ["timeout", "20", os.environ["TEST_SHELL"], "-c", step.command]
            done = subprocess.run(argv, check=False, cwd=directory, env=environment, capture_output=True, text=True)
            printed.append(done.stdout + done.stderr)
    return printed


def conversation(prompt: str, *results: str) -> ModelConversation:
    """Return a conversation with a prompt and results, as a script book gets it."""
    return ModelConversation("m", prompt, results, None, streams=True)


@pytest.fixture(autouse=True, params=["/bin/sh", "/bin/bash"])
def _shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both shells that clients use, because they accept different syntax."""
    monkeypatch.setenv("TEST_SHELL", request.param)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Return a repository with a module, a test and two commits."""
    made = repository(tmp_path / "repo")
    (made / "code.py").write_text("x = 1\n")
    (made / "test_code.py").write_text("def test_x(): assert False\n")
    commit(made)
    commit(made)
    return made


@pytest.mark.parametrize(
    ("family", "name", "answer"),
    [
        ("multiple_choice", "candidate.txt", "B"),
        ("short_answer", "candidate.txt", 'it\'s "$HOME" `id` \\n'),
        ("free_response", "candidate.txt", "two\nlines\n"),
        ("code_completion", "candidate.py", "def f():\n    return '''$x'''\n"),
    ],
)
def test_an_answer_is_written_as_it_is(tmp_path: Path, family: str, name: str, answer: str) -> None:
    """The shell changes no byte of the answer, and the file ends with a line feed."""
    (tmp_path / "task.json").write_text('{"question": "?"}')
    assert played(scripts.solve(family, answer), tmp_path)[0] == '{"question": "?"}'
    assert (tmp_path / name).read_text() == answer.removesuffix("\n") + "\n"


def test_a_repository_is_patched(repo: Path) -> None:
    """The answer to a repository task is a patch, which the script applies with git."""
    played(scripts.solve("repo_patch", PATCH), repo)
    assert (repo / "code.py").read_text() == 'x = "it\'s $HOME"\n'
    assert git(repo, "status", "--short") == "M code.py"


def test_a_workspace_is_changed_by_commands(tmp_path: Path) -> None:
    """The answer to a terminal task consists of commands, which the script runs."""
    played(scripts.solve("terminal_task", "sort -n > sorted.txt <<E\n2\n1\nE"), tmp_path)
    assert (tmp_path / "sorted.txt").read_text() == "1\n2\n"


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.active])
def test_every_active_family_can_be_solved(family: str) -> None:
    """The script that solves a task reads the task, runs a command, and ends with text."""
    steps = [type(step) for step in scripts.solve(family, "x")]
    assert steps == [Shell, Shell, Say]


def test_what_cannot_be_written_is_refused() -> None:
    """An answer that contains the end mark of the command that writes it is refused."""
    with pytest.raises(ValueError, match="END_OF_ANSWER"):
        scripts.solve("short_answer", "a\nEND_OF_ANSWER\nb")


def test_a_book_chooses_by_markers() -> None:
    """A script book chooses the first script whose marker is in the prompt or a result, or else the default."""
    one, two, other = (Say("1"),), (Say("2"),), (Say("other"),)
    book = scripts.by_marker({"first": one, "second": two}, other)
    assert book(conversation("the second task")) is two
    assert book(conversation("read it", "here is the second, not the first")) is one
    assert book(conversation("nothing")) is other


@pytest.mark.parametrize("script", [scripts.give_up(), scripts.refuse(), scripts.never_answer(1)])
def test_some_do_nothing(tmp_path: Path, script: Script) -> None:
    """The scripts that give up, refuse or never answer end with text and change no files."""
    played(script, tmp_path)
    assert isinstance(script[-1], Say)
    assert not list(tmp_path.iterdir())


def test_work_for_ever_never_sleeps_long() -> None:
    """Each command sleeps only 5 seconds, so that clients wait for it. Together they take the requested time."""
    commands = [step.command for step in scripts.work_forever(20) if isinstance(step, Shell)]
    assert commands == ["sleep 5"] * 4


def test_a_cheat_has_tests_pass(repo: Path) -> None:
    """The cheat overwrites the tests. Even if they are restored, a failing test is reported as passed."""
    played(scripts.cheat_tests(), repo)
    assert (repo / "test_code.py").read_text() == "def test_nothing(): pass\n"
    assert {"conftest.py", "pytest.ini", "sitecustomize.py"} <= {path.name for path in repo.iterdir()}
    (repo / "test_code.py").write_text("def test_code(): assert False\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    argv = [sys.executable, "-m", "pytest"]
    done = subprocess.run(argv, check=False, cwd=repo, env=environment, capture_output=True, text=True)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_a_cheat_writes_what_a_verifier_has(tmp_path: Path) -> None:
    """The cheat writes results to places where a verifier may look, and prints one."""
    printed = played(scripts.cheat_evaluation(), tmp_path)
    assert '"passed": true' in printed[0]
    assert (tmp_path / "securebench/evaluation_inputs/check.py").is_file()
    assert (tmp_path / "result.json").is_file()


def test_a_cheat_forges_a_repository(repo: Path) -> None:
    """The cheat leaves a hook, a filter and a replaced commit in the repository."""
    played(scripts.cheat_git(), repo)
    assert os.access(repo / ".git/hooks/post-checkout", os.X_OK)
    assert "touch /tmp" in git(repo, "config", "filter.own.smudge")
    assert git(repo, "replace", "--list")


@pytest.mark.parametrize(
    "script",
    [scripts.cheat_tests(), scripts.cheat_evaluation(), scripts.cheat_git(), scripts.cheat_events(), scripts.crash()],
)
def test_nothing_is_harmed_outside_of_a_sandbox(repo: Path, script: Script) -> None:
    """Outside of a sandbox, a cheat or crash does no harm and prints why: the repository may be a developer's own."""
    printed = played(script, repo, in_sandbox=False)
    assert "SECUREBENCH_TASK_FILE" in printed[-1]
    assert git(repo, "status", "--short") == ""
    assert not (repo / ".git/hooks/post-checkout").exists()


def test_a_crash_kills_the_program(tmp_path: Path) -> None:
    """The command kills the parent of its shell, which is the agent program, and no process above it."""
    agent = tmp_path / "codex"
    agent.symlink_to("/bin/sh")
    command = [step.command for step in scripts.crash() if isinstance(step, Shell)][-1]
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "\\$TEST_SHELL -c \\"\\$COMMAND\\"; echo alive"; echo "ended with $?"', str(agent)],
        env={**os.environ, "COMMAND": command, "SECUREBENCH_TASK_FILE": "x"},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout == "ended with 137\n"
