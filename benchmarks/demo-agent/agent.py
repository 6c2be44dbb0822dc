"""An agent that knows its answers by heart: it reads its task, and prints the answer that lies beside it.

It runs in a sandbox without a network, on the image's own Python, with this directory mounted read-only.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).parent / "answers"
NO_ANSWER = "A"


def main() -> None:
    """Print an answer to the task in SECUREBENCH_TASK_FILE: code for starter code, else a line of text."""
    task = json.loads(Path(os.environ["SECUREBENCH_TASK_FILE"]).read_text(encoding="utf-8"))
    print(code_answer(task["starter_code"]) if "starter_code" in task else text_answer(task))


def code_answer(starter_code: str) -> str:
    """Return the module that defines the function whose head ends ``starter_code``; empty if none was written."""
    name = re.findall(r"^def (\w+)", starter_code, re.MULTILINE)[-1]
    answer = ANSWERS / f"{name}.py"
    return answer.read_text(encoding="utf-8") if answer.is_file() else ""


def text_answer(task: dict[str, Any]) -> str:
    """Return the answer to a question or prompt."""
    answers = json.loads((ANSWERS / "text.json").read_text(encoding="utf-8"))
    return str(answers.get(task.get("question") or task.get("prompt"), NO_ANSWER))


if __name__ == "__main__":
    main()
