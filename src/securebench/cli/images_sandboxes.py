"""Run the checks and steps of recipes in sandboxes, with the same driver as runs."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.images.build.derived.build import BuildScript, StepsResult
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Sandbox, SandboxDriver, SandboxSpec

_SECONDS: Final = 60
_STEPS_SECONDS: Final = 3600
_GIB: Final = 1024**3
_CHARACTERS_SHOWN: Final = 2000


class BuildSandboxes:
    """Creates the sandboxes of builds. The first use opens a driver, which this context manager closes at its end."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._driver: SandboxDriver | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.close()

    def check(self, image: ResolvedImage, command: tuple[str, ...]) -> tuple[int, str] | None:
        """Run ``command`` in a fresh sandbox. Return its exit code and the end of its output.

        Return ``None`` if there is no driver. Raises :class:`InfrastructureError` if the sandbox fails.
        """
        from securebench.sandboxes.base import Command, SandboxSpec

        self._driver = self._driver or self._open()
        if self._driver is None:
            return None
        known = self._driver.resolve_image(image.id)
        with self._driver.create(SandboxSpec(image=known, workdir=known.workdir)) as sandbox:
            result = sandbox.run(Command(argv=command, timeout_seconds=_SECONDS))
        output = (result.stdout + result.stderr).decode(errors="replace").strip()
        return result.exit_code, output[-_CHARACTERS_SHOWN:]

    @contextmanager
    def steps(self, build_script: BuildScript, log: Callable[[bytes], None]) -> Iterator[StepsResult | None]:
        """Run a build's steps in a sandbox, as root without capabilities, and yield their result.

        Yield ``None`` if there is no driver. Raises :class:`InfrastructureError` if the sandbox fails.
        """
        from securebench.images.build.derived.build import StepsResult
        from securebench.sandboxes.base import Command

        self._driver = driver = self._driver or self._open()
        if driver is None:
            yield None
            return
        spec = _steps_spec(driver.resolve_image(build_script.image_id), build_script)
        with driver.create(spec) as sandbox:
            command = Command(argv=("/bin/sh", "-c", build_script.script), timeout_seconds=_STEPS_SECONDS)
            result = sandbox.run(command, lambda chunk: log(chunk[1]))
            if result.timed_out or result.out_of_memory:
                log(b"\nsecurebench: " + (b"out of time\n" if result.timed_out else b"out of memory\n"))
            yield StepsResult(result.exit_code, _layer(driver, spec, sandbox) if result.exit_code == 0 else iter(()))

    def _open(self) -> SandboxDriver | None:
        """Return the best driver that works on this machine, or ``None``.

        The driver may enforce less than a run requires, because the user chose to run this recipe.
        """
        from securebench.errors import InfrastructureError
        from securebench.plugins import AUTO_DRIVER
        from securebench.sandboxes.select import open_driver

        for name in (AUTO_DRIVER, "oci"):
            with suppress(InfrastructureError):
                return open_driver(name, None, "images build", self._report)
        return None


def _steps_spec(image: ResolvedImage, build_script: BuildScript) -> SandboxSpec:
    from securebench.images.build.derived.build import TOOLS
    from securebench.limits import Limits
    from securebench.sandboxes.base import BASE_ENVIRONMENT, Mount, SandboxSpec

    return SandboxSpec(
        image=image,
        read_only=False,
        collect="/",
        user=(0, 0),
        mounts=(Mount(build_script.tools, TOOLS),),
        environment={**BASE_ENVIRONMENT, **build_script.environment},
        limits=Limits(memory=4 * _GIB, tmpfs=2 * _GIB, pids=1024, cpus=2.0, file_size=2 * _GIB),
    )


def _layer(driver: SandboxDriver, spec: SandboxSpec, sandbox: Sandbox) -> Iterator[bytes]:
    """Yield the changes in a sandbox as a layer, from either of the two forms in which drivers collect them."""
    from securebench.images.build.derived.changed import layer_of_archive, layer_of_overlay
    from securebench.images.store.ids import tree_shift
    from securebench.sandboxes.collected import CollectedLayer

    collected = sandbox.collected()
    if isinstance(collected, CollectedLayer):
        yield from layer_of_overlay(collected.descriptor, collected.opaque, tree_shift())
        return
    with driver.image_tree(spec.image) as tree:
        yield from layer_of_archive(collected.pieces, tree.root, tree_shift())
