"""The first layer that a derived image adds to its base.

The layer contains the recipe's files, and the recipe's source as a repository with one commit.
"""

from __future__ import annotations

import os
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from securebench.errors import ConfigError
from securebench.fs.safe_open import OPEN_DIRECTORY, opened
from securebench.fs.walk import EntryKind
from securebench.images.build.derived.host_tree import content, walk
from securebench.images.build.derived.layer import END, LayerEntry, written
from securebench.images.build.git.model import LINK
from securebench.images.build.git.writing import fresh_repository
from securebench.printable import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.fs.walk import TreeEntry
    from securebench.images.build.git.model import SourceTree
    from securebench.images.build.recipe_kinds import DerivedRecipe

_MESSAGE = "The state that the task starts from"


def content_layer(recipe: DerivedRecipe, source: SourceTree | None) -> tuple[Iterator[bytes], str]:
    """Return the layer's archive, piece by piece, and the id of the commit, which is empty without a source.

    Reading the archive raises :class:`ConfigError` (``recipe-invalid``) for files that are missing or unsupported, and
    the errors of :func:`walk` and :func:`content`.
    """
    repository = fresh_repository(source, _MESSAGE) if source else None

    def pieces() -> Iterator[bytes]:
        made: set[bytes] = set()
        if recipe.workdir:
            yield from _directories(_inside(recipe.workdir), made)
        if source and repository:
            top = _inside(recipe.workdir)
            yield from _source(top, source, made)
            for path, data in sorted(repository.files.items()):
                yield from _file(top + b"/.git/" + path, data, made)
        for name, target in recipe.files.items():
            yield from _directories(_inside(target), made)
            yield from _files(recipe.directory, name, _inside(target))
        yield END

    return pieces(), repository.commit if repository else ""


def _inside(path: str) -> bytes:
    return os.fsencode(path.strip("/"))


def _source(top: bytes, source: SourceTree, made: set[bytes]) -> Iterator[bytes]:
    for path, file in sorted(source.files.items()):
        if file.mode == LINK:
            yield from _directories((top + b"/" + path).rpartition(b"/")[0], made)
            yield from written(LayerEntry(path=top + b"/" + path, kind=tarfile.SYMTYPE, mode=0o777, link=file.data))
        else:
            yield from _file(top + b"/" + path, file.data, made, file.mode & 0o777)
    for path in source.submodules:
        yield from _directories(top + b"/" + path, made)


def _file(path: bytes, data: bytes, made: set[bytes], mode: int = 0o644) -> Iterator[bytes]:
    yield from _directories(path.rpartition(b"/")[0], made)
    yield from written(LayerEntry(path=path, mode=mode, size=len(data)), (data,))


def _directories(path: bytes, made: set[bytes]) -> Iterator[bytes]:
    """Yield layer entries for the directory ``path`` and its parents, except those in ``made``. Add them to ``made``.

    A directory that the base already has keeps its content, but gets owner root and mode 755.
    """
    parts = path.split(b"/") if path else []
    for end in range(1, len(parts) + 1):
        directory = b"/".join(parts[:end])
        if directory not in made:
            made.add(directory)
            yield from written(LayerEntry(path=directory, kind=tarfile.DIRTYPE, mode=0o755))


def _files(directory: Path, name: str, target: bytes) -> Iterator[bytes]:
    with _recipe_directory(directory, name) as top:
        for found in walk(top):
            yield from _member(found, target + b"/" + found.path if target else found.path, f"{directory / name}")


@contextmanager
def _recipe_directory(directory: Path, name: str) -> Iterator[int]:
    try:
        with opened(directory / name, OPEN_DIRECTORY) as top:
            yield top
    except NotADirectoryError:
        raise _invalid(str(directory / name), "is not a directory") from None
    except FileNotFoundError:
        raise _invalid(str(directory / name), "does not exist") from None


def _member(found: TreeEntry, path: bytes, what: str) -> Iterator[bytes]:
    if found.name.startswith(b".wh."):
        raise _invalid(
            f"{what}/{printable_name(found.path)}", "has a name that begins with '.wh.', which image layers reserve"
        )
    if found.kind is EntryKind.DIRECTORY:
        yield from written(LayerEntry(path=path, kind=tarfile.DIRTYPE, mode=0o755))
    elif found.kind is EntryKind.LINK:
        yield from written(LayerEntry(path=path, kind=tarfile.SYMTYPE, mode=0o777, link=found.target))
    elif found.kind is EntryKind.FILE:
        entry = LayerEntry(path=path, mode=0o755 if found.executable else 0o644, size=found.size)
        yield from written(entry, content(found))
    else:
        raise _invalid(f"{what}/{printable_name(found.path)}", "is not a file, directory or link")


def _invalid(path: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{path} {problem}", code="recipe-invalid", hint="correct 'files' in the recipe, or the directory that it names"
    )
