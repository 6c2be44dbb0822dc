"""Check the records of a run for contradictions: within a record, between records, and with ``run.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from securebench.plurals import counted
from securebench.results.recorded_task import answering_models, object_of
from securebench.results.records.record import Assurance, VerificationStatus, assurance_of
from securebench.results.run_directory.header import most_models
from securebench.results.run_directory.judge import judge_checks, read_agreement
from securebench.strict_input.faults import shown
from securebench.verifiers.model_graded.grading import regraded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.audit.run.report import RunCheck
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.run_directory.header import RunHeader
    from securebench.results.run_directory.record_files import RecordLine

_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "pack": ("tasks",),
    "harness": ("env",),
    "framework": (),
    "executor": (),
    "agent": ("integrity",),
}
"""Which parts of :attr:`RunHeader.decisive` each record repeats in its provenance.

The keys are names of sections. A value lists the keys of its section that are not compared.
"""


class ContentChecks:
    """Compares each record with ``run.json``, and with the other records of its task."""

    def __init__(self, check: RunCheck, header: RunHeader) -> None:
        self._check, self._header = check, header
        self._tasks: dict[str, tuple[object, ...]] = {}
        """Family, tags and row of each task."""
        self._models: Counter[str] = Counter()
        self._number = 0

    def add(self, line: RecordLine) -> None:
        """Check one record."""
        record = line.record
        self._number += 1
        self._models.update(answering_models(record.provenance) if line.is_current else ())
        for problem in (*_against_header(record, self._header), *_against_itself(record)):
            self._check.add(problem, line.name, line.number)
        row = record.provenance.get("row")
        common = (record.family, record.tags, repr(row) if isinstance(row, dict) else None)
        if self._tasks.setdefault(record.task_id, common) != common:
            message = f"family, tags or row differ from those of another record of {shown(record.task_id)}"
            self._check.add(message, line.name, line.number)

    def finish(self) -> None:
        """Check what can be checked only after all records were read."""
        header = self._header
        families = Counter(str(family) for family, *_ in self._tasks.values())
        planned = header.planned_families
        for family, number in families.items() if planned else ():
            if number > planned.get(family, 0):
                tasks = counted(number, f"task of {shown(family)}", f"tasks of {shown(family)}")
                self._check.add(f"there are records of {tasks}, but {planned.get(family, 0)} were planned")
        if planned and sum(planned.values()) != header.planned_tasks:
            self._check.add("'information.planned_families' does not add up to 'planned_tasks'", "run.json")
        for check in judge_checks(header):
            if "calibration" in (judge := object_of(check["judge"])):
                try:
                    read_agreement(judge["calibration"])
                except ValueError as error:
                    self._check.add(str(error), "run.json")
        closing = header.closing
        if closing and header.information.get("models", {}) not in ({}, most_models(self._models)):
            self._check.add("'information.models' differs from the models in the records", "run.json")
        if closing and closing.ending == "finished" and closing.counts["not_run"]:
            not_run = counted(closing.counts["not_run"], "trial")
            self._check.add(f"the run finished, but {not_run} did not run", "run.json")
        records, tasks = counted(self._number, "record"), counted(len(self._tasks), "task")
        self._check.text = f"{records} of {tasks}, consistent with run.json and each other"


def _against_header(record: RecordedTask, header: RunHeader) -> Iterator[str]:
    """Yield how a record differs from the description of its run."""
    for name, left_out in _SECTIONS.items():
        own, found = header.decisive.get(name), record.provenance.get(name)
        if _without(own, left_out) != _without(found, left_out):
            yield f"'provenance.{name}' does not match the run"
    sandbox, driver = object_of(header.decisive.get("sandbox")), object_of(record.provenance.get("driver"))
    for own_name, name in (("driver", "name"), ("runtime", "runtime"), ("weaker", "weaker")):
        if sandbox.get(own_name) != driver.get(name):
            yield f"'provenance.driver.{name}' does not match the run"
    image = object_of(record.provenance.get("image"))
    reference, image_id = image.get("reference"), image.get("id")
    if not (isinstance(reference, str) and isinstance(image_id, str)) or image_id not in (
        "",
        header.images.get(reference),
    ):
        yield "the record's image is not one of the run's images"
    if record.assurance is Assurance.MODEL_GRADED and record.verifier is not None:
        evidence = object_of(record.verifier.metadata.get("evidence"))
        if evidence.get("judge") != header.decisive.get("judge"):
            yield "the verdict comes from a judge model other than that in run.json"
    own = object_of(header.decisive.get("verifiers")).get(record.family)
    yield from _against_verifier(record, object_of(own) if own is not None else None)


def _against_verifier(record: RecordedTask, own: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield how a record contradicts ``own``, the run's verifier for the record's family.

    ``own`` is ``None`` if the run has no verifier for that family.
    """
    found, family = record.provenance.get("verifier"), shown(record.family)
    if own is None:
        if found is not None:
            yield f"'provenance.verifier' names a verifier, but the run has no verifier for {family}"
        if record.verifier is not None:
            yield "the record has a verdict, but the run has no verifier for its family"
        return
    wanted = {"family": record.family, "version": own.get("version"), "extension": own.get("extension")}
    if any(object_of(found).get(key) != value for key, value in wanted.items()):
        yield "'provenance.verifier' does not match the run"
    if record.status is VerificationStatus.PENDING:
        yield f"the status is 'pending', although the run has a verifier for {family}"


def _against_itself(record: RecordedTask) -> Iterator[str]:
    """Yield contradictions within a record."""
    if record.verifier is not None and record.assurance is not None:
        try:
            rests_on = assurance_of(record.verifier.metadata)
        except (ValueError, KeyError, TypeError):
            rests_on = None
        if rests_on is not record.assurance:
            yield f"'assurance' is {record.assurance.value!r}, but the verifier's metadata contradicts it"
    if record.verifier is not None and record.assurance is Assurance.MODEL_GRADED:
        yield from _against_replies(record, object_of(record.verifier.metadata.get("evidence")))


def _against_replies(record: RecordedTask, evidence: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a verdict and its votes contradict the judge's recorded replies."""
    try:
        grading = regraded(evidence)
    except ValueError as error:
        yield str(error)
        return
    if evidence.get("votes") != list(grading.votes):
        yield "the votes in 'evidence' differ from those in the judge's replies"
    if grading.reason is not record.reason:
        found = grading.reason.value if grading.reason else "a pass"
        yield f"the judge's replies give {found}, which contradicts the verdict"


def _without(value: Any, names: tuple[str, ...]) -> Any:
    return {key: item for key, item in value.items() if key not in names} if isinstance(value, Mapping) else value
