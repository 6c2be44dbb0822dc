"""The source of a derived image, and its record in the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.images.build.derived.fetching import fetch_commit
from securebench.images.build.derived.pypi import fetch_release
from securebench.images.build.git.reading import read_commit
from securebench.images.build.recipe_kinds import GitSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.images.build.git.model import SourceTree
    from securebench.images.build.recipe_kinds import Source


def fetch_source(source: Source, directory: Path, report: Callable[[str], None]) -> tuple[SourceTree, str]:
    """Return the files of a source, and its description for the image's label. ``directory`` is for temporary files.

    Raises the :class:`ImageError` of reading and fetching.
    """
    if not isinstance(source, GitSource):
        report(f"fetching the source archive of {source.name} {source.version}")
        tree, sha256 = fetch_release(source)
        return tree, f"pypi:{source.name}=={source.version} sha256:{sha256}"
    repository = source.path
    if repository is None:
        report(f"fetching the commit {source.commit} from {source.url}")
        repository = fetch_commit(source.url, source.commit, directory / "fetched.git")
    report(f"reading the commit {source.commit}")
    tree = read_commit(repository, source.commit)
    for path in tree.submodules:
        report(f"the submodule {path.decode(errors='backslashreplace')} is left empty")
    return tree, f"git:{source.url or source.path} {source.commit}"
