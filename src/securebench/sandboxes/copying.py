"""Support for drivers that lack features: replace host mounts by copies, and refuse what cannot be replaced."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from securebench.errors import ImageError, InfrastructureError, MaterializationError, StorageError
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.tree_archive import archive, replace_content
from securebench.sandboxes.base import Volume, image_tree_unavailable
from securebench.sandboxes.enforcement import DriverFeature
from securebench.sandboxes.spec_rules import check_collect, check_forwarded_ports, check_mount
from securebench.sandboxes.wrapping import WrappedDriver, WrappedProcess, WrappedSandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.images.model import ResolvedImage
    from securebench.images.store.leases import TreeLease
    from securebench.plugins import Identity
    from securebench.sandboxes.base import (
        Command,
        ExitState,
        Mount,
        Sandbox,
        SandboxDriver,
        SandboxProcess,
        SandboxSpec,
    )


def adapted(driver: SandboxDriver) -> SandboxDriver:
    """Return ``driver`` itself if it has all features, otherwise a wrapper that replaces host mounts by copies.

    The wrapper copies mounts in when a sandbox is created. It copies the writable mounts of an ephemeral sandbox back
    each time a command has ended. From a persistent sandbox nothing is copied back, because its processes may still run
    and change the files. Other features that ``driver`` lacks cannot be replaced: using them raises an error, which is
    :class:`EgressError` (``egress-unavailable``) for forwarded ports.

    Raises :class:`EngineError`.
    """
    return AdaptedDriver(driver) if driver.info().lacks else driver


class AdaptedDriver(WrappedDriver):
    """A wrapper that replaces the host mounts of ``driver`` by copies. See :func:`adapted`."""

    def __init__(self, driver: SandboxDriver) -> None:
        super().__init__(driver)
        info = driver.info()
        self._name = info.name
        self._lacks = frozenset(info.lacks)

    def identity(self) -> Identity | None:
        """Return the identity of the wrapped driver: records do not mention this wrapper."""
        return self._driver.identity()

    @property
    def bounds_directories(self) -> bool:
        """Whether the driver supports :meth:`bounded`.

        ``False`` for a driver without host mounts: its sandboxes write to copies, which have no size limit.
        """
        return DriverFeature.HOST_MOUNTS not in self._lacks and self._driver.bounds_directories

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return the wrapped driver's lease.

        Raises :class:`ConfigError` if that driver lacks :attr:`DriverFeature.IMAGE_TREE`.
        """
        if DriverFeature.IMAGE_TREE in self._lacks:
            raise image_tree_unavailable(self._driver.info(), f"the files of {image.reference}")
        return super().image_tree(image)

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Create a sandbox. If the driver has no host mounts, the mounts of ``spec`` are copied into the sandbox."""
        possible = DriverFeature.FORWARDED_PORTS not in self._lacks
        check_forwarded_ports(spec, f"the {self._name} driver", possible=possible)
        if DriverFeature.HOST_MOUNTS not in self._lacks or not spec.mounts:
            return self._driver.create(spec, persistent=persistent)
        check_collect(spec, persistent=persistent)
        for mount in spec.mounts:
            check_mount(mount)
        volumes = {mount: _volume(mount, spec.user) for mount in spec.mounts}
        remote = replace(spec, mounts=(), volumes=tuple(volumes.values()))
        return _CopyingSandbox(self._driver.create(remote, persistent=persistent), volumes, persistent=persistent)


class _CopyingSandbox(WrappedSandbox):
    """A sandbox with a volume for each mount."""

    def __init__(self, sandbox: Sandbox, volumes: Mapping[Mount, Volume], *, persistent: bool) -> None:
        super().__init__(sandbox)
        self._volumes = volumes
        self._copied_back = () if persistent else tuple(mount for mount in volumes if not mount.read_only)

    def refresh(self, mount: Mount) -> None:
        """Copy the source of ``mount`` into the sandbox again."""
        self._sandbox.copy_in(self._volumes[mount])

    def open(self, command: Command) -> SandboxProcess:
        process = self._sandbox.open(command)
        return _CopyingProcess(process, self._copy_back) if self._copied_back else process

    def _copy_back(self) -> None:
        for mount in self._copied_back:
            try:
                replace_content(mount.source, self._sandbox.copy_out(self._volumes[mount]))
            except ImageError as error:
                raise InfrastructureError(f"cannot copy {mount.target} out of a sandbox: {error.message}") from error
            except OSError as error:
                raise StorageError(
                    f"cannot copy {mount.target} out of a sandbox to {mount.source}: {error.strerror or error}"
                ) from error


class _CopyingProcess(WrappedProcess):
    """A process whose first :meth:`wait` calls ``copy_back`` after the process has ended."""

    def __init__(self, process: SandboxProcess, copy_back: Callable[[], None]) -> None:
        super().__init__(process)
        self._copy_back: Callable[[], None] | None = copy_back

    def wait(self) -> ExitState:
        state = self._process.wait()
        copy_back, self._copy_back = self._copy_back, None
        if copy_back is not None:
            copy_back()
        return state


def _volume(mount: Mount, user: tuple[int, int]) -> Volume:
    """Return the volume for ``mount``.

    The sandbox's ``user`` owns the files of a writable volume. Root owns the files of a read-only volume.
    """
    owner = (0, 0) if mount.read_only else user
    return Volume(mount.target, partial(_archive, mount, owner), mount.read_only)


def _archive(mount: Mount, owner: tuple[int, int]) -> Iterator[bytes]:
    try:
        yield from archive(mount.source, PurePosixPath(mount.target).name, owner)
    except TreeRefusedError as refused:
        raise MaterializationError(
            f"cannot copy {mount.source} into a sandbox: {refused}",
            code="mount-unsafe",
            hint=f"leave only readable files, directories and links in {mount.source}",
        ) from None
    except OSError as error:
        raise StorageError(f"cannot read {mount.source}: {error.strerror or error}") from error
