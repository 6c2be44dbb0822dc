"""The smoke test of a declared agent: it solves a small task of each family, offline, with a scripted model.

It shows that the program starts, uses the relay with the placeholder of the key, runs commands and leaves its answer
where the family expects it. It says nothing about a model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from securebench.agents.catalogue import find
from securebench.agents.declaration import AgentDeclaration
from securebench.errors import ConfigError
from securebench.harnesses.provider.command_provider import dialect_facts
from securebench.tasks import DEFAULT_IMAGE
from securebench.tester_config import load_tester_config
from securebench.tester_run import RunOptions, run_benchmark
from securebench.testing.judging.repository import COMMIT, REPOSITORY
from securebench.testing.judging.repository_image import repository_image
from securebench.testing.provider import Say, ScriptedProvider, Shell
from securebench.testing.provider.scripts import READ_TASK, by_marker, give_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from securebench.testing.provider import Script

KEY: Final = "sk_smoke_test_5f0d3b7c"
"""The key of the scripted provider. It may be found nowhere but at the provider."""

MODEL: Final = "scripted"

_SUBMIT: Final = Shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
"""Some agents end at this output, others at a message."""


@dataclass(frozen=True, slots=True)
class _SmokeTask:
    """A task: its fields, and the command that solves it. ``marker`` is in the task file and in no other one."""

    given: Mapping[str, Any]
    judged: Mapping[str, Any]
    marker: str
    solution: str
    environment: Mapping[str, Any] | None = None


TASKS: Final[Mapping[str, _SmokeTask]] = {
    "multiple_choice": _SmokeTask(
        {"question": "Which number is even?", "choices": ["one", "two"]},
        {"answer": "B"},
        "Which number is even?",
        "echo B > candidate.txt",
    ),
    "short_answer": _SmokeTask(
        {"question": "What is 17 times 23?"},
        {"accepted_answers": ["391"]},
        "What is 17 times 23?",
        "echo 391 > candidate.txt",
    ),
    "free_response": _SmokeTask(
        {"prompt": "Which scattering makes the sky blue?"},
        {"rubric": {"type": "contains_any", "accepted_answers": ["Rayleigh"]}},
        "Which scattering makes the sky blue?",
        "echo 'Rayleigh scattering.' > candidate.txt",
    ),
    "code_completion": _SmokeTask(
        {"prompt": "Write add(a, b), which adds two numbers.", "language": "python"},
        {"tests": {"source": "inline", "code": "assert add(2, 3) == 5\n"}},
        "Write add(a, b)",
        "printf 'def add(a, b):\\n    return a + b\\n' > candidate.py",
    ),
    "terminal_task": _SmokeTask(
        {"instructions": "Write the word done to the file done.txt."},
        {"checker": {"command": ["grep", "-qx", "done", "done.txt"]}},
        "Write the word done",
        "echo done > done.txt",
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
        "sed 's/ + 1//' project/numbers.py > fixed.py && mv fixed.py project/numbers.py",
        {"workdir": REPOSITORY},
    ),
}
"""A task of each active family."""


@dataclass(frozen=True, slots=True)
class FamilyCheck:
    """The result for one family: ``passed`` with the agent's outcome, or why not."""

    family: str
    passed: bool
    outcome: str
    message: str


def check_agent(
    name: str, families: Sequence[str] = (), *, driver: str | None = None, notify: Callable[[str], None]
) -> tuple[FamilyCheck, ...]:
    """Run the smoke test of an agent for ``families``, by default all, and return the results in order.

    Raises :class:`ConfigError` (also ``agent-unknown`` if it is not a declared agent), and the errors of
    :func:`run_benchmark`. A key that leaves the relay raises ``AssertionError``.
    """
    declared = find(name).declared
    if not isinstance(declared, AgentDeclaration):
        raise ConfigError(f"{name} is not an agent", code="agent-unknown")
    wanted = {family: TASKS[family] for family in families or TASKS}
    book = by_marker({task.marker: _script(task) for task in wanted.values()}, (READ_TASK, *give_up()))
    variables = {dialect_facts(declared.dialect, declared.api_key_env).key_names[0]: KEY}
    version = "v1beta" if declared.dialect == "gemini" else "v1"
    with (
        repository_image(DEFAULT_IMAGE) as image,
        ScriptedProvider(book, models=(MODEL,)) as provider,
        TemporaryDirectory(prefix="securebench-") as temporary,
    ):
        tester = _write(Path(temporary), name, f"{provider.url}/{version}", wanted, image)
        options = RunOptions(driver=driver, variables=variables, notify=notify, handle_signals=True)
        run_benchmark(load_tester_config(tester), options)
        assert provider.keys_seen <= {KEY}, "an agent used another key"
        records = [json.loads(line) for line in (Path(temporary, "out/candidates.jsonl")).read_text().splitlines()]
    by_family = {str(record["task_type"]): record for record in records}
    return tuple(_check_of(family, by_family[family]) for family in wanted)


def _script(task: _SmokeTask) -> Script:
    """Return what solves the task. On a busy machine, agents may lose a command's output: it is read up to twice."""
    solve = Shell(task.solution)
    return (READ_TASK, solve, solve, _SUBMIT, Say("Done."))


def _write(root: Path, name: str, url: str, tasks: Mapping[str, _SmokeTask], image: str) -> Path:
    """Write the pack and the tester YAML, and return the latter. JSON is YAML, too."""
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
        "harness": {"type": name, "config": {"model": MODEL, "base_url": url, "timeout_seconds": 120}},
    }
    (root / "tester.yaml").write_text(json.dumps(tester), encoding="utf-8")
    return root / "tester.yaml"


def _check_of(family: str, record: Mapping[str, Any]) -> FamilyCheck:
    metadata = record.get("producer_metadata") or {}
    passed = record["verification_status"] == "passed"
    message = "" if passed else str(record.get("failure_message") or record["verification_status"])
    return FamilyCheck(family, passed, str(metadata.get("outcome") or ""), message)
