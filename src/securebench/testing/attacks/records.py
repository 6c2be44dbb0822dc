"""Texts in records that attack the page or terminal that shows them, and edits of a finished run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARK: Final = "hostile7f3a"
"""The text by which attacks are recognized: every attack contains it.

No element name, attribute name or address of a page may contain this text.
"""

ATTACKS: Final = (
    "<script>alert('hostile7f3a')</script>",
    "</pre></figure></details></main><h1 id=hostile7f3a class=hostile7f3a>100.0%</h1>",
    "</style><style>body{display:none;background:url(//hostile7f3a.example/x)}</style>",
    "</title></textarea></template><template><script>alert('hostile7f3a')</script></template>",
    "<svg onload=alert('hostile7f3a')><image href=http://hostile7f3a.example/x.png></svg>",
    '"><img src=http://hostile7f3a.example/x onerror=alert(1)>',
    "<iframe src='data:text/html,<script>alert(1)//hostile7f3a</script>'></iframe>",
    "<meta http-equiv=refresh content='0;url=http://hostile7f3a.example/'>",
    "<base href=http://hostile7f3a.example/><link rel=stylesheet href=//hostile7f3a.example>",
    "<a href=javascript:alert('hostile7f3a')>javascript:alert(1)</a> <form action=//hostile7f3a.example>",
    "&lt;script&gt;hostile7f3a&#60;script&#x3e; &quot; &amp;",
    "{{ 7*7 }} {% include 'hostile7f3a' %} {# #} ${alert(1)}",
    "<!-- hostile7f3a --> <![CDATA[ ]]> <?php ?> --> ]]>",
    "\x1b[2J\x1b]0;hostile7f3a\x07\x1b]8;;http://hostile7f3a.example\x1b\\ \r\x00\x7f\x9b31m",
    "hostile7f3a\u202egnp.exe\u2066 \u200b\ufeff\u2028\u2029\ud800\ufffe",
    "\u2713 passed\n100.0% pass rate hostile7f3a",
    "hostile7f3aZ" + "\u0321\u0334\u0300\u0301" * 200,
)
TEXT: Final = "\n".join(ATTACKS)


JOURNAL: Final = "candidates.jsonl"


@dataclass(frozen=True, slots=True)
class RecordEdit:
    """An edit of a finished run: its entry in the catalogue of attacks, a name, and a function that edits in place."""

    entry: str
    name: str
    edit: Callable[[Path], None]


def _of_lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    """Return an edit that replaces the lines of the journal by what ``change`` returns for them."""

    def edit(run: Path) -> None:
        path = run / JOURNAL
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return edit


def _failed(lines: list[bytes]) -> int:
    return next(index for index, line in enumerate(lines) if json.loads(line)["verification_status"] == "failed")


def _passed(lines: list[bytes]) -> int:
    return next(index for index, line in enumerate(lines) if json.loads(line)["verification_status"] == "passed")


def _as_passed(lines: list[bytes]) -> list[bytes]:
    """Turn all failures into passes by replacing text, as a line of sed would."""
    pairs = (
        (b'"verification_status": "failed"', b'"verification_status": "passed"'),
        (b'"passed": false', b'"passed": true'),
        (b'"score": 0.0', b'"score": 1.0'),
    )
    for old, new in pairs:
        lines = [line.replace(old, new) for line in lines]
    return lines


def _without_failures(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if b'"verification_status": "failed"' not in line]


def _failure_replaced(lines: list[bytes]) -> list[bytes]:
    """Replace a failure by a pass that keeps the failure's task, sequence number and hash of the previous record."""
    bad, good = json.loads(lines[_failed(lines)]), json.loads(lines[_passed(lines)])
    kept = {name: bad[name] for name in ("sequence", "previous", "task_id")}
    lines[_failed(lines)] = json.dumps(good | kept).encode() + b"\n"
    return lines


def _another_attempt(lines: list[bytes]) -> list[bytes]:
    record = json.loads(lines[_failed(lines)])
    record["provenance"]["attempt"] = 3
    lines[_failed(lines)] = json.dumps(record).encode() + b"\n"
    return lines


def _of_another_run(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1].replace(b'"run_id": "', b'"run_id": "another-')]


def _other_times(lines: list[bytes]) -> list[bytes]:
    return [re.sub(rb'"started_at": "20\d\d', b'"started_at": "2019', line) for line in lines]


def _duplicate_key(lines: list[bytes]) -> list[bytes]:
    index = _failed(lines)
    lines[index] = lines[index].rstrip()[:-1] + b', "verification_status": "passed", "passed": true}\n'
    return lines


def _flipped_bit(lines: list[bytes]) -> list[bytes]:
    line = bytearray(lines[1])
    line[len(line) // 2] ^= 1
    return [lines[0], bytes(line), *lines[2:]]


def _other_candidate(run: Path) -> None:
    path = next(path for path in sorted((run / "candidates").iterdir()) if path.is_file())
    path.chmod(0o644)
    path.write_bytes(b"Answer: right, but another one\n")


EDITS: Final = (
    RecordEdit("M01", "failures turned into passes", _of_lines(_as_passed)),
    RecordEdit("M01", "one bit flipped", _of_lines(_flipped_bit)),
    RecordEdit("M01", "keys repeated with other values", _of_lines(_duplicate_key)),
    RecordEdit("M03", "failures removed", _of_lines(_without_failures)),
    RecordEdit("M03", "the last record cut off", _of_lines(lambda lines: lines[:-1])),
    RecordEdit("M03", "the end of the last record cut off", _of_lines(lambda lines: [*lines[:-1], lines[-1][:-40]])),
    RecordEdit("M03", "two records swapped", _of_lines(lambda lines: [lines[1], lines[0], *lines[2:]])),
    RecordEdit("M03", "a record repeated", _of_lines(lambda lines: [*lines, lines[-1]])),
    RecordEdit("M04", "a failure replaced by a pass", _of_lines(_failure_replaced)),
    RecordEdit("M04", "attempts left out", _of_lines(_another_attempt)),
    RecordEdit("M05", "a candidate replaced", _other_candidate),
    RecordEdit("M11", "a record of another run", _of_lines(_of_another_run)),
    RecordEdit("M16", "other times", _of_lines(_other_times)),
)
