"""Suites: runs of several agents on several packs, which are checked and resumed together."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import FakeProducer
from securebench.errors import ConfigError, ImageError
from securebench.execution import retry
from securebench.results.comparison import compare, tally
from securebench.results.suite import read_runs
from securebench.tester_config.loader import read_tester_file
from securebench.tester_config.suite import load_suite
from securebench.tester_run import RunOptions
from securebench.tester_run.suite import run_suite
from securebench.testing.scripted_sandbox import ScriptedDriver
from tester_run.running import make_parts, row

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView
    from securebench.tester_config import HarnessConfig
    from securebench.tester_config.suite import Suite
    from securebench.tester_run.suite import SuiteOutcome

SUITE_YAML = """\
schema_version: "0.2"
suite:
  id: both
  output_dir: out
packs: [one, two]
agents:
  - name: right
    harness: {type: command, config: {command: [right]}}
  - name: wrong
    harness: {type: command, config: {command: [wrong]}}
run:
  trials: 2
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with two packs of two tasks and a suite file. Infrastructure failures are not retried."""
    monkeypatch.setattr(retry, "BACK_OFF", ())
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.yaml").write_text(f"id: {name}\nversion: 1\n")
        rows = [row(f"{name}/task-{number}") for number in range(2)]
        (tmp_path / name / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "suite.yaml").write_text(SUITE_YAML)
    return tmp_path


def load(root: Path) -> Suite:
    """Load the suite in ``root``."""
    return load_suite(read_tester_file(root / "suite.yaml"))


def edit(root: Path, old: str, new: str) -> None:
    """Replace ``old`` with ``new`` in the suite file."""
    path = root / "suite.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run(root: Path, hook: Any = None, **options: Any) -> list[SuiteOutcome]:
    """Run the suite in ``root``, and return the outcomes. Each agent answers with the only word of its command."""

    def producer(config: HarnessConfig) -> FakeProducer:
        (answer,) = config.config.command  # type: ignore[attr-defined]
        return FakeProducer(answer=answer, **({"hook": hook} if hook else {}))

    parts = make_parts(make_producer=producer, make_driver=lambda *_: ScriptedDriver())
    return run_suite(load(root), RunOptions(**options), lambda *_: nullcontext([]), parts).outcomes


def passed(outcomes: list[SuiteOutcome]) -> dict[str, tuple[int, int]]:
    """Return the numbers of passed and failed trials, by the path of the run."""
    return {
        outcome.run.path: (outcome.summary.passed, outcome.summary.failed) for outcome in outcomes if outcome.summary
    }


def test_every_agent_runs_on_every_pack(root: Path) -> None:
    """A suite has one run of each agent on each pack, with the shared settings."""
    assert passed(run(root)) == {"one/right": (4, 0), "one/wrong": (0, 4), "two/right": (4, 0), "two/wrong": (0, 4)}


def test_runs_of_a_suite_share_a_commitment_key(root: Path) -> None:
    """All runs of a suite have the same commitment key, so a comparison can compare their hidden content."""
    run(root)
    right, wrong, *_ = map(tally, read_runs(root / "out"))
    found = compare(right, wrong)
    assert (found.difference, found.method) == (-1.0, "bootstrap")
    assert not [note for note in found.notes if "hidden content" in note]


def test_models_multiply_an_agent(root: Path) -> None:
    """Each model of an agent has a separate run, in a directory whose name has no special characters."""
    codex = "{type: codex, config: {model: replaced}}, models: [gpt-5.5, org/other]}"
    edit(
        root,
        "  - name: wrong\n    harness: {type: command, config: {command: [wrong]}}\n",
        f"  - {{name: c, harness: {codex}\n",
    )
    found = [(one.agent, one.path, getattr(one.config.harness.config, "model", None)) for one in load(root).runs]
    assert ("c gpt-5.5", "one/c-gpt-5.5", "gpt-5.5") in found
    assert ("c org/other", "two/c-org-other", "org/other") in found


def test_a_second_run_needs_resume(root: Path) -> None:
    """Without ``--resume``, a directory with results is refused and not changed, and the message names the suite."""
    run(root)
    before = sorted((path, path.stat().st_mtime_ns) for path in (root / "out").rglob("*"))
    with pytest.raises(ConfigError) as caught:
        run(root)
    (problem,) = caught.value.problems
    assert problem.message == f"{root / 'out'} already contains the suite 'both'"
    assert problem.hint == "pass --resume to continue it, or choose another --output-dir"
    assert sorted((path, path.stat().st_mtime_ns) for path in (root / "out").rglob("*")) == before
    assert passed(run(root, resume=True))["two/right"] == (4, 0)


def test_an_interrupted_suite_resumes(root: Path) -> None:
    """Resuming a suite keeps finished runs unchanged, and finishes or starts the others."""

    def interrupt(_number: int, view: AgentView, _context: ProduceContext) -> None:
        if view.task_id == "two/task-1":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(root, interrupt)
    begun = {read.run_id for read in read_runs(root / "out")}
    assert begun == {"both-one-right", "both-one-wrong", "both-two-right"}
    before = (root / "out" / "one" / "right" / "candidates.jsonl").read_bytes()
    assert passed(run(root, resume=True)) == {
        "one/right": (4, 0),
        "one/wrong": (0, 4),
        "two/right": (4, 0),
        "two/wrong": (0, 4),
    }
    assert (root / "out" / "one" / "right" / "candidates.jsonl").read_bytes() == before


def test_an_agent_can_be_added(root: Path) -> None:
    """A suite with an additional agent can be resumed, and the runs of that agent are added."""
    run(root)
    edit(root, "run:\n", "  - name: new\n    harness: {type: command, config: {command: [right]}}\nrun:\n")
    assert passed(run(root, resume=True))["two/new"] == (4, 0)
    assert len(read_runs(root / "out")) == 6


def test_a_run_that_cannot_begin_does_not_stop_the_others(root: Path) -> None:
    """If a run of a suite cannot start, its outcome has the error, and the other runs are executed."""

    class NoImage(ScriptedDriver):
        def resolve_image(self, *_: Any) -> Any:
            raise ImageError("no such image")

    drivers = iter([NoImage(), *(ScriptedDriver() for _ in range(3))])
    parts = make_parts(make_driver=lambda *_: next(drivers))
    outcomes, _ = run_suite(load(root), RunOptions(), lambda *_: nullcontext([]), parts)
    assert [bool(outcome.summary) for outcome in outcomes] == [False, True, True, True]
    assert "no such image" in outcomes[0].problem


def test_another_suite_is_not_mixed_in(root: Path) -> None:
    """The directory of a suite cannot be used by a suite with another id."""
    run(root)
    edit(root, "id: both", "id: other")
    with pytest.raises(ConfigError):
        run(root, resume=True)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: wrong", "name: right", "would both write to 'one/right'"),
        ("name: wrong", "name: 'right?'", "would both write to"),
        ("packs: [one, two]", "packs: [one, one]", "would both write to"),
        ("packs: [one, two]", "packs: [one, missing]", "suite.yaml:5:14"),
        ("command: [wrong]", "comand: [wrong]", "suite.yaml:10:"),
        ("  trials: 2", "  id: mine", "suite.yaml:12:3"),
        ("  trials: 2", "  trials: 0", "suite.yaml:12:"),
        ("run:\n", "rum:\n", "did you mean 'run'"),
        ("{command: [right]}}", "{command: [right]}}\n    models: [a]", "suite.yaml:9:"),
        ("output_dir: out", "output_dir: one/out", "is the pack's directory or inside it"),
    ],
)
def test_mistakes_have_a_location(root: Path, old: str, new: str, expected: str) -> None:
    """Each problem is reported once, even if several runs have it, with its location in the suite file."""
    edit(root, old, new)
    with pytest.raises(ConfigError) as caught:
        load(root)
    assert expected in str(caught.value)
    lines = [line for line in str(caught.value).splitlines() if "hint:" not in line]
    assert len(lines) == len(set(lines))
