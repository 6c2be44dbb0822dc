"""One run as a page shows it: what was run, totals, plots and tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securebench.errors import INFRASTRUCTURE_REASONS
from securebench.report import plots
from securebench.report.task_rows import MAX_DETAIL, MAX_ROWS, TaskRows
from securebench.report.totals import OutcomeGroup, RunTotals
from securebench.results.records.record import ASSURANCE_MEANING
from securebench.results.summary import RunEnd
from securebench.sandboxes.enforcement import ENFORCEABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.summary import TesterRunSummary


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot and its caption."""

    caption: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class SandboxControls:
    """What a sandbox driver restricted in some trials of a run.

    ``trials`` is the number of these trials. ``enforced`` has the restrictions that the driver enforced, and ``weaker``
    has the restrictions that it did not enforce, both in words.
    """

    driver: str
    trials: int
    enforced: tuple[str, ...]
    weaker: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """One run of a report. ``number`` counts from 1 and is part of anchors and addresses."""

    number: int
    run: RecordedRun
    totals: RunTotals
    rows: TaskRows
    summary: TesterRunSummary

    @property
    def label(self) -> str:
        """The agent, and its model where the run has one."""
        models = ", ".join(self.run.models)
        return f"{self.run.label} ({models})" if models else self.run.label

    @property
    def is_active(self) -> bool:
        """Whether the run is in progress."""
        return self.summary.ending is RunEnd.RUNNING

    @property
    def not_run(self) -> int:
        """Planned trials without a record."""
        return max(0, self.run.planned - self.totals.total.trials)

    @property
    def state(self) -> str:
        """The progress of the run, in words."""
        if self.is_active:
            return f"in progress: {self.totals.total.trials:,} of {self.run.planned:,} done"
        return f"incomplete: {self.not_run:,} of {self.run.planned:,} not run" if self.not_run else "complete"

    @property
    def selection(self) -> str:
        """Which part of the benchmark was run, in words."""
        part = self.run.selection
        return part.describe() if part else "the whole benchmark"

    def facts(self) -> list[tuple[str, str]]:
        """Return what was run, as names and values. Values that the run does not have are left out."""
        decisive, information = self.run.header.decisive, self.run.header.information
        agent, sandbox = _section(decisive, "agent"), _section(decisive, "sandbox")
        harness = _section(decisive, "harness")
        answered = [f"{name} ({number:,})" for name, number in self.totals.models.most_common(8)]
        facts = {
            "Agent": self.run.label,
            "Harness": harness.get("type"),
            "Program": _words(agent, "program", "version"),
            "Model": ", ".join(self.run.models),
            "Models that answered": ", ".join(answered),
            "Provider": _words(agent, "provider", "endpoint"),
            "Judge model": self.summary.judge,
            "Cost": "" if self.summary.cost_usd is None else f"${self.summary.cost_usd:,.2f}",
            "Pack": f"{self.run.benchmark_id}, version {_section(decisive, 'benchmark').get('version', 'unknown')}",
            "Pack digest (public part)": _section(decisive, "pack").get("public_digest"),
            "Selection": self.selection,
            "Sandbox driver": _words(sandbox, "driver", "runtime"),
            "Kernel": _section(information, "engine").get("kernel"),
            "Started": self.run.header.created_at.replace("T", " ").replace("Z", " UTC"),
            "Last trial started": f"{self.totals.last:%Y-%m-%d %H:%M:%S} UTC" if self.totals.last else "",
            "State": self.state,
            "SecureBench": _section(decisive, "framework").get("version"),
            "Run": self.run.run_id,
            "Directory": str(self.run.directory),
        }
        return [(name, str(value)) for name, value in facts.items() if value]

    def groups(self) -> list[OutcomeGroup]:
        """Return the outcomes by family. If there are several families, the total of all comes first."""
        families = self.totals.family_groups()
        return [self.totals.total, *families] if len(families) > 1 else list(families)

    def figures(self) -> list[Figure]:
        """Return the plots that have something to show."""
        totals = self.totals
        tags = totals.tag_groups() if len(totals.tags) > 1 else []
        drawn = {
            **_by_group("family", self.groups(), len(totals.families)),
            **_by_group("tag", tags, len(totals.tags)),
            "Duration of trials": plots.histogram(totals.durations, "seconds (log scale)", "~g"),
            "Tokens of trials": plots.histogram(totals.tokens, "tokens in and out (log scale)", "~s"),
            "Verdicts and passes over time": plots.cumulative(totals.progress()),
        }
        return [Figure(caption, svg) for caption, svg in drawn.items() if svg is not None]

    def assurances(self) -> list[tuple[str, str, int, int]]:
        """Return what verdicts rest on: name, meaning, passes, and failures."""
        counts = self.totals.assurances
        return [
            (name.value, meaning, counts[name, True], counts[name, False])
            for name, meaning in ASSURANCE_MEANING.items()
            if counts[name, True] or counts[name, False]
        ]

    def reasons(self) -> list[tuple[str, str, int]]:
        """Return why trials did not pass: reason, whether it counts as failure or error, and the number of trials."""
        infrastructure = {reason.value for reason in INFRASTRUCTURE_REASONS}
        return [
            (reason, "error, not scored" if reason in infrastructure else status.value, number)
            for (status, reason), number in self.totals.reasons.most_common()
        ]

    def sandboxes(self) -> list[SandboxControls]:
        """Return the drivers in the records, and what each enforced."""
        return [
            SandboxControls(name, number, _controls(driver, "enforced"), _controls(driver, "weaker"))
            for name, (driver, number) in self.totals.drivers.items()
        ]


def view_of(run: RecordedRun, number: int, *, with_detail: bool = True, share: int = 1) -> RunView:
    """Return the view of ``run``, which is read once.

    ``share`` is the number of runs on the page: each gets an equal part of :data:`MAX_ROWS` and :data:`MAX_DETAIL`.
    Unless ``with_detail`` is set, the rows of tasks have no details.
    """
    totals = RunTotals()
    rows = TaskRows(run, with_detail, MAX_ROWS // share, MAX_DETAIL // share)

    def add(record: RecordedTask) -> None:
        totals.add(record)
        rows.add(record)

    return RunView(number, run, totals, rows, run.summary(add))


def comparison(views: Sequence[RunView]) -> Figure | None:
    """Return a plot of the pass rates of the first :data:`plots.MAX_BARS` runs.

    ``None`` if none of these runs has a verdict, or if the plot cannot be drawn.
    """
    svg = plots.pass_rates([(f"{view.number}. {view.label}", view.totals.total.estimate) for view in views])
    return Figure("Pass rate of each run with its 95 % interval", svg) if svg is not None else None


def _by_group(name: str, groups: Sequence[OutcomeGroup], number: int) -> dict[str, Markup | None]:
    """Return plots of the outcomes by family or by tag, with captions as keys. ``name`` is ``family`` or ``tag``.

    ``number`` is the total number of families or tags in the run, even if ``groups`` contains only the largest of them.
    """
    largest = f" (the {plots.MAX_BARS} of {number} with the most trials)" if number > plots.MAX_BARS else ""
    rates = plots.pass_rates([(group.name, group.estimate) for group in groups])
    return {
        f"Pass rate by {name}, with its 95 % interval{largest}": rates,
        f"Outcomes by {name}{largest}": plots.outcomes(groups),
    }


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _words(section: Mapping[str, Any], *names: str) -> str:
    return " ".join(str(section[name]) for name in names if section.get(name))


def _controls(driver: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = driver.get(name)
    return tuple(ENFORCEABLE.get(str(item), str(item)) for item in found) if isinstance(found, list) else ()
