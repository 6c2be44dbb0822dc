"""The smoke test of a declared agent: the agent solves small tasks, offline, with a scripted model.

There is one task for each family that has a verifier. The test shows that the program starts, uses the relay with a
placeholder for the key, runs commands and leaves its answer where the family expects it. No real model is tested.
"""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final

from securebench.agents.catalogue import find
from securebench.agents.declaration import AgentDeclaration
from securebench.errors import ConfigError
from securebench.harnesses.provider.command_provider import dialect_facts
from securebench.results.read import read_run
from securebench.tasks import DEFAULT_IMAGE
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, run_benchmark
from securebench.testing.judging.repository import COMMIT, FIXED, REPOSITORY
from securebench.testing.judging.repository_image import repository_image
from securebench.testing.provider import Say, ScriptedProvider, Shell
from securebench.testing.provider.scripts import READ_TASK, by_marker, give_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from securebench.results.recorded_task import RecordedTask
    from securebench.testing.provider import Script
    from securebench.testing.provider.answering import TextBook
    from securebench.testing.provider.conversation import ModelConversation

KEY: Final = "sk_smoke_test_5f0d3b7c"
"""The key of the scripted provider. No other key may reach the provider."""

MODEL: Final = "scripted"

_SHOWN_LINES: Final = 10
_SHOWN_CHARACTERS: Final = 400

_SUBMIT: Final = Shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
"""Some agents stop when a command prints this line, others when the model sends a text message."""


@dataclass(frozen=True, slots=True)
class _SmokeTask:
    """A task: its fields, and the file that solves it. ``marker`` occurs in this task and in no other."""

    given: Mapping[str, Any]
    judged: Mapping[str, Any]
    marker: str
    file: str
    content: str
    environment: Mapping[str, Any] | None = None


TASKS: Final[Mapping[str, _SmokeTask]] = {
    "multiple_choice": _SmokeTask(
        {"question": "Which number is even?", "choices": ["one", "two"]},
        {"answer": "B"},
        "Which number is even?",
        "candidate.txt",
        "B\n",
    ),
    "short_answer": _SmokeTask(
        {"question": "What is 17 times 23?"},
        {"accepted_answers": ["391"]},
        "What is 17 times 23?",
        "candidate.txt",
        "391\n",
    ),
    "free_response": _SmokeTask(
        {"prompt": "Which scattering makes the sky blue?"},
        {"rubric": {"type": "contains_any", "accepted_answers": ["Rayleigh"]}},
        "Which scattering makes the sky blue?",
        "candidate.txt",
        "Rayleigh scattering.\n",
    ),
    "code_completion": _SmokeTask(
        {"prompt": "Write add(a, b), which adds two numbers.", "language": "python"},
        {"tests": {"source": "inline", "code": "assert add(2, 3) == 5\n"}},
        "Write add(a, b)",
        "candidate.py",
        "def add(a, b):\n    return a + b\n",
    ),
    "terminal_task": _SmokeTask(
        {"instructions": "Write the word done to the file done.txt."},
        {"checker": {"command": ["grep", "-qx", "done", "done.txt"]}},
        "Write the word done",
        "done.txt",
        "done\n",
        {"image": DEFAULT_IMAGE, "workdir": "/app"},
    ),
    "repo_patch": _SmokeTask(
        {"repo": "project", "base_commit": COMMIT, "instructions": "Make double(number) return twice the number."},
        {
            "tests": {
                "source": "command",
                "command": ["python3", "-c", "from project.numbers import double; assert double(2) == 4"],
            }
        },
        "Make double(number)",
        "project/numbers.py",
        FIXED,
        {"workdir": REPOSITORY},
    ),
}
"""One task for each family that has a verifier."""


@dataclass(frozen=True, slots=True)
class FamilyCheck:
    """The result for one family: whether its task passed, and the agent's outcome.

    If it did not pass, ``message`` is the reason, ``output`` has the last lines of the agent's stderr (of its stdout if
    stderr is empty), and ``details`` is the command that shows the full output. If the task was not run, there is only
    a ``message``.
    """

    family: str
    passed: bool
    outcome: str
    message: str
    output: str = ""
    details: str = ""


def check_agent(
    name: str, families: Sequence[str] = (), *, driver: str | None = None, notify: Callable[[str], None]
) -> tuple[FamilyCheck, ...]:
    """Run the smoke test of an agent for ``families`` (default: all in :data:`TASKS`), and return the results in order.

    Raises :class:`ConfigError` (``agent-unknown``) if ``name`` is not a declared agent, the errors of
    :func:`repository_image` and :func:`run_benchmark`, and ``AssertionError`` if the provider receives a key other than
    its own. If a family fails, the run directory is kept below the directory for temporary files.
    """
    declared = find(name).declared
    if not isinstance(declared, AgentDeclaration):
        raise ConfigError(f"{name} is not a declared agent", code="agent-unknown")
    wanted = {family: TASKS[family] for family in families or TASKS}
    book = by_marker({task.marker: _script(task) for task in wanted.values()}, (READ_TASK, *give_up()))
    variables = {dialect_facts(declared.dialect, declared.api_key_env).key_names[0]: KEY}
    version = "v1beta" if declared.dialect == "gemini" else "v1"
    with (
        repository_image(DEFAULT_IMAGE) as image,
        ScriptedProvider(book, texts=_edits(wanted.values()), models=(MODEL,)) as provider,
        _kept_on_failure() as kept,
    ):
        tester = _write(kept.directory, name, f"{provider.url}/{version}", wanted, image)
        options = RunOptions(driver=driver, variables=variables, notify=notify, handle_signals=True)
        results = run_benchmark(load_tester_config(tester), options).output_dir
        assert provider.keys_seen <= {KEY}, "the provider received a key other than its own"
        by_family = {record.family: record for record in read_run(results).records()}
        checks = tuple(
            _check_of(by_family[family], results) if family in by_family else _not_run(family) for family in wanted
        )
        kept.has_failed = not all(check.passed for check in checks)
    return checks


@dataclass
class _Kept:
    """The directory of a check. It is removed at the end, unless ``has_failed`` says that a family did not pass."""

    directory: Path
    has_failed: bool = False


@contextmanager
def _kept_on_failure() -> Iterator[_Kept]:
    kept = _Kept(Path(mkdtemp(prefix="securebench-check-")))
    try:
        yield kept
    finally:
        if not kept.has_failed:
            rmtree(kept.directory, ignore_errors=True)


def _edits(tasks: Iterable[_SmokeTask]) -> TextBook:
    """Return a function that tells an agent without a shell, such as aider, which file to write and its content."""

    def answer(conversation: ModelConversation) -> Say:
        prompt = "\n".join(conversation.questions)
        found = next((task for task in tasks if task.marker in prompt), None)
        return Say(f"{found.file}\n```\n{found.content}```\n" if found else "Scripted.")

    return answer


def _script(task: _SmokeTask) -> Script:
    """Return a script whose first command prints the task, and whose second and third command each solve it.

    The provider chooses the script by the marker in the first command's output. If an agent loses this output, the
    provider replaces the second command with one that prints the task again. Then only the third command solves it.
    """
    solve = Shell(f"printf %s {shlex.quote(task.content)} > {task.file}")
    return (READ_TASK, solve, solve, _SUBMIT, Say("Done."))


def _write(root: Path, name: str, url: str, tasks: Mapping[str, _SmokeTask], image: str) -> Path:
    """Write the pack and the tester YAML, and return the path of the latter. JSON is YAML, too."""
    pack = root / "pack"
    pack.mkdir()
    (pack / "manifest.yaml").write_text("id: smoke-test\nversion: 1\n", encoding="utf-8")
    rows = [
        {
            "id": f"smoke/{family}",
            "family": family,
            "input": task.given,
            "eval": task.judged,
            **({"environment": {"image": image, **task.environment}} if task.environment else {}),
        }
        for family, task in tasks.items()
    ]
    (pack / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tester = {
        "schema_version": "0.2",
        "run": {"id": f"check-{name}"[:40], "output_dir": str(root / "out"), "max_workers": 2},
        "benchmark": {"manifest": "pack/manifest.yaml", "tasks": "pack/tasks.jsonl"},
        "harness": {"type": name, "config": {"model": MODEL, "base_url": url, "timeout_seconds": 300}},
    }
    (root / "tester.yaml").write_text(json.dumps(tester), encoding="utf-8")
    return root / "tester.yaml"


def _not_run(family: str) -> FamilyCheck:
    return FamilyCheck(family, passed=False, outcome="", message="the task was not run")


def _check_of(record: RecordedTask, results: Path) -> FamilyCheck:
    producer, outcome = record.producer, str(record.producer.metadata.get("outcome") or "")
    if record.passed:
        return FamilyCheck(record.family, passed=True, outcome=outcome, message="")
    lines = (producer.stderr.strip() or producer.stdout.strip()).splitlines()[-_SHOWN_LINES:]
    output = "\n".join(line[:_SHOWN_CHARACTERS] for line in lines)
    details = f"securebench show {shlex.quote(str(results))} {record.task_id} --full"
    message = record.message or record.status.value
    return FamilyCheck(record.family, passed=False, outcome=outcome, message=message, output=output, details=details)
