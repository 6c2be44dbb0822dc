"""``securebench validate``: check a pack and report errors with locations."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from securebench.errors import ConfigError
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.errors import Problem
    from securebench.tasks import SecureBenchTask


@click.command("validate")
@click.argument("pack", type=click.Path(path_type=Path))
@click.option(
    "--tasks", type=click.Path(path_type=Path), help="The tasks file, if it is not tasks.jsonl next to the manifest."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(pack: Path, tasks: Path | None, *, as_json: bool) -> None:
    """Check PACK and report errors with locations.

    PACK is a manifest file, a tester YAML, or a directory with manifest.yaml and tasks.jsonl. The exit code is 0 if the
    pack is valid, 1 if not.
    """
    try:
        tasks_of_pack, warnings = _load(pack, tasks)
    except ConfigError as error:
        _report_problems(error.problems, as_json=as_json)
        sys.exit(1)
    if as_json:
        report = {
            "valid": True,
            "problems": [],
            "warnings": [_problem(warning) for warning in warnings],
            "families": _summary(tasks_of_pack),
        }
        click.echo(json.dumps(report, indent=2))
    else:
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        _print_table(tasks_of_pack)


def _load(pack: Path, tasks: Path | None) -> tuple[tuple[SecureBenchTask, ...], list[Problem]]:
    """Return the tasks of PACK, and warnings about them. Raises :class:`ConfigError`."""
    from securebench.benchmark_compiler import compile_benchmark_pack, pack_warnings
    from securebench.cli.pack_argument import load_pack

    loaded = load_pack(pack, tasks)
    return compile_benchmark_pack(loaded), pack_warnings(loaded)


def _summary(tasks: Sequence[SecureBenchTask]) -> list[dict[str, Any]]:
    """Return for each family in the pack the number of rows, the kind of candidate, and the fields by lane."""
    rows = Counter(task.task_type for task in tasks)
    return [
        {
            "family": family,
            "rows": count,
            "candidate": next(task.candidate_kind.value for task in tasks if task.task_type == family),
            "lanes": _lanes([task for task in tasks if task.task_type == family]),
        }
        for family, count in rows.items()
    ]


def _lanes(tasks: Sequence[SecureBenchTask]) -> dict[str, list[str]]:
    lanes: dict[str, dict[str, None]] = {}
    for task in tasks:
        for resource in task.resources:
            lanes.setdefault(resource.visibility.value, {})[resource.name] = None
    return {lane: list(names) for lane, names in lanes.items()}


def _report_problems(problems: Sequence[Problem], *, as_json: bool) -> None:
    """Print problems: as JSON to stdout, or as text to stderr."""
    if as_json:
        found = [_problem(problem) for problem in problems]
        report = {"valid": False, "problems": found, "warnings": [], "families": []}
        click.echo(json.dumps(report, indent=2))
        return
    for problem in problems:
        click.echo(str(problem), err=True)
    click.echo(f"\n{counted(len(problems), 'problem')} found", err=True)


def _problem(problem: Problem) -> dict[str, Any]:
    place = problem.location
    return {
        "code": problem.code,
        "message": problem.message,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "pointer": place.pointer if place else None,
        "hint": problem.hint or None,
    }


def _print_table(tasks: Sequence[SecureBenchTask]) -> None:
    """Print the families of a valid pack: a table on a terminal, tab-separated lines elsewhere."""
    rows = [
        (part["family"], str(part["rows"]), part["candidate"], "; ".join(map(_lane_text, part["lanes"].items())))
        for part in _summary(tasks)
    ]
    header = ("family", "rows", "candidate", "fields by lane")
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*header)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
    else:
        for row in (header, *rows):
            click.echo("\t".join(row))
    click.echo(f"valid: {tasks[0].benchmark_id}, {counted(len(tasks), 'task')}")


def _lane_text(lane: tuple[str, list[str]]) -> str:
    return f"{lane[0]}: {', '.join(lane[1])}"
