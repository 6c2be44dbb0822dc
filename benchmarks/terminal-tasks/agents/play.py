"""An agent that runs a script: ``play.py solutions``, ``play.py cheats/2``, or ``play.py nothing``.

It recognizes its task by the public instructions: each script begins with a comment that quotes a part of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ANY = "any.sh"
"""The name of the script for all tasks that have no specific script."""


def main() -> int:
    """Run the script of the set ``argv[1]`` for the task in SECUREBENCH_TASK_FILE, in the working directory."""
    task = json.loads(Path(os.environ["SECUREBENCH_TASK_FILE"]).read_text(encoding="utf-8"))
    script = find(HERE / sys.argv[1], task["instructions"]) if sys.argv[1] != "nothing" else None
    return subprocess.run(["/bin/bash", "-eu", str(script)], check=False).returncode if script else 0


def find(directory: Path, instructions: str) -> Path:
    """Return the script in ``directory`` for the task with these instructions."""
    for script in sorted(directory.glob("*.sh")):
        first = script.read_text(encoding="utf-8").splitlines()[0]
        if script.name != ANY and first.removeprefix("# ") in instructions:
            return script
    return directory / ANY


if __name__ == "__main__":
    sys.exit(main())
