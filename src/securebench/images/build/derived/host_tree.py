"""Walk directories that go into images or come from them. Trees that are refused raise :class:`ImageError`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.walk import STATUS, UNPACKED, walk_descriptor
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.fs.walk import TreeEntry


def walk(
    top: int, skipped: Callable[[bytes], bool] | None = None, *, content: bool = True, layer: str = ""
) -> Iterator[TreeEntry]:
    """Yield everything below the directory ``top`` (a descriptor). The options are those of :class:`TreeRules`.

    Raises :class:`ImageError` (``image-too-large``) and ``OSError``.
    """
    try:
        yield from walk_descriptor(top, UNPACKED, replace(STATUS, content=content, skipped=skipped, layer=layer))
    except TreeRefusedError as refused:
        raise ImageError(f"a directory exceeds the limits of images: {refused}", code="image-too-large") from None


def content(entry: TreeEntry) -> Iterator[bytes]:
    """Yield the content of a file.

    Raises :class:`ImageError` if the file changes while it is read, and ``OSError`` if it cannot be read.
    """
    try:
        yield from entry.chunks()
    except TreeRefusedError:
        raise ImageError(
            f"{printable_name(entry.path)!r} changed while it was read", code="image-build-failed"
        ) from None
