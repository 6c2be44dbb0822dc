"""Build a recipe's Dockerfile on an engine, with a base from a registry, and check the image in a container."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.images.build import registry_base

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from securebench.engine.client import Engine
    from securebench.images.build.recipe_kinds import Recipe, SystemRecipe

TOKEN_LABEL = "securebench.build"  # noqa: S105 - a name
RECIPE_LABEL = "securebench.recipe"
CHECK_SECONDS = 60
_LINES_SHOWN = 10


def find(engine: Engine, reference: str) -> tuple[str, int] | None:
    """Return the id and the size in bytes of the engine's image with this reference, or ``None``."""
    with engine.doing("list its images"):
        found = engine.client.images(name=reference)
    return (str(found[0]["Id"]), int(found[0]["Size"])) if found else None


def labels(engine: Engine, image_id: str) -> dict[str, str]:
    """Return the labels of an image of the engine."""
    with engine.doing("inspect an image"):
        found = engine.client.inspect_image(image_id)  # type: ignore[no-untyped-call]
    return dict((found.get("Config") or {}).get("Labels") or {})


def build(
    engine: Engine, recipe: SystemRecipe, token: str, extra_labels: Mapping[str, str], report: Callable[[str], None]
) -> None:
    """Build the recipe's image on its base, check it and name it. Label it with ``token`` and ``extra_labels``.

    Raises :class:`ImageError` (``image-build-failed``, ``image-check-failed``) and the errors of :meth:`Engine.doing`.
    """
    image = registry_base.build_on_base(
        engine, recipe, {RECIPE_LABEL: recipe.name, TOKEN_LABEL: token, **extra_labels}, report
    )
    finish(engine, recipe, image, token, report)


def finish(engine: Engine, recipe: Recipe, image: str, token: str, report: Callable[[str], None]) -> None:
    """Check a new image, and name it.

    Raises :class:`ImageError` (``image-check-failed``) and the errors of :meth:`Engine.doing`.
    """
    for command in recipe.checks:
        report(f"checking: {shlex.join(command)}")
        _check(engine, recipe, image, command, token)
    name, _, tag = recipe.reference.rpartition(":")
    with engine.doing(f"name {recipe.reference}"):
        engine.client.tag(image, name, tag, force=True)


def check_failed(recipe: Recipe, command: Sequence[str], status: int, output: str) -> ImageError:
    """Return the error for an image that fails its recipe's checks."""
    return ImageError(
        f"the new image of {recipe.name} does not work: {shlex.join(command)} exited with {status}: {output}",
        code="image-check-failed",
        hint=f"fix the recipe in {recipe.directory}; {recipe.reference} still names the previous image, if any",
    )


def _check(engine: Engine, recipe: Recipe, image: str, command: Sequence[str], token: str) -> None:
    """Run one check under the sandboxes' restrictions: no network, no capabilities, not root, only /tmp writable."""
    client = engine.client
    with engine.doing(f"check {recipe.name}"):
        container = client.create_container(
            image=image,
            command=list(command),
            entrypoint=[],
            user="65534:65534",
            labels={TOKEN_LABEL: token},
            host_config=client.create_host_config(
                network_mode="none",
                cap_drop=["ALL"],
                read_only=True,
                security_opt=["no-new-privileges:true"],
                tmpfs={"/tmp": "mode=1777"},  # noqa: S108 - a path inside the container
                pids_limit=64,
                mem_limit=512 * 1024 * 1024,
            ),
        )["Id"]
        client.start(container)
        status = client.wait(container, timeout=CHECK_SECONDS)["StatusCode"]
        output = client.logs(container, tail=_LINES_SHOWN).decode(errors="replace").strip()
    if status != 0:
        raise check_failed(recipe, command, status, output)


def clear(engine: Engine, token: str) -> None:
    """Remove the containers and unnamed images whose label :data:`TOKEN_LABEL` has the value ``token``."""
    label = f"{TOKEN_LABEL}={token}"
    with engine.doing("remove leftovers of a build"):
        for container in engine.client.containers(all=True, filters={"label": label}):
            engine.client.remove_container(container["Id"], force=True)
        for image in engine.client.images(filters={"label": label, "dangling": True}):
            engine.client.remove_image(image["Id"])
