"""Drivers that break their contract, each in one way: wrappers around a real driver, for tests of the conformance."""

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
    """Reports all output as stdout."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Lie."""
        chunk = super().receive(timeout)
        return chunk and (Stream.STDOUT, chunk[1])


class TextOnly(WrappedProcess):
    """Decodes output as UTF-8."""

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Lie."""
        chunk = super().receive(timeout)
        return chunk and (chunk[0], chunk[1].decode("utf-8", "replace").encode())


class LateReader(WrappedProcess):
    """Misses the first piece of output."""

    _missed = False

    def receive(self, timeout: float | None = None) -> Chunk | None:
        """Lie."""
        if not self._missed:
            self._missed = True
            super().receive(timeout)
        return super().receive(timeout)


class AlwaysSucceeds(WrappedProcess):
    """Reports exit code 0 and no reason."""

    def wait(self) -> ExitState:
        """Lie."""
        super().wait()
        return ExitState(exit_code=0)


class AlwaysOutOfMemory(WrappedProcess):
    """Reports that memory ran out, whatever happened."""

    def wait(self) -> ExitState:
        """Lie."""
        return ExitState(exit_code=super().wait().exit_code, out_of_memory=True)


class IgnoresBrokenPipes(WrappedProcess):
    """Does not report that nobody reads."""

    def send(self, data: bytes) -> None:
        """Lie."""
        with suppress(BrokenPipeError):
            super().send(data)


class LyingDriver(WrappedDriver):
    """A driver that lies in one way.

    ``spec``: fields that replace those of each spec. ``limits`` are fields of it; ``mounts`` may change each mount.
    ``persistent`` says what kind of sandbox is made, whatever was asked for. ``command`` replaces each command, and
    ``process`` wraps its process.
    ``collected`` replaces what sandboxes leave. ``closes``: whether closing a sandbox has an effect before
    :meth:`close`.
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
        """Make another sandbox than was asked for, or one that lies."""
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
        """Close the sandboxes; the driver itself is the test's."""
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
    """Reports of every sandbox, at any time, that nothing was changed in it."""

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Make a sandbox that forgets."""
        return _ForgetfulSandbox(self, super().create(spec, persistent=persistent))


class _ForgetfulSandbox(_LyingSandbox):
    def collected(self) -> Collected:
        return CollectedLayer(-1)


def without_variables(command: Command) -> Command:
    """Drop the variables of a command."""
    return replace(command, environment={})


def with_plain_arguments(command: Command) -> Command:
    """Keep only what is printable of the probe's arguments, as a shell on the way may."""
    return replace(command, argv=(*command.argv[:3], *("".join(filter(str.isprintable, a)) for a in command.argv[3:])))


class Anonymous(LyingDriver):
    """Has no name."""

    def info(self) -> DriverInfo:
        """Lie."""
        return DriverInfo("")


class MovingTags(LyingDriver):
    """Resolves a reference to another image each time."""

    _resolved = 0

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Lie."""
        self._resolved += 1
        return replace(super().resolve_image(reference, on_progress), id=f"sha256:{self._resolved:064}")


class AnyImage(LyingDriver):
    """Has one image, whatever it is asked for."""

    def __init__(self, driver: SandboxDriver, image: str) -> None:
        super().__init__(driver)
        self._image = image

    def resolve_image(self, reference: str, on_progress: Callable[[str], None] | None = None) -> ResolvedImage:
        """Lie."""
        del reference
        return super().resolve_image(self._image, on_progress)


class AnotherTree(LyingDriver):
    """Shows files of the same names with another content."""

    def __init__(self, driver: SandboxDriver, directory: Path) -> None:
        super().__init__(driver)
        self._directory = directory

    def image_tree(self, image: ResolvedImage) -> TreeLease:
        """Lie."""
        with super().image_tree(image) as real:
            for path in real.root.glob("usr/lib/python3*/email/message.py"):
                other = self._directory / path.relative_to(real.root)
                other.parent.mkdir(parents=True)
                other.write_text("other")
        return TreeLease(self._directory, os.open(self._directory, os.O_RDONLY))


def changing(change: Callable[[Path], None]) -> Callable[[Collected], Collected]:
    """Return what changes the layer of a sandbox, given its directory, before it is handed over."""

    def collected(layer: Collected) -> Collected:
        assert isinstance(layer, CollectedLayer)
        change(Path(f"/proc/self/fd/{layer.descriptor}"))
        return layer

    return collected


def without(name: str) -> Callable[[Path], None]:
    """Return what removes the file ``name``, wherever it is."""

    def change(top: Path) -> None:
        for path in top.rglob(name):
            path.unlink()

    return change


def plain_modes(top: Path) -> None:
    """Give every file the same mode, as a driver that copies contents alone does."""
    for path in top.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o644)


def followed_links(top: Path) -> None:
    """Put an empty file in the place of each link, as a driver that follows it does."""
    for path in top.rglob("*"):
        if path.is_symlink():
            path.unlink()
            path.touch()


def text_names(top: Path) -> None:
    """Rename what is not text, as a driver that decodes names does."""
    for path in list(top.rglob("*")):
        path.rename(path.with_name(os.fsencode(path.name).decode("utf-8", "replace")))


def growing(top: Path) -> None:
    """Write to ``ticks``, as a daemon that lives on does."""
    with (top / "ticks").open("ab") as file:
        file.write(b".")
