"""Building an image from its recipe: all of it, checked, or nothing.

What is built has no name until it has passed the recipe's checks inside a hardened container; only then does the
reference point to it, in one step. Whatever fails or is killed before is cleared: at once, or by the next build.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.errors import ImageError
from securebench.images import debian, registry
from securebench.images.bootstrap import find_bootstrap
from securebench.images.workshop import open_workshop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from securebench.images.bootstrap import Bootstrap
    from securebench.images.engine import Engine
    from securebench.images.recipes import Recipe
    from securebench.images.workshop import Workshop

TOKEN_LABEL = "securebench.build"  # noqa: S105 - a name
RECIPE_LABEL = "securebench.recipe"
CHECK_SECONDS = 60
_LINES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ImageState:
    """A recipe and what the engine has of it: ``id`` is empty when it is not built."""

    recipe: Recipe
    id: str = ""
    size_bytes: int = 0


def image_state(engine: Engine, recipe: Recipe) -> ImageState:
    """Return what the engine has under the recipe's reference."""
    with engine.doing("list its images"):
        found = engine.client.images(name=recipe.reference)
    return ImageState(recipe, found[0]["Id"], int(found[0]["Size"])) if found else ImageState(recipe)


def build_image(
    engine: Engine, recipe: Recipe, report: Callable[[str], None], *, install_tools: bool = False
) -> ImageState:
    """Build the recipe's image, check it and give it its name, in place of what had that name before.

    ``report`` is told the stages. ``install_tools`` lets it install ``mmdebstrap`` where that is needed and missing.
    Raises :class:`ImageError` (``image-build-failed``, ``image-check-failed``, ``image-tool-missing``,
    ``build-directory-unsafe``), and what :meth:`Engine.doing` raises.
    """
    with open_workshop(lambda token: _clear(engine, token)) as workshop:
        report(f"asking the registry for {recipe.base}")
        if registry.offers(engine, recipe.base):
            image = registry.build_on_base(engine, recipe, _labels(recipe, workshop), report)
        else:
            bootstrap = find_bootstrap(report, install_tools=install_tools)
            image = _build_from_packages(engine, recipe, workshop, bootstrap, report)
        for command in recipe.checks:
            report(f"checking: {shlex.join(command)}")
            _check(engine, recipe, image, command, workshop.token)
        name, _, tag = recipe.reference.rpartition(":")
        with engine.doing(f"name {recipe.reference}"):
            engine.client.tag(image, name, tag, force=True)
    return image_state(engine, recipe)


def _build_from_packages(
    engine: Engine, recipe: Recipe, workshop: Workshop, bootstrap: Bootstrap, report: Callable[[str], None]
) -> str:
    log = workshop.directory.parent / f"{recipe.name}.log"
    report(f"no registry has it: building from Debian's packages (output: {log})")
    with debian.root_file_system(bootstrap, recipe, workshop.directory, log, report) as pieces:
        return _import(engine, recipe, _labels(recipe, workshop), pieces)


def _labels(recipe: Recipe, workshop: Workshop) -> dict[str, str]:
    return {RECIPE_LABEL: recipe.name, TOKEN_LABEL: workshop.token}


def _import(engine: Engine, recipe: Recipe, labels: Mapping[str, str], pieces: Iterator[bytes]) -> str:
    """Hand a tar archive to the engine and return the id of the image that it became, without a name."""
    changes = [
        *(f"ENV {name}={json.dumps(value)}" for name, value in recipe.environment.items()),
        *(f"LABEL {name}={json.dumps(value)}" for name, value in labels.items()),
        f"CMD {json.dumps(recipe.command)}",
    ]
    with engine.doing(f"import {recipe.name}"):
        answer = engine.client.import_image_from_data(pieces, changes=changes)
    last = json.loads(str(answer).strip().splitlines()[-1])
    if "error" in last:
        raise ImageError(f"the engine could not import {recipe.name}: {last['error']}", code="image-build-failed")
    return str(last["status"])


def _check(engine: Engine, recipe: Recipe, image: str, command: Sequence[str], token: str) -> None:
    """Run one check as the sandboxes run: no network, no capability, no root, nothing to write but /tmp."""
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
        raise ImageError(
            f"the new image of {recipe.name} does not work: {shlex.join(command)} ended with {status}: {output}",
            code="image-check-failed",
            hint=f"mend the recipe in {recipe.directory}; what had the name {recipe.reference} still has it",
        )


def _clear(engine: Engine, token: str) -> None:
    """Remove what carries ``token`` and has no name: containers of checks, and an image that did not get that far."""
    label = f"{TOKEN_LABEL}={token}"
    with engine.doing("clear what a build left"):
        for container in engine.client.containers(all=True, filters={"label": label}):
            engine.client.remove_container(container["Id"], force=True)
        for image in engine.client.images(filters={"label": label, "dangling": True}):
            engine.client.remove_image(image["Id"])
