"""``securebench agents``: install, list and remove the agent programs that runs mount into sandboxes."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.agents.model import AgentProgram
    from securebench.agents.progress import OnProgress, Progress

_LINE_SECONDS: Final = 2.0

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_PLATFORM = click.option("--platform", metavar="PLATFORM", help="linux-x64, linux-arm64, or one of them with -musl.")


@click.group(name="agents")
def command() -> None:
    """Install, list and remove the agent programs that runs mount into sandboxes: codex and claude_code.

    They lie in a cache: /var/lib/securebench/agents for root, ~/.local/share/securebench/agents for others, or the
    directory that SECUREBENCH_AGENTS names. A run installs what it needs; from the cache nothing is downloaded.
    """


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--version", metavar="VERSION", help="An exact one, or 'latest'; by default the one that is pinned.")
@_PLATFORM
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The archive of an npm package, as 'npm pack' writes it, in place of a registry.",
)
@_JSON
def install(
    names: tuple[str, ...], *, version: str | None, platform: str | None, file: Path | None, as_json: bool
) -> None:
    """Install the programs NAME, or all, unless they are there.

    Each archive is held to its sha512: for a pinned version the one that this release of SecureBench was tested with,
    else the registry's.
    """
    from securebench.agents.catalogue import PROGRAMS
    from securebench.agents.store import AgentStore

    if file is not None and (len(names) > 1 or version or platform):
        raise click.UsageError("--from takes at most one NAME, no --version and no --platform: the archive says both")
    with AgentStore() as store, _shown() as on_progress:
        if file is not None:
            installed = [store.install_file(file, next(iter(names), ""), on_progress)]
        else:
            installed = [store.install(name, version, platform, on_progress) for name in names or PROGRAMS]
    if as_json:
        click.echo(json.dumps([_as_dict(program) for program in installed], indent=2))
        return
    for program in installed:
        click.echo(f"{program.name}: {program.version} for {program.platform} is in {program.directory}")


@command.command(name="list")
@click.option("--verify", is_flag=True, help="Read every file, and say whether it is what was installed.")
@_JSON
def list_(*, verify: bool, as_json: bool) -> None:
    """List the programs that are installed."""
    from securebench.agents.store import AgentStore
    from securebench.cli.agents_view import as_dict, print_programs

    found = AgentStore().installed(verify=verify)
    if as_json:
        click.echo(json.dumps([as_dict(entry) for entry in found], indent=2))
    else:
        print_programs(found)


@command.command()
@click.argument("name")
@click.option("--version", metavar="VERSION", help="Only this version.")
@_PLATFORM
def remove(name: str, *, version: str | None, platform: str | None) -> None:
    """Remove the program NAME: all versions for all platforms, unless one is named. What a run uses, stays."""
    from securebench.agents.store import AgentStore

    for key in AgentStore().remove(name, version, platform):
        click.echo(f"{key}: removed")


def _as_dict(program: AgentProgram) -> dict[str, str]:
    return {
        "name": program.name,
        "version": program.version,
        "platform": program.platform,
        "integrity": program.integrity,
        "directory": str(program.directory),
        "executable": program.executable,
    }


@contextmanager
def _shown() -> Iterator[OnProgress]:
    """Give what shows how far an installation is: a bar on a terminal, lines elsewhere."""
    from securebench.agents.progress import lines

    if not sys.stderr.isatty():
        yield lines(lambda text: click.echo(text, err=True), _LINE_SECONDS)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:

        def show(progress: Progress) -> None:
            what = escape(f"{progress.what}: {progress.stage}")
            for task in bar.tasks:
                if task.description != what:
                    bar.remove_task(task.id)  # the next stage has another size, or none
            number = next(iter(bar.task_ids), None)
            if number is None:
                number = bar.add_task(what, total=None)
            bar.update(number, completed=progress.done, total=progress.size or None)

        yield show
