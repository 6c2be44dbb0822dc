"""The rows of a pack: one JSON object per line."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from securebench.benchmark_pack.model import BenchmarkRow, RowSource
from securebench.benchmark_pack.references import Referenced, eval_references, path_faults, public_references
from securebench.errors import ConfigError, SourceLocation
from securebench.families.model_graded import is_model_graded
from securebench.families.registry import FAMILIES
from securebench.families.row import RowModel, merge_environment
from securebench.families.skeleton import fold_confusables
from securebench.pack_paths import folded
from securebench.resources import Visibility
from securebench.strict_input.faults import Fault, Problems, shown
from securebench.strict_input.files import FileSource, decode, open_regular
from securebench.strict_input.json_text import JsonSource, UnfitJsonError, decode_json, json_faults
from securebench.strict_input.models import fit
from securebench.tasks import CandidateKind, Environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from securebench.benchmark_pack.manifest import Manifest
    from securebench.families.base import Family

MAX_TASKS_BYTES: Final = 128 * 1024**2
"""The maximum size of a tasks file, in bytes: fifty times the largest known one. Decoded, it still fits in memory."""

MAX_ROW_BYTES: Final = 4 * 1024**2
"""The maximum size of one row, in bytes: enough for a large patch and its tests. Data belongs in asset files."""

_PIECE: Final = 1024**2

MAX_ROWS: Final = 100_000
"""The maximum number of rows of a pack."""

MAX_PACK_VALUES: Final = 5_000_000
"""The maximum number of JSON values in all rows. In memory, an empty list takes thirty times its size in a file."""

MAX_METADATA_BYTES: Final = 64 * 1024
"""The maximum size of a row's metadata as JSON, in bytes: enough for facts about a task. Data belongs in assets."""

_RESOURCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


@dataclass(slots=True)
class RowReader:
    """Reads rows and collects their problems. ``references`` are the file references of the rows read so far."""

    path: Path
    manifest: Manifest
    problems: Problems = field(default_factory=Problems)
    references: list[tuple[RowSource, Referenced]] = field(default_factory=list)
    digest: str = ""
    _ids: dict[str, tuple[str, int]] = field(default_factory=dict)
    _values: int = 0

    def read(self) -> list[BenchmarkRow]:
        """Return the valid rows and collect the problems of the others.

        Raises :class:`ConfigError` if the file is unreadable, the file or a row is too large, or there are too many
        rows or values.
        """
        rows: list[BenchmarkRow] = []
        with open_regular(self.path, "tasks file") as file:
            if os.fstat(file.fileno()).st_size > MAX_TASKS_BYTES:
                raise _too_large(f"the tasks file is larger than {MAX_TASKS_BYTES} bytes", self.path)
            self._require_few_rows(file)
            for source, line in self._lines(file):
                if (row := self._row(line, source)) is not None:
                    rows.append(row)
                if len(rows) > MAX_ROWS or self._values > MAX_PACK_VALUES:
                    message = f"the tasks file contains more than {MAX_ROWS} rows or {MAX_PACK_VALUES} values"
                    raise _too_large(message, self.path, source.line)
        if not rows and not self.problems:
            self.problems.add(Fault("pack-empty", "the tasks file contains no rows"), FileSource(self.path))
        return rows

    def _require_few_rows(self, file: BufferedReader) -> None:
        """Reject a file with too many rows before decoding any: decoding takes seconds, counting does not."""
        count = 0
        while piece := file.read(_PIECE):
            count += piece.count(b"\n")
        file.seek(0)
        # Blank lines are not rows; they are excluded only if the plain count of lines exceeds the limit.
        if count > MAX_ROWS and sum(not line.isspace() for line in file) > MAX_ROWS:
            raise _too_large(f"the tasks file contains more than {MAX_ROWS} rows", self.path)
        file.seek(0)

    def _lines(self, file: BufferedReader) -> Iterator[tuple[RowSource, bytes]]:
        """Yield each line that is not blank. Only a line feed ends a line. Unicode line separators do not."""
        digest = hashlib.sha256()
        number = offset = 0
        while line := file.readline(MAX_ROW_BYTES + 1):
            number += 1
            digest.update(line)
            if len(line) > MAX_ROW_BYTES:
                raise _too_large(f"this row is larger than {MAX_ROW_BYTES} bytes", self.path, number)
            if not line.isspace():
                yield RowSource(self.path, number, offset, len(line)), line
            offset += len(line)
        self.digest = digest.hexdigest()

    def _row(self, line: bytes, source: RowSource) -> BenchmarkRow | None:
        text, fault = decode(line.rstrip(b"\r\n"), source.line)
        if fault is not None:
            self.problems.add(fault, FileSource(self.path))
            return None
        place = JsonSource(str(self.path), text, source.line)
        try:
            value, count = decode_json(text)
        except UnfitJsonError:
            value, count = None, 0
        if not count:
            # This is not in the ``except`` block, because its exception would keep the decoded value alive. Once enough
            # problems are listed, the rest are only counted: finding the faults of thousands of rows takes minutes.
            faults = [Fault("json-value", "unfit")] if self.problems.full else json_faults(text, source.line)
            self.problems.extend(faults, place)
            return None
        self._values += count
        row = _Draft(value, self.manifest, source, hashlib.sha256(line.strip()).hexdigest())
        if faults := row.faults() or self._id_faults(row.value["id"], source):
            self.problems.extend([*faults, *row.family_faults()], place)
            return None
        self.references += [(source, reference) for reference in row.references]
        return row.finish()

    def _id_faults(self, task_id: str, source: RowSource) -> list[Fault]:
        """Return a fault for an id that equals or resembles an earlier one."""
        other, line = self._ids.setdefault(fold_confusables(task_id), (task_id, source.line))
        if line == source.line:
            return []
        message = f"id {shown(task_id)} is already used on line {line}"
        if other != task_id:
            message = f"id {shown(task_id)} looks like {shown(other)} on line {line}, or differs only in case"
        return [Fault("id-duplicate", message, ("id",), "give each task a unique id")]


class _Draft:
    """A decoded row that is not yet validated."""

    def __init__(self, value: Any, manifest: Manifest, source: RowSource, digest: str) -> None:
        self.value = value
        self.manifest = manifest
        self.source = source
        self.digest = digest
        self.references: list[Referenced] = []

    def faults(self) -> list[Fault]:
        return fit(RowModel, self.value)[1] or self._family_fault() or self._content_faults()

    def family_faults(self) -> list[Fault]:
        """Return the faults by the rules of the row's family. The row may have other faults, too."""
        value = self.value if isinstance(self.value, dict) else {}
        family, inputs, evals = FAMILIES.get(self.family), value.get("input", {}), value.get("eval", {})
        if family is None or not isinstance(inputs, dict) or not isinstance(evals, dict):
            return []
        return family.faults(inputs, evals, Environment())

    def finish(self) -> BenchmarkRow:
        value, evals = self.value, self.value.get("eval", {})
        if self.manifest.rubric and is_model_graded(evals):
            evals = {**evals, "rubric": {**self.manifest.rubric, **evals["rubric"]}}
        eval_files: dict[str, tuple[Any, ...]] = {}
        for reference in self.references:
            if reference.field:
                eval_files[reference.field] = (*eval_files.get(reference.field, ()), reference.file)
        return BenchmarkRow(
            id=value["id"],
            family=self.family,
            input=value.get("input", {}),
            eval=evals,
            assets=tuple(value.get("assets", ())),
            environment=merge_environment(self.manifest.environment, value.get("environment", {})),
            metadata=value.get("metadata", {}),
            files=tuple(reference.file for reference in self.references if not reference.field),
            eval_files=eval_files,
            source=self.source,
            digest=self.digest,
        )

    @property
    def family(self) -> str:
        named = self.value.get("family") if isinstance(self.value, dict) else None
        return str(named or self.manifest.family)

    def _family_fault(self) -> list[Fault]:
        if "family" in self.value or self.manifest.family:
            return []
        hint = "set it here, or set 'defaults.family' in the manifest"
        return [Fault("field-missing", "family is missing and the manifest has no default", ("family",), hint)]

    def _content_faults(self) -> list[Fault]:
        read_only, evals = self.manifest.asset_roots.read_only, self.value.get("eval", {})
        self.references = public_references(self.value.get("assets", ()), read_only=read_only)
        of_eval, faults = eval_references(self.family, evals, read_only=read_only)
        self.references += of_eval
        filed = {reference.field for reference in of_eval}
        lanes = FAMILIES[self.family].lanes
        value_fields = {name: lanes.get(name, Visibility.HIDDEN) for name in evals if name not in filed}
        return [
            *_name_faults(self.value),
            *faults,
            *path_faults(self.references, value_fields),
            *_environment_faults(self.value.get("environment", {}), FAMILIES[self.family]),
            *_metadata_faults(self.value.get("metadata", {}), self.source.length),
        ]


def _name_faults(value: dict[str, Any]) -> Iterator[Fault]:
    """Yield a fault for each field name that is unusable as a file name or not unique in its task."""
    seen: dict[str, str] = {"assets": "assets"} if value.get("assets") else {}
    for part in ("input", "eval"):
        for name in value.get(part, {}):
            if not _RESOURCE_NAME.fullmatch(name):
                hint = "use up to 64 letters, digits, '_' and '-'"
                yield Fault("resource-name", f"invalid field name {shown(name)}", (part, name), hint, at_key=True)
            elif (other := seen.setdefault(folded(name), f"{part}.{name}")) != f"{part}.{name}":
                message = f"{part}.{name} and {other} have the same name, ignoring case"
                yield Fault("resource-duplicate", message, (part, name), "rename one of them", at_key=True)


def _environment_faults(environment: dict[str, Any], family: Family) -> Iterator[Fault]:
    """Yield a fault for a key in a row's ``environment`` that only terminal tasks support."""
    name = "materialize_workdir_from_image"
    if environment.get(name) and family.active and family.candidate_kind is not CandidateKind.WORKSPACE:
        message = f"{name} is only supported by the family 'terminal_task'"
        yield Fault("field-value", message, ("environment", name), "remove it", at_key=True)


def _metadata_faults(metadata: dict[str, Any], row_length: int) -> Iterator[Fault]:
    if row_length > MAX_METADATA_BYTES and len(json.dumps(metadata)) > MAX_METADATA_BYTES:
        message = f"metadata is larger than {MAX_METADATA_BYTES} bytes"
        yield Fault("metadata-too-large", message, ("metadata",), "shorten it, or move data to asset files")


def _too_large(message: str, path: Path, line: int | None = None) -> ConfigError:
    location = SourceLocation(str(path), line)
    return ConfigError(
        message, code="file-too-large", location=location, hint="move data to asset files, or split the pack"
    )
