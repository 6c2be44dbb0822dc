"""``securebench agents``: install, list, show, check and remove agent programs."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from securebench.cli.run_command import known_extension
from securebench.cli.views.images import human_size
from securebench.printable import printable, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.agents.model import AgentProgram, Installed
    from securebench.agents.progress import OnProgress, Progress
    from securebench.testing.agent_check import FamilyCheck

_LINE_SECONDS: Final = 2.0

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_PLATFORM = click.option(
    "--platform", metavar="PLATFORM", help="linux-x64 or linux-arm64, optionally followed by -musl."
)


_DATE: Final = 10
"""Number of characters of the date at the beginning of a timestamp."""

HEADINGS: Final = ("name", "version", "platform", "size", "installed", "source", "state")


@click.group(name="agents")
def command() -> None:
    """Install, list, show, check and remove agent programs such as codex and claude_code.

    A run installs the programs that it needs, and mounts them into sandboxes. The programs are kept in the image store:
    /var/lib/securebench/images for root, ~/.local/share/securebench/images for other users, or the directory named by
    SECUREBENCH_IMAGES.
    """
    from securebench import plugins

    for path, why in plugins.ignored_agents().items():
        click.echo(f"warning: {printable_line(str(path))} is ignored: {why}", err=True)


@command.command(short_help="Install agent programs.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--version", metavar="VERSION", help="An exact version, or 'latest'. Default: the pinned version.")
@_PLATFORM
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Install from this archive, such as one that 'npm pack' writes.",
)
@_JSON
def install(
    names: tuple[str, ...], *, version: str | None, platform: str | None, file: Path | None, as_json: bool
) -> None:
    """Install the programs NAME, or all known programs, unless they are already installed.

    Downloads from npm are checked against a sha512 hash. The hash of the pinned version is in the agent's declaration.
    The hashes of other versions come from the registry.
    """
    from securebench.agents.catalogue import PROGRAMS
    from securebench.agents.store import AgentStore

    if file is not None and (len(names) > 1 or version or platform):
        raise click.UsageError("--from allows at most one NAME, and neither --version nor --platform")
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


@command.command(name="list", short_help="List installed agent programs.")
@click.option("--verify", is_flag=True, help="Read every file and compare it with what was installed.")
@_JSON
def list_(*, verify: bool, as_json: bool) -> None:
    """List the programs that are installed."""
    from securebench.agents.store import AgentStore

    found = AgentStore().installed(verify=verify)
    if as_json:
        click.echo(json.dumps([as_dict(entry) for entry in found], indent=2))
    else:
        print_programs(found)


@command.command(short_help="Show how an agent is declared.")
@click.argument("name")
@_JSON
def show(name: str, *, as_json: bool) -> None:
    """Show how the agent NAME is declared: where its program comes from, and how it runs.

    If no agent has this name, the error lists all declared agents.
    """
    from securebench.agents.catalogue import find

    known = find(name)
    declared = known.declared.model_dump(mode="json", exclude_defaults=True)
    if as_json:
        about = {"name": name, "file": str(known.path), "sha256": known.digest, "built_in": known.is_own}
        click.echo(json.dumps({**about, **declared}, indent=2))
        return
    click.echo(f"# {known.path}")
    click.echo(known.path.read_text(encoding="utf-8"), nl=False)


@command.command(short_help="Test an agent with a scripted model.")
@click.argument("name")
@click.option("--family", multiple=True, metavar="FAMILY", help="Test only this family; may be repeated.")
@click.option("--driver", metavar="NAME", callback=known_extension, help="The sandbox driver.  [default: auto]")
@_JSON
def check(name: str, *, family: tuple[str, ...], driver: str | None, as_json: bool) -> None:
    """Let the agent NAME solve a small task of each family, offline and without a key, with a scripted model.

    This shows that the program starts, reaches its model only through the relay, runs commands, and leaves its answer
    where the verifier expects it. No real model is tested. Exit code 0 if the agent solved all tasks, 1 otherwise.

    If the agent failed, the last lines of its output are printed on standard error, with a command that shows the
    full output. With --json, both are part of the JSON.
    """
    from securebench.testing.agent_check import TASKS, check_agent

    for unknown in set(family) - TASKS.keys():
        raise click.BadParameter(f"{unknown!r} is not one of {', '.join(TASKS)}.", param_hint="--family")
    results = check_agent(name, family, driver=driver, notify=lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps([asdict(result) for result in results], indent=2))
    else:
        for result in results:
            state = "passed" if result.passed else "failed"
            parts = (state, result.family, result.outcome, printable(result.message))
            click.echo("\t".join(parts).rstrip())
            _explain(result)
    if not all(result.passed for result in results):
        sys.exit(1)


def _explain(result: FamilyCheck) -> None:
    """Print on stderr the end of the output of an agent that failed, and how to see all of it."""
    for line in result.output.splitlines():
        click.echo(f"    {printable_line(line)}", err=True)
    if result.details:
        click.echo(f"    for the full output, run: {result.details}", err=True)


@command.command(short_help="Remove an agent program.")
@click.argument("name")
@click.option("--version", metavar="VERSION", help="Remove only this version.")
@_PLATFORM
def remove(name: str, *, version: str | None, platform: str | None) -> None:
    """Remove the program NAME.

    Without options, all its versions for all platforms are removed. A version that a run uses is kept: the command
    removes the others, names the versions in use, and exits with code 1.
    """
    from securebench.agents.store import AgentStore, in_use_error

    done = AgentStore().remove(name, version, platform)
    for key in done.removed:
        click.echo(f"{key}: removed")
    if done.in_use:
        raise in_use_error(done.in_use)


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
    """Yield a function that shows the progress of an installation: a bar on a terminal, lines elsewhere."""
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
                    bar.remove_task(task.id)  # the next stage may have another size, or no size
            number = next(iter(bar.task_ids), None)
            if number is None:
                number = bar.add_task(what, total=None)
            bar.update(number, completed=progress.done, total=progress.size or None)

        yield show


def as_dict(entry: Installed) -> dict[str, object]:
    """Return an entry as JSON."""
    return {
        **_as_dict(entry.program),
        "size_bytes": entry.size_bytes,
        "installed_at": _time(entry),
        "source": entry.source,
        "pinned": entry.pinned,
        "intact": entry.intact,
    }


def as_fields(entry: Installed) -> tuple[str, ...]:
    """Return an entry as the columns of the table."""
    state = "pinned" if entry.pinned else "-"
    program = entry.program
    return (
        *(program.name, program.version, program.platform, human_size(entry.size_bytes)),
        *(_time(entry)[:_DATE], entry.source, state if entry.intact else "damaged: install it again"),
    )


def print_programs(entries: Sequence[Installed]) -> None:
    """Print a table on a terminal, tab-separated lines elsewhere."""
    if not sys.stdout.isatty():
        for entry in entries:
            click.echo("\t".join(as_fields(entry)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADINGS)
    for entry in entries:
        table.add_row(*as_fields(entry))
    Console().print(table)


def _time(entry: Installed) -> str:
    return datetime.fromtimestamp(entry.installed_at, UTC).isoformat(timespec="seconds")
