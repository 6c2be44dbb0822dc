"""The paired comparison of runs of the same benchmark, from the files in their directories alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, Problem
from securebench.plurals import counted
from securebench.printable import printable_line
from securebench.results.records.commitment import KEY_FILE
from securebench.results.records.record import WEAK, VerificationStatus
from securebench.results.records.usage import Usage
from securebench.results.statistics import (
    Estimate,
    Interval,
    TaskResult,
    mcnemar_exact,
    paired_bootstrap,
    paired_interval,
    pass_at_1,
)
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask

_SHOWN_ROWS: Final = 5
_ENOUGH_TASKS: Final = 20
"""With fewer tasks, the interval of a bootstrap is too narrow."""
_KEY_BYTES: Final = 256
"""The maximum number of bytes read from a key file. A stranger may have made the file."""

_HINT: Final = "compare runs of the same pack; to compare agents on several packs, give each agent's runs on all packs"


@dataclass(slots=True)
class _Task:
    """What a comparison keeps of a task: its verdicts, and the digest of its row's public part."""

    row: str
    passed: int = 0
    scored: int = 0

    @property
    def result(self) -> TaskResult:
        return TaskResult(self.passed, self.scored)


@dataclass(slots=True)
class PairTally:
    """The verdicts of one run by task, and what the run spent. A tally's size does not depend on the records' sizes."""

    run: RecordedRun
    tasks: dict[str, _Task] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    """The sum of the durations of all trials."""
    trials: int = 0
    errors: int = 0
    weak: Counter[str] = field(default_factory=Counter)
    """The number of passes for each weak assurance. The keys are the texts in :data:`WEAK`."""

    @property
    def estimate(self) -> Estimate | None:
        """The pass rate of ``run`` over all its tasks with a verdict; ``None`` if no task has a verdict."""
        return pass_at_1(task.result for task in self.tasks.values())

    def caveats(self) -> Iterator[str]:
        """Yield what a reader must know about the pass rate.

        The lines describe the selection of tasks. They count the trials that did not run, and the passes with a weak
        assurance.
        """
        if self.run.selection:
            yield self.run.selection.describe()
        if missing := self.run.planned - self.trials:
            yield f"{missing} of {counted(self.run.planned, 'trial')} not run{' yet' if self.run.is_active else ''}"
        for rests, number in self.weak.items():
            yield f"{counted(number, 'pass', 'passes')} {rests}"


def tally(run: RecordedRun) -> PairTally:
    """Return the tally of ``run``, and read its records once. Raises the errors of :meth:`RecordedRun.records`."""
    found = PairTally(run)
    for record in run.records():
        task = found.tasks.setdefault(record.task_id, _Task(_row_digest(record)))
        if record.passed is not None:
            task.scored += 1
            task.passed += record.passed
        found.trials += 1
        found.errors += record.status is VerificationStatus.ERROR
        if record.passed and record.assurance and record.assurance in WEAK:
            found.weak[WEAK[record.assurance]] += 1
        found.usage += record.spent or Usage()
        found.seconds += record.duration_seconds or 0.0
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of two runs over the tasks with a verdict in both. ``difference`` is ``rate_b`` minus ``rate_a``."""

    a: PairTally
    b: PairTally
    tasks: int
    rate_a: Estimate
    rate_b: Estimate
    difference: float
    interval: Interval
    p_value: float
    method: str
    """``mcnemar`` if each run has exactly one verdict on each compared task, otherwise ``bootstrap``."""
    only_a: tuple[str, ...]
    """The ids of the tasks on which ``a`` has the higher pass rate. With ``mcnemar``, only ``a`` passed them."""
    only_b: tuple[str, ...]
    agreement: float
    """The share of tasks with the same pass rate in both runs."""
    notes: tuple[str, ...]
    """What a reader must know about the comparison, such as different versions of the verifiers."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the comparison as JSON."""
        return {
            "benchmark_id": self.a.run.benchmark_id,
            "a": _side(self.a, self.rate_a),
            "b": _side(self.b, self.rate_b),
            "tasks": self.tasks,
            "difference": self.difference,
            "interval": [self.interval.low, self.interval.high],
            "p_value": self.p_value,
            "method": self.method,
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "agreement": self.agreement,
            "notes": list(self.notes),
        }


def compare(a: PairTally, b: PairTally) -> Comparison:
    """Compare two runs task by task.

    Raises :class:`ConfigError`. The code is ``runs-differ`` if the runs have different packs, or different rows of a
    task. The error lists all differences. The code is ``runs-share-no-task`` if no task has a verdict in both runs.

    Hidden content is compared only if the runs share a commitment key.
    """
    if problems := list(_differences(a, b)):
        raise ConfigError(code="runs-differ", problems=problems)
    shared = [name for name, task in a.tasks.items() if task.scored and name in b.tasks and b.tasks[name].scored]
    if not shared:
        raise ConfigError(
            f"no task has a verdict in both {a.run.directory} and {b.run.directory}",
            code="runs-share-no-task",
            hint="resume the runs, or compare runs of the same selection",
        )
    pairs = [(name, a.tasks[name].result, b.tasks[name].result) for name in shared]
    only_a = tuple(name for name, left, right in pairs if left.rate > right.rate)
    only_b = tuple(name for name, left, right in pairs if right.rate > left.rate)
    if all(left.scored == right.scored == 1 for _, left, right in pairs):
        method, p_value = "mcnemar", mcnemar_exact(len(only_a), len(only_b))
        interval = paired_interval(len(only_b), len(only_a), len(pairs))
    else:
        method = "bootstrap"
        interval, p_value = paired_bootstrap([right.rate - left.rate for _, left, right in pairs])
    rate_a, rate_b = pass_at_1(left for _, left, _ in pairs), pass_at_1(right for _, _, right in pairs)
    assert rate_a is not None
    assert rate_b is not None
    return Comparison(
        a=a,
        b=b,
        tasks=len(pairs),
        rate_a=rate_a,
        rate_b=rate_b,
        difference=rate_b.value - rate_a.value,
        interval=interval,
        p_value=p_value,
        method=method,
        only_a=only_a,
        only_b=only_b,
        agreement=1 - (len(only_a) + len(only_b)) / len(pairs),
        notes=(*_notes(a, b), *_few(method, len(pairs))),
    )


def names_of(pairs: Sequence[Comparison]) -> dict[int, str]:
    """Return a name for each run, by the ``id()`` of its tally.

    The name is the label of the agent, or the directory of the run if several runs have the same label.
    """
    sides = [pairs[0].a, *(pair.b for pair in pairs)]
    labels = [side.run.label for side in sides]
    return {
        id(side): printable_line(label if labels.count(label) == 1 else str(side.run.directory))
        for side, label in zip(sides, labels, strict=True)
    }


def _differences(a: PairTally, b: PairTally) -> Iterator[Problem]:
    """Yield a problem for each difference that forbids pairing the runs."""
    names = f"{a.run.directory} and {b.run.directory}"
    for section, key, text in (
        ("benchmark", "id", "benchmarks"),
        ("benchmark", "version", "versions of the benchmark"),
        ("pack", "public_digest", "packs (digests of their public parts)"),
    ):
        left, right = _decisive(a, section).get(key), _decisive(b, section).get(key)
        if left != right:
            yield Problem("runs-differ", f"{names} are runs of different {text}: {left!r} and {right!r}", hint=_HINT)
    changed = [name for name, task in a.tasks.items() if name in b.tasks and b.tasks[name].row != task.row]
    if changed:
        more = f" and {len(changed) - _SHOWN_ROWS} more" if len(changed) > _SHOWN_ROWS else ""
        shown = ", ".join(map(repr, changed[:_SHOWN_ROWS]))
        yield Problem("runs-differ", f"{names} had different rows for {shown}{more}", hint=_HINT)
    if _share_key(a, b):
        left, right = _decisive(a, "pack").get("commitment"), _decisive(b, "pack").get("commitment")
        if left != right and not changed:
            yield Problem("runs-differ", f"the packs of {names} had different hidden content", hint=_HINT)


def _notes(a: PairTally, b: PairTally) -> Iterator[str]:
    for this, other in ((a, b), (b, a)):
        if only := len(this.tasks.keys() - other.tasks.keys()):
            yield f"{counted(only, 'task')} only in {this.run.directory}"
        if unscored := sum(not task.scored for name, task in this.tasks.items() if name in other.tasks):
            yield f"{counted(unscored, 'task')} without a verdict in {this.run.directory}"
        for caveat in this.caveats():
            yield f"{this.run.directory}: {caveat}"
        if this.run.is_active:
            yield f"{this.run.directory} is still running"
    for section, text in (
        ("verifiers", "versions of the verifiers"),
        ("framework", "versions of SecureBench"),
        ("verification", "verification policies"),
        ("limits", "sandbox limits"),
        ("sandbox", "sandbox drivers, runtimes, restrictions or driver settings"),
        ("judge", "judge models or judge settings"),
    ):
        if _decisive(a, section) != _decisive(b, section):
            yield f"the runs used different {text}"
    if not _share_key(a, b):
        yield "hidden content was not compared, because the runs do not share a commitment key"


def _few(method: str, tasks: int) -> Iterator[str]:
    if method == "bootstrap" and tasks < _ENOUGH_TASKS:
        yield f"the interval of the difference is too narrow, because it is based on only {counted(tasks, 'task')}"


def _side(side: PairTally, rate: Estimate) -> dict[str, JsonValue]:
    return {
        "directory": str(side.run.directory),
        "run_id": side.run.run_id,
        "label": side.run.label,
        "pass_rate": rate.value,
        "interval": [rate.interval.low, rate.interval.high],
        "trials": side.trials,
        "errors": side.errors,
        "seconds": round(side.seconds, 3),
        "usage": side.usage.to_json(),
    }


def _decisive(side: PairTally, section: str) -> Mapping[str, Any]:
    found = side.run.header.decisive.get(section)
    return found if isinstance(found, dict) else {}


def _row_digest(record: RecordedTask) -> str:
    row = record.provenance.get("row")
    return str(row.get("public_digest")) if isinstance(row, dict) else ""


def _share_key(a: PairTally, b: PairTally) -> bool:
    """Return whether both runs have the same commitment key, so that equal commitments mean equal hidden content.

    The runs of a suite share a key. A published run has no key.
    """
    try:
        left, right = (_key(side.run.directory / KEY_FILE) for side in (a, b))
    except ConfigError:
        return False
    return left == right


def _key(path: Path) -> bytes:
    with open_regular(path, "commitment key") as file:
        return file.read(_KEY_BYTES)
