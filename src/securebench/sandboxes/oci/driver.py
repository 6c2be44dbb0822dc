"""The oci driver: sandboxes without a daemon, in the namespaces of a supervisor process."""

from __future__ import annotations

import atexit
import secrets
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from securebench.errors import InfrastructureError
from securebench.faults import FaultPoint, reached
from securebench.sandboxes.base import DriverInfo, SandboxDriver
from securebench.sandboxes.enforcement import in_words
from securebench.sandboxes.oci import reaper
from securebench.sandboxes.oci.connection import SupervisorConnection
from securebench.sandboxes.oci.runtime import find_init, find_runtime
from securebench.sandboxes.oci.sandbox import OciContext, OciSandbox, PersistentOciSandbox
from securebench.sandboxes.optimisations import Optimisations
from securebench.sandboxes.self_test import require_isolation
from securebench.sandboxes.spec_rules import NAME_FILES, check_collect, check_forwarded_ports, require_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.images.model import ResolvedImage
    from securebench.images.store.image_store import ImageStore, TreeLease
    from securebench.sandboxes.base import SandboxSpec
    from securebench.sandboxes.oci.isolation import Isolation
    from securebench.strict_input.models import WireModel

__all__ = ["OciDriver"]


class OciDriver(SandboxDriver):
    """A driver that uses crun, runc or runsc on this machine, with the images of ``store``.

    ``runtime`` is the name of the runtime, by default crun or, if that is not installed, runc. The supervisor starts in
    the background. If that fails, the first call that needs the supervisor raises the error. By default, an environment
    variable selects the ``optimisations`` (:meth:`Optimisations.from_environment`).

    Raises :class:`EngineError`, and :class:`ConfigError` (``optimisation-unknown``).
    """

    def __init__(
        self, *, runtime: str | None = None, store: ImageStore | None = None, optimisations: Optimisations | None = None
    ) -> None:
        optimisations = optimisations or Optimisations.from_environment()
        found, init = find_runtime(runtime), find_init()
        shown = {init: "init", **{path: path.name for path in NAME_FILES}}
        run, group = reaper.make_run_directory(secrets.token_hex(8))
        try:
            files = {name: str(path) for path, name in shown.items()}
            connection = SupervisorConnection(run, group, files, found, optimisations)
        except InfrastructureError:
            reaper.remove_run(run, group)
            raise
        self._store = store
        self._context = OciContext(connection, found, run, group, shown, init, optimisations)
        self._images: dict[str, ResolvedImage] = {}
        self._leases: dict[str, TreeLease] = {}
        self._resolving = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False
        self._proved = False
        atexit.register(self.close)

    @classmethod
    def open_proven(cls, runtime: str | None) -> tuple[Self, tuple[str, ...]]:
        """Return a driver whose test sandboxes were isolated, and the restrictions that it does not enforce here.

        The restrictions are names from :data:`~securebench.sandboxes.enforcement.ENFORCEABLE`. Raises
        :class:`EngineError`.
        """
        driver = cls(runtime=runtime)
        try:
            return driver, tuple(driver.prove().weaker)
        except BaseException:
            driver.close()
            raise

    @classmethod
    def open_for_run(
        cls, run_id: str, runtime: str | None, settings: WireModel | None, notify: Callable[[str], None]
    ) -> Self:
        """Open a driver with :meth:`open_proven`, and notify the user of restrictions that are not enforced."""
        del run_id, settings
        driver, weaker = cls.open_proven(runtime)
        if weaker:
            notify(f"sandboxes are weaker on this machine. Not enforced: {in_words(weaker)}. See 'securebench doctor'")
        return driver

    @property
    def store(self) -> ImageStore:
        """The image store of this driver."""
        if self._store is None:
            from securebench.images.store.image_store import ImageStore

            self._store = ImageStore()
        return self._store

    def info(self) -> DriverInfo:
        """Describe the runtime and what it enforces. Raises :class:`EngineError`."""
        from securebench.sandboxes.oci.isolation import describe

        return describe(self._context)

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Resolve ``reference`` as :meth:`SandboxDriver.resolve_image` does."""
        from securebench.images.ensure import ensure_image

        with self._resolving:
            if reference not in self._images:
                reached(FaultPoint.IMAGE_RESOLVE, reference)
                self._images[reference] = ensure_image(self.store, reference, on_progress)
            return self._images[reference]

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return a lease on the files of ``image`` in the store."""
        reached(FaultPoint.IMAGE_LEASE, image.reference)
        return self.store.lease(image.id)

    def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        """Check a sandbox of ``image`` from inside.

        If :meth:`prove` has already succeeded, this does not test limits by exceeding them.
        """
        require_isolation(self, image, hit_limits=not self._proved, forwarded_ports=forwarded_ports)

    def prove(self) -> Isolation:
        """Create test sandboxes without an image, and return what is enforced. Raises :class:`EngineError`."""
        from securebench.sandboxes.oci.isolation import prove

        isolation = prove(self._context)
        self._proved = True
        return isolation

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> OciSandbox:
        """Create a sandbox. An ephemeral one sends no request to the supervisor before its first command."""
        self._context.sandboxes.raise_if_stopped()
        check_forwarded_ports(spec, self._context.runtime.name, possible=self._context.runtime.has_forwarded_ports)
        check_collect(spec, persistent=persistent)
        tree = self._tree(spec.image)
        if spec.collect is not None:
            require_directory(tree, spec.collect)
        kind = PersistentOciSandbox if persistent else OciSandbox
        return kind(self._context, spec, tree)

    @property
    def bounds_directories(self) -> bool:
        """``True``: this driver supports :meth:`bounded`."""
        return True

    @contextmanager
    def bounded(self, directory: Path, size: int) -> Iterator[Path]:
        """Let the supervisor mount a file system at ``directory``. This process sees it only at the yielded path."""
        with self._context.connection.bounded(directory, size) as descriptor:
            yield Path(f"/proc/self/fd/{descriptor}")

    def reap(self) -> int:
        """Remove what killed runs left, but nothing of a live run.

        Return the number of removed run directories and cgroups.
        """
        return reaper.reap()

    def kill_all(self) -> None:
        """Kill all sandboxes immediately, and create no more."""
        sandboxes = self._context.sandboxes.stop()
        for sandbox in sandboxes:
            sandbox.kill()
        for sandbox in sandboxes:
            sandbox.close()
        self._context.warm_pool.clear()

    def close(self) -> None:
        """Close all sandboxes, stop the supervisor and release the images. Idempotent."""
        atexit.unregister(self.close)
        self.kill_all()
        with self._closing:
            if not self._closed:
                self._closed = True
                self._context.connection.close()
                reaper.remove_run(self._context.run, self._context.group)
                for lease in self._leases.values():
                    lease.close()

    def _tree(self, image: ResolvedImage) -> Path:
        """Return the directory with the files of ``image``. The directory is leased until the driver is closed."""
        with self._resolving:
            if image.id not in self._leases:
                self._leases[image.id] = self.image_tree(image)
            return self._leases[image.id].root
