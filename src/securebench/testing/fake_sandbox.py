"""A sandbox driver in memory: programs are Python callables, and the spec is enforced as a real driver would.

::

    driver = FakeDriver()

    @driver.program("agent")
    def agent(context):
        task = json.loads(context.files.read("task.json"))
        context.stdout.write(solve(task))

    image = driver.resolve_image("securebench/python:3.11")
    driver.create(SandboxSpec(image=image)).run(Command(argv=("agent",), timeout_seconds=5))

It isolates nothing: programs run in this process. It passes the same conformance suite as the real drivers.
"""

from __future__ import annotations

import posixpath
import threading
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from securebench.errors import EngineError, ImageError, InfrastructureError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.arguments import exact_argv, exact_environment, process_environment
from securebench.sandboxes.base import BASE_ENVIRONMENT, DriverInfo, Sandbox, SandboxDriver, Stream
from securebench.sandboxes.collecting import (
    check_collect,
    nothing_to_collect,
    one_command_only,
    require_directory,
)
from securebench.sandboxes.forwarding import check_forwarded_ports
from securebench.sandboxes.mounts import check_mount
from securebench.testing.fake_collected import FakeTrees, left_directory
from securebench.testing.fake_container import Cause, FakeContainer, open_forwarded_ports
from securebench.testing.fake_files import FakeFiles, FakeFileSystem
from securebench.testing.fake_process import NOT_FOUND, FakeProcess, FakeProcessContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.images.store.leases import TreeLease
    from securebench.sandboxes.base import Command, SandboxSpec
    from securebench.sandboxes.collected import Collected
    from securebench.testing.fake_process import Program

DEFAULT_IMAGE = "securebench/python:3.11"

IMAGE_FILES: Final = {"/etc/hostname": b"sandbox\n", "/etc/passwd": b"root:x:0:0::/:\n"}
"""The files of an image whose files nobody says."""


class FakeDriver(SandboxDriver):
    """An in-memory driver. ``commands`` lists what was run, with the spec it ran in, in order."""

    def __init__(self, images: tuple[str, ...] = (DEFAULT_IMAGE,)) -> None:
        self.commands: list[tuple[SandboxSpec, Command]] = []
        self.open: set[FakeSandbox] = set()
        self._images: dict[str, tuple[ResolvedImage, Mapping[str, bytes]]] = {}
        self._programs: list[tuple[Callable[[tuple[str, ...]], bool], Program]] = []
        self._failures: dict[str, list[Exception]] = {}
        self._stopped = threading.Event()
        self._trees = FakeTrees()
        for reference in images:
            self.add_image(reference)

    def identity(self) -> None:
        """Count as this framework's own, and so does a test's subclass."""

    def add_image(
        self,
        reference: str,
        *,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ResolvedImage:
        """Make an image known, with its own variables and the files of its root (owned by root)."""
        image = ResolvedImage(
            reference=reference,
            id=f"sha256:{sha256(reference.encode()).hexdigest()}",
            environment={"PATH": BASE_ENVIRONMENT["PATH"]} if environment is None else environment,
            architecture="amd64",
        )
        self._images[reference] = (image, files or IMAGE_FILES)
        return image

    def program(self, match: str | Callable[[tuple[str, ...]], bool]) -> Callable[[Program], Program]:
        """Register the decorated callable for commands that ``match``: a name, or a predicate of the argv.

        A name matches ``argv[0]`` or its last component. The latest registration that matches runs.
        """

        def matches_name(argv: tuple[str, ...]) -> bool:
            return match in {argv[0], posixpath.basename(argv[0])}

        def register(program: Program) -> Program:
            self._programs.insert(0, (matches_name if isinstance(match, str) else match, program))
            return program

        return register

    def fail_next(self, error: Exception, *, on: str = "open") -> None:
        """Raise ``error`` on the next ``on``: ``open``, ``create``, ``wait``, ``self_test`` or ``resolve_image``."""
        self._failures.setdefault(on, []).append(error)

    def info(self) -> DriverInfo:
        """Say that it is the fake."""
        return DriverInfo("fake", "none", "1")

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Return an image that is known. Raises :class:`ImageError`."""
        if on_progress is not None:
            on_progress(f"resolving {reference}")
        self.raise_failure("resolve_image")
        if reference not in self._images:
            raise ImageError(f"the image {reference} is not on this machine", hint="add_image() makes one known")
        return self._images[reference][0]

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return the files of an image that is known, laid out in a directory that goes with this driver."""
        return self._trees.lease(image.id, self._files_of(image))

    def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
        """Find nothing wrong: there is no machine outside a fake to be isolated from."""
        del image, forwarded_ports
        self.raise_failure("self_test")

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> FakeSandbox:
        """Make a sandbox."""
        self.raise_if_stopped()
        self.raise_failure("create")
        check_forwarded_ports(spec)
        check_collect(spec, persistent=persistent)
        if spec.collect is not None:
            with self.image_tree(spec.image) as tree:
                require_directory(tree.root, spec.collect)
        return FakeSandbox(self, spec, persistent=persistent)

    def reap(self) -> int:
        """Remove nothing: what a fake leaves dies with its process."""
        return 0

    def kill_all(self) -> None:
        """End every sandbox, and make no more."""
        self._stopped.set()
        self.close()

    def close(self) -> None:
        """End every sandbox."""
        for sandbox in list(self.open):
            sandbox.close()

    def raise_if_stopped(self) -> None:
        """Raise :class:`EngineError` (``run-stopped``) after :meth:`kill_all`."""
        if self._stopped.is_set():
            raise EngineError("the run is being stopped: no sandbox is started any more", code="run-stopped")

    def raise_failure(self, operation: str) -> None:
        """Raise what :meth:`fail_next` prepared for ``operation``."""
        if waiting := self._failures.get(operation):
            raise waiting.pop(0)

    def find_program(self, argv: tuple[str, ...]) -> Program:
        """Return the program for ``argv``, or one that says that there is none."""
        return next((program for matches, program in self._programs if matches(argv)), _not_found)

    def new_container(self, spec: SandboxSpec) -> FakeContainer:
        """Return a container with the files of its image. Raises as a real engine does for a bad spec."""
        for mount in spec.mounts:
            check_mount(mount)
        return FakeContainer(
            FakeFileSystem.of_image(self._files_of(spec.image)), open_forwarded_ports(spec.forwarded_ports)
        )

    def _files_of(self, image: ResolvedImage) -> Mapping[str, bytes]:
        known = {image.id: files for image, files in self._images.values()}
        if image.id not in known:
            raise ImageError("the engine could not create a sandbox: no such image")
        return known[image.id]


class FakeSandbox(Sandbox):
    """A sandbox of the fake driver."""

    def __init__(self, driver: FakeDriver, spec: SandboxSpec, *, persistent: bool) -> None:
        self._driver = driver
        self._spec = spec
        self._shared = driver.new_container(spec) if persistent else None
        self._containers: list[FakeContainer] = [] if self._shared is None else [self._shared]
        self._collecting: FakeContainer | None = None
        self._closed = False
        driver.open.add(self)

    def open(self, command: Command) -> FakeProcess:
        """Start the program that matches ``command``."""
        self._driver.raise_if_stopped()
        if self._closed:
            raise InfrastructureError("this sandbox is closed", code="sandbox-closed")
        self._driver.raise_failure("open")
        if self._collecting is not None:
            raise one_command_only()
        container = self._driver.new_container(self._spec) if self._shared is None else self._shared
        if container.ended.is_set():
            raise InfrastructureError("the sandbox has ended")
        self._containers.append(container)
        self._collecting = container if self._spec.collect is not None else None
        self._driver.commands.append((self._spec, command))
        process = FakeProcess(
            command,
            self._spec,
            container,
            owns_container=self._shared is None,
            on_wait=partial(self._driver.raise_failure, "wait"),
        )
        process.start(self._driver.find_program(command.argv), self._context(command, container, process))
        return process

    def collected(self) -> Collected:
        """Return the directory as an archive, as an engine gives it."""
        if self._closed:
            raise InfrastructureError("this sandbox is closed", code="sandbox-closed")
        container, collect = self._collecting, self._spec.collect
        if container is None or collect is None or not container.ended.is_set():
            raise nothing_to_collect()
        return left_directory(container.system.root, collect)

    def close(self) -> None:
        """End what runs."""
        self._closed = True
        for container in self._containers:
            container.end(Cause.CALLER)
        self._driver.open.discard(self)

    def _context(self, command: Command, container: FakeContainer, process: FakeProcess) -> FakeProcessContext:
        environment = process_environment(self._spec, command.environment)
        exact_environment(environment)
        workdir = command.workdir or self._spec.workdir
        return FakeProcessContext(
            argv=tuple(exact_argv(command.argv)),
            environment=environment,
            workdir=workdir,
            spec=self._spec,
            files=FakeFiles(container.system, self._spec, workdir, container.check),
            stdin=process.stdin(),
            stdout=process.output(Stream.STDOUT),
            stderr=process.output(Stream.STDERR),
            container=container,
        )


def _not_found(context: FakeProcessContext) -> int:
    context.stderr.write(f"{context.argv[0]}: command not found\n")
    return NOT_FOUND
