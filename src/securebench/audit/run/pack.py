"""Check whether a run was made with a given pack."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.errors import ConfigError
from securebench.families.model_graded import is_model_graded
from securebench.plurals import counted
from securebench.resources import REDACTED
from securebench.results.recorded_task import object_of
from securebench.results.records.provenance import json_digest
from securebench.results.records.record import Assurance
from securebench.results.run_directory.pack_match import match_pack, match_row
from securebench.strict_input.faults import shown
from securebench.tester_config import TaskSelection
from securebench.tester_run.planning.selection import select_tasks
from securebench.verifiers.model_graded.prompt import DEFAULT_TEMPLATE, GradingTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.audit.run.report import RunCheck
    from securebench.benchmark_pack import BenchmarkPack
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.records.commitment import Commitment
    from securebench.results.run_directory.header import RunHeader
    from securebench.results.run_directory.record_files import RecordLine
    from securebench.tasks import SecureBenchTask


class PackChecks:
    """Compares ``run.json`` and each record with a pack.

    Each verdict must fit its task's rubric, which may ask for a judge model with a number of votes and a template.
    Other hidden content is compared only if there is a commitment.
    """

    def __init__(
        self, check: RunCheck, header: RunHeader, pack: BenchmarkPack, commitment: Commitment | None = None
    ) -> None:
        """Compare ``header`` (``run.json``) with ``pack``. Raises :class:`ConfigError` if the pack is invalid."""
        self._check, self._header, self._pack, self._commitment = check, header, pack, commitment
        self._rows = {row.id: row for row in pack.rows}
        self._number = 0
        self._tasks = {task.id: task for task in compile_benchmark_pack(pack)}
        self._compare_header()
        planned = self._planned_tasks()
        self._planned = set(self._tasks) if planned is None else {task.id for task in planned}
        if planned is not None:
            self._compare_plan(planned)

    def add(self, line: RecordLine) -> None:
        """Compare one record."""
        self._number += 1
        record = line.record
        if problem := self._difference(record) or _against_rubric(record, self._tasks[record.task_id]):
            self._check.add(problem, line.name, line.number)

    def finish(self) -> None:
        """Set the text of the check, which says what was compared."""
        hidden = "public and hidden content" if self._commitment else "public content"
        left = "" if self._commitment else "; comparing hidden content needs the run's commitment key"
        self._check.text = f"{counted(self._number, 'record')}, consistent with the {hidden} of {self._pack.id}{left}"

    def _compare_header(self) -> None:
        pack, decisive = self._pack, self._header.decisive
        if decisive.get("benchmark") != {"id": pack.id, "version": pack.version}:
            self._check.add(
                f"the run used a benchmark or version other than {shown(pack.id)} {pack.version}", "run.json"
            )
        match = match_pack(decisive.get("pack"), pack, self._commitment)
        self._check.require(
            match.agrees, f"the pack has {match.value} than the pack of the run{match.doubt}", "run.json"
        )
        if self._header.pack_tasks != len(pack.rows):
            message = f"the run's pack has {counted(self._header.pack_tasks, 'task')}, this one has {len(pack.rows)}"
            self._check.add(message, "run.json")

    def _planned_tasks(self) -> tuple[SecureBenchTask, ...] | None:
        """Return the tasks that the run selected. If its selection does not fit the pack, add a problem instead."""
        try:
            return select_tasks(tuple(self._tasks.values()), _selection(self._header.selection))
        except (ConfigError, TypeError) as error:
            self._check.add(f"the run's selection cannot be applied to this pack: {error}", "run.json")
            return None

    def _compare_plan(self, planned: tuple[SecureBenchTask, ...]) -> None:
        header = self._header
        if header.planned_tasks != len(planned):
            tasks = counted(header.planned_tasks, "task")
            message = f"the run planned {tasks}, but its selection matches {len(planned)} in this pack"
            self._check.add(message, "run.json")
        if header.planned_families and header.planned_families != Counter(task.task_type for task in planned):
            self._check.add("the families of the planned tasks in this pack differ from those in the run", "run.json")
        if self._commitment is not None:
            digest = json_digest([[task.id, self._commitment.to(task.row_digest)] for task in planned])
            is_same = header.information.get("planned_digest") == digest
            self._check.require(is_same, "'information.planned_digest' does not match this pack", "run.json")

    def _difference(self, record: RecordedTask) -> str:
        """Return how a record differs from the pack; empty if it does not."""
        name = shown(record.task_id)
        task = self._tasks.get(record.task_id)
        if task is None:
            return f"the pack has no task {name}"
        if record.task_id not in self._planned:
            return f"the run did not select the task {name}"
        if record.family != task.task_type:
            return f"task {name} has the family {task.task_type} in the pack, but {shown(record.family)} in the record"
        match = match_row(record.provenance.get("row"), self._rows[record.task_id], self._commitment)
        if not match.agrees:
            return f"the row of task {name} in the pack has {match.value} than the record{match.doubt}"
        is_same = len(record.tags) == len(task.tags) and all(
            found == tag or REDACTED in found for found, tag in zip(record.tags, task.tags, strict=True)
        )
        if not is_same:
            return f"the tags of task {name} differ from those in the pack"
        # The record has the summary as JSON, in which tuples are lists.
        resources = json.loads(json.dumps(task.resources.summary()))
        is_same = record.raw["resource_summary"] == resources
        return "" if is_same else f"the 'resource_summary' of task {name} differs from that in the pack"


def _against_rubric(record: RecordedTask, task: SecureBenchTask) -> str:
    """Return how a verdict contradicts the task's rubric, which may ask for a judge model.

    The result is empty if there is no contradiction.
    """
    name, values = shown(record.task_id), task.verifier_view().evaluator.payload()
    is_graded = record.assurance is Assurance.MODEL_GRADED
    if not is_model_graded(values):
        return f"task {name} was graded by a judge model, but the pack does not ask for one" if is_graded else ""
    if not is_graded:
        return f"task {name} passed without the judge model that its rubric asks for" if record.passed else ""
    evidence = object_of(record.verifier.metadata.get("evidence")) if record.verifier else {}
    wanted = GradingTask.of(values)
    if evidence.get("planned_votes") != wanted.votes:
        return f"task {name} was graded with a different number of votes than the pack asks for"
    has_template = wanted.template != DEFAULT_TEMPLATE  # the default may differ in other SecureBench versions
    is_same = not has_template or evidence.get("template") == wanted.template_digest
    return "" if is_same else f"task {name} was graded with a template other than that of the pack"


def _selection(criteria: Mapping[str, Any]) -> TaskSelection:
    """Return the selection in ``run.json``, which is untrusted. Raises ``TypeError`` if a key or value is invalid."""
    given: dict[str, Any] = {}
    for name, value in criteria.items():
        is_number = name in {"shuffle", "limit"}
        items = value if isinstance(value, list) else [value]
        if is_number is isinstance(value, list) or not all(type(one) is (int if is_number else str) for one in items):
            raise TypeError(f"{name!r} has the wrong type")
        given[name] = value if is_number else tuple(items)
    return TaskSelection(**given)
