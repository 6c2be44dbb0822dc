"""``securebench images``: build, list, import and remove the images that tasks run in."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from securebench.cli import complain
from securebench.cli.images_build import base_image_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.engine.client import Engine

_SHORT_ID = 19
"""Number of characters of a shortened image id: ``sha256:`` and twelve digits, as in Docker's output."""

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(name="images")
def command() -> None:
    """Build, list, import and remove the images that tasks run in.

    The image store is /var/lib/securebench/images for root, ~/.local/share/securebench/images for other users, or the
    directory named by SECUREBENCH_IMAGES.
    """


@command.command(short_help="Build images from recipes.")
@click.argument("names", nargs=-1, metavar="[NAME|PATH]...")
@click.option("--rebuild", "--force", "rebuild", is_flag=True, help="Also build images that already exist.")
@click.option("--install-tools", is_flag=True, help="Install 'mmdebstrap' if it is needed and missing.")
@base_image_option
@_JSON
@click.pass_context
def build(
    ctx: click.Context,
    names: tuple[str, ...],
    *,
    rebuild: bool,
    install_tools: bool,
    base_images: dict[str, str],
    as_json: bool,
) -> None:
    """Build images from the recipes NAME or PATH, or from all recipes of SecureBench.

    PATH is a directory with a recipe.yaml, or a directory of such directories. An existing image is kept unless its
    recipe or its base has changed. An image gets its name only after it has passed all checks that this machine can
    run. If a build fails, only the recipes based on its image are skipped, and the exit code is 1.
    """
    from securebench.cli.images_build import NotBuilt, build_all, summary_line, with_bases
    from securebench.images.build.recipes import all_recipes, find_recipes, in_building_order

    found = [recipe for name in names for recipe in find_recipes(name)] if names else all_recipes()
    with _engine() as engine:
        recipes = in_building_order(with_bases(recipe, base_images) for recipe in found)
        done = []
        for image in build_all(engine, recipes, _stages, rebuild=rebuild, install_tools=install_tools):
            done.append(image)
            if isinstance(image, NotBuilt):
                complain(f"{image.recipe.name}: {image.error}")
            if not as_json:
                click.echo(image.as_line())
    if as_json:
        click.echo(json.dumps([image.as_dict() for image in done], indent=2))
    elif len(done) > 1:
        click.echo(summary_line(done))
    if any(isinstance(image, NotBuilt) for image in done):
        ctx.exit(1)


@command.command(name="list", short_help="List images and recipes.")
@_JSON
def list_(*, as_json: bool) -> None:
    """List the images of the store, and SecureBench's recipes whose images are only on Docker Engine or not built."""
    from securebench.cli.views.images import images_and_recipes, print_images
    from securebench.images.store.image_store import ImageStore

    with _engine() as engine:
        rows = images_and_recipes(ImageStore(), engine)
    if as_json:
        click.echo(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        print_images(rows)


@command.command(short_help="Download an image.")
@click.argument("reference")
def pull(reference: str) -> None:
    """Download the image REFERENCE from its registry, and replace an existing copy. Docker is not needed."""
    from securebench.images.ensure import pull as pull_image
    from securebench.images.store.image_store import ImageStore

    with _stages(reference) as report:
        image = pull_image(ImageStore(), reference, report)
    click.echo(f"{reference}: pulled ({image.id[:_SHORT_ID]})")


@command.command(name="import", short_help="Import images from a file or directory.")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", default="", metavar="REF", help="Name the image REF. Needed for an image without a name.")
def import_(path: Path, name: str) -> None:
    """Import the images of PATH.

    PATH is a 'docker save' archive, an OCI image layout (a directory or a tar archive), or a root file system in a tar
    archive. Each archive may be compressed with gzip, xz, bzip2 or zstd.
    """
    from securebench.images.store.archive import import_path
    from securebench.images.store.image_store import ImageStore

    store = ImageStore()
    with _stages(path.name) as report:
        references = import_path(store, path, name, report)
    for reference in references:
        image = store.find(reference)
        click.echo(f"{reference}: imported ({image.id[:_SHORT_ID] if image else 'but no longer in the store'})")


@command.command(short_help="Remove images.")
@click.argument("references", nargs=-1, required=True, metavar="REFERENCE...")
@click.pass_context
def remove(ctx: click.Context, references: tuple[str, ...]) -> None:
    """Remove images from the store, by reference or id. An image is deleted when its last name is removed.

    If some images cannot be removed, for example because a run uses them, the command removes the other images. It
    prints an error for each image that it could not remove, and exits with code 1.
    """
    from securebench.errors import ImageError
    from securebench.images.store.image_store import ImageStore

    store = ImageStore()
    kept: list[ImageError] = []
    for reference in references:
        try:
            removed = store.remove(reference)
        except ImageError as error:
            kept.append(error)
        else:
            for entry in removed:
                click.echo(f"{entry.reference or entry.id}: removed")
    for problem in kept:
        complain(str(problem))
    if kept:
        ctx.exit(1)


@command.command(short_help="Remove unused data.")
@click.option(
    "--budget",
    metavar="SIZE",
    help="Also remove the least recently used images until the store uses at most SIZE, such as 20G.",
)
@_JSON
def prune(budget: str | None, *, as_json: bool) -> None:
    """Remove unused data from the store: images without a name, and leftovers of killed runs.

    With --budget, other images are removed, too. Images in use are kept.
    """
    from securebench.cli.views.images import human_size, parse_size
    from securebench.images.store.image_store import ImageStore

    pruned = ImageStore().prune(None if budget is None else parse_size(budget))
    if as_json:
        removed = [{"reference": entry.reference or None, "id": entry.id} for entry in pruned.removed]
        sizes = {"bytes_before": pruned.bytes_before, "bytes_after": pruned.bytes_after}
        click.echo(json.dumps({"removed": removed} | sizes, indent=2))
        return
    for entry in pruned.removed:
        click.echo(f"{entry.reference or entry.id}: removed")
    freed = pruned.bytes_before - pruned.bytes_after
    click.echo(f"freed {human_size(freed)}; the store now uses {human_size(pruned.bytes_after)}")


@contextmanager
def _engine() -> Iterator[Engine | None]:
    """Yield this machine's Docker Engine, or ``None`` if it is not available.

    Only builds of Dockerfile recipes need it.
    """
    from securebench.engine.client import connect
    from securebench.errors import EngineError

    try:
        engine = connect()
    except EngineError:
        yield None
        return
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _stages(name: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step: one changing line on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: click.echo(f"{name}: {text}", err=True)
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(name)) as status:
        yield lambda text: status.update(f"{escape(name)}: {escape(text.splitlines()[0][:200])}")
