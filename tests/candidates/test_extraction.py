"""Tests of extraction: an agent's result becomes a candidate or a failure, and one rule finds the code in a text."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.candidates.extraction import (
    MAX_CANDIDATE_BYTES,
    code_from_text,
    decode,
    seal_file,
    seal_output,
    seal_workspace,
)
from securebench.candidates.store import CandidateStore
from securebench.errors import CandidateError, FailurePhase, FailureReason
from securebench.fs.walk import TreeLimits
from securebench.tasks import CandidateKind

if TYPE_CHECKING:
    from pathlib import Path

TEXT = CandidateKind.TEXT


@pytest.fixture
def store(tmp_path: Path) -> CandidateStore:
    """Return an empty store."""
    return CandidateStore(tmp_path / "candidates")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return an empty workspace."""
    path = tmp_path / "workspace"
    path.mkdir()
    return path


BAD_CONTENT = [
    pytest.param(b"", FailureReason.CANDIDATE_EMPTY, id="empty"),
    pytest.param(b" \t\r\n\xc2\xa0", FailureReason.CANDIDATE_EMPTY, id="whitespace"),
    pytest.param(b"\xef\xbb\xbf\n", FailureReason.CANDIDATE_EMPTY, id="byte order mark"),
    pytest.param(b"\xff\xfe\x00binary", FailureReason.CANDIDATE_NOT_TEXT, id="binary"),
    pytest.param("answer".encode("utf-16"), FailureReason.CANDIDATE_NOT_TEXT, id="UTF-16"),
    pytest.param(b"\xed\xa0\x80", FailureReason.CANDIDATE_NOT_TEXT, id="surrogate"),
    pytest.param(b"ans\0wer", FailureReason.CANDIDATE_NOT_TEXT, id="NUL"),
]


def test_output_is_sealed_as_it_is(store: CandidateStore) -> None:
    """Output is sealed byte for byte, because it is evidence: nothing is trimmed or rewritten."""
    sealed = seal_output(store, TEXT, b"\xef\xbb\xbf Answer: A\r\n", truncated=False)
    assert sealed.failure is None
    assert sealed.candidate is not None
    assert sealed.candidate.path.read_bytes() == b"\xef\xbb\xbf Answer: A\r\n"
    assert sealed.candidate.text == "\ufeff Answer: A\r\n"


@pytest.mark.parametrize(("data", "reason"), BAD_CONTENT)
def test_content_that_is_no_answer_is_kept_and_failed(
    store: CandidateStore, workspace: Path, data: bytes, reason: FailureReason
) -> None:
    """B20, E01: empty or binary content, from stdout or a file, is stored as evidence and fails with its reason."""
    (workspace / "answer").write_bytes(data)
    for sealed in (seal_output(store, TEXT, data, truncated=False), seal_file(store, TEXT, workspace, "answer")):
        assert sealed.failure is not None
        assert (sealed.failure.reason, sealed.failure.phase) == (reason, FailurePhase.SEAL)
        assert sealed.candidate is not None
        assert sealed.candidate.path.read_bytes() == data


def test_a_part_of_an_output_is_no_candidate(store: CandidateStore) -> None:
    """E08, B20: truncated or oversized output fails as too large, and no part of it becomes a candidate."""
    for data, truncated in ((b"x", True), (b"x" * (MAX_CANDIDATE_BYTES + 1), False)):
        sealed = seal_output(store, TEXT, data, truncated=truncated)
        assert sealed.candidate is None
        assert sealed.failure is not None
        assert sealed.failure.reason is FailureReason.CANDIDATE_TOO_LARGE
    assert seal_output(store, TEXT, b"x" * MAX_CANDIDATE_BYTES, truncated=False).failure is None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("absent", FailureReason.CANDIDATE_MISSING),
        ("large", FailureReason.CANDIDATE_TOO_LARGE),
        ("link", FailureReason.UNSAFE_WORKSPACE),
        ("fifo", FailureReason.UNSAFE_WORKSPACE),
        ("directory", FailureReason.UNSAFE_WORKSPACE),
    ],
)
def test_a_file_that_is_no_candidate_fails(
    store: CandidateStore, workspace: Path, host_canary: Path, kind: str, reason: FailureReason
) -> None:
    """H01, H05, H07: a missing or too large answer, a link, a FIFO or a directory gives a reason and no candidate."""
    answer = workspace / "answer"
    if kind == "link":
        answer.symlink_to(host_canary)
    elif kind == "fifo":
        os.mkfifo(answer)
    elif kind == "directory":
        answer.mkdir()
    elif kind == "large":
        answer.write_bytes(b"x" * (MAX_CANDIDATE_BYTES + 1))
    sealed = seal_file(store, TEXT, workspace, "answer")
    assert sealed.candidate is None
    assert sealed.failure is not None
    assert sealed.failure.reason is reason
    assert "answer" in sealed.failure.message or reason is FailureReason.CANDIDATE_TOO_LARGE


def test_a_workspace_is_sealed_or_fails_by_name(store: CandidateStore, workspace: Path) -> None:
    """H: a workspace becomes a candidate; one that is too large or contains a FIFO fails with the matching reason."""
    (workspace / "file").write_text("content")
    kind = CandidateKind.WORKSPACE
    assert seal_workspace(store, kind, workspace).candidate is not None
    too_large = seal_workspace(store, kind, workspace, TreeLimits(total_bytes=6)).failure
    os.mkfifo(workspace / "pipe")
    unsafe = seal_workspace(store, kind, workspace).failure
    assert too_large is not None
    assert unsafe is not None
    assert too_large.reason is FailureReason.CANDIDATE_TOO_LARGE
    assert unsafe.reason is FailureReason.UNSAFE_WORKSPACE
    assert "pipe: is a FIFO" in unsafe.message


CODE = "def f():\n    return 1\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(CODE, CODE, id="plain"),
        pytest.param(f"```python\n{CODE}```", CODE, id="one block"),
        pytest.param(f"Here it is:\n\n```\n{CODE}```\n\nGood luck!", CODE, id="one block in prose"),
        pytest.param(f"~~~~ py\n{CODE}~~~~~", CODE, id="tildes"),
        pytest.param(f"   ```py\n{CODE}  ```", CODE, id="indented fences"),
        pytest.param(f"````\n```\n{CODE}```\n````", f"```\n{CODE}```\n", id="fences inside a longer fence"),
        pytest.param(f"```\n~~~\n{CODE}```", f"~~~\n{CODE}", id="the other mark inside"),
        pytest.param("```\n```", "", id="an empty block"),
        pytest.param("\ufeffx = 1\r\ny = 2\r", "x = 1\ny = 2\n", id="byte order mark, CRLF and CR"),
        pytest.param("```python\r\nx = 1\r\n```\r\n", "x = 1\n", id="CRLF around a block"),
        pytest.param("x = 1\x0cy\u2028z", "x = 1\x0cy\u2028z", id="other separators are not lines"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_code_is_read_one_way(text: str, code: str) -> None:
    """B20: the code is the content of the only fenced block; without a block, it is the whole text.

    A byte order mark at the start is removed, and each line end becomes LF.
    """
    assert code_from_text(text) == code


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"```\n{CODE}```\nor\n```\n{CODE}```", id="two blocks"),
        pytest.param(f"```python\n{CODE}```\n```text\noutput\n```", id="two blocks of which one is no code"),
        pytest.param(f"```python\n{CODE}", id="never closed"),
        pytest.param(f"```\n{CODE}```\n```", id="a second one, never closed"),
        pytest.param(f"    ```\n{CODE}    ```", id="an indented code block"),
        pytest.param(f"``\n{CODE}``", id="two marks"),
        pytest.param(f"```a`b\n{CODE}```x", id="marks in a line of text"),
        pytest.param('def f():\n    """Like ```this```."""\n', id="marks in code"),
    ],
)
def test_what_is_ambiguous_is_taken_as_it_stands(text: str) -> None:
    """B20: if a text has several blocks, an unclosed block or no valid fence, the whole text is the code."""
    assert code_from_text(text) == text


@given(pieces=st.lists(st.sampled_from(["```", "~~~", "\n", "\r\n", *"`~\n ax\r\ufeff"]), max_size=30))
def test_extracted_code_is_a_part_of_the_text(pieces: list[str]) -> None:
    """B20: extraction raises no error for a text of fences, line ends and other characters.

    After the line ends of the text are changed to LF, the code is a part of it.
    """
    text = "".join(pieces)
    assert code_from_text(text) in re.sub("\r\n?", "\n", text)


@given(data=st.binary(max_size=100))
def test_decoding_gives_text_or_a_reason(data: bytes) -> None:
    """A15: any bytes decode to a text that is not blank, or raise ``CandidateError``; no other error is raised."""
    with suppress(CandidateError):
        text = decode(data)
        assert text.strip()
        assert text.encode() == data
