"""The way to an image through a registry: an official base, and a recipe's Dockerfile on top."""

from __future__ import annotations

import io
import tarfile
import time
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import requests

from securebench.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from securebench.engine.client import Engine
    from securebench.images.build.recipe_kinds import SystemRecipe

PROBE_SECONDS = 15
"""A registry that cannot be reached is often not refused: packets to it are dropped."""

PROGRESS_SECONDS = 2.0
"""Between two reports of a download, which the engine tells of many times a second."""


def offers(engine: Engine, reference: str) -> bool:
    """Say whether a registry answers the engine and has ``reference``. Nothing is downloaded."""
    client = docker.APIClient(base_url=engine.endpoint.base_url, version=engine.api, timeout=PROBE_SECONDS)
    try:
        client.inspect_distribution(reference)  # type: ignore[no-untyped-call]  # the stubs leave it out
    except (docker.errors.APIError, requests.RequestException):
        return False
    finally:
        client.close()
    return True


def build_on_base(
    engine: Engine, recipe: SystemRecipe, labels: Mapping[str, str], report: Callable[[str], None]
) -> str:
    """Build the recipe's Dockerfile on its base, pulled anew, and return the id. The image has no name yet.

    Raises :class:`ImageError` (``image-build-failed``) and what :meth:`Engine.doing` raises.
    """
    with engine.doing(f"build {recipe.name} from {recipe.base}", missing=ImageError):
        events = engine.client.build(
            fileobj=_context(recipe),
            custom_context=True,
            buildargs={"BASE": recipe.base},
            labels=dict(labels),
            pull=True,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=None,
        )
        return _built_id(recipe, events, report)


def _built_id(recipe: SystemRecipe, events: Iterable[Mapping[str, Any]], report: Callable[[str], None]) -> str:
    image, error, told = "", "", 0.0
    for event in events:  # to their end, which frees the connection
        error = str(event.get("error") or error).strip()
        image = str((event.get("aux") or {}).get("ID") or image)
        if step := str(event.get("stream") or "").strip():
            report(step)
        elif "status" in event and time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            report(" ".join(str(event[key]) for key in ("status", "id", "progress") if event.get(key)))
    if error or not image:
        raise ImageError(
            f"the Dockerfile of {recipe.name} failed: {error or 'the engine named no image'}",
            code="image-build-failed",
            hint=f"see {recipe.dockerfile}",
        )
    return image


def _context(recipe: SystemRecipe) -> io.BytesIO:
    """Return the build context: the Dockerfile alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        data = recipe.dockerfile.read_bytes()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer
