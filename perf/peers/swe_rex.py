"""The trivial task in SWE-ReX, which installs its server in each container unless the image has it."""

import asyncio
import shlex

from swerex.deployment.docker import DockerDeployment  # type: ignore[import-not-found]  # in a venv of its own
from swerex.runtime.abstract import Command  # type: ignore[import-not-found]  # as above


def batch(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Start a deployment per task, run the command, and stop it."""
    return asyncio.run(_all(image, command, count, at_once))


async def _all(image: str, command: str, count: int, at_once: int) -> list[str]:
    turns = asyncio.Semaphore(at_once)

    async def one() -> str:
        async with turns:
            deployment = DockerDeployment(image=image, pull="never", startup_timeout=30.0)
            try:
                await deployment.start()
                return str((await deployment.runtime.execute(Command(command=shlex.split(command)))).stdout)
            finally:
                await deployment.stop()

    return await asyncio.gather(*(one() for _ in range(count)))
