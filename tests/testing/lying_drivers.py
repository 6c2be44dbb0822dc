"""Wrappers around a real driver that each break its contract in one way, to test the conformance tests."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.images.store.leases import TreeLease
from securebench.sandboxes.base import DriverInfo, ExitState, Stream
from securebench.sandboxes.collected import CollectedLayer
from securebench.sandboxes.wrapping import WrappedDriver, WrappedProcess, WrappedSandbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Chunk, Command, Sandbox, SandboxDriver, SandboxProcess, SandboxSpec
    from securebench.sandboxes.collected import Collected


class OneStream(WrappedProcess):
    """A process that reports all output as stdout."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next chunk as stdout."""
        chunk = super().receive(timeout)
        return chunk and (Stream.STDOUT, chunk[1])


class TextOnly(WrappedProcess):
    """A process that decodes output as UTF-8, and so changes invalid bytes."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Return the next chunk, with invalid UTF-8 replaced."""
        chunk = super().receive(timeout)
        return chunk and (chunk[0], chunk[1].decode("utf-8", "replace").encode())


class LateReader(WrappedProcess):
    """A process that drops the first chunk of output."""

    _missed = False

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Drop the first chunk; return the next one."""
        if not self._missed:
            self._missed = True
            super().receive(timeout)
        return super().receive(timeout)


class AlwaysSucceeds(WrappedProcess):
    """A process that always reports exit code 0, and hides other reasons for its end, such as a time-out."""

    def wait(self) -> ExitState:
        """Report exit code 0."""
        super().wait()
        return ExitState(exit_code=0)


class AlwaysOutOfMemory(WrappedProcess):
    """A process that always reports that it ran out of memory."""

    def wait(self) -> ExitState:
        """Report that memory ran out."""
        return ExitState(exit_code=super().wait().exit_code, out_of_memory=True)


class IgnoresBrokenPipes(WrappedProcess):
    """A process that does not report a broken pipe."""

    def send(self, data: bytes) -> None:
        """Send ``data``, and ignore a broken pipe."""
        with suppress(BrokenPipeError):
            super().send(data)


class LyingDriver(WrappedDriver):
    """A driver that breaks its contract in one way.

    ``spec`` contains fields that replace those of each sandbox's spec. Three of them are special:

    * ``limits`` replaces only the limits that it contains.
    * ``mounts`` may be a function that changes each mount.
    * ``persistent`` replaces the argument of :meth:`create`.

    ``command`` changes each command, ``process`` wraps each process, and ``collected`` changes what a sandbox returns
    as its collected files. If ``closes`` is false, closing a sandbox has no effect: only :meth:`close` closes it.
    """

    def __init__(
        self,
        driver: SandboxDriver,
        *,
        spec: dict[str, Any] | None = None,
        command: Callable[[Command], Command] = lambda command: command,
        process: Callable[[SandboxProcess], SandboxProcess] = WrappedProcess,
        collected: Callable[[Collected], Collected] = lambda collected: collected,
        closes: bool = True,
    ) -> None:
        super().__init__(driver)
        self.command = command
        self.process = process
        self.collected = collected
        self.closes = closes
        self._spec = spec or {}
        self._made: list[Sandbox] = []

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Create a sandbox with the changed spec, and wrap it."""
        fields = dict(self._spec)
        persistent = fields.pop("persistent", persistent)
        if "limits" in fields:
            fields["limits"] = replace(spec.limits, **fields["limits"])
        if callable(change := fields.get("mounts")):
            fields["mounts"] = tuple(change(mount) for mount in spec.mounts)
        made = self._driver.create(replace(spec, **fields), persistent=persistent)
        self._made.append(made)
        return _LyingSandbox(self, made)

    def close(self) -> None:
        """Close all sandboxes. The wrapped driver stays open: it belongs to the test."""
        for sandbox in self._made:
            sandbox.close()


class _LyingSandbox(WrappedSandbox):
    def __init__(self, driver: LyingDriver, sandbox: Sandbox) -> None:
        super().__init__(sandbox)
        self._lies = driver

    def open(self, command: Command) -> SandboxProcess:
        return self._lies.process(super().open(self._lies.command(command)))

    def collected(self) -> Collected:
        return self._lies.collected(super().collected())

    def close(self) -> None:
        if self._lies.closes:
            super().close()


class Forgetful(LyingDriver):
    """A driver whose sandboxes always report that nothing was changed in them."""

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Create a sandbox that reports no changes."""
        return _ForgetfulSandbox(self, super().create(spec, persistent=persistent))


class _ForgetfulSandbox(_LyingSandbox):
    def collected(self) -> Collected:
        return CollectedLayer(-1)


def without_variables(command: Command) -> Command:
    """Return ``command`` without its environment variables."""
    return replace(command, environment={})


def with_plain_arguments(command: Command) -> Command:
    """Return ``command`` without unprintable characters in ``argv[3:]``, as if a shell had removed them."""
    return replace(command, argv=(*command.argv[:3], *("".join(filter(str.isprintable, a)) for a in command.argv[3:])))


class Anonymous(LyingDriver):
    """A driver without a name."""

    def info(self) -> DriverInfo:
        """Return an empty name."""
        return DriverInfo("")


class MovingTags(LyingDriver):
    """A driver that resolves a reference to a different image each time."""

    _resolved = 0

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Resolve ``reference``, and return it with a new id."""
        self._resolved += 1
        return replace(super().resolve_image(reference, on_progress), id=f"sha256:{self._resolved:064}")


class AnyImage(LyingDriver):
    """A driver that resolves every reference to the same image."""

    def __init__(self, driver: SandboxDriver, image: str) -> None:
        super().__init__(driver)
        self._image = image

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Resolve the image of this driver, whatever ``reference`` is."""
        del reference
        return super().resolve_image(self._image, on_progress)


class AnotherTree(LyingDriver):
    """A driver whose image tree has files with the right names and wrong contents."""

    def __init__(self, driver: SandboxDriver, directory: Path) -> None:
        super().__init__(driver)
        self._directory = directory

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Return a tree that contains only ``email/message.py``, with other content than in the image."""
        with super().image_tree(image) as real:
            for path in real.root.glob("usr/lib/python3*/email/message.py"):
                other = self._directory / path.relative_to(real.root)
                other.parent.mkdir(parents=True)
                other.write_text("other")
        return TreeLease(self._directory, os.open(self._directory, os.O_RDONLY))


def changing(change: Callable[[Path], None]) -> Callable[[Collected], Collected]:
    """Return a function that applies ``change`` to the directory of a sandbox's layer, and returns the layer."""

    def collected(layer: Collected) -> Collected:
        assert isinstance(layer, CollectedLayer)
        change(Path(f"/proc/self/fd/{layer.descriptor}"))
        return layer

    return collected


def without(name: str) -> Callable[[Path], None]:
    """Return a function that removes all files with this name below a directory."""

    def change(top: Path) -> None:
        for path in top.rglob(name):
            path.unlink()

    return change


def plain_modes(top: Path) -> None:
    """Set the same mode on every file, like a driver that copies only contents."""
    for path in top.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o644)


def followed_links(top: Path) -> None:
    """Replace each symbolic link with an empty file, like a driver that follows links."""
    for path in top.rglob("*"):
        if path.is_symlink():
            path.unlink()
            path.touch()


def text_names(top: Path) -> None:
    """Replace invalid UTF-8 in all file names, like a driver that treats names as text."""
    for path in list(top.rglob("*")):
        path.rename(path.with_name(os.fsencode(path.name).decode("utf-8", "replace")))


def growing(top: Path) -> None:
    """Append to the file ``ticks``, like a daemon that is still running."""
    with (top / "ticks").open("ab") as file:
        file.write(b".")
