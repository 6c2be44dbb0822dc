"""Fetch the source of a derived image, and describe the source for the image's label.

git fetches one commit of a remote repository, and nothing in the repository runs. Only this module runs git on the
host, and only when a user builds an image. git fetches objects into a new bare repository, with a fixed configuration,
without hooks, templates, tags or a checkout. That repository is then read as plain files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError
from securebench.images.build.derived.pypi import fetch_release
from securebench.images.build.git.reading import read_commit
from securebench.images.build.recipe_kinds import GitSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.images.build.git.model import SourceTree
    from securebench.images.build.recipe_kinds import Source

_SECONDS: Final = 1800
_LINES_SHOWN: Final = 5
_PASSED: Final = ("PATH", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "GIT_SSL_CAINFO")
_FIXED: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
}
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "credential.helper=",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=initial",
    "transfer.bundleURI=false",
)


def fetch_commit(url: str, commit: str, directory: Path, protocols: str = "https") -> Path:
    """Fetch only ``commit`` into a new bare repository at ``directory``, which must not exist. Return ``directory``.

    Raises :class:`ImageError` (``image-tool-missing``, ``source-unavailable``).
    """
    if shutil.which("git") is None:
        raise ImageError("git is not installed", code="image-tool-missing", hint="run 'apt-get install git'")
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    environment |= _FIXED | {"GIT_ALLOW_PROTOCOL": protocols}
    _git(("init", "--quiet", "--bare", "--template=", str(directory)), environment, url)
    fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--end-of-options", url, commit)
    _git(("--git-dir", str(directory), *fetch), environment, url)
    return directory


def _git(arguments: tuple[str, ...], environment: dict[str, str], url: str) -> None:
    settings = tuple(part for setting in _SETTINGS for part in ("-c", setting))
    try:
        done = subprocess.run(  # noqa: S603 - a fixed argv, with a checked address and commit
            ("git", *settings, *arguments),  # noqa: S607 - the user's own git
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise _unavailable(url, f"timed out after {_SECONDS} s") from None
    if done.returncode != 0:
        raise _unavailable(url, "\n    ".join(["git reports:", *done.stderr.strip().splitlines()[-_LINES_SHOWN:]]))


def _unavailable(url: str, why: str) -> ImageError:
    return ImageError(
        f"cannot fetch the commit from {url}: {why}",
        code="source-unavailable",
        hint="check the address and the commit, or clone the repository yourself and use 'path' instead of 'url'",
    )


def fetch_source(source: Source, directory: Path, report: Callable[[str], None]) -> tuple[SourceTree, str]:
    """Return the files of a source, and its description for the image's label. ``directory`` is for temporary files.

    Raises the errors of :func:`fetch_release`, :func:`fetch_commit` and :func:`read_commit`.
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
