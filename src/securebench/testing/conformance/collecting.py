"""Checks: collecting a changed directory of the image."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError, InfrastructureError
from securebench.sandboxes.base import Mount
from securebench.sandboxes.collected import DirectoryReplacedError
from securebench.sandboxes.enforcement import DriverFeature
from securebench.testing.conformance.bench import (
    Bench,
    CheckRegistry,
    limits,
    probe_command,
    require,
    require_equal,
    require_raises,
)
from securebench.testing.conformance.collected_tree import Entry, TreeEntries, read_collected, read_directory

if TYPE_CHECKING:
    from securebench.sandboxes.base import Sandbox

CHECKS = CheckRegistry()

_ROOT = (0, 0)
_STILL_SECONDS = 0.3
_SPARSE_BYTES = 64 << 20


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def the_files_of_an_image_are_shown(bench: Bench) -> None:
    """The files of an image on the host are the same as in its sandboxes, byte for byte."""
    path = f"{_library(bench)}/message.py"
    with bench.driver.image_tree(bench.image) as tree:
        content = (tree.root / path.lstrip("/")).read_text()
    require_equal(bench.output("read", path), f"{content}\nok".strip(), "the file")


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def an_unchanged_directory_is_collected_as_it_was(bench: Bench) -> None:
    """An unchanged directory is collected as it is in the image."""
    before, after = _collected(bench)
    require(len(before) > 2, f"the directory has only {len(before)} entries")
    require_equal(after, before, "the directory")


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def changes_are_collected(bench: Bench) -> None:
    """Added, changed and removed files, and changed modes, are collected."""
    before, after = _collected(bench, "add", "add deep", "edit", "remove", "mode")
    mode = before[b"policy.py"]
    expected = before | {
        b"added": _file(b"new"),
        b"deep": ("directory", 0, 0, b""),
        b"deep/er": ("directory", 0, 0, b""),
        b"deep/er/file": _file(b"deep"),
        b"message.py": _file(b"edited"),
        b"policy.py": (mode[0], 0o755, *mode[2:]),
    }
    del expected[b"parser.py"]
    _require_collected(after, expected)


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def names_are_bytes(bench: Bench) -> None:
    """A name that is not valid UTF-8 is collected unchanged (H09)."""
    before, after = _collected(bench, "add odd")
    _require_collected(after, before | {b"odd \xff\n-name": _file(b"odd")})


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def a_replaced_directory_loses_its_files(bench: Bench) -> None:
    """A directory that was removed and replaced by a directory, file or link is collected without its old files."""
    for change, entries in {
        "directory": {b"mime": ("directory", 0, 0, b""), b"mime/only": _file(b"only")},
        "directory to file": {b"mime": _file(b"file")},
        "directory to link": {b"mime": ("link", 0, 0, b"/etc")},
    }.items():
        before, after = _collected(bench, change)
        kept = {name: entry for name, entry in before.items() if not f"{name!r}/".startswith(("b'mime/", "b'mime'/"))}
        require(len(kept) < len(before) - 1, "the directory 'mime' of the image has no files")
        _require_collected(after, kept | entries)


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def links_are_data(bench: Bench) -> None:
    """A symbolic link is collected as the name of its target, without the target's content (H01)."""
    before, after = _collected(bench, "link", "file to link")
    links = {b"link": ("link", 0, 0, b"/etc/passwd"), b"charset.py": ("link", 0, 0, b"../../outside")}
    _require_collected(after, before | links)


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def set_id_files_are_reported(bench: Bench) -> None:
    """A set-id file is collected with its mode (H06)."""
    before, after = _collected(bench, "set id")
    _require_collected(after, before | {b"setid": ("file", 0o6755, 1, b"x")})


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def special_files_are_reported(bench: Bench) -> None:
    """A FIFO is collected as a FIFO; a socket as a socket or not at all. Devices cannot be created (H05)."""
    before, after = _collected(bench, "pipe", "socket", refused=("device",))
    require(after.pop(b"socket", ("socket",))[0] == "socket", "the socket was collected as something else")
    _require_collected(after, before | {b"pipe": ("pipe", 0o644, 0, b"")})


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def no_mark_can_be_forged(bench: Bench) -> None:
    """A sandbox cannot create a whiteout of overlayfs, and an opaque mark that it forges has no effect (H17)."""
    before, after = _collected(bench, refused=("removal",), either=("opaque",))
    _require_collected(after, before)


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def a_sparse_file_has_its_size(bench: Bench) -> None:
    """A sparse file is collected with its apparent size, which the file size limit bounds (H07)."""
    before, after = _collected(bench, "sparse")
    _require_collected(after, before | {b"sparse": ("file", 0o644, _SPARSE_BYTES, b"s" + bytes(63))})
    before, after = _collected(bench, refused=("sparse",), limits=limits(file_size=1 << 20))
    _require_collected(after, before | {b"sparse": _file(b"s")})


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def a_removed_directory_is_reported(bench: Bench) -> None:
    """Collecting fails if the directory or one above it was removed, or was replaced by a file or a link (H15)."""
    for change in ("all removed", "all to file", "all to link", "parent to link"):
        sandbox, _ = _sandbox_with(bench, change)
        require_raises(sandbox.collected, DirectoryReplacedError)


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def a_recreated_directory_loses_its_files(bench: Bench) -> None:
    """If the collected directory itself was removed and recreated, it contains only its new files."""
    _, after = _collected(bench, "all anew")
    _require_collected(after, {b"only": _file(b"only")})


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def surviving_processes_change_nothing(bench: Bench) -> None:
    """Processes that survive the command, or its time limit, cannot change what is collected (A24)."""
    path = _library(bench)
    for then, timeout in (("leave", 60.0), ("wait", 3.0)):
        sandbox = _collecting(bench, path)
        sandbox.run(probe_command("tick", f"{path}/ticks", then, timeout=timeout))
        with bench.driver.image_tree(bench.image) as tree:
            pristine = tree.root / path.lstrip("/")
            first = read_collected(sandbox.collected(), pristine)
            time.sleep(_STILL_SECONDS)
            second = read_collected(sandbox.collected(), pristine)
        require(first[b"ticks"][2], "the daemon wrote nothing")
        require_equal(second, first, "the directory, a moment later")


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def an_image_stays_as_it_was(bench: Bench) -> None:
    """Changes to a sandbox's root file system are not visible in other sandboxes or in the image's files (A24)."""
    path = _library(bench)
    with bench.driver.image_tree(bench.image) as tree:
        before = read_directory(tree.root / path.lstrip("/"))
        _sandbox_with(bench, "add", "edit", "remove", "directory")
        require_equal(read_directory(tree.root / path.lstrip("/")), before, "the image")
    _, after = _collected(bench)
    require_equal(after, before, "another sandbox")


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def nothing_is_collected_too_early_or_too_late(bench: Bench) -> None:
    """Collecting fails if the command has not ended, the sandbox is closed, or the spec has no ``collect``."""
    path = _library(bench)
    sandbox = _collecting(bench, path)
    require_raises(sandbox.collected, InfrastructureError)
    process = sandbox.open(probe_command("sleep", "60"))
    require_raises(sandbox.collected, InfrastructureError)
    require_raises(partial(sandbox.open, probe_command("cat")), InfrastructureError)
    process.kill()
    process.wait()
    sandbox.collected()
    sandbox.close()
    require_raises(sandbox.collected, InfrastructureError)
    plain = bench.sandbox()
    plain.run(probe_command("emit", "", "", "0"))
    require_raises(plain.collected, InfrastructureError)


@CHECKS.needing(DriverFeature.IMAGE_TREE)
def uncollectable_directories_are_rejected(bench: Bench) -> None:
    """Only ephemeral, writable sandboxes collect changes, and only in ``/`` or in an image directory without mounts."""
    path = _library(bench)
    refused = partial(_require_no_sandbox, bench)
    for other in ("/tmp", "relative", f"{path}/", f"{path}/../email", "/no/such", f"{path}/message.py", "/proc"):  # noqa: S108 - refused
        refused(collect=other)
    refused(collect=path, read_only=True)
    refused(collect=path, persistent=True)
    source = bench.shared()
    for target in (path, f"{path}/below", str(Path(path).parent)):
        refused(collect=path, mounts=(Mount(source, target),))


def _require_no_sandbox(bench: Bench, **options: Any) -> None:
    require_raises(partial(bench.sandbox, **{"read_only": False, "user": _ROOT, **options}), ConfigError)


def _library(bench: Bench) -> str:
    return bench.output("library")


def _collecting(bench: Bench, path: str, **options: Any) -> Sandbox:
    return bench.sandbox(read_only=False, user=_ROOT, collect=path, **options)


def _sandbox_with(bench: Bench, *changes: str, **options: Any) -> tuple[Sandbox, dict[str, str]]:
    """Return a sandbox in which ``changes`` were attempted, and the result of each."""
    path = _library(bench)
    sandbox = _collecting(bench, path, **options)
    output = sandbox.run(probe_command("change", path, *changes)).stdout.decode()
    return sandbox, dict(line.rsplit(" ", 1) for line in output.splitlines())


def _collected(
    bench: Bench, *changes: str, refused: tuple[str, ...] = (), either: tuple[str, ...] = (), **options: Any
) -> tuple[TreeEntries, TreeEntries]:
    """Return a directory before and after changes. Those in ``refused`` must fail; those in ``either`` may fail."""
    sandbox, outcomes = _sandbox_with(bench, *changes, *refused, *either, **options)
    for name in changes:
        require_equal(outcomes.get(name), "ok", f"the change {name!r}")
    for name in refused:
        require(outcomes.get(name, "ok") != "ok", f"the change {name!r} was not refused")
    path = _library(bench)
    with bench.driver.image_tree(bench.image) as tree:
        pristine = tree.root / path.lstrip("/")
        return read_directory(pristine), read_collected(sandbox.collected(), pristine)


def _file(data: bytes) -> Entry:
    return ("file", 0o644, len(data), data)


def _require_collected(after: TreeEntries, expected: TreeEntries) -> None:
    differing = {name for name in after.keys() | expected.keys() if after.get(name) != expected.get(name)}
    shown = {name: (after.get(name), expected.get(name)) for name in sorted(differing)}
    require(not differing, f"collected entries that differ (actual, expected): {shown}")
