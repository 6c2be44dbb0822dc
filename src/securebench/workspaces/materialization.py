"""Lay out a task's files for one component: first plan where they go, then write and copy them.

==================  =========================================================================================
value               ``securebench/public|evaluation_inputs|evaluator/<name>.json``, by lane
public asset        at its ``mount``, by default at its ``path``
eval file           at its ``mount``, by default ``securebench/evaluation_inputs|evaluator/<path>``, by lane
payload             ``task.json`` by default, for the agent
==================  =========================================================================================

An asset is copied from an open descriptor below its asset root, without following links. The result says which assets
are read-only. The component gets these as read-only mounts, because the directory above them may be writable.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from securebench.benchmark_pack.assets import MAX_ASSET_BYTES, MAX_ASSET_FILES, AssetDigest
from securebench.errors import MaterializationError, StorageError
from securebench.fs.safe_open import TreeRefusal, TreeRefusedError
from securebench.fs.tree_writer import TreeWriter
from securebench.fs.walk import EntryKind, TreeLimits, walk_at
from securebench.pack_paths import LANE_ROOTS, MAX_PATH_DEPTH
from securebench.resources import ResourceKind, Visibility
from securebench.workspaces import path_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.fs.walk import TreeEntry
    from securebench.resources import Component, FileReference, JsonValue, Resource, ResourceBundle
    from securebench.tasks import AssetRoot

ASSET_CHANGED = "asset-changed"
"""The error code for an asset that changed during a run."""

ASSET_LIMITS = TreeLimits(total_bytes=MAX_ASSET_BYTES, entries=MAX_ASSET_FILES, depth=MAX_PATH_DEPTH)
"""Limits of all assets of one task together."""


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """A file with a JSON value, which is encoded only when the file is written.

    A run plans all tasks first. It need not keep the encoded values of all tasks in memory.
    """

    target: str
    value: Any


@dataclass(frozen=True, slots=True)
class PlannedAsset:
    """A file or directory ``path`` below the asset root ``root``, to be copied to ``target``."""

    root: Path
    path: str
    target: str
    read_only: bool
    pack_path: str = ""
    """The path in the pack."""
    digest: str = ""
    """The digest that the asset had when the pack was read, and must still have. Empty if it is unknown."""


@dataclass(frozen=True, slots=True)
class MaterializationPlan:
    """The files to lay out. No two targets collide."""

    values: tuple[PlannedValue, ...]
    assets: tuple[PlannedAsset, ...]


@dataclass(frozen=True, slots=True)
class MaterializedAsset:
    """A copied asset. ``digest`` is what :func:`asset_digest` returns for the unchanged copy."""

    target: str
    read_only: bool
    digest: str


class VisibilityAwareMaterializer:
    """Plans and lays out the files that one component may see."""

    def __init__(self, component: Component, limits: TreeLimits = ASSET_LIMITS) -> None:
        self.component = component
        self._limits = limits

    def plan(
        self,
        resources: ResourceBundle,
        *,
        public_assets: AssetRoot | None = None,
        eval_assets: AssetRoot | None = None,
        task_file: str | None = None,
    ) -> MaterializationPlan:
        """Plan the target of each file without reading any.

        If ``task_file`` is given, it is the target of a file with the values of all resources.

        Raises :class:`PathPolicyError` for unsafe or colliding paths, and :class:`MaterializationError` for a resource
        that this component may not see or whose asset root is unknown.
        """
        values, assets = [], []
        for resource in resources:
            path_policy.require_visible(resource, self.component)
            root = public_assets if resource.visibility is Visibility.PUBLIC else eval_assets
            assets += [_planned_asset(resource, file, root) for file in resource.files]
            if resource.kind is not ResourceKind.FILE:
                values.append(PlannedValue(path_policy.value_path(resource), resource.value))
        if task_file is not None:
            values.append(PlannedValue(path_policy.require_task_file(task_file), resources.payload()))
        path_policy.require_apart([value.target for value in values] + [asset.target for asset in assets])
        return MaterializationPlan(tuple(values), tuple(assets))

    def materialize(
        self,
        plan: MaterializationPlan,
        root: Path,
        owner: tuple[int, int] | None = None,
        *,
        everybody: bool = False,
    ) -> tuple[MaterializedAsset, ...]:
        """Lay out ``plan`` below the directory ``root``. ``owner`` (uid, gid) owns all but the read-only assets.

        With ``everybody``, all users may write the files of ``owner``. Use it only for a ``root`` that no other user of
        the host can reach.

        Raises :class:`MaterializationError`: ``asset-missing``, ``asset-unsafe`` (a link, a FIFO, ...),
        ``assets-too-large``, ``asset-changed``, ``target-exists``; and :class:`StorageError`.
        """
        budget = self._limits
        done = []
        with _laying_out(root), TreeWriter(root, owner, everybody=everybody) as writer:
            for value in plan.values:
                writer.write_file(os.fsencode(value.target), (json_bytes(value.value),), 0o644)
            for asset in plan.assets:
                copy = _Copy(asset, writer)
                copy.run(budget)
                budget = replace(
                    budget, total_bytes=budget.total_bytes - copy.size, entries=budget.entries - copy.entries
                )
                done.append(MaterializedAsset(asset.target, asset.read_only, copy.digest()))
        return tuple(done)


def json_bytes(value: JsonValue) -> bytes:
    """Return ``value`` as JSON text: UTF-8, two-space indent, sorted keys, trailing newline.

    A lone surrogate, which UTF-8 cannot encode, is written as its JSON escape.
    """
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode("utf-8", "backslashreplace")


def asset_digest(root: Path, target: str) -> str:
    """Return the digest of the file or directory at ``target`` below ``root``. Raises :class:`TreeRefusedError`."""
    digest = _AssetDigest()
    for entry in walk_at(root, target, ASSET_LIMITS):
        for _ in digest.entry(entry):
            pass
    return digest.hexdigest()


def _planned_asset(resource: Resource, file: FileReference, root: AssetRoot | None) -> PlannedAsset:
    if root is None:
        raise MaterializationError(f"{resource.name!r} names a file, but the lane of this field has no asset root")
    path = path_policy.require_source(file.path)
    public = resource.visibility is Visibility.PUBLIC
    default = path if public else f"{LANE_ROOTS[resource.visibility]}/{path}"
    target = path_policy.require_mount(resource, file.mount or default)
    pack_path = f"{root.name}/{path}"
    return PlannedAsset(root.directory, path, target, file.read_only, pack_path, root.digests.get(pack_path, ""))


_OCCUPIED = frozenset({errno.EEXIST, errno.ENOTDIR, errno.ELOOP})


@contextmanager
def _laying_out(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _OCCUPIED:
            raise MaterializationError(
                f"an existing file is in the way of a file of the task: {error.strerror}", code="target-exists"
            ) from None
        raise StorageError(f"cannot lay out the files of a task in {root}: {error.strerror or error}") from error


def asset_changed(path: str) -> MaterializationError:
    """Return the error for an asset that has changed since the pack was read."""
    return MaterializationError(
        f"the pack's file {path!r} has changed since the run began",
        code=ASSET_CHANGED,
        hint="a run uses the pack as it was at the start: restore the file, then continue with --resume",
    )


def _through(chunks: Iterator[bytes], take: Callable[[bytes], None]) -> Iterator[bytes]:
    for chunk in chunks:
        take(chunk)
        yield chunk


class _AssetDigest:
    """A digest of names, types, executable bits and contents."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def entry(self, entry: TreeEntry) -> Iterator[bytes]:
        """Add ``entry`` and, if it is a file, yield its content. The name of the top entry is not included."""
        name = entry.path.partition(b"/")[2]
        self._digest.update(b"%d %s %d %d " % (len(name), name, entry.kind is EntryKind.FILE, entry.executable))
        self._digest.update(b"%d " % entry.size)
        for chunk in entry.chunks() if entry.kind is EntryKind.FILE else ():
            self._digest.update(chunk)
            yield chunk

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


class _Copy:
    """The copy of one asset."""

    def __init__(self, asset: PlannedAsset, writer: TreeWriter) -> None:
        self._asset = asset
        self._writer = writer
        self._digest = _AssetDigest()
        self._read = AssetDigest(asset.pack_path)
        self.size = 0
        self.entries = 0

    def run(self, limits: TreeLimits) -> None:
        try:
            for entry in walk_at(self._asset.root, self._asset.path, limits):
                self.entries += 1
                self.size += entry.size
                self._write(entry)
        except TreeRefusedError as refused:
            raise MaterializationError(
                f"asset {self._asset.path!r} cannot be used: {refused}",
                code=_CODES[refused.refusal],
                hint="assets are regular files and directories; run 'securebench validate' on the pack",
            ) from None
        if self._asset.digest and self._read.hexdigest() != self._asset.digest:
            raise asset_changed(self._asset.path)

    def _write(self, entry: TreeEntry) -> None:
        _, slash, below = entry.path.partition(b"/")
        target = os.fsencode(self._asset.target) + slash + below
        chunks = self._digest.entry(entry)
        if entry.kind is EntryKind.FILE:
            content = hashlib.sha256()
            chunks = _through(chunks, content.update)
            mode = (0o444 if self._asset.read_only else 0o644) | (0o111 if entry.executable else 0)
            self._writer.write_file(target, chunks, mode, keep_owner=self._asset.read_only)
            self._read.file(content.hexdigest(), executable=entry.executable, below=os.fsdecode(below))
        else:
            list(chunks)
            self._read.directory(os.fsdecode(below))
            self._writer.make_directory(target, keep_owner=self._asset.read_only)

    def digest(self) -> str:
        return self._digest.hexdigest()


_CODES = {
    TreeRefusal.MISSING: "asset-missing",
    TreeRefusal.UNSAFE: "asset-unsafe",
    TreeRefusal.TOO_LARGE: "assets-too-large",
}
