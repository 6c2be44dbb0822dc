"""What is compared: the drivers that can be had on this machine."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.errors import SecureBenchError
from securebench.sandboxes.optimisations import VARIABLE
from securebench.sandboxes.select import open_driver
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.sandboxes.base import SandboxDriver


@dataclass(frozen=True, slots=True)
class Side:
    """A driver by the name that the bench gives it: ``docker``, or a runtime of the oci driver.

    ``crun:kept-tests`` is crun without the optimisation of that name, ``crun:all`` without all of them.
    """

    name: str

    @property
    def driver(self) -> str:
        """Its name in a tester YAML."""
        return "docker" if self.is_docker else "oci"

    @property
    def runtime(self) -> str | None:
        """The runtime beneath it, ``None`` for the engine's own."""
        return None if self.is_docker else self.name.partition(":")[0]

    @property
    def is_docker(self) -> bool:
        """Whether it is the Docker driver."""
        return self.name == "docker"

    def open(self) -> SandboxDriver:
        """Open it. Raises :class:`EngineError`."""
        with self.switched():
            return open_driver(self.driver, self.runtime, "bench", lambda _said: None)

    @contextmanager
    def switched(self) -> Iterator[None]:
        """Switch off its optimisation, in this process and in those that it starts."""
        before = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = self.name.partition(":")[2] or before
        yield
        os.environ[VARIABLE] = before

    def trouble(self) -> str:
        """Return why it cannot be had here, with the image of the bench; empty if it can."""
        try:
            with closing(self.open()) as driver:
                driver.self_test(driver.resolve_image(DEFAULT_IMAGE))
        except SecureBenchError as error:
            return str(error)
        return ""


def usable(names: Sequence[str]) -> tuple[list[Side], list[str]]:
    """Return the sides that can be had, and what is to be said of the others."""
    troubles = {name: Side(name).trouble() for name in names}
    sides = [Side(name) for name, trouble in troubles.items() if not trouble]
    return sides, [f"{name} is left out: {trouble}" for name, trouble in troubles.items() if trouble]
