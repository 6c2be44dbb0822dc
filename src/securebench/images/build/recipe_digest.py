"""What an image was built from, as labels of it: by them a changed recipe, or a changed base, is noticed."""

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
"""Fields that change no image by themselves: names, and places whose content counts instead."""
_MAX_DOCKERFILE: Final = 1024 * 1024


def build_labels(recipe: Recipe, find: Callable[[str], str]) -> dict[str, str]:
    """Return the labels of an image that is built now. ``find`` gives the id of an image here, or an empty text.

    Raises :class:`ConfigError` (``recipe-invalid``) for files of the recipe that cannot be read.
    """
    bases = [find(reference) for reference in base_references(recipe)]
    return {DIGEST_LABEL: recipe_digest(recipe), BASES_LABEL: ",".join(bases)}


def why_stale(recipe: Recipe, labels: Mapping[str, str], find: Callable[[str], str]) -> str:
    """Return why the image with ``labels`` is not what ``recipe`` would make now; empty if it is, or if nobody knows.

    An image without our labels was imported, pulled or built elsewhere: whoever gave it this name wants it to be used.
    A base that is not here any more is not fetched to compare it.
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
    """Return the sha256 (hex) of all in a recipe that decides what its image holds, with the files beside it."""
    content = {field.name: getattr(recipe, field.name) for field in fields(recipe) if field.name not in _NOT_CONTENT}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=dict).encode())
    for piece in _files(recipe):
        digest.update(piece)
    return digest.hexdigest()


def base_references(recipe: Recipe) -> tuple[str, ...]:
    """Return the images that are fetched, or built, before this one, and that the recipe names itself."""
    match recipe:
        case DerivedRecipe():
            return (recipe.base,)
        case DockerfileRecipe():
            return tuple(dict.fromkeys(recipe.base_images[name] for name in sorted(recipe.base_images)))
    return ()


def _files(recipe: Recipe) -> Iterable[bytes]:
    """Give what lies beside a recipe, as it goes into the image; of a source, what names it for good."""
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
    """Return what a source is, wherever a clone of it lies."""
    match source:
        case PypiSource():
            return f"pypi {source.name} {source.version} {source.sha256}\n".encode()
        case GitSource():
            return f"git {source.commit}\n".encode()
    return b"none\n"
