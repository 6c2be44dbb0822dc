"""The kinds of recipe. :mod:`securebench.images.build.recipes` reads recipes.

:class:`Recipe` is the base class of all kinds; each recipe is one of the three kinds below.
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
    """The fields of every recipe. ``name`` is the name of the recipe's directory.

    ``checks`` are commands that must succeed in the new image. Only then does the image get the name ``reference``.
    """

    name: str
    directory: Path
    reference: str
    summary: str
    checks: tuple[Argv, ...]

    @property
    def short_reference(self) -> str:
        """The reference without the prefix of local images: ``python:3.11``."""
        return self.reference.removeprefix(LOCAL_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRecipe(Recipe):
    """A complete system, which can be built in two ways.

    With an engine that reaches a registry, it is built from ``base`` and the Dockerfile. Otherwise, it is built from
    Debian's ``suite`` and ``packages``, and gets ``environment`` and ``command``.
    """

    base: str
    suite: str
    packages: tuple[str, ...]
    environment: Mapping[str, str]
    command: Argv

    @property
    def dockerfile(self) -> Path:
        """The Dockerfile, which gets ``base`` as its build argument ``BASE``."""
        return self.directory / "Dockerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiSource:
    """A source distribution on a package index. ``sha256`` is empty if the recipe does not pin it."""

    name: str
    version: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """A commit, by its full id, in a local clone (``path``) or a remote repository (``url``).

    Exactly one of ``path`` and ``url`` is set.
    """

    commit: str
    url: str = ""
    path: Path | None = None


Source: TypeAlias = PypiSource | GitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedRecipe(Recipe):
    """An image on top of another, built without an engine.

    ``files`` maps directories of the recipe to directories of the image. ``source`` is unpacked at ``workdir`` as a
    repository of one commit. ``requirements`` are ``name==version``; ``python`` is the base's version of Python.
    ``install`` and then ``run`` are commands that change the image, in a sandbox without network.
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
    """A Dockerfile that an engine builds with the directory ``context`` as its build context.

    ``base_images`` maps images of ``FROM`` and ``COPY --from`` to replacements. ``network`` is the network of RUN
    steps.
    """

    dockerfile: Path
    context: Path
    base_images: Mapping[str, str]
    build_args: Mapping[str, str]
    network: str
