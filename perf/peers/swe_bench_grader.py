"""Run the trivial task of ``run.py`` in SWE-bench's grader: the command is the only test, and no patch is applied."""

import os
import tempfile
import time

from swebench.harness.run_evaluation import _docker_client, run_instance  # type: ignore[import-not-found]  # own venv
from swebench.harness.utils import make_test_spec  # type: ignore[import-not-found]  # as above

from peers.each import in_threads

SCRIPT = """\
echo '>>>>> Start Test Output'
answer=$({command})
test "$answer" = 42 && echo PASSED answer
echo '>>>>> End Test Output'
"""


def batch(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Grade one instance per task, each in a separate container."""
    client, numbers = _docker_client(), iter(range(count))
    run_id = f"trivial-{os.getpid()}-{time.monotonic_ns()}"

    def one() -> str:
        name = f"trivial__trivial-{next(numbers)}"
        spec = make_test_spec(
            {
                "instance_id": name,
                "image": image,
                "repo": "trivial/trivial",
                "version": "1",
                "FAIL_TO_PASS": ["answer"],
                "PASS_TO_PASS": [],
                "log_parser": "parse_log_pytest",
                "eval_type": "pass_and_fail",
                "eval_script": SCRIPT.format(command=command),
            }
        )
        prediction = {"instance_id": name, "model_name_or_path": "trivial", "model_patch": "none"}
        graded = run_instance(spec, prediction, client, run_id, timeout=60, skip_patch=True)
        return "42" if graded and graded[1][name]["resolved"] else str(graded)

    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)  # the grader writes its logs below the working directory
        return in_threads(one, count, at_once)
