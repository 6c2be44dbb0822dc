"""The kinds of recipe that there are, as data. :mod:`securebench.images.build.recipes` reads them.

:class:`Recipe` is never made itself; each recipe is exactly one of the three kinds below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from securebench.images.reference import LOCAL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Argv: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What every recipe says. ``name`` is its directory's.

    ``checks`` are argvs that must succeed inside before the image gets its name.
    """

    name: str
    directory: Path
    reference: str
    summary: str
    checks: tuple[Argv, ...]

    @property
    def short_reference(self) -> str:
        """The reference without our own prefix: ``python:3.11``."""
        return self.reference.removeprefix(LOCAL_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRecipe(Recipe):
    """A whole system, in two ways to the same image.

    ``base`` and the Dockerfile are the way through a registry; ``suite``, ``packages``, ``environment`` and ``command``
    the way without.
    """

    base: str
    suite: str
    packages: tuple[str, ...]
    environment: Mapping[str, str]
    command: Argv

    @property
    def dockerfile(self) -> Path:
        """What is done on top of ``base``, which it takes as the build argument ``BASE``."""
        return self.directory / "Dockerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiSource:
    """A source distribution of the Python package index. ``sha256`` is empty where the recipe does not pin it."""

    name: str
    version: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """A commit, by its full id, of a clone on this machine (``path``), or of one elsewhere (``url``): one of them."""

    commit: str
    url: str = ""
    path: Path | None = None


Source: TypeAlias = PypiSource | GitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedRecipe(Recipe):
    """An image on top of another, made without an engine.

    ``files`` are directories beside the recipe and where their content goes. ``source`` is unpacked at ``workdir`` as a
    repository of one commit. ``requirements`` are ``name==version``, for the Python version ``python`` of the base.
    ``install`` and then ``run`` are argvs that change the image, from within a sandbox without network.
    """

    base: str
    workdir: str
    environment: Mapping[str, str]
    files: Mapping[str, str]
    python: str
    requirements: tuple[str, ...]
    source: Source | None
    install: tuple[Argv, ...]
    run: tuple[Argv, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerfileRecipe(Recipe):
    """A Dockerfile that an engine builds. ``context`` is its directory; ``dockerfile`` lies where it says.

    ``base_images`` says what stands in for an image that a ``FROM`` names. ``network`` is that of its RUN steps.
    """

    dockerfile: Path
    context: Path
    base_images: Mapping[str, str]
    build_args: Mapping[str, str]
    network: str
