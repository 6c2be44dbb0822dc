"""Labels that record what an image was built from, so that a changed recipe or base is noticed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.images.build.derived.content import content_layer
from securebench.images.build.dockerfile.context import context_archive
from securebench.images.build.recipe_kinds import DerivedRecipe, DockerfileRecipe, GitSource, PypiSource, SystemRecipe
from securebench.strict_input.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from securebench.images.build.recipe_kinds import Recipe

DIGEST_LABEL: Final = "securebench.recipe-digest"
BASES_LABEL: Final = "securebench.bases"

_NOT_CONTENT: Final = frozenset({"name", "directory", "summary", "dockerfile", "context", "source"})
"""Fields whose values are not digested.

The name and the summary do not affect the image's files. The other fields in this set say where the files and the
source are. The content of the files and the identity of the source are digested instead: see :func:`_files`."""
_MAX_DOCKERFILE: Final = 1024 * 1024


def build_labels(recipe: Recipe, find: Callable[[str], str]) -> dict[str, str]:
    """Return the labels of an image that is built now. ``find`` returns the id of a local image, or an empty string.

    Raises the errors of :func:`content_layer` for a derived recipe, and those of :func:`context_archive` and
    :func:`read_text` for a Dockerfile.
    """
    bases = [find(reference) for reference in base_references(recipe)]
    return {DIGEST_LABEL: recipe_digest(recipe), BASES_LABEL: ",".join(bases)}


def why_stale(recipe: Recipe, labels: Mapping[str, str], find: Callable[[str], str]) -> str:
    """Return why a new build of ``recipe`` would differ from the image with ``labels``.

    The result is empty if no reason is known. It is also empty for an image without :data:`DIGEST_LABEL`: such an image
    was imported, pulled or built elsewhere. A base that is no longer local is not compared.
    """
    if DIGEST_LABEL not in labels:
        return ""
    if labels[DIGEST_LABEL] != recipe_digest(recipe):
        return "its recipe has changed"
    before = labels.get(BASES_LABEL, "").split(",")
    for reference, known in zip(base_references(recipe), before, strict=False):
        if known and (now := find(reference)) and now != known:
            return f"its base {reference} has changed"
    return ""


def recipe_digest(recipe: Recipe) -> str:
    """Return the SHA-256 (hex) of the fields and files of a recipe that affect its image."""
    content = {field.name: getattr(recipe, field.name) for field in fields(recipe) if field.name not in _NOT_CONTENT}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=dict).encode())
    for piece in _files(recipe):
        digest.update(piece)
    return digest.hexdigest()


def base_references(recipe: Recipe) -> tuple[str, ...]:
    """Return the references of the images that must exist before the build: none for a system recipe."""
    match recipe:
        case DerivedRecipe():
            return (recipe.base,)
        case DockerfileRecipe():
            return tuple(dict.fromkeys(recipe.base_images[name] for name in sorted(recipe.base_images)))
    return ()


def _files(recipe: Recipe) -> Iterable[bytes]:
    """Yield a recipe's files as they go into the build, and the identity of its source."""
    match recipe:
        case DerivedRecipe():
            yield _source(recipe.source)
            yield from content_layer(replace(recipe, source=None), None)[0]
        case DockerfileRecipe():
            yield from context_archive(recipe.context, read_text(recipe.dockerfile, "Dockerfile", _MAX_DOCKERFILE)[0])
        case SystemRecipe():
            if recipe.dockerfile.is_file():
                yield recipe.dockerfile.read_bytes()


def _source(source: Any) -> bytes:
    """Return the identity of a source, which does not depend on where its clone is."""
    match source:
        case PypiSource():
            return f"pypi {source.name} {source.version} {source.sha256}\n".encode()
        case GitSource():
            return f"git {source.commit}\n".encode()
    return b"none\n"
