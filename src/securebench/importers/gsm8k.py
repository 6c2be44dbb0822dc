"""GSM8K and data sets in its format: word problems with a number as the answer.

The authors' files are JSON Lines with ``question`` and ``answer``, one file for each split. An answer is a worked
solution, whose last line is ``#### `` and the number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from securebench.errors import SourceLocation
from securebench.families.normalization import strict_decimal
from securebench.importers.row import ImportedRow, bad_record, json_record, rows_of
from securebench.importers.sources import source_name

if TYPE_CHECKING:
    from securebench.importers.row import LeftOut

BENCHMARK: Final = "gsm8k"
MANIFEST: Final[dict[str, Any]] = {
    "id": BENCHMARK,
    "version": 1,
    "defaults": {"family": "short_answer", "environment": {"timeout_seconds": 600}},
}
"""The manifest written if the output directory has none."""

SPLITS: Final = ("test", "train")
_FIELDS: Final = ("question", "answer")
_MARK: Final = "\n#### "


def split_of(source: str) -> str:
    """Return the split that the file name of ``source`` begins with, such as ``train``; by default ``test``."""
    return next((split for split in SPLITS if source_name(source).startswith(split)), SPLITS[0])


def gsm8k_rows(data: bytes, name: str, split: str, left_out: LeftOut | None = None) -> list[ImportedRow]:
    """Return a row for each non-blank line of the authors' file.

    Raises :class:`ConfigError` with all problems. If ``left_out`` is given, the problems are added to it instead.
    """
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    return rows_of(enumerate(lines), lambda placed: _row(name, split, placed[0], *placed[1]), left_out)


def _row(name: str, split: str, place: int, number: int, line: bytes) -> ImportedRow:
    location, record = SourceLocation(name, number, 1), json_record(name, number, line)
    if not isinstance(record, dict) or not all(isinstance(record.get(field), str) for field in _FIELDS):
        raise bad_record(location, "expected an object with the strings 'question' and 'answer'")
    _, mark, text = record["answer"].rpartition(_MARK)
    value = strict_decimal(text.strip().replace(",", ""))
    if not mark or value is None:
        raise bad_record(location, "the last line of 'answer' must be '#### ' and a number")
    task = {
        "id": f"{BENCHMARK}/{split}/{place}",
        "family": "short_answer",
        "input": {"question": record["question"], "answer_format": "a number"},
        "eval": {"accepted_answers": [int(value) if value == value.to_integral_value() else float(value)]},
        "metadata": {"benchmark": BENCHMARK},
    }
    return ImportedRow(task, record, location)
