"""The egress log, ``egress.jsonl``."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import StorageError
from securebench.results.records.redaction import Redactor
from securebench.results.run_directory import egress_log
from securebench.results.run_directory.egress_log import EGRESS_LOG, EgressLog

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.resources import JsonValue

KEY = "sk-canary-0123456789"


def opened(directory: Path) -> EgressLog:
    """Open the log in ``directory``."""
    return EgressLog(directory / EGRESS_LOG, Redactor(credentials=[KEY]))


def logged(directory: Path) -> list[dict[str, Any]]:
    """Return the logged decisions."""
    return [json.loads(line) for line in (directory / EGRESS_LOG).read_bytes().splitlines()]


def test_a_decision_is_a_line_at_once(tmp_path: Path) -> None:
    """Each decision is in the file as soon as it is logged, and numbers stay numbers."""
    decision: dict[str, JsonValue] = {
        "time": 1.5,
        "task_id": "a",
        "host": "x.example",
        "port": 443,
        "decision": "denied",
        "address": None,
    }
    with opened(tmp_path) as log:
        log(decision)
        assert logged(tmp_path) == [decision]
        log({**decision, "bytes": 7})
    assert logged(tmp_path)[1]["bytes"] == 7
    assert not log.trouble


def test_an_earlier_part_stays_but_for_its_torn_line(tmp_path: Path) -> None:
    """A resumed run continues after the last complete line, and moves an incomplete line to another file."""
    for number, left in enumerate((b'{"task_id": "a"}\n{"task_', b"{"), start=1):
        (tmp_path / EGRESS_LOG).write_bytes(left)
        with opened(tmp_path) as log:
            log({"task_id": "b"})
        whole = [{"task_id": "a"}] if b"\n" in left else []
        assert logged(tmp_path) == [*whole, {"task_id": "b"}]
        assert (tmp_path / f"{EGRESS_LOG}.torn-{number}").read_bytes() == left.rpartition(b"\n")[2]


def test_no_key_and_no_line_of_its_own_comes_in_by_a_host(tmp_path: Path) -> None:
    """J15, M13: texts such as a requested host are redacted, clipped and escaped. They add no key and no line."""
    with opened(tmp_path) as log:
        log({"task_id": "a", "host": f"{KEY}.evil.example\n{{}}\x1b[2J", "reason": "x" * 5000, "odd": [KEY]})
    text = (tmp_path / EGRESS_LOG).read_bytes()
    assert KEY.encode() not in text
    assert len(text) < 1000
    assert text.count(b"\n") == 1
    assert b"\x1b" not in text


def test_a_task_that_asks_without_end_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """J18: the lines of one task are limited and the last one says so; another task is still logged."""
    monkeypatch.setattr(egress_log, "MAX_LINES_A_TRIAL", 3)
    with opened(tmp_path) as log:
        for number in range(10):
            log({"task_id": "loud", "port": number})
        log({"task_id": "quiet"})
    lines = logged(tmp_path)
    assert [line.get("port") for line in lines] == [0, 1, None, None]
    assert lines[2]["kind"] == "log"
    assert lines[3] == {"task_id": "quiet"}


def test_a_full_log_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the log is limited, including lines from before a resume, and ``trouble`` says that it is full."""
    monkeypatch.setattr(egress_log, "MAX_BYTES", 40)
    with opened(tmp_path) as log:
        log({"task_id": "a"})
    with opened(tmp_path) as log:
        log({"task_id": "b"})
        log({"task_id": "c"})
        log({"task_id": "d"})
    assert [line["task_id"] for line in logged(tmp_path)] == ["a", "b"]
    assert "is full" in log.trouble


@pytest.mark.parametrize("taken", [None, 5])
def test_a_decision_that_cannot_be_logged_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int | None
) -> None:
    """If the disk has room for no line or only a part of it, the caller gets an error and no partial line is left."""
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if taken is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:taken])

    with opened(tmp_path) as log:
        log({"task_id": "a"})
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(StorageError, match=EGRESS_LOG):
                log({"task_id": "b"})
        log({"task_id": "c"})
    assert [line["task_id"] for line in logged(tmp_path)] == ["a", "c"]


def test_late_decisions_are_no_fault(tmp_path: Path) -> None:
    """A decision that arrives after the log was closed is dropped without an error."""
    with opened(tmp_path) as log:
        pass
    log({"task_id": "late"})
    assert logged(tmp_path) == []


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    """Lines that eight threads log at the same time are complete and not mixed."""
    with opened(tmp_path) as log, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: log({"task_id": str(number % 8), "host": "h" * 200}), range(400)))
    assert len(logged(tmp_path)) == 400


def test_it_is_never_written_through_a_link(tmp_path: Path) -> None:
    """A symbolic link in place of the log is refused."""
    (tmp_path / EGRESS_LOG).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        opened(tmp_path)
