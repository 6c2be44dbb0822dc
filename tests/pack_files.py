"""Packs on disk, for tests: valid rows, which each test changes in one place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from securebench.benchmark_pack import load_benchmark_pack
from securebench.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.errors import Problem

MANIFEST = "id: my-benchmark\nversion: 1\n"

ROWS: dict[str, dict[str, Any]] = {
    "multiple_choice": {
        "input": {"question": "Which is even?", "choices": ["one", "two", "three"]},
        "eval": {"answer": "B"},
    },
    "short_answer": {
        "input": {"question": "What is 2 + 2?", "answer_format": "a number", "context": {"base": 10}},
        "eval": {"accepted_answers": ["4", 4.0], "tolerance": 0},
    },
    "free_response": {
        "input": {"prompt": "Why is the sky blue?", "context": "Physics"},
        "eval": {
            "rubric": {
                "type": "contains_any",
                "accepted_answers": ["Rayleigh scattering"],
                "rejected_answers": ["the sea"],
                "min_token_f1": 0.5,
            },
            "reference_answer": "Rayleigh scattering of sunlight",
        },
    },
    "code_completion": {
        "input": {"prompt": "Add two numbers.", "language": "python", "starter_code": "def add(a, b):\n"},
        "eval": {
            "tests": {"source": "inline", "code": "assert add(2, 3) == 5\n", "isolation": "split"},
            "reference_solution": "def add(a, b):\n    return a + b\n",
        },
    },
    "repo_patch": {
        "input": {"repo": "example/repo", "base_commit": "0123abc", "instructions": "Fix it.", "hints": ["look"]},
        "eval": {
            "tests": {
                "source": "command",
                "command": "pytest -q",
                "workdir": "/testbed/src",
                "timeout_seconds": 300,
                "test_patch": {"source": "inline", "patch": "--- a/x\n+++ b/x\n"},
                "candidate_policy": {"allow_paths": ["src/**"], "allow_sensitive_paths": []},
            },
            "gold_patch": "--- a/y\n+++ b/y\n",
        },
        "environment": {"workdir": "/testbed"},
    },
    "terminal_task": {
        "input": {"instructions": "Make output.txt.", "context": "An empty directory"},
        "eval": {
            "checker": {"command": ["bash", "check.sh"], "workdir": "/app", "timeout_seconds": 180},
            "needed_commands": ["chroot"],
            "expected_state": {"output.txt": "hello"},
        },
    },
    "tool_call": {"input": {"prompt": "Book it.", "tools": []}, "eval": {"initial_state": {}, "expected_calls": []}},
    "browser_task": {"input": {"goal": "Log in.", "start_url": "http://x"}, "eval": {"credentials": {"user": "u"}}},
    "desktop_task": {"input": {"goal": "Save it.", "app": "editor"}, "eval": {"success_check": "saved"}},
    "artifact_task": {"input": {"brief": "Draw."}, "eval": {"rubric": "round"}},
    "multimodal_qa": {"input": {"question": "What?", "choices": ["a"]}, "eval": {"answer": "a"}},
    "preference_pair": {"input": {"prompt": "p", "candidate_a": "a", "candidate_b": "b"}, "eval": {"preference": "a"}},
}
"""One valid row of each family, without id and family."""


def row(of: str = "multiple_choice", /, **changes: Any) -> dict[str, Any]:
    """Return a valid row of the family ``of``, with the top-level keys in ``changes`` replaced."""
    return {"id": f"{of}/1", "family": of, **json.loads(json.dumps(ROWS[of])), **changes}


def write_pack(directory: Path, *rows: dict[str, Any] | bytes, manifest: str = MANIFEST) -> tuple[Path, Path]:
    """Write a pack, and return the paths of its manifest and its tasks. Rows given as bytes are written unchanged."""
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in rows]
    (directory / "manifest.yaml").write_text(manifest, encoding="utf-8")
    (directory / "tasks.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return directory / "manifest.yaml", directory / "tasks.jsonl"


def load(directory: Path, *rows: dict[str, Any] | bytes, manifest: str = MANIFEST) -> BenchmarkPack:
    """Write a pack and load it."""
    return load_benchmark_pack(*write_pack(directory, *rows, manifest=manifest))


def problems_of(directory: Path, *rows: dict[str, Any] | bytes, manifest: str = MANIFEST) -> tuple[Problem, ...]:
    """Write, load and compile a pack, and return its problems."""
    from securebench.benchmark_compiler import compile_benchmark_pack

    try:
        compile_benchmark_pack(load(directory, *rows, manifest=manifest))
    except ConfigError as error:
        return error.problems
    return ()


def codes_of(directory: Path, *rows: dict[str, Any] | bytes, manifest: str = MANIFEST) -> list[str]:
    """Return the codes of the problems that :func:`problems_of` returns."""
    return [problem.code for problem in problems_of(directory, *rows, manifest=manifest)]
