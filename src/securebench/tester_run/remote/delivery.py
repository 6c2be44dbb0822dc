"""What a worker on another machine returns for an assignment: the record, and the files that belong to it.

The delivery arrives in pieces. Each piece begins with a byte that names its part; the rest is data. The record comes
first. The receiver derives from the record which files may follow, under which names and with which digests, so a
broken machine can neither overwrite anything nor fill the disk.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.execution.verifier_output import keep_output, output_file
from securebench.executors.base import DeliveryError
from securebench.fs.durable import make_directories, storage_errors, write_durably
from securebench.fs.streams import chunks
from securebench.fs.walk import TreeLimits
from securebench.limits import MIB
from securebench.results.recorded_task import MAX_LINE, parse_recorded_task
from securebench.results.records.trajectory import MAX_TRAJECTORY, TRAJECTORIES, trajectory_file
from securebench.results.run_directory.egress_log import MAX_LINES_A_TRIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from securebench.execution import TaskContext
    from securebench.resources import JsonValue
    from securebench.results.recorded_task import RecordedTask
    from securebench.tasks import CandidateKind
    from securebench.trials import TrialId

_RECORD, _CANDIDATE, _TRAJECTORY, _OUTPUT, _EGRESS, _PROBLEM = (bytes([letter]) for letter in b"RCTOEP")

_MAX_CANDIDATE: Final = 2 * TreeLimits().total_bytes
"""Maximum bytes of a candidate: twice the limit for the total size of its files, because an archive adds headers."""
_MAX_OUTPUT: Final = 8 * MIB
_MAX_EGRESS: Final = 16 * MIB
_MAX_PROBLEMS: Final = 64 * 1024
_MAX_TRIES: Final = 100
"""Maximum tries of an agent in one attempt. Real runs have fewer."""
_SPARE: Final = 64 * 1024
"""Bytes accepted in addition to ``MAX_TRAJECTORY``, for the file name and the line that counts omitted lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a worker sends for one record.

    ``candidate`` and ``trajectories`` are the files that the record names. ``output`` is the output of the verifier.
    ``problems`` concern the whole run, not only this record.
    """

    record: bytes
    candidate: Path | None
    trajectories: Sequence[Path]
    output: str
    egress: Sequence[bytes]
    """Lines of the egress log."""
    problems: Sequence[str]

    def pieces(self) -> Iterator[bytes]:
        """Yield all pieces, each with the byte that names its part. Raises ``OSError``."""
        yield _RECORD + self.record
        if self.candidate is not None:
            with self.candidate.open("rb") as file:
                yield from (_CANDIDATE + piece for piece in chunks(file))
        for path in self.trajectories:
            yield _TRAJECTORY + path.name.encode() + b"\n" + path.read_bytes()
        if self.output:
            yield _OUTPUT + self.output.encode("utf-8", "backslashreplace")
        yield from (_EGRESS + line for line in self.egress)
        yield from (_PROBLEM + problem.encode("utf-8", "backslashreplace") for problem in self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Stores what workers on other machines return. ``log_egress`` is ``None`` if the run has no egress."""

    context: TaskContext
    log_egress: Callable[[Mapping[str, JsonValue]], None] | None

    def receive(self, pieces: Iterable[bytes], trial: TrialId, attempt: int, kind: CandidateKind) -> bytes:
        """Store the files that belong to the record of an attempt at ``trial``, and return the record.

        ``kind`` is the kind of the candidate. Returns empty bytes if the worker was stopped. Raises
        :class:`DeliveryError`, :class:`StorageError`, and what ``pieces`` raises.
        """
        parts = _Parts(pieces)
        line = b"".join(parts.of(_RECORD, MAX_LINE))
        if not line:
            return b""
        try:
            record = parse_recorded_task(line)
        except (ValueError, TypeError, RecursionError) as error:
            raise DeliveryError(f"a worker returned something that is not a record: {error}") from None
        if record.id != trial:
            raise DeliveryError(f"a worker returned the record of trial {record.id} instead of {trial}")
        if record.run_id != self.context.run_id:
            raise DeliveryError(f"a worker returned a record of {trial} from a different run")
        if record.candidate_digest is not None:
            self._store(record.candidate_digest, kind, parts)
        self._keep_trajectories(record, attempt, parts)
        output = b"".join(parts.of(_OUTPUT, _MAX_OUTPUT)).decode("utf-8", "replace")
        if output and self.context.verifier_output is not None:
            keep_output(output_file(self.context.verifier_output, trial.directory), output)
        if output and self.context.show_verifier_output is not None:
            self.context.show_verifier_output(trial, output)
        self._log(trial, parts)
        for problem in parts.of(_PROBLEM, _MAX_PROBLEMS):
            self.context.note_problem(problem.decode("utf-8", "replace"))
        parts.end()
        return line

    def _store(self, digest: str, kind: CandidateKind, parts: _Parts) -> None:
        try:
            self.context.store.seal_copy(kind, digest, parts.of(_CANDIDATE, _MAX_CANDIDATE))
        except ConfigError as error:
            message = f"the candidate that a worker returned does not match its record: {error.message}"
            raise DeliveryError(message) from None

    def _keep_trajectories(self, record: RecordedTask, attempt: int, parts: _Parts) -> None:
        place, trial = self.context.trajectories, record.id.directory
        # Only names of this attempt's trajectories are accepted: no name leads elsewhere or to another attempt's file.
        possible = (trajectory_file(place, trial, attempt, number) for number in range(1, _MAX_TRIES + 1))
        expected = {path.name: path for path in possible if path.name in record.trajectories}
        for piece in parts.of(_TRAJECTORY, (MAX_TRAJECTORY + _SPARE) * max(1, len(expected))):
            name, _, data = piece.partition(b"\n")
            path = expected.pop(name.decode("utf-8", "replace"), None)
            if path is None or hashlib.sha256(data).hexdigest() != record.trajectories[path.name]:
                raise DeliveryError("the trajectory that a worker returned does not match its record")
            with storage_errors(path):
                make_directories(path.parent)
            write_durably(path, data)

    def _log(self, trial: TrialId, parts: _Parts) -> None:
        """Write this trial's egress decisions to the log, which limits their number and redacts them again."""
        for line in parts.of(_EGRESS, _MAX_EGRESS):
            decision = None
            with suppress(ValueError, RecursionError):
                decision = json.loads(line)
            if not isinstance(decision, dict) or self.log_egress is None:
                raise DeliveryError("a worker returned something that is not a line of the egress log")
            if (decision.get("task_id"), decision.get("trial")) != trial:
                raise DeliveryError("a worker returned a line of the egress log about another trial")
            self.log_egress(decision)


class _Parts:
    """The parts of a delivery, in their order."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._ahead: bytes | None = None

    def of(self, part: bytes, limit: int) -> Iterator[bytes]:
        """Yield the pieces of one part, without the byte that names the part. Raises :class:`DeliveryError`."""
        size = 0
        while (piece := self._peek()) is not None and piece[:1] == part:
            self._ahead = None
            size += len(piece)
            if size > limit:
                raise DeliveryError(f"a worker returned too much data (limit: {limit} bytes)")
            yield piece[1:]

    def end(self) -> None:
        """Raise :class:`DeliveryError` if anything is left."""
        if self._peek() is not None:
            raise DeliveryError("a worker returned unexpected data after its result")

    def _peek(self) -> bytes | None:
        if self._ahead is None:
            self._ahead = next(self._pieces, None)
        return self._ahead


def egress_lines(path: Path, start: int) -> tuple[list[bytes], int]:
    """Return the lines of an egress log from byte ``start`` on, and the position of the end of the file.

    At most :data:`MAX_LINES_A_TRIAL` lines are returned. Further lines are skipped.
    """
    if not path.exists():
        return [], start
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().splitlines()
        return lines[:MAX_LINES_A_TRIAL], file.tell()


def trajectories_of(record: bytes, directory: Path) -> list[Path]:
    """Return the files of the trajectories that a record names and that are in the run ``directory``."""
    paths = [directory / TRAJECTORIES / name for name in parse_recorded_task(record).trajectories]
    return [path for path in paths if path.is_file()]
