"""Show a suite: the leaderboard, and the results of all runs as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Group
from rich.text import Text

from securebench.cli.views.live import clock
from securebench.cli.views.tables import fits, results_table
from securebench.printable import printable_line
from securebench.results.comparison import tally
from securebench.results.records.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType

    from securebench.results.read import RecordedRun
    from securebench.results.statistics import Estimate
    from securebench.tester_run.suite import SuiteOutcome

_TITLE: Final = "Leaderboard: pass rates in %, with 95 % intervals"
_TOTALS: Final = ("mean", "errors", "time", "cost")


@dataclass(slots=True)
class Standing:
    """The results of one agent: its pass rate on each pack, and the errors, time and usage of all runs of the agent."""

    agent: str
    rates: dict[str, Estimate] = field(default_factory=dict)
    errors: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    notes: list[str] = field(default_factory=list)
    """What a reader must know about the rates, such as trials that have not run."""

    @property
    def mean(self) -> float | None:
        """The mean of the pass rates: each pack has the same weight."""
        return sum(rate.value for rate in self.rates.values()) / len(self.rates) if self.rates else None


def standings(runs: Iterable[RecordedRun]) -> list[Standing]:
    """Return the results of all agents from the records on disk, the best agent first.

    Agents with pass rates on more packs come first. Of two agents with the same number of packs, the agent with the
    higher mean pass rate comes first.

    Agents and packs have the names that are in the headers of their runs. If an agent has a second run on a pack, both
    runs are kept: the pack's name for the second run includes the run's directory.
    """
    found: dict[str, Standing] = {}
    seen: set[tuple[str, str]] = set()
    for run in runs:
        standing = found.setdefault(run.label, Standing(run.label))
        read, pack = tally(run), run.benchmark_id
        if (run.label, pack) in seen:
            pack = f"{pack} ({run.directory})"
        seen.add((run.label, pack))
        if read.estimate:
            standing.rates[pack] = read.estimate
        standing.errors += read.errors
        standing.seconds += read.seconds
        standing.usage += read.usage
        standing.notes += [f"{run.label} on {pack}: {note}" for note in read.caveats()]
    return sorted(found.values(), key=lambda standing: (-len(standing.rates), -(standing.mean or 0.0)))


def print_leaderboard(console: Console, found: Sequence[Standing]) -> None:
    """Print a table on a terminal, plain lines elsewhere."""
    if console.is_terminal:
        console.print(leaderboard_table(console, found))
    else:
        click.echo("\n".join(leaderboard_lines(found)))


def leaderboard_table(console: Console, found: Sequence[Standing]) -> RenderableType:
    """Return the leaderboard for a terminal: one table; if it is too wide, a table of totals and one for each pack."""
    packs = _packs(found)
    rows = [(standing.agent, *_cells(standing, packs)) for standing in found]
    whole = results_table(console, ("agent", *packs, *_TOTALS), rows)
    parts: list[RenderableType] = [Text(_TITLE, style="bold"), whole]
    if not fits(console, whole):
        totals = [(row[0], *row[1 + len(packs) :]) for row in rows]
        parts[1] = results_table(console, ("agent", *_TOTALS), totals)
        for number, pack in enumerate(packs, start=1):
            rates = [(row[0], row[number]) for row in rows]
            table = results_table(console, ("agent", "pass rate"), rates)
            parts += [Text(printable_line(pack), style="bold"), table]
    return Group(*parts, *(Text(line) for line in _note_lines(found)))


def leaderboard_lines(found: Sequence[Standing]) -> list[str]:
    """Return the leaderboard for a file or a pipe: one line for each agent."""
    packs = _packs(found)
    lines = [_TITLE]
    for standing in found:
        named = zip((*packs, *_TOTALS), _cells(standing, packs), strict=True)
        cells = ", ".join(f"{printable_line(name)} {cell}" for name, cell in named if cell)
        lines.append(f"  {printable_line(standing.agent)}: {cells}")
    return [*lines, *_note_lines(found)]


def standings_json(found: Sequence[Standing]) -> list[dict[str, Any]]:
    """Return the leaderboard as JSON."""
    return [
        {
            "agent": standing.agent,
            "packs": {
                pack: {
                    "pass_rate": rate.value,
                    "interval": [rate.interval.low, rate.interval.high],
                    "tasks": rate.tasks,
                }
                for pack, rate in standing.rates.items()
            },
            "mean": standing.mean,
            "errors": standing.errors,
            "seconds": round(standing.seconds, 3),
            "usage": standing.usage.to_json(),
            "notes": standing.notes,
        }
        for standing in found
    ]


def as_json(outcomes: Sequence[SuiteOutcome]) -> list[dict[str, Any]]:
    """Return what ``--json`` prints: one object for each run, with its summary or its problem."""
    return [
        {
            "pack": outcome.run.pack,
            "agent": outcome.run.agent,
            "output_dir": str(outcome.directory),
            **({"summary": outcome.summary.to_json()} if outcome.summary else {"problem": outcome.problem}),
        }
        for outcome in outcomes
    ]


def _note_lines(found: Sequence[Standing]) -> list[str]:
    return [f"Note: {printable_line(note)}" for standing in found for note in standing.notes]


def _packs(found: Sequence[Standing]) -> list[str]:
    return list(dict.fromkeys(pack for standing in found for pack in standing.rates))


def _cells(standing: Standing, packs: Sequence[str]) -> list[str]:
    mean, cost = standing.mean, standing.usage.cost_usd
    return [
        *(_rate(standing.rates.get(pack)) for pack in packs),
        "none" if mean is None else f"{100 * mean:.1f}",
        str(standing.errors),
        clock(standing.seconds),
        "" if cost is None else f"${cost:,.2f}",
    ]


def _rate(rate: Estimate | None) -> str:
    if rate is None:
        return "none"
    return f"{100 * rate.value:.1f} [{100 * rate.interval.low:.1f}, {100 * rate.interval.high:.1f}]"
