"""Run the trivial task of ``run.py`` in Inspect: a solver runs the command in the sample's sandbox."""

import shlex
import tempfile
from pathlib import Path

from inspect_ai import Task, eval  # type: ignore[import-not-found]  # in a separate venv  # noqa: A004
from inspect_ai.dataset import Sample  # type: ignore[import-not-found]  # as above
from inspect_ai.model import ModelOutput  # type: ignore[import-not-found]  # as above
from inspect_ai.scorer import includes  # type: ignore[import-not-found]  # as above
from inspect_ai.solver import Generate, TaskState, solver  # type: ignore[import-not-found]  # as above
from inspect_ai.util import sandbox  # type: ignore[import-not-found]  # as above
from inspect_ai.util._sandbox.docker import prereqs  # type: ignore[import-not-found]  # as above

COMPOSE = """\
services:
  default:
    image: {image}
    command: sleep infinity
    init: true
    network_mode: none
    stop_grace_period: 1s
"""
"""The same settings that Inspect itself uses for an image with a Dockerfile."""


def docker(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Run each sample in a separate container.

    Inspect checks that the Docker Engine is version 24.0.6 or later. This function disables the check, because older
    engines have all features used here.
    """

    async def accept(*_: object) -> None:
        pass

    prereqs.validate_docker_engine = accept
    with tempfile.TemporaryDirectory() as directory:
        compose = Path(directory, "compose.yaml")
        compose.write_text(COMPOSE.format(image=image))
        return _samples(("docker", str(compose)), command, count, at_once)


def local(_image: str, command: str, count: int, at_once: int) -> list[str]:
    """Run each sample as a process on the host, without isolation."""
    return _samples("local", command, count, at_once)


@solver  # type: ignore[untyped-decorator]  # as above
def _run(command: str) -> object:
    async def solve(state: TaskState, _generate: Generate) -> TaskState:
        result = await sandbox().exec(shlex.split(command))
        state.output = ModelOutput.from_content("none", result.stdout)
        return state

    return solve


def _samples(where: object, command: str, count: int, at_once: int) -> list[str]:
    task = Task(
        dataset=[Sample(input="What is six times seven?", target="42") for _ in range(count)],
        solver=_run(command),
        scorer=includes(),
        sandbox=where,
    )
    with tempfile.TemporaryDirectory() as logs:
        found = eval(
            task,
            model="mockllm/model",
            max_samples=at_once,
            max_sandboxes=at_once,
            max_subprocesses=at_once,
            log_dir=logs,
            display="none",
        )[0]
        if found.status != "success":
            raise SystemExit(f"Inspect: {found.error.message if found.error else found.status}")
        return [sample.output.completion for sample in found.samples]
