"""Building a Dockerfile with an engine's classic builder, which every engine has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, cast

from securebench.engine.client import connect
from securebench.errors import EngineError, ImageError
from securebench.images.build.dockerfile.bases import with_bases
from securebench.images.build.dockerfile.context import DOCKERFILE, context_archive
from securebench.images.build.registry_base import read_build
from securebench.images.resolve import resolve
from securebench.strict_input.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.engine.client import Engine
    from securebench.images.build.dockerfile.bases import Rewritten
    from securebench.images.build.recipe_kinds import DockerfileRecipe
    from securebench.images.store.image_store import ImageStore

_MAX_DOCKERFILE: Final = 1024 * 1024
_LINES_SHOWN: Final = 10


def require_engine(engine: Engine | None, recipe: DockerfileRecipe) -> Engine:
    """Return the engine. Raises :class:`EngineError`, which says why there is none and suggests alternatives."""
    if engine is not None:
        return engine
    try:
        return connect()
    except EngineError as error:
        raise EngineError(
            f"{recipe.reference} has a Dockerfile, and building it needs an engine: {error.message}",
            code=error.code,
            hint=f"{error.hint}; or build it on a machine with an engine, run 'docker save -o FILE' there and "
            "'securebench images import FILE' here",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerfileBuild:
    """One build on ``engine``. ``log`` receives the engine's output. The image and its containers get ``labels``."""

    engine: Engine
    store: ImageStore
    recipe: DockerfileRecipe
    labels: Mapping[str, str]
    log: Path
    report: Callable[[str], None]

    def run(self) -> str:
        """Build, and return the id. The image has no name yet.

        Raises :class:`ConfigError` (``dockerfile-invalid``, ``recipe-invalid``), :class:`ImageError`
        (``image-build-failed``, ``image-unavailable`` for a base) and the errors of :meth:`Engine.doing`.
        """
        rewritten = self._rewritten()
        context = cast(
            "IO[bytes]", context_archive(self.recipe.context, rewritten.text)
        )  # the SDK accepts iterators too
        with (
            self.log.open("w", encoding="utf-8") as log,
            self.engine.doing(f"build {self.recipe.reference}", missing=ImageError, hint=self._hint(rewritten)),
        ):
            events = self.engine.client.build(
                fileobj=context,
                custom_context=True,
                dockerfile=DOCKERFILE,
                buildargs=dict(self.recipe.build_args),
                labels=dict(self.labels),
                network_mode=self.recipe.network,
                rm=True,
                forcerm=True,
                decode=True,
                timeout=None,
            )
            image, error = read_build(events, self.report, log.write)
        if error or not image:
            raise self._failed(error, rewritten)
        return image

    def _rewritten(self) -> Rewritten:
        """Return the Dockerfile with its bases replaced by ids in the engine, which are unambiguous."""
        text = read_text(self.recipe.dockerfile, "Dockerfile", _MAX_DOCKERFILE)[0]
        ids = {
            name: resolve(self.engine, other, self.report, self.store).id
            for name, other in self.recipe.base_images.items()
        }
        return with_bases(text, ids, self.recipe.build_args)

    def _failed(self, error: str, rewritten: Rewritten) -> ImageError:
        lines = list(filter(None, self.log.read_text(encoding="utf-8").split("\n")))
        tail = "\n".join(f"    {line}" for line in lines[-_LINES_SHOWN:])
        return ImageError(
            f"the Dockerfile of {self.recipe.reference} failed: {error or 'the engine returned no image'}\n{tail}",
            code="image-build-failed",
            hint=f"the full output is in {self.log}; {self._hint(rewritten)}",
        )

    def _hint(self, rewritten: Rewritten) -> str:
        if not rewritten.images:
            return f"see {self.recipe.dockerfile}"
        first = rewritten.images[0]
        return f"its bases are {', '.join(rewritten.images)}; without a registry, pass '--base-image {first}=IMAGE'"
