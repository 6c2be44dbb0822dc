"""The detail of one task, in bounded size: what it asked, what the agent left and reported, and the evidence."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup, escape

from securebench.errors import ConfigError
from securebench.plurals import counted
from securebench.printable import printable
from securebench.results.recorded_task import answering_models
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask

_MAX_FILES: Final = 200
_MAX_DIFF_BLOCKS: Final = 2_000
_DIFF_CLASSES: Final = {"+": "added", "-": "removed", "@": "hunk"}
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class DetailLimits:
    """How much of a task to show: characters of a text, the number of steps, and characters of a step."""

    text: int
    steps: int
    step: int


FULL: Final = DetailLimits(text=400_000, steps=2_000, step=4_000)
"""How much to show of a task that has a page of its own."""


@dataclass(frozen=True, slots=True)
class TextBox:
    """A text from the run's files, escaped for the page.

    ``by_agent`` is whether the agent wrote it, ``left_out`` the number of characters that are not shown.
    """

    label: str
    html: Markup
    by_agent: bool
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """What a report shows about one task, either below the task's summary line or on a separate page.

    ``size`` is the approximate size of this detail as HTML, in bytes.
    """

    attempt: int
    phase: str
    assurance: str
    models: tuple[str, ...]
    boxes: tuple[TextBox, ...]
    steps: tuple[Markup, ...]
    steps_left_out: int
    note: str
    """Why the steps or the candidate cannot be shown; empty if they can."""
    size: int


def task_detail(run: RecordedRun, record: RecordedTask, limits: DetailLimits, *, with_steps: bool = True) -> TaskDetail:
    """Return the detail of ``record`` within ``limits``. Files that are missing or altered are named in ``note``.

    Unless ``with_steps`` is set, the steps are only counted.
    """
    boxes, notes = list(_boxes(record, limits)), []
    steps: tuple[Markup, ...] = ()
    left_out = 0
    try:
        after_message = 1 if record.message else 0
        boxes[after_message:after_message] = _candidate(run, record, limits)
    except ConfigError as error:
        notes.append(str(error))
    try:
        steps, left_out = _steps(run, record, limits) if with_steps else ((), _recorded_steps(record))
    except ConfigError as error:
        notes.append(str(error))
    sizes = [len(part.encode("utf-8", "replace")) for part in (*(box.html for box in boxes), *steps)]
    return TaskDetail(
        attempt=record.attempt,
        phase=record.phase.value if record.phase else "",
        assurance=record.assurance.value if record.assurance else "",
        models=tuple(name[:100] for name in answering_models(record.provenance)[:5]),
        boxes=tuple(boxes),
        steps=steps,
        steps_left_out=left_out,
        note="\n".join(notes),
        size=sum(sizes) + 400 * (1 + len(boxes)) + 60 * len(steps),
    )


def _boxes(record: RecordedTask, limits: DetailLimits) -> Iterable[TextBox]:
    """Yield the boxes of the record itself. The first one is the record's message, if it has one."""
    yield from _box("Message, which may quote the agent", record.message, limits, by_agent=False)
    yield from _box("The agent's standard error", record.producer.stderr, limits, by_agent=True, is_tail=True)
    if record.candidate_kind is not CandidateKind.TEXT:  # a text candidate usually is the standard output
        yield from _box("The agent's standard output", record.producer.stdout, limits, by_agent=True, is_tail=True)
    if record.verifier is not None:
        evidence = {name: value for name, value in record.verifier.metadata.items() if value not in (None, "", [], {})}
        yield from _box("Evidence", _fields(evidence), limits, by_agent=False)
    yield from _box("Task, as the agent saw it", _public_fields(record), limits, by_agent=False)


def _candidate(run: RecordedRun, record: RecordedTask, limits: DetailLimits) -> Iterable[TextBox]:
    """Return the box of the candidate: its recorded text or diff, or the files of a sealed workspace."""
    if record.candidate_kind is CandidateKind.WORKSPACE:
        files = run.candidate(record).files
        lines = [_file_line(file.path, file.size, file.link) for file in files[:_MAX_FILES]]
        more = [f"and {len(files) - _MAX_FILES:,} more"] if len(files) > _MAX_FILES else []
        title = f"Candidate: {counted(len(files), 'entry', 'entries')}"
        return list(_box(title, "\n".join(lines + more), limits, by_agent=True))
    text = record.candidate_text or ""
    if record.candidate_kind is CandidateKind.PATCH and text:
        shown, left_out = _clipped(text, limits.text)
        return [TextBox("Candidate: patch", _diff(shown), by_agent=True, left_out=left_out)]
    return list(_box("Candidate", text, limits, by_agent=True))


def _file_line(path: str, size: int, link: str | None) -> str:
    name = json.dumps(path, ensure_ascii=False)[1:-1]  # a newline in a name must not look like another file
    return f"{name} -> {json.dumps(link, ensure_ascii=False)[1:-1]}" if link is not None else f"{name}  {size:,} B"


def _steps(run: RecordedRun, record: RecordedTask, limits: DetailLimits) -> tuple[tuple[Markup, ...], int]:
    steps = run.trajectory(record)
    shown = []
    for step in islice(steps, limits.steps):
        text, left_out = _clipped(_step_text(step), limits.step)
        shown.append(_escaped(f"{text}\n[{counted(left_out, 'character')} left out]" if left_out else text))
    return tuple(shown), sum(1 for _ in steps)


def _recorded_steps(record: RecordedTask) -> int:
    described = record.provenance.get("trajectory")
    lines = described.get("lines") if isinstance(described, dict) else 0
    return lines if isinstance(lines, int) else 0


def _step_text(step: Any) -> str:
    """Return a step, whatever its format, as text: one line for each value, with the path of the value in the step."""
    return "\n".join(f"{path}: {value}" if path else value for path, value in _leaves(step, ""))


def _leaves(value: Any, path: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    elif value is not None and value != "":
        yield path, value if isinstance(value, str) else json.dumps(value)


def _public_fields(record: RecordedTask) -> str:
    summary = record.raw.get("resource_summary")
    fields = [field for field in summary if isinstance(field, dict)] if isinstance(summary, list) else []
    shown = {str(field.get("name")): field.get("value") for field in fields if field.get("visibility") == "public"}
    return _fields(shown)


def _fields(values: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
    )


def _box(label: str, text: str, limits: DetailLimits, *, by_agent: bool, is_tail: bool = False) -> Iterable[TextBox]:
    if text.strip():
        shown, left_out = _clipped(text, limits.text, is_tail=is_tail)
        yield TextBox(label, _escaped(shown), by_agent, left_out)


def _clipped(text: str, limit: int, *, is_tail: bool = False) -> tuple[str, int]:
    """Return the beginning or the end of ``text``, and the number of characters left out."""
    shown = text[-limit:] if is_tail else text[:limit]
    return shown, len(text) - len(shown)


def _escaped(text: str) -> Markup:
    return escape(printable(text))


def _diff(text: str) -> Markup:
    """Return a diff as HTML. Consecutive added or removed lines share an element with a CSS class."""
    parts: list[Markup] = []
    for kind, group in groupby(_LINE.findall(text), key=lambda line: _DIFF_CLASSES.get(line[0], "")):
        block = _escaped("".join(group))
        colour = kind and len(parts) < _MAX_DIFF_BLOCKS
        parts.append(Markup('<span class="{}">{}</span>').format(kind, block) if colour else block)
    return Markup("").join(parts)
