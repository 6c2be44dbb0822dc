"""The Docker driver: sandboxes over the Engine API. No process is started on the host for any of it."""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any, Self

from securebench.engine.client import connect
from securebench.errors import InfrastructureError
from securebench.images.resolve import resolve
from securebench.sandboxes.base import SandboxDriver
from securebench.sandboxes.collecting import check_collect, require_directory
from securebench.sandboxes.docker.container import DockerContainer
from securebench.sandboxes.docker.facts import describe, require_runtime
from securebench.sandboxes.docker.owner import DRIVER_LABEL, OWNER_LABEL, RUN_LABEL, is_abandoned
from securebench.sandboxes.docker.sandbox import DockerContext, DockerSandbox, PersistentDockerSandbox
from securebench.sandboxes.docker.tree import EngineTrees
from securebench.sandboxes.forwarding import check_forwarded_ports
from securebench.sandboxes.gvisor import RUNSC
from securebench.sandboxes.oci import reaper
from securebench.sandboxes.owner import Owner
from securebench.sandboxes.self_test import require_isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.images.store.image_store import ImageStore
    from securebench.images.store.leases import TreeLease
    from securebench.sandboxes.base import DriverInfo, SandboxSpec
    from securebench.strict_input.models import WireModel

__all__ = ["DockerDriver", "DockerSandbox"]

_log = logging.getLogger(__name__)

CLOSE_SECONDS = 60.0
"""How long closing waits for removals. What is left then, the next run reaps."""


class DockerDriver(SandboxDriver):
    """A driver on the Docker Engine of this machine. Without an ``engine`` it connects to one; it closes either.

    Everything that it makes carries ``run_id``, this process and this driver as labels. ``runtime`` is one that the
    engine lists, as ``runsc``; by default it is the engine's own. Images are unpacked in ``store``. Raises
    :class:`EngineError`.
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
        """Return a driver that labels what it makes with ``run_id``. It has no settings."""
        del settings, notify
        return cls(run_id=run_id, runtime=runtime)

    def info(self) -> DriverInfo:
        """Say which engine and runtime this is."""
        return describe(self.engine, self._context.runtime)

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Return what ``reference`` means, found out once."""
        with self._resolving:
            if reference not in self._images:
                self._images[reference] = resolve(self.engine, reference, on_progress)
            return self._images[reference]

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return the files of ``image`` in the store, where they are brought once."""
        return self._trees.lease(image)

    def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        """Ask a sandbox of ``image`` what it sees."""
        require_isolation(self, image, forwarded_ports=forwarded_ports)

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> DockerSandbox:
        """Make a sandbox. An ephemeral one asks the engine for nothing before its first command."""
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
        """Remove what processes that are gone have left, never anything of one that lives."""
        return self._remove_listed(OWNER_LABEL, is_abandoned) + reaper.reap()

    def kill_all(self) -> None:
        """End and remove every sandbox at once, and make no more."""
        for sandbox in self._context.sandboxes.stop():
            self._context.background.do(sandbox.close)
        self._context.background.drain(CLOSE_SECONDS)

    def close(self) -> None:
        """Close what is open, wait ``CLOSE_SECONDS`` at most for removals, and let go of the engine."""
        atexit.unregister(self.close)
        self.kill_all()
        try:
            # An interrupt may have come after the engine made a container and before we knew of it.
            self._remove_listed(f"{DRIVER_LABEL}={self._token}", lambda _entry: True)
        except InfrastructureError as error:
            _log.warning("what this run left could not be looked for, the next run will: %s", error.message)
        self._context.background.close()
        self.engine.close()

    def _require(self, runtime: str) -> None:
        try:
            require_runtime(self.engine, runtime)
        except InfrastructureError:
            self.engine.close()
            raise

    def _remove_listed(self, label: str, wanted: Callable[[Mapping[str, Any]], bool]) -> int:
        with self.engine.doing("list sandboxes"):
            listed = self.engine.client.containers(all=True, filters={"label": label})
        containers = [DockerContainer(self.engine, entry["Id"]) for entry in listed if wanted(entry)]
        for container in containers:
            container.remove()
        return len(containers)
