"""A model of a disk: what POSIX allows it to contain after a power failure.

* The content of a file is safe only after ``fsync`` of that file. Before that, new bytes may be missing, partly missing
  or zeros.
* A name is safe only after ``fsync`` of its directory. Before that, any of the changes of names may be missing, even if
  later changes are there. A rename inside a directory is one change. A rename between two directories is two changes.
* ``fsync`` of a file does not make its name safe, and ``fsync`` of a directory does not make its files safe.

Real file systems guarantee more than this, but each of them guarantees something different.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

MAX_PRODUCT: Final = 64
"""Up to this number of combinations of lost and kept parts, all combinations are tried.

If there are more, each part is varied alone: once while all other parts are lost, and once while they are kept.
"""


class Open(NamedTuple):
    """A file is opened for writing."""

    path: str
    creates: bool = False
    truncates: bool = False


class Make(NamedTuple):
    """A directory or a symbolic link is made."""

    path: str
    link: str | None = None


class Write(NamedTuple):
    """Bytes are written at an offset, or at the end."""

    path: str
    data: bytes
    offset: int | None = None


class Cut(NamedTuple):
    """The size of a file is set."""

    path: str
    size: int


class Sync(NamedTuple):
    """A file or a directory is synced."""

    path: str


class SyncAll(NamedTuple):
    """The file system is synced."""


class Move(NamedTuple):
    """A file or directory gets another name."""

    path: str
    new: str


class Link(NamedTuple):
    """A file gets one more name."""

    path: str
    new: str


class Remove(NamedTuple):
    """A name is removed."""

    path: str


class Promise(NamedTuple):
    """The program promises ``text``: from now on, it must be true even after a power failure."""

    text: str


Operation = Open | Make | Write | Cut | Sync | SyncAll | Move | Link | Remove | Promise

Tree: TypeAlias = Mapping[str, "bytes | str | Tree"]
"""The files of a directory by name: the content of a file, the target of a link, or a directory."""


class State(NamedTuple):
    """What the disk may contain after a power failure, and the promises that were made before the failure."""

    tree: Tree
    promises: tuple[str, ...]


@dataclass(eq=False)
class _File:
    now: bytes = b""
    stable: bytes = b""

    def sync(self) -> None:
        """Make the content safe."""
        self.stable = self.now

    def contents(self) -> list[bytes]:
        """Return what the file may contain: first its synced content, last its current content."""
        same = zip(self.stable, self.now, strict=False)
        start = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], same)))
        new = self.now[start:]
        half = (len(new) + 1) // 2
        torn = [
            self.now[: start + half],
            self.now[:start] + bytes(len(new)),
            self.now[:start] + bytes(half) + new[half:],
            self.now[: start + half] + bytes(len(new) - half),
        ]
        return list(dict.fromkeys([self.stable, *torn, self.now])) if new else [self.stable, self.now]


_Node: TypeAlias = "_File | _Directory | str"
"""A string is the target of a symbolic link."""
_Change: TypeAlias = "Mapping[str, _Node | None]"
"""Names that change together, each with what it names afterwards. ``None`` removes a name."""


@dataclass(eq=False)
class _Directory:
    now: dict[str, _Node] = field(default_factory=dict)
    stable: dict[str, _Node] = field(default_factory=dict)
    changes: list[_Change] = field(default_factory=list)

    def change(self, names: _Change) -> None:
        """Change names, all at once."""
        self.now = _changed(self.now, [names])
        self.changes.append(names)

    def sync(self) -> None:
        """Make all names safe."""
        self.stable, self.changes = dict(self.now), []

    def groups(self) -> Iterator[list[Sequence[int]]]:
        """Yield, for each group of changes that have names in common, the subsets that may be on disk."""
        groups: list[tuple[set[str], list[int]]] = []
        for number, change in enumerate(self.changes):
            joined = [group for group in groups if group[0] & change.keys()]
            groups = [group for group in groups if group not in joined]
            names = set(change).union(*(group[0] for group in joined))
            groups.append((names, sorted([number, *itertools.chain(*(group[1] for group in joined))])))
        for _, numbers in groups:
            yield _parts(numbers)


def _parts(numbers: Sequence[int]) -> list[Sequence[int]]:
    """Return subsets of a sequence, from the empty one to the whole: all subsets if the sequence is short."""
    if len(numbers) <= math.log2(MAX_PRODUCT):
        sizes = range(len(numbers) + 1)
        return [part for size in sizes for part in itertools.combinations(numbers, size)]
    first = [numbers[:size] for size in range(len(numbers))]
    lacking_one = [[one for one in numbers if one != left_out] for left_out in numbers]
    return [*first, *([one] for one in numbers), *lacking_one, numbers]


def _changed(names: Mapping[str, _Node], changes: Iterable[_Change]) -> dict[str, _Node]:
    found: dict[str, _Node | None] = dict(names)
    for change in changes:
        found |= change
    return {name: node for name, node in found.items() if node is not None}


def _directory(tree: Tree) -> _Directory:
    """Return a directory with these files, synced."""
    names: dict[str, _Node] = {}
    for name, node in tree.items():
        match node:
            case bytes():
                names[name] = _File(node, node)
            case str():
                names[name] = node
            case _:
                names[name] = _directory(node)
    return _Directory(names, dict(names))


class Disk:
    """A disk with the directory ``root``, which at first contains the files ``before``, synced."""

    def __init__(self, root: Path, before: Tree) -> None:
        self._root = root
        self._top = _directory(before)
        self._promises: list[str] = []

    def apply(self, operation: Operation) -> None:
        """Execute one operation on the disk."""
        match operation:
            case Promise(text):
                self._promises.append(text)
            case SyncAll():
                for node in self._reachable():
                    node.sync()
            case Sync(path):
                synced = self._find(path)
                assert not isinstance(synced, str), path
                synced.sync()
            case Write(path, data, offset):
                file = self._file(path)
                start = len(file.now) if offset is None else offset
                file.now = file.now[:start].ljust(start, b"\0") + data + file.now[start + len(data) :]
            case Cut(path, size):
                file = self._file(path)
                file.now = file.now[:size].ljust(size, b"\0")
            case _:
                self._change_names(operation)

    def _change_names(self, operation: Open | Make | Move | Link | Remove) -> None:
        parent, name = self._place(operation.path)
        match operation:
            case Open(path, creates, truncates):
                if creates and name not in parent.now:
                    parent.change({name: _File()})
                elif truncates:
                    self._file(path).now = b""
            case Make(_, link):
                parent.change({name: _Directory() if link is None else link})
            case Remove():
                assert name in parent.now, operation
                parent.change({name: None})
            case Link(_, new) | Move(_, new):
                target, new_name = self._place(new)
                node, removed = parent.now[name], {} if isinstance(operation, Link) else {name: None}
                if target is parent:
                    parent.change({**removed, new_name: node})
                else:
                    target.change({new_name: node})
                    parent.change(removed)

    def now(self) -> Tree:
        """Return the files that a running program sees."""
        return self._tree(self._top, {}, {}, now=True)

    def states(self) -> Iterator[State]:
        """Yield states in which a power failure at this moment may leave the disk: all, or some if there are many."""
        promises = tuple(self._promises)
        nodes = self._reachable()
        files = [node for node in nodes if isinstance(node, _File) and node.now != node.stable]
        folders = [node for node in nodes if isinstance(node, _Directory) and node.changes]
        parts: list[tuple[_File | _Directory, list[Sequence[int]] | list[bytes]]] = [
            *((file, file.contents()) for file in files),
            *((folder, group) for folder in folders for group in folder.groups()),
        ]
        for choice in _choices([len(options) for _, options in parts]):
            contents: dict[int, bytes] = {}
            changes: dict[int, list[int]] = {}
            for (node, options), number in zip(parts, choice, strict=True):
                option = options[number]
                if isinstance(option, bytes):
                    contents[id(node)] = option
                else:
                    changes[id(node)] = [*changes.get(id(node), []), *option]
            yield State(self._tree(self._top, contents, changes, now=False), promises)

    def _tree(
        self, top: _Directory, contents: Mapping[int, bytes], changes: Mapping[int, Iterable[int]], *, now: bool
    ) -> Tree:
        kept = [top.changes[number] for number in sorted(changes.get(id(top), []))]
        tree: dict[str, bytes | str | Tree] = {}
        for name, node in (top.now if now else _changed(top.stable, kept)).items():
            match node:
                case _Directory():
                    tree[name] = self._tree(node, contents, changes, now=now)
                case _File():
                    tree[name] = node.now if now else contents.get(id(node), node.stable)
                case _:
                    tree[name] = node
        return tree

    def _reachable(self) -> list[_File | _Directory]:
        """Return the files and directories that may have a name after a power failure."""
        found: dict[int, _File | _Directory] = {}
        waiting: list[_Node | None] = [self._top]
        while waiting:
            node = waiting.pop()
            if isinstance(node, _File | _Directory) and id(node) not in found:
                found[id(node)] = node
                if isinstance(node, _Directory):
                    waiting += itertools.chain(node.stable.values(), *(change.values() for change in node.changes))
        return list(found.values())

    def _place(self, path: str) -> tuple[_Directory, str]:
        where = Path(path).relative_to(self._root)
        node: _Node = self._top
        for name in where.parts[:-1]:
            assert isinstance(node, _Directory), path
            node = node.now[name]
        assert isinstance(node, _Directory), path
        return node, where.name

    def _find(self, path: str) -> _Node:
        if Path(path) == self._root:
            return self._top
        parent, name = self._place(path)
        return parent.now[name]

    def _file(self, path: str) -> _File:
        node = self._find(path)
        assert isinstance(node, _File), path
        return node


def _choices(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield combinations. Each contains, for every part, the number of one of its options.

    ``sizes`` contains how many options each part has. If there are few combinations, all are yielded. Otherwise, all
    parts but at most one have their first option, or all parts but at most one have their last option.
    """
    if math.prod(sizes) <= MAX_PRODUCT:
        yield from itertools.product(*map(range, sizes))
        return
    for extreme in ([0] * len(sizes), [size - 1 for size in sizes]):
        yield tuple(extreme)
        for part, size in enumerate(sizes):
            for number in set(range(size)) - {extreme[part]}:
                yield (*extreme[:part], number, *extreme[part + 1 :])


class Recording(NamedTuple):
    """The operations of programs below ``root``, and the files that were there before."""

    root: Path
    before: Tree
    operations: Sequence[Operation]

    def without(self, names: Collection[str]) -> Recording:
        """Return the recording without operations on files with these names."""
        return self._replace(
            operations=[
                operation
                for operation in self.operations
                if not any(Path(text).name in names for text in operation if isinstance(text, str))
            ]
        )

    def power_failures(self) -> list[State]:
        """Return the different states in which a power failure may leave the disk, as :meth:`Disk.states` finds them.

        Until the next sync, changes of names and appended bytes only add possible states. It is therefore enough to
        look just before each sync and at the end. Content that is overwritten before the next sync is not considered.
        A state that is found several times gets the promises of the last time.
        """
        disk = Disk(self.root, self.before)
        found: dict[object, State] = {}
        for operation in self.operations:
            if isinstance(operation, Sync | SyncAll):
                found |= {frozen(state.tree): state for state in disk.states()}
            disk.apply(operation)
        found |= {frozen(state.tree): state for state in disk.states()}
        return list(found.values())


def frozen(tree: Tree) -> object:
    """Return a hashable form of a tree."""
    return tuple((name, frozen(node) if isinstance(node, Mapping) else node) for name, node in sorted(tree.items()))


def write_tree(tree: Tree, directory: Path) -> None:
    """Write the files of ``tree`` into an existing directory."""
    for name, node in tree.items():
        path = directory / name
        match node:
            case bytes():
                path.write_bytes(node)
            case str():
                path.symlink_to(node)
            case _:
                path.mkdir()
                write_tree(node, path)


def tree_at(directory: Path) -> Tree:
    """Return the files in a directory as a tree."""
    return {
        path.name: str(path.readlink()) if path.is_symlink() else tree_at(path) if path.is_dir() else path.read_bytes()
        for path in directory.iterdir()
    }
