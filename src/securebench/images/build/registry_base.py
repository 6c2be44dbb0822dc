"""Building an image on a base from a registry, with the recipe's Dockerfile."""

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
"""How long to wait for a registry, in seconds. Firewalls often drop packets instead of refusing them."""

PROGRESS_SECONDS = 2.0
"""The minimum time between two reports of a download, in seconds. The engine sends many reports per second."""


def offers(engine: Engine, reference: str) -> bool:
    """Return whether the engine can reach a registry that has ``reference``. Nothing is downloaded."""
    client = docker.APIClient(base_url=engine.endpoint.base_url, version=engine.api, timeout=PROBE_SECONDS)
    try:
        client.inspect_distribution(reference)  # type: ignore[no-untyped-call]  # missing in the stubs
    except (docker.errors.APIError, requests.RequestException):
        return False
    finally:
        client.close()
    return True


def build_on_base(
    engine: Engine, recipe: SystemRecipe, labels: Mapping[str, str], report: Callable[[str], None]
) -> str:
    """Pull the base, build the recipe's Dockerfile on it, and return the new image's id. The image has no name yet.

    Raises :class:`ImageError` (``image-build-failed``) and the errors of :meth:`Engine.doing`.
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
        image, error = read_build(events, report, lambda _output: None)
    if error or not image:
        raise ImageError(
            f"the Dockerfile of {recipe.name} failed: {error or 'the engine returned no image'}",
            code="image-build-failed",
            hint=f"see {recipe.dockerfile}",
        )
    return image


def read_build(
    events: Iterable[Mapping[str, Any]], report: Callable[[str], None], on_output: Callable[[str], object]
) -> tuple[str, str]:
    """Read the events of an engine's build. Return the image's id and the error, either of which may be empty.

    ``report`` receives the steps and the progress of downloads, ``on_output`` the output of the build and its errors.
    """
    image, error, reported = "", "", 0.0
    for event in events:  # read to the end, which frees the connection
        error = str(event.get("error") or error).strip()
        image = str((event.get("aux") or {}).get("ID") or image)
        on_output(str(event.get("stream") or event.get("error") or ""))
        if (step := str(event.get("stream") or "").strip()).startswith("Step "):
            report(step.split("\n")[0])
        elif "status" in event and time.monotonic() - reported > PROGRESS_SECONDS:
            reported = time.monotonic()
            report(" ".join(str(event[key]) for key in ("status", "id", "progress") if event.get(key)))
    return image, error


def _context(recipe: SystemRecipe) -> io.BytesIO:
    """Return the build context, which is only the Dockerfile."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        data = recipe.dockerfile.read_bytes()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer
