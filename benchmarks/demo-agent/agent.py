"""A demo agent that reads its task and prints a prepared answer from the directory ``answers``.

The agent runs in a sandbox without a network, on the image's own Python, with this directory mounted read-only.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).parent / "answers"
NO_ANSWER = "A"


def main() -> None:
    """Print an answer to the task in SECUREBENCH_TASK_FILE: code if the task has starter code, otherwise text."""
    task = json.loads(Path(os.environ["SECUREBENCH_TASK_FILE"]).read_text(encoding="utf-8"))
    print(code_answer(task["starter_code"]) if "starter_code" in task else text_answer(task))


def code_answer(starter_code: str) -> str:
    """Return the prepared module for the last function in ``starter_code``, or an empty string if there is none."""
    name = re.findall(r"^def (\w+)", starter_code, re.MULTILINE)[-1]
    answer = ANSWERS / f"{name}.py"
    return answer.read_text(encoding="utf-8") if answer.is_file() else ""


def text_answer(task: dict[str, Any]) -> str:
    """Return the prepared answer to a question or prompt, or ``NO_ANSWER`` if there is none."""
    answers = json.loads((ANSWERS / "text.json").read_text(encoding="utf-8"))
    return str(answers.get(task.get("question") or task.get("prompt"), NO_ANSWER))


if __name__ == "__main__":
    main()
