"""The lower bound for Docker: bare containers that are created, run and removed through the Engine API.

A container is created from exactly the body that the framework sends, compiled by the same function. Everything else
that the framework does is left out: workspace, streams, sealing, judging, records.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from securebench.engine.client import connect
from securebench.images.resolve import resolve
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.docker.spec import compile_container

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_WORKERS = 8


class Floor:
    """Bare containers of one image."""

    def __init__(self, image: str) -> None:
        self._engine = connect()
        spec = SandboxSpec(image=resolve(self._engine, image))
        self._body = compile_container(spec, Command(argv=("/bin/true",), timeout_seconds=60), {})
        self._pairs = ThreadPoolExecutor(2 * _MOST_WORKERS)

    def one(self) -> None:
        """Create, run and remove one container: what a text task needs."""
        client = self._engine.client
        container = client.create_container_from_config(self._body)["Id"]  # type: ignore[no-untyped-call]  # untyped
        client.start(container)
        client.wait(container)
        client.remove_container(container, force=True)

    def one_then_two(self) -> None:
        """Create, run and remove one container, then two at once: what a code task needs."""
        self.one()
        for done in [self._pairs.submit(self.one) for _ in range(2)]:
            done.result()

    def per_task(self, task: Callable[[], None], *, tasks: int, workers: int) -> float:
        """Run ``task`` ``tasks`` times, ``workers`` at once. Return the seconds divided by ``tasks``."""
        started = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(task) for _ in range(tasks)]:
                done.result()
        return (time.perf_counter() - started) / tasks

    def close(self) -> None:
        """Close the connection to the engine."""
        self._pairs.shutdown()
        self._engine.close()
