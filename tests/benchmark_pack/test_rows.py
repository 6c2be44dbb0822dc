"""Rows: one JSON object per line of the tasks file."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from pack_files import MANIFEST, codes_of, load, problems_of, row, write_pack
from securebench.benchmark_pack import load_benchmark_pack, rows
from securebench.errors import ConfigError, PathPolicyError
from securebench.strict_input.faults import MAX_PROBLEMS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_row_is_read_as_it_stands(tmp_path: Path) -> None:
    """The id, family, fields, metadata and position of a row are kept."""
    pack = load(tmp_path, b"", row(metadata={"source": "ours"}))
    read = pack.rows[0]
    assert (read.id, read.family, read.eval, read.metadata) == (
        "multiple_choice/1",
        "multiple_choice",
        {"answer": "B"},
        {"source": "ours"},
    )
    assert (read.source.line, read.source.offset) == (2, 1)


def test_blank_lines_are_skipped_and_the_last_needs_no_end(tmp_path: Path) -> None:
    """K08: blank lines, CRLF and a missing line feed at the end do not change which rows are read."""
    text = json.dumps(row())
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    (tmp_path / "tasks.jsonl").write_bytes(f"\r\n  \n{text}\r\n\n{text.replace('/1', '/2')}".encode())
    pack = load_benchmark_pack(tmp_path / "manifest.yaml", tmp_path / "tasks.jsonl")
    assert [read.id for read in pack.rows] == ["multiple_choice/1", "multiple_choice/2"]
    assert [read.source.line for read in pack.rows] == [3, 5]


def test_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    """K08: U+2028, U+0085 and other characters at which ``str.splitlines`` splits do not end a row."""
    question = "a\u2028b\u0085c\u001cd\u2029e"
    line = json.dumps(row(input={"question": question, "choices": ["x", "y"]}), ensure_ascii=False)
    pack = load(tmp_path, line.replace("\u001c", "\\u001c").encode())
    assert pack.rows[0].input["question"] == question


@pytest.mark.parametrize(
    ("line", "code", "column"),
    [
        pytest.param(b'\xef\xbb\xbf{"id": "a"}', "file-encoding", 1, id="K08-BOM"),
        pytest.param(b'{"id": "a\0"}', "file-encoding", 10, id="K08-NUL"),
        pytest.param(b'{"id": "\xff"}', "file-encoding", 9, id="K08-not-UTF-8"),
        pytest.param(b'{"id": "a", "id": "b"}', "key-duplicate", 13, id="K02-duplicate"),
        pytest.param(b'{"id": "a", "input": {"x": NaN}}', "json-value", 28, id="K06-NaN"),
        pytest.param(b'[{"id": "a"}]', "field-type", 1, id="not-an-object"),
        pytest.param(b"null", "field-type", 1, id="null"),
        pytest.param(b'{"id": 7}', "field-type", 8, id="id-number"),
        pytest.param(b'{"id": "a", "famly": "x"}', "field-unknown", 13, id="unknown-key"),
        pytest.param(b'{"id": "a", "input": null}', "field-type", 22, id="null-is-not-absent"),
        pytest.param(b'{"id": "a"}', "field-missing", 1, id="no-family"),
        pytest.param(b'{"family": "multiple_choice"}', "field-missing", 1, id="no-id"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(tmp_path: Path, line: bytes, code: str, column: int) -> None:
    """Each fault in a row is reported with its code, line and column."""
    problem = problems_of(tmp_path, row(), line)[0]
    assert problem.location is not None
    assert (problem.code, problem.location.line, problem.location.column) == (code, 2, column)


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """Invalid JSON, invalid rows and rows that break their family's rules are reported together, in line order."""
    found = problems_of(
        tmp_path,
        row(eval={"answer": "Z"}),
        b"{",
        row(id="x", environment={"timeout_seconds": -1}, eval={"answr": "A"}),
        row(id="y", family="multiple_choise"),
    )
    assert [(problem.code, problem.location.line if problem.location else 0) for problem in found] == [
        ("answer-unknown", 1),
        ("json-syntax", 2),
        ("timeout-invalid", 3),
        ("field-missing", 3),
        ("field-unknown", 3),
        ("family-unknown", 4),
    ]


def test_typos_get_a_suggestion(tmp_path: Path) -> None:
    """The problem for an unknown key, family or enumerated value suggests the most similar known one."""
    hints = [
        problem.hint
        for problem in problems_of(
            tmp_path,
            row(id="a", famly="x"),
            row(id="b", family="short_anser"),
            row("code_completion", id="c", eval={"tests": {"source": "inlin", "code": "x"}}),
            row("short_answer", id="d", eval={"accepted_answer": ["x"], "accepted_answers": ["x"]}),
        )
    ]
    assert hints == [f"did you mean {word!r}?" for word in ("family", "short_answer", "inline", "accepted_answers")]


def test_beyond_a_hundred_problems_are_counted(tmp_path: Path) -> None:
    """The first hundred problems are reported in full, and one more says how many are not shown."""
    found = problems_of(tmp_path, *[b"{"] * 130)
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1].message == "30 more problems not shown"


@pytest.mark.parametrize(
    "other",
    ["task-1", "TASK-1", "task-1\u200b", "t\u0430sk-1", "\uff54ask-1", "ta\u017fk-1"],
    ids=["K10-same", "K10-case", "K10-zero-width", "K10-homoglyph", "K10-full-width", "K10-long-s"],
)
def test_ids_that_look_alike_are_refused(tmp_path: Path, other: str) -> None:
    """K10: two ids that are equal, look alike or differ only in case are refused."""
    assert codes_of(tmp_path, row(id="task-1"), row(id=other))[0] in ("id-duplicate", "id-invalid")


def test_ids_in_two_spellings_are_refused(tmp_path: Path) -> None:
    """K10: the composed and the decomposed Unicode form of an id are duplicates."""
    assert codes_of(tmp_path, row(id="caf\u00e9"), row(id="cafe\u0301")) == ["id-duplicate"]


@pytest.mark.parametrize(
    "task_id",
    [
        "",
        " a",
        "a ",
        "-rf",
        "--help",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "./a",
        "a\\b",
        "a\nb",
        "a\x00b",
        "x" * 201,
        "a\u202eb",
        "a\u200b",
        "\ud83d",
    ],
    ids=ascii,
)
def test_k11_odd_ids_are_refused(tmp_path: Path, task_id: str) -> None:
    """K11: empty, over-long and path-unsafe ids, and ids with a leading dash or invisible characters, are refused."""
    assert codes_of(tmp_path, row(id=task_id))[0] in ("id-invalid", "json-value")


@pytest.mark.parametrize(
    "task_id", ["HumanEval/0", "a_b", "django__django-11099", "CON", "问题/1", "a:b@c+d", "x" * 200]
)
def test_ids_in_use_are_taken(tmp_path: Path, task_id: str) -> None:
    """K11: an id may contain slashes or letters of any script, or be a reserved file name such as ``CON``.

    This is safe, because a task's directory is named by a hash.
    """
    assert load(tmp_path, row(id=task_id)).rows[0].id == task_id


@pytest.mark.parametrize(
    "name", ["../../etc/x", "a/b", "", "a b", "a.json", "x" * 65, "a\0", "-a", "\u0430"], ids=ascii
)
def test_field_names_that_cannot_be_file_names_are_refused(tmp_path: Path, name: str) -> None:
    """F18: each field becomes a file, so a field name that is unsafe as a file name is refused."""
    assert codes_of(tmp_path, row("tool_call", input={name: 1})) == ["resource-name"]
    assert codes_of(tmp_path, row("tool_call", input={}, eval={name: 1})) == ["resource-name"]


@pytest.mark.parametrize(
    ("inputs", "evals", "assets"),
    [
        pytest.param({"x": 1}, {"x": 1}, [], id="both-lanes"),
        pytest.param({"x": 1, "X": 1}, {}, [], id="case"),
        pytest.param({"assets": 1}, {}, [{"path": "a.txt"}], id="input-named-assets"),
        pytest.param({}, {"Assets": 1}, [{"path": "a.txt"}], id="eval-named-assets"),
    ],
)
def test_a_resource_name_stands_once(
    tmp_path: Path, inputs: dict[str, Any], evals: dict[str, Any], assets: list[dict[str, Any]]
) -> None:
    """Two fields with the same name, or a field named like the assets, are refused, and the problem has a location."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a.txt").write_text("x")
    problem = problems_of(tmp_path, row("tool_call", input=inputs, eval=evals, assets=assets))[0]
    assert problem.code == "resource-duplicate"
    assert problem.location is not None
    assert problem.location.column is not None


def test_metadata_is_opaque_but_small(tmp_path: Path) -> None:
    """K24: metadata of any shape is kept, but metadata that is too large or too deeply nested is refused."""
    deep: dict[str, Any] = {"a": [{"b": None}]}
    assert load(tmp_path, row(metadata=deep)).rows[0].metadata == deep
    assert codes_of(tmp_path, row(metadata={"x": "y" * 70_000})) == ["metadata-too-large"]
    nested: Any = 1
    for _ in range(40):
        nested = [nested]
    assert codes_of(tmp_path, row(metadata={"x": nested})) == ["too-deep"]


def test_a_row_is_not_endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K08: a row or a tasks file that is larger than its limit is refused."""
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 400)
    assert codes_of(tmp_path, row(metadata={"x": "y" * 400})) == ["file-too-large"]
    monkeypatch.setattr(rows, "MAX_TASKS_BYTES", 10)
    assert codes_of(tmp_path, row()) == ["file-too-large"]


def test_rows_and_their_values_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K08: a tasks file with too many rows, or too many values in all rows together, is refused."""
    monkeypatch.setattr(rows, "MAX_ROWS", 2)
    assert codes_of(tmp_path, *[row(id=f"t{index}") for index in range(3)]) == ["file-too-large"]
    monkeypatch.setattr(rows, "MAX_PACK_VALUES", 5)
    assert codes_of(tmp_path, row()) == ["file-too-large"]


def test_too_many_rows_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """K08: 150,000 rows are refused quickly, because they are only counted; blank lines do not count as rows."""
    many = [b'{"id": "a"}'] * (rows.MAX_ROWS + 50_000)
    with processor_seconds(2):
        assert codes_of(tmp_path, *many) == ["file-too-large"]
    assert load(tmp_path, row(), *[b" "] * (rows.MAX_ROWS + 10)).rows


def test_a_pack_is_named_by_paths_or_texts(tmp_path: Path) -> None:
    """D2: ``load_benchmark_pack`` accepts paths as strings and as ``Path`` objects."""
    manifest, tasks = write_pack(tmp_path, row())
    assert load_benchmark_pack(str(manifest), str(tasks)).rows == load_benchmark_pack(manifest, tasks).rows


def test_an_unsafe_path_is_a_path_policy_error(tmp_path: Path) -> None:
    """D85: a pack with an unsafe path and another problem raises ``PathPolicyError`` with both problems.

    Without the unsafe path, the other problem raises a plain ``ConfigError``.
    """
    manifest, tasks = write_pack(tmp_path, row(assets=[{"path": "../x"}]), row(id="b", evel={}))
    with pytest.raises(PathPolicyError) as refused:
        load_benchmark_pack(manifest, tasks)
    assert {problem.code for problem in refused.value.problems} == {"path-unsafe", "field-unknown"}
    manifest, tasks = write_pack(tmp_path, row(evel={}))
    with pytest.raises(ConfigError) as other:
        load_benchmark_pack(manifest, tasks)
    assert not isinstance(other.value, PathPolicyError)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    """A tasks file with only blank lines is refused, because a pack has at least one task."""
    assert codes_of(tmp_path, b"", b"  ") == ["pack-empty"]


def test_thousands_of_bad_rows_take_bounded_time(tmp_path: Path) -> None:
    """K08: 3,000 rows with 100 faults each take bounded time, because most of the problems are only counted."""
    bad = b'{"id": "a", ' + b", ".join(b'"k%d": [1, 1e999]' % index for index in range(100)) + b"}"
    with processor_seconds(20):
        assert problems_of(tmp_path, *[bad] * 3000)[-1].code == "more-problems"


ENVIRONMENTS = [
    pytest.param({"timeout_seconds": value}, "timeout-invalid", id=f"K16-timeout-{value}")
    for value in (0, -1, 1e9, 86401)
]
ENVIRONMENTS += [
    pytest.param({"timeout_seconds": value}, "field-type", id=f"K16-timeout-{value!r}")
    for value in ("60", True, None, "inf")
]
ENVIRONMENTS += [
    pytest.param({"workdir": value}, "workdir-unsafe", id=f"K16-workdir-{value!r}")
    for value in ("/", "/proc", "app", "", "/app/../etc", "/dev/shm", "/sys/x")
]
ENVIRONMENTS += [
    pytest.param({"image": value}, "image-invalid", id=f"K15-image-{value!r}")
    for value in (
        "--privileged img",
        "-v",
        "img;rm",
        "$(id)",
        "a b",
        "",
        "IMG",
        "img:",
        "img@sha256:12",
        "a//b",
        "img\n",
        "http://x/y",
        "x" * 600,
        "img:t:t",
        "\u0430pp",
    )
]


@pytest.mark.parametrize(("environment", "code"), ENVIRONMENTS)
def test_an_abusive_environment_is_refused(tmp_path: Path, environment: dict[str, Any], code: str) -> None:
    """K15, K16: invalid or unsafe images, working directories and time limits are refused."""
    assert codes_of(tmp_path, row(environment=environment)) == [code]


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "python:3.11-slim",
        "docker.io/library/python:3.11",
        "localhost:5000/a/b-c_d:v1.0",
        "registry.example.com:443/x@sha256:" + "a" * 64,
        "sha256:" + "0" * 64,
        "securebench/python:3.11",
    ],
)
def test_image_references_are_taken(tmp_path: Path, image: str) -> None:
    """Image references with a name, a registry with a port, a tag or a digest are accepted."""
    assert load(tmp_path, row(environment={"image": image})).rows[0].environment.image == image


def test_an_unknown_environment_key_is_refused(tmp_path: Path) -> None:
    """J20, I02: a pack cannot request network, privileges or mounts, because unknown environment keys are refused."""
    for key in ("network", "privileged", "cap_add", "volumes", "pid", "env"):
        assert codes_of(tmp_path, row(environment={key: "host"})) == ["field-unknown"]


GARBAGE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "a", "../x", "multiple_choice", "A", "inline"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "family", "path", "mount", "question", "choices", "answer", "tests", "source", "command"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {"id": st.just("a") | GARBAGE},
        optional={
            "family": st.sampled_from(["multiple_choice", "terminal_task", "tool_call", "artifact_task"]) | GARBAGE,
            "input": GARBAGE,
            "eval": st.dictionaries(
                st.sampled_from(["answer", "checker", "test_files", "run_tests", "reference_artifact"]), GARBAGE
            )
            | GARBAGE,
            "assets": GARBAGE,
            "environment": GARBAGE,
            "metadata": GARBAGE,
        },
    )
)
def test_any_row_is_taken_or_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    """A row with arbitrary values compiles, or is refused with located problems; nothing else is raised."""
    for problem in problems_of(tmp_path, value):
        assert problem.location is not None
        assert problem.location.line == 1


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_taken_or_refused(tmp_path: Path, noise: bytes, where: int) -> None:
    """A valid row with any bytes inserted is loaded, or refused with a configuration error."""
    text = json.dumps(row()).encode()
    manifest, tasks = write_pack(tmp_path, text[:where] + noise + text[where:])
    with contextlib.suppress(ConfigError):
        load_benchmark_pack(manifest, tasks)
