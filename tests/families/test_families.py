"""The rows that each family accepts and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pack_files import ROWS, load, problems_of, row
from securebench.errors import ConfigError
from securebench.families.base import Family
from securebench.families.multiple_choice import acceptable_choices
from securebench.families.registry import FAMILIES, validate_benchmark_row_family
from securebench.strict_input.models import WireModel
from securebench.tasks import CandidateKind, Environment

if TYPE_CHECKING:
    from pathlib import Path

ACTIVE = {
    "multiple_choice": CandidateKind.TEXT,
    "short_answer": CandidateKind.TEXT,
    "free_response": CandidateKind.TEXT,
    "code_completion": CandidateKind.CODE,
    "repo_patch": CandidateKind.PATCH,
    "terminal_task": CandidateKind.WORKSPACE,
}
DEFERRED = ("tool_call", "browser_task", "desktop_task", "artifact_task", "multimodal_qa", "preference_pair")


def changed(family: str, part: str, **fields: Any) -> dict[str, Any]:
    """Return a valid row with fields of ``input`` or ``eval`` changed; the value ``None`` removes a field."""
    fresh = row(family)
    fresh[part].update(fields)
    fresh[part] = {name: value for name, value in fresh[part].items() if value is not None}
    return fresh


def found(directory: Path, given: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the code and the JSON pointer of each problem of a row."""
    problems = problems_of(directory, given)
    return [(problem.code, problem.location.pointer if problem.location else "") for problem in problems]


def test_there_are_twelve_families() -> None:
    """Six families are active, each with one kind of candidate, and six are deferred. Two require a workspace."""
    assert {name: family.candidate_kind for name, family in FAMILIES.items() if family.active} == ACTIVE
    assert tuple(name for name, family in FAMILIES.items() if not family.active) == DEFERRED
    needing = {name for name, family in FAMILIES.items() if family.workspace_required}
    assert needing == {"repo_patch", "terminal_task"}


@pytest.mark.parametrize("family", sorted(ROWS))
def test_a_right_row_is_taken(tmp_path: Path, family: str) -> None:
    """A row with the documented fields of its family loads, and ``validate_benchmark_row_family`` accepts it."""
    validate_benchmark_row_family(load(tmp_path, row(family)).rows[0])


@pytest.mark.parametrize("family", sorted(ACTIVE))
def test_an_active_family_refuses_unknown_fields(tmp_path: Path, family: str) -> None:
    """F18: an unknown field of input or eval, such as a typo, is an error, which is reported at the field's key."""
    for part in ("input", "eval"):
        assert found(tmp_path, changed(family, part, zzz=1)) == [("field-unknown", f"/{part}/zzz")]


@pytest.mark.parametrize("family", DEFERRED)
def test_a_deferred_family_takes_any_field(tmp_path: Path, family: str) -> None:
    """A deferred family, which has no verifier yet, accepts any fields in ``input`` and ``eval``, or none."""
    assert found(tmp_path, row(family, input={"anything": [1, None]}, eval={"else": {"a": 1}})) == []
    assert found(tmp_path, row(family, input={}, eval={})) == []


@pytest.mark.parametrize(
    ("family", "part", "field"),
    [
        ("multiple_choice", "input", "question"),
        ("multiple_choice", "input", "choices"),
        ("multiple_choice", "eval", "answer"),
        ("short_answer", "input", "question"),
        ("short_answer", "eval", "accepted_answers"),
        ("free_response", "input", "prompt"),
        ("free_response", "eval", "rubric"),
        ("code_completion", "input", "prompt"),
        ("code_completion", "eval", "tests"),
        ("repo_patch", "input", "repo"),
        ("repo_patch", "input", "base_commit"),
        ("repo_patch", "input", "instructions"),
        ("repo_patch", "eval", "tests"),
        ("terminal_task", "input", "instructions"),
        ("terminal_task", "eval", "checker"),
    ],
)
def test_required_fields_are_required(tmp_path: Path, family: str, part: str, field: str) -> None:
    """A row without a required field is refused, and the problem names the field."""
    assert ("field-missing", f"/{part}/{field}") in found(tmp_path, changed(family, part, **{field: None}))


CASES: list[tuple[str, str, dict[str, Any], list[tuple[str, str]]]] = [
    ("multiple_choice", "input", {"question": "\u200b "}, [("field-empty", "/input/question")]),
    ("multiple_choice", "input", {"choices": []}, [("field-value", "/input/choices")]),
    ("multiple_choice", "input", {"choices": ["x", 2]}, [("field-type", "/input/choices/1")]),
    ("multiple_choice", "input", {"choices": ["x", " "]}, [("field-empty", "/input/choices/1")]),
    ("multiple_choice", "input", {"choices": [str(n) * 3 for n in range(101)]}, [("field-value", "/input/choices")]),
    ("multiple_choice", "input", {"choices": ["Paris", "paris."]}, [("choices-collide", "/input/choices/1")]),
    ("multiple_choice", "input", {"choices": ["x", "x  y", '"x y"']}, [("choices-collide", "/input/choices/2")]),
    ("multiple_choice", "input", {"choices": ["B", "x"]}, [("choices-collide", "/input/choices/0")]),
    ("multiple_choice", "eval", {"answer": True}, [("field-type", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": [1, True]}, [("field-type", "/eval/answer/1")]),
    ("multiple_choice", "eval", {"answer": 1.5}, [("answer-unknown", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": {"label": "A"}}, [("field-type", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": []}, [("field-value", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": ""}, [("answer-unknown", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": "D"}, [("answer-unknown", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": 3}, [("answer-unknown", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": -1}, [("answer-unknown", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": "1"}, [("answer-unknown", "/eval/answer")]),
    ("multiple_choice", "eval", {"answer": ["A", "four"]}, [("answer-unknown", "/eval/answer/1")]),
    ("short_answer", "eval", {"accepted_answers": []}, [("field-value", "/eval/accepted_answers")]),
    ("short_answer", "eval", {"accepted_answers": "x"}, [("field-type", "/eval/accepted_answers")]),
    ("short_answer", "eval", {"accepted_answers": ["x", "\u200b"]}, [("field-empty", "/eval/accepted_answers/1")]),
    ("short_answer", "eval", {"accepted_answers": [True]}, [("field-type", "/eval/accepted_answers/0")]),
    ("short_answer", "eval", {"tolerance": -0.1}, [("field-value", "/eval/tolerance")]),
    ("short_answer", "eval", {"tolerance": "1"}, [("field-type", "/eval/tolerance")]),
    ("short_answer", "eval", {"accepted_answers": ["x"]}, [("tolerance-without-number", "/eval/tolerance")]),
    ("short_answer", "input", {"context": 5}, [("field-type", "/input/context")]),
    ("free_response", "eval", {"rubric": ""}, [("field-empty", "/eval/rubric")]),
    ("free_response", "eval", {"rubric": ["x"]}, [("field-type", "/eval/rubric")]),
    ("code_completion", "input", {"language": "rust"}, [("language-unsupported", "/input/language")]),
    ("code_completion", "eval", {"tests": "assert 1"}, [("field-type", "/eval/tests")]),
    ("code_completion", "eval", {"tests": {"source": "inline", "code": " "}}, [("field-empty", "/eval/tests/code")]),
    ("code_completion", "eval", {"tests": {"source": "inline", "code": "a\0b"}}, [("field-value", "/eval/tests/code")]),
    ("code_completion", "eval", {"tests": {"source": "file", "code": "x"}}, [("field-value", "/eval/tests/source")]),
    (
        "code_completion",
        "eval",
        {"tests": {"source": "inline", "code": "x", "isolation": "none"}},
        [("field-value", "/eval/tests/isolation")],
    ),
    ("repo_patch", "input", {"base_commit": "--upload-pack=x"}, [("field-value", "/input/base_commit")]),
    ("repo_patch", "input", {"base_commit": "0123abc\n"}, [("field-value", "/input/base_commit")]),
    ("terminal_task", "eval", {"checker": "bash x"}, [("field-type", "/eval/checker")]),
    ("terminal_task", "eval", {"checker": {"command": []}}, [("field-value", "/eval/checker/command")]),
    ("terminal_task", "eval", {"checker": {"command": ["a", 1]}}, [("field-type", "/eval/checker/command/1")]),
    ("terminal_task", "eval", {"checker": {"command": "x\0"}}, [("field-value", "/eval/checker/command")]),
    ("terminal_task", "eval", {"needed_commands": ["chrot"]}, [("command-unknown", "/eval/needed_commands/0")]),
    ("terminal_task", "eval", {"needed_commands": ["chroot"] * 2}, [("field-duplicate", "/eval/needed_commands")]),
    (
        "terminal_task",
        "eval",
        {"checker": {"command": "x", "timeout_seconds": 0, "workdir": "/proc"}},
        [("workdir-unsafe", "/eval/checker/workdir"), ("timeout-invalid", "/eval/checker/timeout_seconds")],
    ),
]


@pytest.mark.parametrize(("family", "part", "fields", "expected"), CASES)
def test_a_wrong_row_is_refused(
    tmp_path: Path, family: str, part: str, fields: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """E01, E02, E07: each invalid field is reported with its code and its location."""
    assert found(tmp_path, changed(family, part, **fields)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"accepted_answers": [""]}, [("field-empty", "/eval/rubric/accepted_answers/0")]),
        ({"accepted_answers": []}, [("field-value", "/eval/rubric/accepted_answers")]),
        ({"rejected_answers": ["x", " \u200b"]}, [("field-empty", "/eval/rubric/rejected_answers/1")]),
        ({"min_token_f1": -1}, [("field-value", "/eval/rubric/min_token_f1")]),
        ({"min_token_f1": 1.01}, [("field-value", "/eval/rubric/min_token_f1")]),
        ({"min_token_f1": True}, [("field-type", "/eval/rubric/min_token_f1")]),
        ({"type": "contains_all"}, [("field-value", "/eval/rubric/type")]),
        ({"typ": "x"}, [("field-unknown", "/eval/rubric/typ")]),
        (
            {"rejected_answers": ["other", "r\u0430yleigh SCATTERING"]},
            [("rubric-contradiction", "/eval/rubric/rejected_answers/1")],
        ),
    ],
)
def test_k18_a_degenerate_rubric_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """K18: an invalid rubric is refused, such as one that every response passes or that no response can pass."""
    rubric = {**ROWS["free_response"]["eval"]["rubric"], **changes}
    assert found(tmp_path, changed("free_response", "eval", rubric=rubric)) == expected


def test_k18_a_threshold_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """K18: a row with the threshold NaN is refused when its JSON is read."""
    line = (
        b'{"id": "a", "family": "free_response", "input": {"prompt": "x"}, "eval": {"rubric": {"type": "contains_any", '
    )
    line += b'"accepted_answers": ["x"], "min_token_f1": NaN}}}'
    assert [problem.code for problem in problems_of(tmp_path, line)] == ["json-value"]


def test_a_rubric_that_one_word_meets_is_warned_of(tmp_path: Path) -> None:
    """K18: a row with `min_token_f1: 0` is valid, but its family warns that one shared word meets the rubric."""
    given = changed("free_response", "eval", rubric={"type": "contains_any", "accepted_answers": ["x y"]})
    given["eval"]["rubric"]["min_token_f1"] = 0
    assert found(tmp_path, given) == []
    warnings = FAMILIES["free_response"].warnings(given["input"], given["eval"], Environment())
    assert [fault.code for fault in warnings] == ["rubric-weak"]


@pytest.mark.parametrize(
    ("command", "expect", "codes"),
    [
        ("make test", {"fail_to_pass": ["a"]}, ["expect-ignored"]),
        (["python", "-m", "unittest", "-k", "x"], {"pass_to_pass": ["a"]}, ["expect-ignored"]),
        ("make test", {"fail_to_pass": []}, []),
        ("make test", {}, []),
        ("pytest -k x", {"fail_to_pass": ["a"]}, []),
    ],
)
def test_expected_tests_that_are_ignored_are_warned_of(
    tmp_path: Path, command: Any, expect: dict[str, Any], codes: list[str]
) -> None:
    """A row whose command can only be judged by its exit code may list expected tests, but gets a warning."""
    given = changed("repo_patch", "eval", tests={"source": "command", "command": command, "expect": expect})
    assert found(tmp_path, given) == []
    warnings = FAMILIES["repo_patch"].warnings(given["input"], given["eval"], Environment())
    assert [(fault.code, fault.path) for fault in warnings] == [(code, ("eval", "tests", "expect")) for code in codes]


EMPTY_PATCH = {"source": "inline", "patch": ""}


@pytest.mark.parametrize(
    ("family", "part", "fields"),
    [
        ("code_completion", "input", {"starter_code": ""}),
        ("repo_patch", "eval", {"tests": {"source": "command", "command": "true", "setup_patch": EMPTY_PATCH}}),
    ],
)
def test_an_optional_text_of_a_program_may_be_empty(
    tmp_path: Path, family: str, part: str, fields: dict[str, Any]
) -> None:
    """Empty starter code and an empty patch are valid."""
    assert found(tmp_path, changed(family, part, **fields)) == []


@pytest.mark.parametrize(
    ("answer", "choices", "expected"),
    [
        (3.14, ["3", "3.14"], {1}),
        (4, ["3", "4"], {1}),
        (3.0, ["3", "4"], {0}),
        (-7, ["-7", "7"], {0}),
        (1, ["1", "0"], {1}),
        (5, ["5", "5.0"], set()),
        (2.5, ["3", "4"], set()),
        (9, ["x", "y"], set()),
        (float("nan"), ["nan", "x"], set()),
        ([0, 3.14], ["3", "3.14"], {0, 1}),
    ],
)
def test_a_number_that_is_no_index_is_the_text_of_a_choice(answer: Any, choices: list[str], expected: set[int]) -> None:
    """An integer that is a valid index is read as an index. Any other number is compared with the choices' texts.

    It names a choice if exactly one text is that number. NaN names no choice.
    """
    assert acceptable_choices(choices, answer) == expected


def test_a_rubric_may_be_a_text(tmp_path: Path) -> None:
    """A row with a rubric in prose is valid, although no verifier supports it."""
    assert found(tmp_path, changed("free_response", "eval", rubric="Mentions scattering.")) == []


@pytest.mark.parametrize("language", ["python", "Python", "PYTHON3"])
def test_python_is_known_in_any_case(tmp_path: Path, language: str) -> None:
    """The language may be written in any case, and also as ``python3``."""
    assert found(tmp_path, changed("code_completion", "input", language=language)) == []


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ({"source": "inline"}, [("field-value", "/eval/tests/source")]),
        ({"workdir": "/elsewhere"}, [("workdir-unsafe", "/eval/tests/workdir")]),
        ({"workdir": "/testbed/../etc"}, [("workdir-unsafe", "/eval/tests/workdir")]),
        ({"timeout_seconds": float(10**9)}, [("timeout-invalid", "/eval/tests/timeout_seconds")]),
        ({"test_patch": {"source": "file", "patch": "x"}}, [("field-value", "/eval/tests/test_patch/source")]),
        ({"setup_patch": {"source": "inline"}}, [("field-missing", "/eval/tests/setup_patch/patch")]),
        ({"require": "exit_code"}, [("field-value", "/eval/tests/require")]),
        (
            {"require": "test_by_test", "command": "make test"},
            [("command-not-test-by-test", "/eval/tests/command")],
        ),
        ({"require": "test_by_test", "command": "python -m unittest"}, []),
        ({"require": "test_by_test", "command": ["python3", "-m", "pytest", "tests"]}, []),
        (
            {"candidate_policy": {"allow_paths": ["../x", "/etc/**", "src/**"]}},
            [
                ("path-unsafe", "/eval/tests/candidate_policy/allow_paths/0"),
                ("path-unsafe", "/eval/tests/candidate_policy/allow_paths/1"),
            ],
        ),
    ],
)
def test_tests_of_a_repository_are_checked(
    tmp_path: Path, tests: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """C21, K19: invalid ``tests`` are refused, such as a path outside the repository or a patch that is not inline."""
    merged = {**ROWS["repo_patch"]["eval"]["tests"], **tests}
    assert found(tmp_path, changed("repo_patch", "eval", tests=merged)) == expected


@pytest.mark.parametrize("workdir", ["/workspace", "/workspace/repo"])
def test_a_repository_keeps_off_the_workspace(tmp_path: Path, workdir: str) -> None:
    """C21: a repository in the directory of the agent's workspace, or below it, is refused."""
    given = row("repo_patch", environment={"workdir": workdir})
    assert ("workdir-unsafe", "/environment/workdir") in found(tmp_path, given)


def test_no_message_shows_an_eval_value(tmp_path: Path) -> None:
    """A problem with an eval field never contains the value of the field."""
    canary = "canary-5f1c"
    rows = [
        changed("multiple_choice", "eval", answer=canary),
        changed("short_answer", "eval", tolerance=canary),
        changed("free_response", "eval", rubric={"type": canary, "accepted_answers": canary}),
        changed("code_completion", "eval", tests={"source": canary, "code": 5, "isolation": canary}),
        changed("repo_patch", "eval", tests={"source": canary, "command": {"x": canary}, "workdir": canary}),
        changed("terminal_task", "eval", checker={"command": [canary, 1], "workdir": canary}, run_tests={"path": 1}),
    ]
    for given in rows:
        problems = problems_of(tmp_path, given)
        assert problems
        assert not any(canary in str(problem) for problem in problems)


@pytest.mark.parametrize(
    ("answer", "indexes"),
    [
        ("B", {1}),
        ("b", {1}),
        ("two", {1}),
        (" Two. ", {1}),
        (1, {1}),
        (["A", "three"], {0, 2}),
        (["A", 0, "one"], {0}),
        ("D", set()),
        (True, set()),
        (-1, set()),
    ],
)
def test_e07_an_answer_names_choices_by_label_text_or_index(answer: Any, indexes: set[int]) -> None:
    """E07: an answer is converted to the indexes of the choices it names. Values that name no choice are ignored."""
    assert acceptable_choices(["one", "two", "three"], answer) == indexes


def test_a_choice_may_be_its_own_label(tmp_path: Path) -> None:
    """The choices A and B in this order are valid: each text is the label of its own choice."""
    given = row(input={"question": "?", "choices": ["A", "B"]}, eval={"answer": "A"})
    assert found(tmp_path, given) == []


def test_a_field_without_a_lane_is_a_bug() -> None:
    """Declaring a family with an eval field that has no lane raises ``TypeError``."""

    class Eval(WireModel):
        answer: str

    with pytest.raises(TypeError, match="answer"):
        Family(name="x", summary="x", candidate_kind=CandidateKind.TEXT, input_model=WireModel, eval_model=Eval)


def test_validation_by_name_raises_every_problem_with_its_place(tmp_path: Path) -> None:
    """``validate_benchmark_row_family`` reports every invalid field, with its line, column and JSON pointer."""
    broken = load(tmp_path, changed("multiple_choice", "eval", answer=["Y", "Z"])).rows[0]
    with pytest.raises(ConfigError) as caught:
        validate_benchmark_row_family(broken)
    locations = [problem.location for problem in caught.value.problems]
    assert [(location.line, location.pointer) for location in locations if location] == [
        (1, "/eval/answer/0"),
        (1, "/eval/answer/1"),
    ]
    assert all(location and location.column is not None for location in locations)
