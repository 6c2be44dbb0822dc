"""``securebench images``: build the project's sandbox images, and list them."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.images.build import ImageState
    from securebench.images.engine import Engine

_SHORT_ID = 19
"""``sha256:`` and twelve digits: as much as the engine's own listing shows."""


@click.group(name="images")
def command() -> None:
    """Build and list the images that tasks run in."""


@command.command()
@click.argument("name", required=False)
@click.option("--force", is_flag=True, help="Build again what is there already.")
@click.option(
    "--install-tools", is_flag=True, help="Where Debian's packages are needed, install 'mmdebstrap' if it is missing."
)
def build(name: str | None, *, force: bool, install_tools: bool) -> None:
    """Build the image of the recipe NAME, or of every recipe.

    From an official image where a registry answers, from Debian's packages where none does. An image gets its
    name only after it has been checked; a build that fails or is killed leaves nothing.
    """
    from securebench.images.build import build_image, image_state
    from securebench.images.recipes import all_recipes, find_recipe

    recipes = (find_recipe(name),) if name else all_recipes()
    with _engine() as engine:
        for recipe in recipes:
            state = image_state(engine, recipe)
            if state.id and not force:
                click.echo(f"{recipe.name}: {recipe.reference} is there ({state.id[:_SHORT_ID]})")
                continue
            started = time.monotonic()
            with _stages(recipe.name) as report:
                state = build_image(engine, recipe, report, install_tools=install_tools)
            seconds = time.monotonic() - started
            click.echo(f"{recipe.name}: built {recipe.reference} ({state.id[:_SHORT_ID]}) in {seconds:.0f} s")


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(*, as_json: bool) -> None:
    """List the recipes, and whether the engine has their images."""
    from securebench.images.build import image_state
    from securebench.images.recipes import all_recipes

    with _engine() as engine:
        states = [image_state(engine, recipe) for recipe in all_recipes()]
    if as_json:
        click.echo(json.dumps([_as_dict(state) for state in states], indent=2))
    elif sys.stdout.isatty():
        _print_table(states)
    else:
        for state in states:
            click.echo("\t".join(_as_row(state)))


@contextmanager
def _engine() -> Iterator[Engine]:
    from securebench.images.engine import connect

    engine = connect()
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _stages(name: str) -> Iterator[Callable[[str], None]]:
    """Give a function that shows what a build does: one moving line on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: click.echo(f"{name}: {text}", err=True)
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(name) as status:
        yield lambda text: status.update(f"{name}: {escape(text.splitlines()[0][:200])}")


def _as_dict(state: ImageState) -> dict[str, object]:
    return {
        "name": state.recipe.name,
        "reference": state.recipe.reference,
        "summary": state.recipe.summary,
        "built": bool(state.id),
        "id": state.id or None,
        "size_bytes": state.size_bytes if state.id else None,
    }


def _as_row(state: ImageState) -> tuple[str, ...]:
    size = f"{state.size_bytes / 1e6:.0f} MB" if state.id else "-"
    return state.recipe.name, state.recipe.reference, "yes" if state.id else "no", state.id[:_SHORT_ID] or "-", size


def _print_table(states: list[ImageState]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "reference", "built", "id", "size")
    for state in states:
        table.add_row(*_as_row(state))
    Console().print(table)
