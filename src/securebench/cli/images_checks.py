"""Running a recipe's checks as a run would run its tasks: in a sandbox of the driver that this machine has."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

_SECONDS = 60
_CHARACTERS_SHOWN = 2000


class SandboxChecks:
    """Runs one command in a fresh sandbox of an image: the exit code, and the end of what it printed.

    ``None`` where there is no driver. One is opened for the first command, and closed with this context manager.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._driver: SandboxDriver | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.close()

    def __call__(self, image: ResolvedImage, command: tuple[str, ...]) -> tuple[int, str] | None:
        """Run ``command``. Raises :class:`InfrastructureError` where the sandbox fails."""
        from securebench.sandboxes.base import Command, SandboxSpec

        self._driver = self._driver or self._open()
        if self._driver is None:
            return None
        known = self._driver.resolve_image(image.id)
        with self._driver.create(SandboxSpec(image=known)) as sandbox:
            result = sandbox.run(Command(argv=command, timeout_seconds=_SECONDS))
        output = (result.stdout + result.stderr).decode(errors="replace").strip()
        return result.exit_code, output[-_CHARACTERS_SHOWN:]

    def _open(self) -> SandboxDriver | None:
        """Return the best driver; a weaker one will do, too, as what a recipe's checks run is our own."""
        from securebench.errors import InfrastructureError
        from securebench.sandboxes.select import open_driver

        for name in ("auto", "oci"):
            with suppress(InfrastructureError):
                return open_driver(name, None, "images build", self._report)
        return None
