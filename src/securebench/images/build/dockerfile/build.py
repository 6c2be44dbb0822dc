"""Building a Dockerfile after replacing its base images. Uses the classic builder, which every engine has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, cast

from securebench.dockerfile import BaseImages, dockerfile_error, instructions
from securebench.engine.client import connect
from securebench.errors import ConfigError, EngineError, ImageError
from securebench.images.build.dockerfile.context import DOCKERFILE, context_archive
from securebench.images.build.registry_base import read_build
from securebench.images.reference import canonical, check_reference
from securebench.images.resolve import resolve
from securebench.strict_input.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.dockerfile import Instruction
    from securebench.engine.client import Engine
    from securebench.images.build.recipe_kinds import DockerfileRecipe
    from securebench.images.store.image_store import ImageStore

_MAX_DOCKERFILE: Final = 1024 * 1024
_LINES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The rewritten Dockerfile, and the images that were not replaced, in order."""

    text: str
    images: tuple[str, ...]


def with_bases(text: str, bases: Mapping[str, str], arguments: Mapping[str, str]) -> Rewritten:
    """Replace images in the ``FROM`` and ``COPY --from`` instructions of the Dockerfile ``text``.

    ``bases`` maps image names, in any spelling, to replacements; ``arguments`` are build arguments. The
    ``--platform`` of a replaced image is dropped: the replacement is for this machine. Raises :class:`ConfigError`
    (``dockerfile-invalid``).
    """
    others = {_canonical(name): replacement for name, replacement in bases.items()}
    found = BaseImages(arguments)
    missing: dict[str, None] = {}
    written = []
    for instruction in instructions(text):
        image = found.image(instruction)
        other = None if image is None else others.get(_canonical(image))
        if image is not None and other is None:
            missing[image] = None
        written.append(instruction.written if other is None else _replaced(instruction, other))
    if not found.has_from:
        raise dockerfile_error("it has no FROM")
    return Rewritten("".join(written), tuple(missing))


def _replaced(found: Instruction, other: str) -> str:
    if found.name != "FROM":
        return found.written.replace(f"--from={found.source}", f"--from={other}", 1)
    _, *stage = found.operands.split(maxsplit=1)
    return " ".join(("FROM", other, *stage)) + "\n"


def _canonical(image: str) -> str:
    try:
        check_reference(image)
    except ConfigError:
        raise dockerfile_error(f"{image[:80]!r} is not an image reference") from None
    return canonical(image)


def require_engine(engine: Engine | None, recipe: DockerfileRecipe) -> Engine:
    """Return ``engine``, or connect to one. Raises :class:`EngineError` with the reason and alternatives."""
    if engine is not None:
        return engine
    try:
        return connect()
    except EngineError as error:
        raise EngineError(
            f"{recipe.reference} has a Dockerfile, and building it needs an engine: {error.message}",
            code=error.code,
            hint=f"{error.hint}; or build it on a machine with an engine, run "
            f"'docker save -o FILE {recipe.reference}' there and 'securebench images import FILE' here",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerfileBuild:
    """One build on ``engine``. ``log`` receives the engine's output. The image and all containers get ``labels``."""

    engine: Engine
    store: ImageStore
    recipe: DockerfileRecipe
    labels: Mapping[str, str]
    log: Path
    report: Callable[[str], None]

    def run(self) -> str:
        """Build the image, and return its id. The image has no name yet.

        Raises :class:`ConfigError` (``dockerfile-invalid``), :class:`ImageError` (``image-build-failed``,
        ``image-unavailable`` for a base), and the errors of :func:`read_text`, :func:`context_archive` and
        :meth:`Engine.doing`.
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
        """Replace the recipe's ``base_images`` in the Dockerfile with the ids of their replacements.

        Ids are unambiguous, unlike names.
        """
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
        bases = ", ".join(rewritten.images)
        return f"the Dockerfile needs the images {bases}; without a registry, pass '--base-image {first}=IMAGE'"
