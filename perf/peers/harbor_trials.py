"""Run the trivial task of ``run.py`` in Harbor.

Harbor's oracle agent runs the solution, and the task's test script writes the reward.
"""

import asyncio
import os
import tempfile
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # do not download the price list, which is not needed

from harbor.job import Job  # type: ignore[import-not-found]  # in a separate venv
from harbor.models.environment_type import EnvironmentType  # type: ignore[import-not-found]  # as above
from harbor.models.job.config import JobConfig  # type: ignore[import-not-found]  # as above
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig  # type: ignore[import-not-found]

TASK = """\
version = "1.0"
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = 60.0
[environment]
docker_image = "{image}"
"""
TEST = """\
#!/bin/sh
test "$(cat /tmp/answer)" = 42 && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""


def batch(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Run a job with one trial per task."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_trials(Path(directory).resolve(), image, command, count, at_once))


async def _trials(root: Path, image: str, command: str, count: int, at_once: int) -> list[str]:
    tasks = [_task(root / f"task-{number}", image, command) for number in range(count)]
    config = JobConfig(
        job_name="trivial",
        jobs_dir=root / "jobs",
        n_concurrent_trials=at_once,
        quiet=True,
        tasks=[TaskConfig(path=task) for task in tasks],
        agents=[AgentConfig(name="oracle")],
        environment=EnvironmentConfig(type=EnvironmentType.DOCKER),
    )
    job = await Job.create(config)
    result = await job.run()
    trials = [trial for trial in result.trial_results if trial.verifier_result]
    return ["42" for trial in trials if trial.verifier_result.rewards == {"reward": 1.0}]


def _task(directory: Path, image: str, command: str) -> Path:
    for name, text in {
        "task.toml": TASK.format(image=image),
        "instruction.md": "What is six times seven? Write it to /tmp/answer.\n",
        "environment/Dockerfile": f"FROM {image}\n",
        "solution/solve.sh": f"#!/bin/sh\n{command} > /tmp/answer\n",
        "tests/test.sh": TEST,
    }.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory
