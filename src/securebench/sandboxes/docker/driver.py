"""The Docker driver: sandboxes through the Engine API. It starts no processes on the host."""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from securebench.engine.client import connect
from securebench.errors import ImageError, InfrastructureError
from securebench.faults import FaultPoint, reached
from securebench.images.engine_images import import_from_engine
from securebench.images.resolve import resolve
from securebench.images.store.image_store import ImageStore
from securebench.sandboxes.base import SandboxDriver
from securebench.sandboxes.docker.container import DockerContainer
from securebench.sandboxes.docker.facts import describe, require_runtime
from securebench.sandboxes.docker.sandbox import DockerContext, DockerSandbox, PersistentDockerSandbox
from securebench.sandboxes.oci import reaper
from securebench.sandboxes.owner import Owner
from securebench.sandboxes.self_test import require_isolation
from securebench.sandboxes.spec_rules import RUNSC, check_collect, check_forwarded_ports, require_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.images.store.leases import TreeLease
    from securebench.sandboxes.base import DriverInfo, SandboxSpec
    from securebench.strict_input.models import WireModel

__all__ = ["DockerDriver", "DockerSandbox"]

_log = logging.getLogger(__name__)

CLOSE_SECONDS = 60.0
"""The maximum time in seconds that a driver waits for the removal of all its sandboxes.

The next run removes any that are left.
"""

RUN_LABEL = "securebench.run"
DRIVER_LABEL = "securebench.driver"
OWNER_LABEL = "securebench.owner"
"""A label of everything that a driver creates. Its value is the owner: ``boot-id/pid-namespace/pid/start-time``."""

_open_drivers: set[str] = set()
"""The tokens of this process's drivers that are not closed."""

FORGOTTEN_SECONDS = 3600
"""The age in seconds above which a container is removed if it is not running and its owner's state is unknown."""


class DockerDriver(SandboxDriver):
    """A driver for ``engine``, by default the result of :func:`connect`. Closing the driver closes ``engine``, too.

    The driver labels what it creates with ``run_id``, this process and this driver. ``runtime`` is the name of one of
    the engine's runtimes, such as ``runsc``, or ``None`` for the engine's default. Images are unpacked into ``store``.
    Raises :class:`EngineError`.
    """

    def __init__(
        self,
        *,
        run_id: str = "",
        engine: Engine | None = None,
        runtime: str | None = None,
        store: ImageStore | None = None,
    ) -> None:
        self.engine = connect() if engine is None else engine
        if runtime is not None:
            self._require(runtime)
        self._token = secrets.token_hex(8)
        _open_drivers.add(self._token)
        labels = {RUN_LABEL: run_id, OWNER_LABEL: Owner.current().label(), DRIVER_LABEL: self._token}
        self._context = DockerContext(self.engine, labels, self.resolve_image, runtime)
        self._images: dict[str, ResolvedImage] = {}
        self._resolving = threading.Lock()
        self._trees = EngineTrees(self.engine, store)
        atexit.register(self.close)

    @classmethod
    def open_for_run(
        cls, run_id: str, runtime: str | None, settings: WireModel | None, notify: Callable[[str], None]
    ) -> Self:
        """Return a driver that labels its containers with ``run_id``. ``settings`` is ignored: the driver has none."""
        del settings, notify
        return cls(run_id=run_id, runtime=runtime)

    def info(self) -> DriverInfo:
        """Describe the engine and its runtime."""
        return describe(self.engine, self._context.runtime)

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Resolve ``reference`` as :meth:`SandboxDriver.resolve_image` does."""
        with self._resolving:
            if reference not in self._images:
                reached(FaultPoint.IMAGE_RESOLVE, reference)
                self._images[reference] = resolve(self.engine, reference, on_progress)
            return self._images[reference]

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return a lease on the files of ``image`` in the store. Missing files are copied from the engine."""
        return self._trees.lease(image)

    def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        """Check the isolation of a sandbox of ``image`` from inside, as :meth:`SandboxDriver.self_test` does."""
        require_isolation(self, image, forwarded_ports=forwarded_ports)

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> DockerSandbox:
        """Create a sandbox. An ephemeral one starts no container before its first command."""
        if spec.forwarded_ports:
            runtime = self.info().runtime
            check_forwarded_ports(spec, runtime, possible=runtime != RUNSC)
        check_collect(spec, persistent=persistent)
        if spec.collect is not None:
            with self.image_tree(spec.image) as tree:
                require_directory(tree.root, spec.collect)
        kind = PersistentDockerSandbox if persistent else DockerSandbox
        return kind(self._context, spec)

    def reap(self) -> int:
        """Remove what past runs left behind, such as abandoned containers. Return the number of removed items."""
        return self._remove_listed(OWNER_LABEL, is_abandoned) + reaper.reap()

    def kill_all(self) -> None:
        """Kill and remove all sandboxes, wait up to ``CLOSE_SECONDS`` for removals, and create no more."""
        for sandbox in self._context.sandboxes.stop():
            self._context.background.do(sandbox.close)
        self._context.background.drain(CLOSE_SECONDS)

    def close(self) -> None:
        """Close all sandboxes, wait up to ``CLOSE_SECONDS`` for removals, and disconnect from the engine."""
        atexit.unregister(self.close)
        self.kill_all()
        try:
            # After an interrupt, the engine may have created a container whose id this process never received.
            self._remove_listed(f"{DRIVER_LABEL}={self._token}", lambda _entry: True)
        except InfrastructureError as error:
            _log.warning("leftover sandboxes could not be removed; the next run removes them: %s", error.message)
        self._context.background.close()
        self.engine.close()
        _open_drivers.discard(self._token)

    def _require(self, runtime: str) -> None:
        try:
            require_runtime(self.engine, runtime)
        except InfrastructureError:
            self.engine.close()
            raise

    def _remove_listed(self, label: str, condition: Callable[[Mapping[str, Any]], bool]) -> int:
        with self.engine.doing("list sandboxes"):
            listed = self.engine.client.containers(all=True, filters={"label": label})
        containers = [DockerContainer(self.engine, entry["Id"]) for entry in listed if condition(entry)]
        for container in containers:
            container.remove()
        return len(containers)


def is_abandoned(container: Mapping[str, Any], now: float | None = None) -> bool:
    """Whether ``container``, an entry of the engine's list, was left by a process that is gone or by a closed driver.

    A closed driver of this process may have left containers because the engine did not respond. If the owner's state
    is unknown, a container counts as abandoned if it is not running and older than :data:`FORGOTTEN_SECONDS`.
    """
    labels = container.get("Labels") or {}
    owner = Owner.parse(labels.get(OWNER_LABEL, ""))
    if owner is None:
        return False
    if owner == Owner.current():
        return DRIVER_LABEL in labels and labels[DRIVER_LABEL] not in _open_drivers
    if owner.can_be_judged():
        return not owner.is_alive()
    age = (time.time() if now is None else now) - container.get("Created", 0)
    return container.get("State") != "running" and age > FORGOTTEN_SECONDS


class EngineTrees:
    """The unpacked files of an engine's images in the image store. Thread-safe."""

    def __init__(self, engine: Engine, store: ImageStore | None) -> None:
        self._engine = engine
        self._store = store
        self._copying = threading.Lock()

    def lease(self, image: ResolvedImage) -> TreeLease:
        """Return a lease on the files of ``image``, copied from the engine if they are not in the store.

        Raises the errors of :func:`import_from_engine` and :meth:`ImageStore.lease`.
        """
        reached(FaultPoint.IMAGE_LEASE, image.reference)
        with self._copying:  # so that an image, which may be large, is copied once for all tasks
            store = self._store = self._store or ImageStore()
            if store.find(image.id) is None:
                import_from_engine(self._engine, store, image.id, lambda _line: None)
            if store.find(image.id) is None:
                raise ImageError(
                    f"the engine's id of {image.reference} is not the image id in the archive that it exports",
                    hint="configure the engine to use its own image store, not containerd's, or use the oci driver",
                )
        return store.lease(image.id)
