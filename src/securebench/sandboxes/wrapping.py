"""Base classes for wrappers that change or observe individual operations of drivers, sandboxes and processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.sandboxes.base import Sandbox, SandboxDriver, SandboxProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.images.store.leases import TreeLease
    from securebench.sandboxes.base import Chunk, Command, DriverInfo, ExitState, Mount, SandboxSpec, Volume
    from securebench.sandboxes.collected import Collected


class WrappedDriver(SandboxDriver):
    """A driver that forwards every operation to ``driver``."""

    def __init__(self, driver: SandboxDriver) -> None:
        self._driver = driver

    def info(self) -> DriverInfo:
        """Forward the call."""
        return self._driver.info()

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Forward the call."""
        return self._driver.resolve_image(reference, on_progress)

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Forward the call."""
        return self._driver.image_tree(image)

    def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        """Forward the call. The wrapped driver tests its own sandboxes, without this wrapper."""
        self._driver.self_test(image, forwarded_ports=forwarded_ports)

    @property
    def bounds_directories(self) -> bool:
        """Whether the wrapped driver can limit the size of directories."""
        return self._driver.bounds_directories

    def bounded(self, directory: Path, size: int) -> AbstractContextManager[Path]:
        """Forward the call."""
        return self._driver.bounded(directory, size)

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Forward the call."""
        return self._driver.create(spec, persistent=persistent)

    def reap(self) -> int:
        """Forward the call."""
        return self._driver.reap()

    def close(self) -> None:
        """Forward the call."""
        self._driver.close()

    def kill_all(self) -> None:
        """Forward the call."""
        self._driver.kill_all()


class WrappedSandbox(Sandbox):
    """A sandbox that forwards every operation to ``sandbox``, except ``run``, which calls ``open`` of this class."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def open(self, command: Command) -> SandboxProcess:
        """Forward the call."""
        return self._sandbox.open(command)

    def collected(self) -> Collected:
        """Forward the call."""
        return self._sandbox.collected()

    def copy_in(self, volume: Volume) -> None:
        """Forward the call."""
        self._sandbox.copy_in(volume)

    def copy_out(self, volume: Volume) -> Iterator[bytes]:
        """Forward the call."""
        return self._sandbox.copy_out(volume)

    def refresh(self, mount: Mount) -> None:
        """Forward the call."""
        self._sandbox.refresh(mount)

    def close(self) -> None:
        """Forward the call."""
        self._sandbox.close()


class WrappedProcess(SandboxProcess):
    """A process that forwards every operation to ``process``."""

    def __init__(self, process: SandboxProcess) -> None:
        self._process = process

    def send(self, data: bytes) -> None:
        """Forward the call."""
        self._process.send(data)

    def close_stdin(self) -> None:
        """Forward the call."""
        self._process.close_stdin()

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Forward the call."""
        return self._process.receive(timeout)

    def wait(self) -> ExitState:
        """Forward the call."""
        return self._process.wait()

    def kill(self) -> None:
        """Forward the call."""
        self._process.kill()
