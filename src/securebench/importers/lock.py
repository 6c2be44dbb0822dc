"""The lock file of a benchmark: which rows belong to a pack, and the digest of each of the authors' records."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from securebench.errors import ConfigError, Problem, SourceLocation
from securebench.strict_input.files import read_text
from securebench.strict_input.json_text import UnfitJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from securebench.importers.row import ImportedRow
    from securebench.resources import JsonValue

_MAX_BYTES: Final = 16 * 1024 * 1024
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Lock:
    """The rows of a pack in order: id to sha256 (hex) of the authors' record.

    A digest is empty if the lock's author knew only the row's id. Such a row is rejected, unless ``trust_new`` is
    set: then any record with that id is accepted.
    """

    benchmark: str
    rows: Mapping[str, str]
    path: Path | None = None
    trust_new: bool = False

    def rows_in(self, rows: Sequence[ImportedRow], refused: Collection[str] = ()) -> list[ImportedRow]:
        """Return the ``rows`` that belong to the pack, in the lock's order.

        Tasks that were ``refused`` do not count as missing. Raises the errors of :meth:`check`.
        """
        by_id = {row.id: row for row in rows}
        found = [by_id[name] for name in self.rows if name in by_id]
        absent = [name for name in self.rows if name not in by_id and name not in refused]
        self.check(found, absent)
        return found

    def checked(self, rows: Sequence[ImportedRow]) -> Sequence[ImportedRow]:
        """Check ``rows`` as :meth:`check` does, and return them. ``rows`` may be a part of the lock's rows."""
        self.check(rows)
        return rows

    def check(self, rows: Sequence[ImportedRow], absent: Sequence[str] = ()) -> None:
        """Raise :class:`ConfigError` with each row that differs from the lock, and each id in ``absent``.

        The code is ``import-lock-unpinned`` for a row that the lock lists without a digest, and otherwise
        ``import-lock-mismatch``.
        """
        place = SourceLocation(str(self.path)) if self.path else None
        problems = [
            *(
                Problem("import-lock-mismatch", f"{name} is in the lock but not in the source", place)
                for name in absent
            ),
            *(problem for row in rows if (problem := self._mismatch(row))),
        ]
        if problems:
            raise ConfigError(problems=problems)

    def _mismatch(self, row: ImportedRow) -> Problem | None:
        wanted = self.rows.get(row.id)
        if wanted == row.digest or (wanted == "" and self.trust_new):
            return None
        if wanted == "":
            return Problem(
                "import-lock-unpinned",
                f"the lock has no digest for {row.id}; the digest of the imported data is {row.digest}",
                row.location,
                "if you trust the source, pass --trust-new; to store the digest, add --write-lock --lock FILE",
            )
        expected = f"the lock expects {wanted}" if wanted else "the lock has no row with this id"
        return Problem(
            "import-lock-mismatch",
            f"{row.id} has digest {row.digest}; {expected}",
            row.location,
            "use the authors' original data, or write a new lock with --write-lock",
        )


def load_lock(path: Path, benchmark: str, *, trust_new: bool = False) -> Lock:
    """Read a lock of ``benchmark``. Raises the errors of :func:`read_text` and ``import-lock-invalid``."""
    text, _ = read_text(path, "lock", _MAX_BYTES)
    try:
        value, _ = decode_json(text)
    except UnfitJsonError as error:
        raise _invalid(path, str(error)) from None
    if not isinstance(value, dict) or set(value) != {"benchmark", "rows"}:
        raise _invalid(path, "expected an object with 'benchmark' and 'rows'")
    name, rows = value["benchmark"], value["rows"]
    if name != benchmark:
        raise _invalid(path, f"it is for benchmark {name!r}, expected {benchmark!r}")
    if not isinstance(rows, dict) or not rows:
        raise _invalid(path, "'rows' must be a non-empty object that maps task ids to SHA-256 digests")
    digests = {key: digest or "" for key, digest in rows.items() if _is_digest(digest)}
    if len(digests) != len(rows):
        wrong = next(key for key in rows if key not in digests)
        raise _invalid(path, f"the digest of {wrong!r} is neither null nor 64 lowercase hexadecimal digits")
    return Lock(benchmark, digests, path, trust_new)


def _is_digest(value: JsonValue) -> TypeGuard[str | None]:
    """Whether ``value`` is a digest or is ``None``, which stands for an unknown digest."""
    return value is None or (isinstance(value, str) and bool(_DIGEST.fullmatch(value)))


def lock_text(benchmark: str, rows: Sequence[ImportedRow]) -> str:
    """Return the text of a lock file for ``rows``."""
    return json.dumps({"benchmark": benchmark, "rows": {row.id: row.digest for row in rows}}, indent=2) + "\n"


def _invalid(path: Path, message: str) -> ConfigError:
    return ConfigError(
        f"invalid lock file: {message}",
        code="import-lock-invalid",
        location=SourceLocation(str(path)),
        hint="restore it, or write a new one with --write-lock",
    )
