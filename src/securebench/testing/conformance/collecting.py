"""Checks: what a sandbox leaves of a directory of its image, and the image itself."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError, InfrastructureError
from securebench.sandboxes.base import Mount
from securebench.sandboxes.collected import DirectoryReplacedError
from securebench.testing.conformance.bench import (
    Bench,
    CheckRegistry,
    limits,
    probe_command,
    require,
    require_equal,
    require_refused,
)
from securebench.testing.conformance.leavings import Entry, Leavings, left, of_directory

if TYPE_CHECKING:
    from securebench.sandboxes.base import Sandbox

CHECKS = CheckRegistry()

_ROOT = (0, 0)
_STILL_SECONDS = 0.3
_SPARSE_BYTES = 64 << 20


@CHECKS
def the_files_of_an_image_are_shown(bench: Bench) -> None:
    """The files of an image on the host are those that a sandbox of it has, byte for byte."""
    path = f"{_library(bench)}/message.py"
    with bench.driver.image_tree(bench.image) as tree:
        content = (tree.root / path.lstrip("/")).read_text()
    require_equal(bench.said("read", path), f"{content}\nok".strip(), "the file")


@CHECKS
def what_was_not_changed_is_as_it_was(bench: Bench) -> None:
    """A directory in which nothing was changed is left as the image has it."""
    before, after = _left(bench)
    require(len(before) > 2, f"{len(before)} files are there")
    require_equal(after, before, "the directory")


@CHECKS
def changes_are_left(bench: Bench) -> None:
    """Added, changed and removed files, and a changed mode, are left so."""
    before, after = _left(bench, "add", "add deep", "edit", "remove", "mode")
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
    _require_left(after, expected)


@CHECKS
def names_are_bytes(bench: Bench) -> None:
    """A name that is no text is left as it is (H09)."""
    before, after = _left(bench, "add odd")
    _require_left(after, before | {b"odd \xff\n-name": _file(b"odd")})


@CHECKS
def a_replaced_directory_is_another(bench: Bench) -> None:
    """Of a directory that was removed and made again, only what is new is left; a file or a link is left as such."""
    for change, entries in {
        "directory": {b"mime": ("directory", 0, 0, b""), b"mime/only": _file(b"only")},
        "directory to file": {b"mime": _file(b"file")},
        "directory to link": {b"mime": ("link", 0, 0, b"/etc")},
    }.items():
        before, after = _left(bench, change)
        kept = {name: entry for name, entry in before.items() if not f"{name!r}/".startswith(("b'mime/", "b'mime'/"))}
        require(len(kept) < len(before) - 1, "there are files in the directory")
        _require_left(after, kept | entries)


@CHECKS
def links_are_data(bench: Bench) -> None:
    """A link is left with its target, wherever that leads, and nothing of the target (H01)."""
    before, after = _left(bench, "link", "file to link")
    links = {b"link": ("link", 0, 0, b"/etc/passwd"), b"charset.py": ("link", 0, 0, b"../../outside")}
    _require_left(after, before | links)


@CHECKS
def set_id_files_are_told(bench: Bench) -> None:
    """A set-id file is told as what it is (H06)."""
    before, after = _left(bench, "set id")
    _require_left(after, before | {b"setid": ("file", 0o6755, 1, b"x")})


@CHECKS
def special_files_are_told(bench: Bench) -> None:
    """A FIFO is told as what it is, a socket too or not at all, and no device is made (H05)."""
    before, after = _left(bench, "pipe", "socket", refused=("device",))
    require(after.pop(b"socket", ("socket",))[0] == "socket", "the socket is a socket, or not there")
    _require_left(after, before | {b"pipe": ("pipe", 0o644, 0, b"")})


@CHECKS
def no_mark_can_be_forged(bench: Bench) -> None:
    """What marks removed files and replaced directories in a layer cannot be made from inside (H17)."""
    before, after = _left(bench, refused=("removal",), either=("opaque",))
    _require_left(after, before)


@CHECKS
def a_sparse_file_has_its_size(bench: Bench) -> None:
    """A sparse file is left with its apparent size, which the limit of file sizes bounds (H07)."""
    before, after = _left(bench, "sparse")
    _require_left(after, before | {b"sparse": ("file", 0o644, _SPARSE_BYTES, b"s" + bytes(63))})
    before, after = _left(bench, refused=("sparse",), limits=limits(file_size=1 << 20))
    _require_left(after, before | {b"sparse": _file(b"s")})


@CHECKS
def a_directory_that_is_gone_is_told(bench: Bench) -> None:
    """Where the directory was removed, or is a file or a link now, the candidate fails: no link is followed (H15)."""
    for change in ("all removed", "all to file", "all to link", "parent to link"):
        sandbox, _ = _changed(bench, change)
        require_refused(sandbox.collected, DirectoryReplacedError)


@CHECKS
def a_directory_that_was_made_again_is_another(bench: Bench) -> None:
    """Of the directory itself, removed and made again, only what is new is left."""
    _, after = _left(bench, "all anew")
    _require_left(after, {b"only": _file(b"only")})


@CHECKS
def what_was_left_behind_changes_nothing(bench: Bench) -> None:
    """A daemon that the command left, or that its time limit ended, changes nothing of what is collected (A24)."""
    path = _library(bench)
    for then, timeout in (("leave", 60.0), ("wait", 3.0)):
        sandbox = _collecting(bench, path)
        sandbox.run(probe_command("tick", f"{path}/ticks", then, timeout=timeout))
        with bench.driver.image_tree(bench.image) as tree:
            pristine = tree.root / path.lstrip("/")
            first = left(sandbox.collected(), pristine)
            time.sleep(_STILL_SECONDS)
            second = left(sandbox.collected(), pristine)
        require(first[b"ticks"][2], "it has ticked")
        require_equal(second, first, "the directory, a moment later")


@CHECKS
def an_image_stays_as_it_was(bench: Bench) -> None:
    """What a sandbox changes of its root is seen by no other, nor in the image's files (A24)."""
    path = _library(bench)
    with bench.driver.image_tree(bench.image) as tree:
        before = of_directory(tree.root / path.lstrip("/"))
        _changed(bench, "add", "edit", "remove", "directory")
        require_equal(of_directory(tree.root / path.lstrip("/")), before, "the image")
    _, after = _left(bench)
    require_equal(after, before, "another sandbox")


@CHECKS
def nothing_is_collected_too_early_or_too_late(bench: Bench) -> None:
    """Before its command has ended, after it is closed, and without ``collect``, a sandbox raises."""
    path = _library(bench)
    sandbox = _collecting(bench, path)
    require_refused(sandbox.collected, InfrastructureError)
    process = sandbox.open(probe_command("sleep", "60"))
    require_refused(sandbox.collected, InfrastructureError)
    require_refused(partial(sandbox.open, probe_command("cat")), InfrastructureError)
    process.kill()
    process.wait()
    sandbox.collected()
    sandbox.close()
    require_refused(sandbox.collected, InfrastructureError)
    plain = bench.sandbox()
    plain.run(probe_command("emit", "", "", "0"))
    require_refused(plain.collected, InfrastructureError)


@CHECKS
def what_cannot_be_collected_is_refused(bench: Bench) -> None:
    """Only a directory of the image itself is collected, on which nothing is mounted, from a root that can change."""
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
    require_refused(partial(bench.sandbox, **{"read_only": False, "user": _ROOT, **options}), ConfigError)


def _library(bench: Bench) -> str:
    return bench.said("library")


def _collecting(bench: Bench, path: str, **options: Any) -> Sandbox:
    return bench.sandbox(read_only=False, user=_ROOT, collect=path, **options)


def _changed(bench: Bench, *changes: str, **options: Any) -> tuple[Sandbox, dict[str, str]]:
    """Return a sandbox in which ``changes`` were tried, and how each went."""
    path = _library(bench)
    sandbox = _collecting(bench, path, **options)
    said = sandbox.run(probe_command("change", path, *changes)).stdout.decode()
    return sandbox, dict(line.rsplit(" ", 1) for line in said.splitlines())


def _left(
    bench: Bench, *changes: str, refused: tuple[str, ...] = (), either: tuple[str, ...] = (), **options: Any
) -> tuple[Leavings, Leavings]:
    """Return a directory before and after ``changes``, and after those that are to be refused."""
    sandbox, outcomes = _changed(bench, *changes, *refused, *either, **options)
    for name in changes:
        require_equal(outcomes.get(name), "ok", f"the change {name!r}")
    for name in refused:
        require(outcomes.get(name, "ok") != "ok", f"the change {name!r} is refused")
    path = _library(bench)
    with bench.driver.image_tree(bench.image) as tree:
        pristine = tree.root / path.lstrip("/")
        return of_directory(pristine), left(sandbox.collected(), pristine)


def _file(data: bytes) -> Entry:
    return ("file", 0o644, len(data), data)


def _require_left(after: Leavings, expected: Leavings) -> None:
    differing = {name for name in after.keys() | expected.keys() if after.get(name) != expected.get(name)}
    shown = {name: (after.get(name), expected.get(name)) for name in sorted(differing)}
    require(not differing, f"what is left, and what should be: {shown}")
