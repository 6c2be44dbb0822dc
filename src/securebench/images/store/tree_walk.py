"""Entering the directories of a tree that is being unpacked, and creating missing ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from securebench.fs.resolve import OpenDirectory, Resolver
from securebench.fs.rmtree import remove_entry
from securebench.fs.safe_open import OPEN_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class TreeWalk(Resolver):
    """Opens directories below ``root`` and creates missing ones.

    ``new`` holds the real paths that the current layer created; directories that are entered are added to it. Links of
    this layer are followed. Links of a layer below are replaced with directories. ``made(path)`` is called for each
    directory that is created.
    """

    def __init__(self, root: int, new: set[bytes], made: Callable[[bytes], None]) -> None:
        super().__init__(root)
        self._new = new
        self._made = made
        self._last: tuple[Sequence[bytes], OpenDirectory] | None = None

    def enter(self, parts: Sequence[bytes]) -> OpenDirectory:
        """Open the directory at ``parts``, which stays open for calls with the same ``parts``."""
        if self._last is None or self._last[0] != parts:
            self._last = (parts, super().enter(parts))
        return self._last[1]

    def leave(self) -> None:
        """Close the open directory, because entries of its path may change now."""
        self._last = None
        super().leave()

    def missing(self, here: OpenDirectory, name: bytes) -> int:
        """Create the directory."""
        os.mkdir(name, 0o700, dir_fd=here.descriptor)
        self._made(here.path_of(name))
        return os.open(name, OPEN_DIRECTORY, dir_fd=here.descriptor)

    def obstructed(self, here: OpenDirectory, name: bytes) -> int | None:
        """Follow a link of this layer. Replace an entry of a layer below with a directory."""
        if here.path_of(name) in self._new:
            return None
        remove_entry(here.descriptor, name)
        return self.missing(here, name)

    def entered(self, path: bytes) -> None:
        """Record that the directory belongs to this layer."""
        self._new.add(path)
