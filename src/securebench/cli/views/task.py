"""One task in detail: what the agent saw and did, its candidate, the verdict and its evidence, and its sandbox.

Everything shown comes from the files of a run, and an agent may have written it: every text is escaped, none is markup.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from securebench.cli.views.excerpt import BRIEF, WHOLE, excerpt, flattened, highlighted
from securebench.cli.views.images import human_size
from securebench.cli.views.live import STYLES
from securebench.cli.views.summary import usage_line
from securebench.errors import ConfigError
from securebench.harnesses.provider.self_report import MAX_WARNINGS
from securebench.limits import MIB
from securebench.plurals import counted
from securebench.printable import printable_line
from securebench.resources import ResourceKind, Visibility
from securebench.results.recorded_task import object_of
from securebench.results.records.record import ASSURANCE_MEANING
from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.tasks import CandidateKind
from securebench.tester_run.planning.directory import WORKSPACES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.resources import JsonValue
    from securebench.results.read import RecordedRun
    from securebench.results.recorded_task import RecordedTask
    from securebench.results.run_directory.sealed import SealedFile

ABSENT: Final = frozenset({"file-missing", "candidate-not-stored"})
"""Error codes for files that a published run may lack. Any other error code means that a file was altered."""

WIDE: Final = 200
"""Width of a step's line in columns, where the output is not a terminal."""

_SIZES: Final = frozenset({"memory", "tmpfs", "file_size", "workspace", "output"})
_STEP_TEXTS: Final = ("text", "command", "output", "message", "content")
_KIND_WIDTH: Final = 8
_SIZE_WIDTH: Final = 8
_SHOWN_ELSEWHERE: Final = frozenset({"verifier", "version", "reason"})


@dataclass(slots=True)
class TaskView:
    """Describes one record as lines, and adds a message to ``damage`` for each file that was altered.

    ``columns`` is the maximum width of a step's line. If ``full`` is true, texts, steps and lists of files are not
    cut. Values of metadata are always cut to 200 characters.
    """

    run: RecordedRun
    record: RecordedTask
    full: bool = False
    columns: int = WIDE
    damage: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[Text]:
        """Yield all sections. A section without content is left out."""
        yield self._title()
        sections = {
            "What the agent saw": self._inputs,
            "What it did": self._steps,
            "What it printed": self._output,
            "Its candidate": self._candidate,
            "Verdict": self._verdict,
            "Sandbox": self._sandbox,
            "Work": self._work,
        }
        for heading, section in sections.items():
            began = False
            for line in self._guarded(section()):
                if not began:
                    yield Text()
                    yield Text(heading, style="bold")
                    began = True
                yield Text("  ").append_text(line)

    def _guarded(self, section: Iterator[Text]) -> Iterator[Text]:
        """Yield a section. If a file cannot be read, yield the reason instead of the remaining lines."""
        try:
            yield from section
        except ConfigError as error:
            if error.code not in ABSENT:
                self.damage.append(error.message)
            is_absent = error.code in ABSENT
            yield Text(printable_line(error.message), style="dim" if is_absent else "bold red")

    def _title(self) -> Text:
        record = self.record
        name = record.task_id + record.id.suffix(self.run.trials)
        title = Text.assemble((printable_line(name), "bold"), f"  {printable_line(record.family)}  ")
        title.append(record.status.value.upper(), style=STYLES.get(record.status.value, ""))
        return title.append(f": {record.reason.value}" if record.reason else "")

    def _inputs(self) -> Iterator[Text]:
        summary: Any = self.record.raw.get("resource_summary")
        items = [item for item in summary if isinstance(item, dict)] if isinstance(summary, list) else []
        public = [item for item in items if item.get("visibility") == Visibility.PUBLIC.value]
        for item in public:
            yield Text(f"{_word(item.get('name'))}:", style="cyan")
            yield from self._block(_as_text(item.get("value")))
        if any(item.get("kind") == ResourceKind.ASSETS.value for item in public):
            yield Text("The files are in the pack, not in the run directory.", style="dim")
        if hidden := [_word(item.get("name")) for item in items if item not in public]:
            yield Text(f"not shown to the agent: {', '.join(hidden)}", style="dim")

    def _steps(self) -> Iterator[Text]:
        for number, step in enumerate(self.run.trajectory(self.record), start=1):
            yield from self._step(number, step)

    def _step(self, number: int, step: JsonValue) -> Iterator[Text]:
        if isinstance(step, dict) and isinstance(left_out := step.get("left_out"), int):
            yield Text(f"{counted(left_out, 'more step')} not kept", style="dim")
            return
        fields = dict(step) if isinstance(step, dict) else {"text": _as_text(step)}
        kind = _word(fields.pop("kind", "step"))[:_KIND_WIDTH]
        fields.pop("step", None)
        text = next((fields.pop(name) for name in _STEP_TEXTS if isinstance(fields.get(name), str)), "")
        rest = ", ".join(f"{_word(name)} {_word(value)}" for name, value in fields.items() if value not in (None, ""))
        line = Text(f"{number:>4} {kind:<{_KIND_WIDTH}}  ", style=_STEP_STYLES.get(kind, ""))
        first, *more = str(text).strip("\n").split("\n", 1)
        head = " ".join(
            filter(None, (printable_line(first if self.full else first[: self.columns]), f"({rest})" if rest else ""))
        )
        if self.full:
            yield line.append(head)
            yield from (Text(" " * 15).append_text(part) for part in self._block("".join(more)) if more)
            return
        count = f" (+{counted(more[0].count(chr(10)) + 1, 'line')})" if more else ""
        width = max(20, self.columns - line.cell_len - len(count) - 2)
        yield line.append(head if len(head) <= width else f"{head[: width - 1]}…").append(count, style="dim")

    def _output(self) -> Iterator[Text]:
        producer = self.record.producer
        for name, text in (("stdout", producer.stdout), ("stderr", producer.stderr)):
            if text.strip():
                yield Text(f"{name}:", style="cyan")
                yield from self._block(text, tail=True)
        yield from _described(producer.metadata)

    def _candidate(self) -> Iterator[Text]:
        record = self.record
        if record.candidate_kind is None or record.candidate_digest is None:
            yield Text("none", style="dim")
            return
        yield Text(f"{record.candidate_kind.value}, sha256 {record.candidate_digest}")
        if record.candidate_redacted:
            note = "The record's text is redacted or truncated; the sealed candidate is complete."
            yield Text(note, style="dim")
        if record.candidate_text is not None:
            lexer = "diff" if record.candidate_kind is CandidateKind.PATCH else ""
            yield from self._block(record.candidate_text, lexer=lexer)
        sealed = self.run.candidate(record)  # this also verifies the digest
        if sealed.kind is CandidateKind.WORKSPACE:
            size = WHOLE if self.full else BRIEF
            yield from (_file(entry) for entry in sealed.files[: size.lines])
            yield from _left_out(len(sealed.files) - size.lines, "files")
        yield Text(f"sealed: {human_size(sealed.size)}, digest verified", style="dim")

    def _verdict(self) -> Iterator[Text]:
        record = self.record
        yield Text(record.status.value, style=STYLES.get(record.status.value, ""))
        if record.reason and record.phase:
            yield Text(f"{record.reason.value} in the phase {record.phase.value}")
            yield from self._block(record.message)
        if record.assurance:
            yield Text(f"rests on: {record.assurance.value}. {ASSURANCE_MEANING[record.assurance]}")
        if record.verifier:
            metadata = record.verifier.metadata
            yield Text(f"verifier: {_word(metadata.get('verifier'))}, version {_word(metadata.get('version'))}")
            yield from _described({name: value for name, value in metadata.items() if name not in _SHOWN_ELSEWHERE})
            yield from self._block(f"{record.verifier.stdout}{record.verifier.stderr}".strip("\n"), tail=True)

    def _sandbox(self) -> Iterator[Text]:
        provenance = self.record.provenance
        driver, image = object_of(provenance.get("driver")), object_of(provenance.get("image"))
        yield Text(f"driver: {_word(driver.get('name'))} {_word(driver.get('runtime'))} {_word(driver.get('version'))}")
        yield Text(f"image: {_word(image.get('reference'))} {_word(image.get('id'))}")
        yield Text(f"enforced: {_controls(driver.get('enforced'))}")
        if weaker := _controls(driver.get("weaker")):
            yield Text(f"not enforced: {weaker}", style="yellow")
        limits = object_of(self.run.header.decisive.get("limits"))
        yield Text("limits: " + ", ".join(f"{_word(name)} {_limit(name, value)}" for name, value in limits.items()))
        yield from _described({"egress": object_of(provenance.get("usage")).get("egress")})

    def _work(self) -> Iterator[Text]:
        record, provenance = self.record, self.record.provenance
        began = f", started {record.started_at:%Y-%m-%d %H:%M:%S} UTC" if record.started_at else ""
        yield Text(f"attempt {record.attempt}{began}")
        workspace = self.run.directory / WORKSPACES / record.id.directory
        if workspace.is_dir():
            yield Text(f"workspace: {printable_line(str(workspace))}")
        agent = object_of(provenance.get("agent"))
        settings = object_of(agent.get("settings"))
        if "program" in agent:
            yield Text(f"program: {_word(agent['program'])} {_word(agent.get('version'))}")
        yield from _described({"settings": settings} if settings else {})
        for name, values in (
            ("seconds", object_of(provenance.get("durations"))),
            ("tries", object_of(provenance.get("tries"))),
        ):
            yield Text(f"{name}: " + ", ".join(f"{_word(phase)} {_word(value)}" for phase, value in values.items()))
        if record.models:
            yield Text(f"models: {', '.join(map(_word, record.models))}")
        if record.spent:
            yield Text(usage_line(record.spent))
        if record.entry.judge_usage:
            yield Text(f"judge: {usage_line(record.entry.judge_usage)}")
        warnings: Any = object_of(provenance.get("usage")).get("warnings")
        for warning in warnings[:MAX_WARNINGS] if isinstance(warnings, list) else ():
            yield Text(f"warning from the program: {_word(warning)}", style="yellow")
        failed: Any = provenance.get("failed_tries")
        for number, item in enumerate(failed if isinstance(failed, list) else (), start=1):
            what = object_of(item)
            yield Text(f"failed try {number}: {_word(what.get('error'))}: {_word(what.get('message'))}", style="yellow")

    def _block(self, text: str, *, lexer: str = "", tail: bool = False) -> Iterator[Text]:
        """Yield the indented lines of an untrusted text. Unless :attr:`full`, these are only its first or last lines.

        With ``tail``, they are the last lines.
        """
        lines, left_out = excerpt(text, WHOLE if self.full else BRIEF, tail=tail)
        if left_out and tail:
            yield from _left_out(left_out, "lines")
        yield from (Text("  ").append_text(line) for line in highlighted(lines, lexer))
        if left_out and not tail:
            yield from _left_out(left_out, "lines")


_STEP_STYLES: Final = {"command": "cyan", "error": "red", "thought": "dim", "usage": "dim"}


def _file(entry: SealedFile) -> Text:
    """Return a line of the listing of a workspace."""
    size = "" if entry.is_directory or entry.link is not None else human_size(entry.size)
    line = Text(f"{size:>{_SIZE_WIDTH}}  {printable_line(entry.path)}{'/' if entry.is_directory else ''}")
    if entry.link is not None:
        line.append(f" -> {printable_line(entry.link)}", style="cyan")
    return line.append("*" if entry.executable else "", style="green")


def _left_out(number: int, what: str) -> Iterable[Text]:
    return [Text(f"  … {number:,} more {what} (--full shows them)", style="dim")] if number > 0 else []


def _described(values: Mapping[str, Any]) -> Iterator[Text]:
    """Yield values of metadata as ``name: value``, with nested ones as ``outer.inner: value``."""
    for name, value in flattened(values):
        yield Text(f"{printable_line(name)}: ", style="cyan").append(printable_line(value), style="default")


def _controls(names: Any) -> str:
    """Return restrictions of a sandbox in words."""
    return ", ".join(ENFORCEABLE.get(name, name) for name in map(_word, names if isinstance(names, list) else ()))


def _limit(name: str, value: Any) -> str:
    is_size = name in _SIZES and isinstance(value, int) and 0 <= value < 2**63
    return f"{value / MIB:,.0f} MiB" if is_size else _word(value)


def _as_text(value: Any) -> str:
    """Return a value of a task as text. A list of strings, such as choices, has an entry on each line."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(f"- {item}" for item in value)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _word(value: Any) -> str:
    """Return ``value`` on one line, cut to 200 characters; an empty string for ``None``."""
    if value is None:
        return ""
    return printable_line(value if isinstance(value, str) else json.dumps(value))[:200]
