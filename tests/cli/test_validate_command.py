"""``securebench validate``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from pack_files import row, write_pack
from securebench.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


CODE_EVAL = {"tests": {"source": "inline", "code": "assert 1"}}


def validate(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["validate", *map(str, arguments)])


def test_a_right_pack_is_summed_up(tmp_path: Path) -> None:
    """For a valid pack, families, rows, candidates and lanes are shown, and the exit code is 0."""
    write_pack(tmp_path, row(), row(id="b"), row("code_completion", eval=CODE_EVAL))
    done = validate(tmp_path)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "family\trows\tcandidate\tfields by lane",
        "multiple_choice\t2\ttext\tpublic: question, choices; hidden: answer",
        "code_completion\t1\tcode\tpublic: prompt, language, starter_code; evaluation_inputs: tests",
        "valid: my-benchmark, 3 tasks",
    ]


def test_a_pack_is_named_in_three_ways(tmp_path: Path) -> None:
    """A pack is named by its directory, its manifest, or a tester YAML that refers to its manifest and tasks file.

    If the tasks file has another name, ``--tasks`` names it.
    """
    directory = tmp_path / "pack"
    directory.mkdir()
    manifest, tasks = write_pack(directory, row())
    tester = tmp_path / "tester.yaml"
    tester.write_text(
        'schema_version: "0.2"\nrun: {id: a, output_dir: runs}\n'
        "benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}\n"
        "harness: {type: command, config: {command: x}}\n"
    )
    outputs = {validate(name).stdout for name in (directory, manifest, tester)}
    assert len(outputs) == 1
    elsewhere = tasks.rename(tmp_path / "rows.jsonl")
    assert validate(directory).exit_code == 1
    assert validate(directory, "--tasks", elsewhere).stdout in outputs


def test_a_tester_yaml_is_not_combined_with_tasks(tmp_path: Path) -> None:
    """``--tasks`` with a tester YAML is wrong usage, because the tester YAML names its own tasks file."""
    _, tasks = write_pack(tmp_path, row())
    tester = tmp_path / "tester.yaml"
    tester.write_text('schema_version: "0.2"\nbenchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}\n')
    done = validate(tester, "--tasks", tasks)
    assert done.exit_code == 2
    assert f"{tester} is a tester YAML" in done.stderr
    assert "leave out --tasks" in done.stderr


def test_the_settings_of_an_agent_with_a_provider_are_checked(tmp_path: Path) -> None:
    """An unsafe base URL and an unknown budget key in a tester YAML are reported with their locations."""
    directory = tmp_path / "pack"
    directory.mkdir()
    write_pack(directory, row())
    tester = tmp_path / "tester.yaml"
    tester.write_text(
        'schema_version: "0.2"\nrun: {id: a, output_dir: runs}\n'
        "benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}\n"
        "harness:\n  type: codex\n  config:\n    model: m\n"
        "    base_url: http://api.example.com/v1\n    budget: {request: 1}\n"
    )
    done = validate(tester)
    assert done.exit_code == 1
    assert f"{tester}:8:15" in done.stderr
    assert "base-url-unsafe" in done.stderr
    assert f"{tester}:9:14" in done.stderr
    assert "did you mean 'requests'?" in done.stderr


def test_every_problem_is_shown_with_its_place(tmp_path: Path) -> None:
    """For an invalid pack, every problem is printed to stderr with its location, and the exit code is 1."""
    _, tasks = write_pack(tmp_path, row(eval={"answer": "Z"}), b"{")
    done = validate(tmp_path)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert f"{tasks}:1:" in done.stderr
    assert "[answer-unknown]" in done.stderr
    assert f"{tasks}:2:2" in done.stderr
    assert done.stderr.endswith("2 problems found\n")


def test_the_report_for_programs_has_every_part(tmp_path: Path) -> None:
    """``--json`` prints code, message, file, line, column, pointer and hint of each problem to stdout."""
    _, tasks = write_pack(tmp_path, row(evel={}))
    done = validate(tmp_path, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "valid": False,
        "problems": [
            {
                "code": "field-unknown",
                "message": "unknown key 'evel'",
                "file": str(tasks),
                "line": 1,
                "column": json.dumps(row(evel={})).index('"evel"') + 1,
                "pointer": "/evel",
                "hint": "did you mean 'eval'?",
            }
        ],
        "warnings": [],
        "families": [],
    }


def test_the_report_of_a_right_pack_lists_families(tmp_path: Path) -> None:
    """``--json`` of a valid pack has the families and no problems."""
    write_pack(tmp_path, row())
    assert json.loads(validate(tmp_path, "--json").stdout) == {
        "valid": True,
        "problems": [],
        "warnings": [],
        "families": [
            {
                "family": "multiple_choice",
                "rows": 1,
                "candidate": "text",
                "lanes": {"public": ["question", "choices"], "hidden": ["answer"]},
            }
        ],
    }


_BROKEN = {"tests": {"source": "inline", "code": "x = 1\nassert add( == 5"}}


def test_tests_that_do_not_compile_are_a_problem(tmp_path: Path) -> None:
    """D3: if the image's Python version is known, tests that do not compile are a problem. No test code is shown."""
    write_pack(tmp_path, row("code_completion", eval=_BROKEN))
    done = validate(tmp_path)
    assert done.exit_code == 1
    assert "[tests-unusable]" in done.stderr
    assert "compiling the tests with Python" in done.stderr
    assert "fails at line 2" in done.stderr
    assert "add(" not in done.stderr


def test_what_may_go_wrong_is_a_warning(tmp_path: Path) -> None:
    """D97: a pack with a rubric in words, or with broken tests for an unknown Python version, is valid.

    Each of the two causes a warning. The rubric is not printed.
    """
    write_pack(
        tmp_path,
        row("free_response", eval={"rubric": "Say something kind."}),
        row("code_completion", id="b", eval=_BROKEN, environment={"image": "python:3.99"}),
    )
    done = validate(tmp_path)
    assert done.exit_code == 0
    assert done.stderr.count("warning: ") == 2
    assert "Say something" not in done.stderr
    report = json.loads(validate(tmp_path, "--json").stdout)
    assert [warning["code"] for warning in report["warnings"]] == ["rubric-unsupported", "tests-unusable"]
    assert [warning["line"] for warning in report["warnings"]] == [1, 2]


def test_no_hidden_value_is_shown(tmp_path: Path) -> None:
    """F13: neither the summary of a valid pack nor the problems of an invalid one contain an answer."""
    write_pack(tmp_path, row("short_answer", eval={"accepted_answers": ["canary-1"]}))
    assert "canary-1" not in validate(tmp_path).output + validate(tmp_path, "--json").output
    write_pack(tmp_path, row("short_answer", eval={"accepted_answers": "canary-1"}))
    assert "canary-1" not in validate(tmp_path).output + validate(tmp_path, "--json").output


def test_a_tester_file_is_checked_as_one(tmp_path: Path) -> None:
    """A wrong schema version of a tester YAML is reported; the file is not read as a manifest."""
    (tmp_path / "tester.yaml").write_text("schema_version: 0.2\n")
    assert "[schema-version]" in validate(tmp_path / "tester.yaml").stderr


def test_what_is_no_pack_is_refused(tmp_path: Path) -> None:
    """For a path that is no pack, the exit code is 1. For an unknown option or a missing argument, it is 2."""
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    for name in ("missing", "x.txt", "empty", "missing.yaml"):
        done = validate(tmp_path / name)
        assert done.exit_code == 1
        assert "problem" in done.stderr
    assert validate(tmp_path, "--nonsense").exit_code == 2
    assert validate().exit_code == 2


def test_a_hostile_pack_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    """M13: escape sequences in keys and values are shown escaped."""
    write_pack(tmp_path, row(**{"\x1b[2J": 1}), row(id="\x1b[31mred"))
    output = validate(tmp_path).stderr
    assert "\x1b" not in output
    assert "\\x1b" in output
