"""Build an image from its recipe, and check it.

A system image is built by an engine if one is running and reaches a registry with the recipe's base. Otherwise, it is
built from Debian's packages, in the store. A derived image is built in the store and needs no engine. A Dockerfile
needs one.

A new image has no name until it has passed the recipe's checks. If an engine built it, the checks run in a container of
the engine. Otherwise, they run in a sandbox, and are skipped if this machine cannot create sandboxes.

A failed build removes its files at once, except its log. The next build removes the files of a killed build.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.images.build import debian, engine_build, registry_base
from securebench.images.build.bootstrap import find_bootstrap
from securebench.images.build.derived.build import DerivedBuild, log_name
from securebench.images.build.directory import open_build_directory
from securebench.images.build.dockerfile.build import DockerfileBuild, require_engine
from securebench.images.build.git.leaks import image_leaks, repository_leaks
from securebench.images.build.recipe_digest import base_references, build_labels, why_stale
from securebench.images.build.recipe_kinds import DerivedRecipe, DockerfileRecipe, SystemRecipe
from securebench.images.engine_images import import_from_engine
from securebench.images.ensure import ensure_image
from securebench.images.resolve import resolve
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.index import ImageSource, Origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.engine.client import Engine
    from securebench.images.build.derived.build import RunsSteps
    from securebench.images.build.directory import BuildDirectory
    from securebench.images.build.recipe_kinds import Recipe
    from securebench.images.model import ResolvedImage
    from securebench.images.store.image_store import ImageStore

_ROOM = 512 * 1024 * 1024
"""The assumed size in bytes of an image of Debian's packages, for the check of free disk space before the build."""


@dataclass(frozen=True, slots=True)
class ImageState:
    """A recipe and its image. ``place`` is ``store`` or ``engine``. Without an image, ``id`` and ``place`` are empty.

    ``stale`` says why a new build would give a different image. It is empty if no such reason is known.
    """

    recipe: Recipe
    id: str = ""
    size_bytes: int = 0
    place: str = ""
    stale: str = ""


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds images from recipes.

    ``engine`` is ``None`` if no engine is running. ``check`` runs one command in a sandbox of a stored image. It
    returns the command's exit code and the end of its output. If this machine cannot create sandboxes, it returns
    ``None``. ``steps`` runs the steps of a derived image. ``report`` receives each stage. ``install_tools`` allows
    installing ``mmdebstrap`` if it is needed and missing.
    """

    store: ImageStore
    engine: Engine | None
    report: Callable[[str], None]
    check: Callable[[ResolvedImage, tuple[str, ...]], tuple[int, str] | None]
    steps: RunsSteps
    install_tools: bool = False

    def state(self, recipe: Recipe) -> ImageState:
        """Return the recipe's image: from the store, or from the engine if the store lacks it.

        If both lack it, the id is empty.
        """
        if found := self.store.find(recipe.reference):
            stale = why_stale(recipe, self.store.labels(found.id), self._find)
            return ImageState(recipe, found.id, found.size_bytes, "store", stale)
        if self.engine and (in_engine := engine_build.find(self.engine, recipe.reference)):
            stale = why_stale(recipe, engine_build.labels(self.engine, in_engine[0]), self._find)
            return ImageState(recipe, *in_engine, "engine", stale)
        return ImageState(recipe)

    def build(self, recipe: Recipe) -> ImageState:
        """Build the recipe's image, check it and name it. The previous image loses the name.

        Raises :class:`ImageError` (``image-check-failed``, ``build-directory-unsafe``), and the errors of the store, of
        :meth:`Engine.doing` and of the build of this kind of recipe.
        """
        with open_build_directory(self._clear) as build_directory:
            match recipe:
                case SystemRecipe():
                    self._build_system(recipe, build_directory)
                case DerivedRecipe():
                    self._build_derived(recipe, build_directory)
                case DockerfileRecipe():
                    self._build_dockerfile(recipe, build_directory)
                case _:
                    raise AssertionError(f"{type(recipe)} is not a kind of recipe")
        return self.state(recipe)

    def _find(self, reference: str) -> str:
        """Return the id of the image ``reference``, or an empty string if it is not on this machine. Do not pull it."""
        if found := self.store.find(reference):
            return found.id
        in_engine = engine_build.find(self.engine, reference) if self.engine else None
        return in_engine[0] if in_engine else ""

    def _build_system(self, recipe: SystemRecipe, build_directory: BuildDirectory) -> None:
        if self.engine and self._registry_offers(self.engine, recipe):
            labels = build_labels(recipe, self._find)
            engine_build.build(self.engine, recipe, build_directory.token, labels, self.report)
            self.store.forget(recipe.reference)  # the store's image would take precedence over the new one
        else:
            self._build_from_packages(recipe, build_directory)

    def _build_dockerfile(self, recipe: DockerfileRecipe, build_directory: BuildDirectory) -> None:
        engine = require_engine(self.engine, recipe)
        for base in base_references(recipe):
            resolve(engine, base, self.report, self.store)  # must precede build_labels(), which reads the base's id
        build = DockerfileBuild(
            engine=engine,
            store=self.store,
            recipe=recipe,
            labels={
                engine_build.RECIPE_LABEL: recipe.name,
                engine_build.TOKEN_LABEL: build_directory.token,
                **build_labels(recipe, self._find),
            },
            log=build_directory.directory.parent / log_name(recipe.short_reference),
            report=self.report,
        )
        engine_build.finish(engine, recipe, build.run(), build_directory.token, self.report)
        self.store.forget(recipe.reference)
        import_from_engine(engine, self.store, recipe.reference, self.report)
        self._warn_of_leaks(recipe)

    def _warn_of_leaks(self, recipe: Recipe) -> None:
        image = self.store.find(recipe.reference)
        assert image is not None
        with self.store.lease(image.id) as tree:
            for leak in image_leaks(tree.root):
                self.report(f"warning: an agent might find the solution in {leak}")

    def _build_derived(self, recipe: DerivedRecipe, build_directory: BuildDirectory) -> None:
        log = build_directory.directory.parent / log_name(recipe.short_reference)
        log.write_bytes(b"")
        ensure_image(self.store, recipe.base, self.report)  # must precede build_labels(), which reads the base's id
        build = DerivedBuild(
            store=self.store,
            recipe=recipe,
            directory=build_directory.directory,
            log=log,
            report=self.report,
            run_steps=self.steps,
            temporary_labels={engine_build.TOKEN_LABEL: build_directory.token},
            labels=build_labels(recipe, self._find),
        )
        with self.store.incoming(Origin(ImageSource.RECIPE)) as incoming:
            image_id = build.add(incoming)
            self.report("unpacking")
            with self.store.lease(image_id) as tree:
                _require_no_leaks(recipe, tree.root)
            self._check(recipe, image_id)
            incoming.name(image_id, recipe.reference)

    def _registry_offers(self, engine: Engine, recipe: SystemRecipe) -> bool:
        self.report(f"asking the registry for {recipe.base}")
        return registry_base.offers(engine, recipe.base)

    def _build_from_packages(self, recipe: SystemRecipe, build_directory: BuildDirectory) -> None:
        bootstrap = find_bootstrap(self.report, install_tools=self.install_tools)
        log = build_directory.directory.parent / f"{recipe.name}.log"
        self.report(f"building from Debian's packages (output: {log})")
        with self.store.incoming(Origin(ImageSource.RECIPE), _ROOM) as incoming:
            with debian.root_file_system(bootstrap, recipe, build_directory.directory, log, self.report) as pieces:
                labels = {engine_build.RECIPE_LABEL: recipe.name, **build_labels(recipe, self._find)}
                config = RootConfig(recipe.environment, recipe.command, labels)
                image_id = add_root(incoming, pieces, config, f"the root file system of {recipe.name}")
            self.report("unpacking")
            self.store.lease(image_id).close()
            self._check(recipe, image_id)
            incoming.name(image_id, recipe.reference)

    def _check(self, recipe: Recipe, image_id: str) -> None:
        image = self.store.find(image_id)
        assert image is not None
        for command in recipe.checks:
            self.report(f"checking: {shlex.join(command)}")
            outcome = self.check(image, command)
            if outcome is None:
                self.report("the image was not checked: this machine cannot create sandboxes")
                return
            status, output = outcome
            if status != 0:
                raise engine_build.check_failed(recipe, command, status, output)

    def _clear(self, token: str) -> None:
        if self.engine:
            engine_build.clear(self.engine, token)


def _require_no_leaks(recipe: DerivedRecipe, root: Path) -> None:
    """Raise :class:`ImageError` (``image-check-failed``) if the repository has history beyond its one commit."""
    if recipe.source is None:
        return
    leaks = repository_leaks(root / recipe.workdir.strip("/"))
    if leaks:
        raise ImageError(
            f"the repository of {recipe.reference} must contain no history but its one commit: "
            f"{'; '.join(map(str, leaks))}",
            code="image-check-failed",
            hint="remove 'git commit', 'git fetch' and 'git stash' from the recipe's steps",
        )
