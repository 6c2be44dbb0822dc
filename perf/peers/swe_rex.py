"""Run the trivial task of ``run.py`` in SWE-ReX.

SWE-ReX installs its server in each container unless the image contains it.
"""

import asyncio
import shlex

from swerex.deployment.docker import DockerDeployment  # type: ignore[import-not-found]  # in a separate venv
from swerex.runtime.abstract import Command  # type: ignore[import-not-found]  # as above


def batch(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Start a deployment for each task, run the command, and stop the deployment."""
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
