"""The drivers that work on this machine, which the benchmarks compare."""

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
    """A driver to measure. Its name is ``docker`` or a runtime of the oci driver, such as ``crun``.

    ``crun:kept-tests`` is crun without the optimisation ``kept-tests``; ``crun:all`` is crun without any optimisation.
    """

    name: str

    @property
    def driver(self) -> str:
        """The driver's name in a tester YAML."""
        return "docker" if self.is_docker else "oci"

    @property
    def runtime(self) -> str | None:
        """The runtime in a tester YAML, or ``None`` for the Docker Engine's default."""
        return None if self.is_docker else self.name.partition(":")[0]

    @property
    def is_docker(self) -> bool:
        """Whether this side is the Docker driver."""
        return self.name == "docker"

    def open(self) -> SandboxDriver:
        """Open the driver. Raises :class:`EngineError`."""
        with self.switched():
            return open_driver(self.driver, self.runtime, "bench", lambda _said: None)

    @contextmanager
    def switched(self) -> Iterator[None]:
        """Switch off the optimisation in the side's name, if any, in this process and its children during the block."""
        before = os.environ.get(VARIABLE, "")
        os.environ[VARIABLE] = self.name.partition(":")[2] or before
        yield
        os.environ[VARIABLE] = before

    def trouble(self) -> str:
        """Return why the driver does not work here with the default image; empty if it works."""
        try:
            with closing(self.open()) as driver:
                driver.self_test(driver.resolve_image(DEFAULT_IMAGE))
        except SecureBenchError as error:
            return str(error)
        return ""


def usable(names: Sequence[str]) -> tuple[list[Side], list[str]]:
    """Return the sides that work here, and a line for each other name that says why it is left out."""
    troubles = {name: Side(name).trouble() for name in names}
    sides = [Side(name) for name, trouble in troubles.items() if not trouble]
    return sides, [f"{name} is left out: {trouble}" for name, trouble in troubles.items() if trouble]
