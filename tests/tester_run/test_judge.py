"""Runs with a judge model: key, recorded votes and costs, calibration, budgets, resumption and reverification."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from leftovers import family_of
from scripted_judge import (
    CRITERIA,
    KEY,
    MODEL,
    RIGHT,
    WRONG,
    answering,
    judging,
    obedient,
    replying,
    verdict,
    write_judged_run,
)
from securebench.audit.run.verify import Evidence, verify_run
from securebench.benchmark_pack import load_benchmark_pack
from securebench.cli.views.summary import summary_lines
from securebench.errors import ConfigError, FailureReason, InfrastructureError, ProviderError
from securebench.execution import retry
from securebench.report.run_view import view_of
from securebench.results.read import read_run
from securebench.results.records.record import Assurance
from securebench.results.run_directory.egress_log import EGRESS_LOG
from securebench.results.run_directory.files import JOURNAL
from securebench.results.summary import RunEnd
from securebench.tester_run import RunOptions
from securebench.tester_run.reverify import reverify
from securebench.testing.provider import AnswerUsage, Fail, Say
from securebench.verifiers.model_graded.prompt import CONTROL
from tester_run.running import make_parts, pin_framework, records, run

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.benchmark_pack import BenchmarkPack
    from securebench.tester_run import TesterRunSummary
    from securebench.testing.provider.conversation import ModelConversation
    from securebench.testing.provider.faults import ModelRequest
    from securebench.testing.provider.steps import Fault

VARIABLES: Final = {"JUDGE_KEY": KEY}
KNOWN: Final = ((RIGHT, "pass"), ("It is Rayleigh scattering.", "pass"), (WRONG, "fail"), ("Ozone is blue.", "fail"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between tries, and pin the framework's digest."""
    monkeypatch.setattr(retry, "BACK_OFF", (0, 0))
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", (0, 0))
    pin_framework(monkeypatch.setattr)


def judged(root: Path, *answers: str, **options: Any) -> TesterRunSummary:
    """Run the tester YAML in ``root`` with an agent that gives these answers."""
    return run(root, parts=answering(*answers), variables=VARIABLES, **options)


def header(root: Path) -> dict[str, Any]:
    """Return the header of the run."""
    found: dict[str, Any] = json.loads((root / "results" / "run.json").read_bytes())
    return found


def problems(directory: Path, pack: BenchmarkPack | None = None) -> list[str]:
    """Return the problems that ``verify_run`` finds."""
    return [str(problem) for check in verify_run(directory, Evidence(pack=pack)).checks for problem in check.problems]


def test_a_judge_grades_with_its_key_outside(tmp_path: Path) -> None:
    """Votes, tokens, cost and assurance are recorded. No file has the key; only ``verifier-output`` has criteria."""
    with judging() as provider:
        prices = {"input": 0.5, "output": 2}
        write_judged_run(tmp_path, provider.url, tasks=2, prices=prices)
        summary = judged(tmp_path, RIGHT, WRONG, keep_verifier_output=True)
        assert provider.keys_seen == {KEY}
    assert (summary.passed, summary.failed) == (1, 1)
    assert summary.total.passed_by_assurance == {Assurance.MODEL_GRADED: 1}
    good, bad = sorted(records(tmp_path), key=lambda record: str(record["task_id"]))
    assert good["assurance"] == bad["assurance"] == "model_graded"
    assert bad["failure_reason"] == "wrong_answer"
    evidence = good["verifier_metadata"]["evidence"]
    assert evidence["votes"] == [True] * 3
    assert evidence["judge"]["model"] == MODEL
    assert {reply["model"] for reply in evidence["replies"]} == {MODEL}
    usage = good["provenance"]["judge_usage"]
    assert (usage["requests"], usage["input_tokens"], usage["output_tokens"]) == (3, 3600, 102)
    assert usage["cost_usd"] == pytest.approx((3600 * 0.5 + 102 * 2) / 1e6, abs=3e-6)
    lines = "\n".join(summary_lines(summary))
    assert "1 passed, 1 graded by a model" in lines
    assert f"Judge model: {MODEL} (chat_completions): not calibrated" in lines
    (words, _) = (path.read_text() for path in (tmp_path / "results" / "verifier-output").iterdir())
    assert words.count("It names it, or not.") == 3
    results = tmp_path / "results"
    assert not [path for path in results.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    shutil.rmtree(results / "verifier-output")
    kept = b"".join(path.read_bytes() for path in results.rglob("*") if path.is_file()).decode()
    for secret in (CRITERIA, "Small molecules", "It names it"):
        assert secret not in kept
    logged = [json.loads(line) for line in (tmp_path / "results" / EGRESS_LOG).read_text().splitlines()]
    assert len([line for line in logged if line["judge"] and line["task_id"] == "task-0"]) == 3
    assert problems(tmp_path / "results") == []


@pytest.mark.parametrize(
    "dialect", ["messages", *(pytest.param(name, marks=pytest.mark.long) for name in ("responses", "gemini"))]
)
def test_other_dialects_judge_as_well(tmp_path: Path, dialect: str) -> None:
    """A judge can use a dialect other than ``chat_completions``. Its requests contain effort and temperature."""
    with judging() as provider:
        write_judged_run(tmp_path, provider.url, dialect=dialect, effort="high", temperature=0.5)
        assert judged(tmp_path, RIGHT).passed == 1
        body = provider.requests[-1].body
    assert '"temperature": 0.5' in json.dumps(body)
    assert "high" in json.dumps(body)
    assert records(tmp_path)[0]["verifier_metadata"]["evidence"]["judge"]["effort"] == "high"


def test_a_judge_is_calibrated_before_the_first_task(tmp_path: Path) -> None:
    """Agreement and kappa are in run.json and in the summary. The requests count for the judge, not for the agent."""
    with judging() as provider:
        write_judged_run(tmp_path, provider.url, calibration=[*KNOWN, ("Rayleigh was a cook.", "fail")])
        summary = judged(tmp_path, RIGHT)
    (check,) = header(tmp_path)["provider_checks"]
    assert check["judge"]["calibration"] == {
        "items": 5,
        "true_pass": 2,
        "false_pass": 1,
        "true_fail": 2,
        "false_fail": 0,
        "agreement": 0.8,
        "kappa": 0.6154,
    }
    assert check["requests"] == 1 + 15
    assert "agrees with 4 of 5 known grades, kappa 0.62" in "\n".join(summary_lines(summary))
    judge: Any = summary.to_json()["judge"]
    assert judge["calibration"]["kappa"] == 0.6154
    assert judge["usage"]["requests"] == 1 + 15 + 3
    assert not summary.usage.requests


def test_a_judge_that_agrees_too_little_is_refused(tmp_path: Path) -> None:
    """A judge with a kappa below the pack's ``min_kappa`` is refused before any agent runs. No run.json is written."""

    def lenient(_: ModelConversation) -> Say:
        return Say(verdict(passes=True))

    with judging(lenient) as provider:
        write_judged_run(tmp_path, provider.url, calibration=KNOWN, pack_judge={"min_kappa": 0.4, "votes": 1})
        with pytest.raises(ConfigError, match=r"agrees with 2 of 4 known grades, kappa 0\.00") as raised:
            judged(tmp_path, RIGHT)
    assert raised.value.code == "judge-uncalibrated"
    assert not (tmp_path / "results" / "run.json").exists()


def test_a_judge_that_gives_no_verdicts_is_refused(tmp_path: Path) -> None:
    """A judge that gives no verdicts is refused. The check sends the longest response that the pack allows."""
    with judging(lambda _: Say("Looks good to me.")) as provider:
        write_judged_run(tmp_path, provider.url, pack_judge={"max_bytes": 5000})
        with pytest.raises(InfrastructureError) as raised:
            judged(tmp_path, RIGHT)
        sizes = [len(str(found.body).encode()) for found in provider.requests]
        assert sizes[-1] < 5000 < max(sizes)
        assert any(len(set(str(found.body))) > 1000 for found in provider.requests)  # rare characters cost most tokens
    assert raised.value.code == "judge-unfit"


def test_a_wrong_key_is_found_first(tmp_path: Path) -> None:
    """A judge key that the provider rejects is reported before any task, and the hint names its variable."""
    with judging(fault=Fail(401)) as provider:
        write_judged_run(tmp_path, provider.url)
        with pytest.raises(ConfigError) as raised:
            judged(tmp_path, RIGHT)
    assert raised.value.code == "provider-refused"
    assert "JUDGE_KEY" in raised.value.hint


def test_a_wrong_address_is_found_first(tmp_path: Path) -> None:
    """A wrong address is not reported as an unfit judge, and the hint names the setting."""
    with judging(fault=Fail(405)) as provider:
        write_judged_run(tmp_path, provider.url)
        config = json.loads((tmp_path / "tester.yaml").read_text())
        config["judge"]["base_url"] = provider.url
        (tmp_path / "tester.yaml").write_text(json.dumps(config))
        with pytest.raises(ConfigError, match=r"405 \(request to http://.*/chat/completions") as raised:
            judged(tmp_path, RIGHT)
    assert (raised.value.code, raised.value.hint) == (
        "provider-rejected",
        "check judge.base_url: should it end in /v1?",
    )
    with pytest.raises(ProviderError) as gone:
        judged(tmp_path, RIGHT)
    assert gone.value.code == "provider-unreachable"
    assert "judge.base_url" in gone.value.hint


def test_a_pack_that_needs_a_judge_demands_one(tmp_path: Path) -> None:
    """A missing judge, a budget that one response could use up, and a key that the agent would get are refused."""
    write_judged_run(tmp_path, "http://127.0.0.1:9")
    config = json.loads((tmp_path / "tester.yaml").read_text())

    def refused(**changes: Any) -> str:
        (tmp_path / "tester.yaml").write_text(json.dumps({**config, **changes}))
        with pytest.raises(ConfigError) as raised:
            run(tmp_path, parts=answering(RIGHT), variables={**VARIABLES, "COPY": f"x{KEY}"})
        return raised.value.code

    assert refused(judge={**config["judge"], "budget": {"requests": 20}}) == "judge-budget"
    assert refused(judge={**config["judge"], "budget": {"tokens": 100_000}}) == "judge-budget"
    assert refused(judge={**config["judge"], "budget": {"bytes": 10_000}}) == "judge-budget"
    assert refused(judge={**config["judge"], "api_key_env": "NOT_SET"}) == "env-missing"
    assert refused(harness={**config["harness"], "env": ["COPY"]}) == "key-exposed"
    assert refused(judge={**config["judge"], "dialekt": "x"}) == "field-unknown"
    del config["judge"]
    assert refused() == "judge-missing"


def test_the_worst_case_is_enough(tmp_path: Path) -> None:
    """The budget that the hint demands is enough for a response of rare characters of which each byte is a token."""

    def confused(conversation: ModelConversation) -> Say:
        is_rare = "\U00020000" * 9 in conversation.prompt
        return Say("?" if is_rare else verdict(passes=False), AnswerUsage(input=len(conversation.prompt.encode())))

    with judging(confused) as provider:
        write_judged_run(tmp_path, provider.url, budget={"tokens": 1}, pack_judge={"votes": 1})
        with pytest.raises(ConfigError) as raised:
            judged(tmp_path, WRONG)
        found = re.search(r"tokens: (\d+)", raised.value.hint)
        assert found
        write_judged_run(tmp_path, provider.url, budget={"tokens": int(found[1])}, pack_judge={"votes": 1})
        assert judged(tmp_path, "\U00020000" * 4999).failed == 1
    assert records(tmp_path)[0]["failure_reason"] == FailureReason.JUDGE_NO_VERDICT


def test_a_used_up_budget_is_named(tmp_path: Path) -> None:
    """A task that uses up the judge's budget ends with the error ``judge-budget``. Another task has its own budget."""

    def greedy(conversation: ModelConversation) -> Say:
        return Say(verdict(passes=True), AnswerUsage(input=10**8 if "greedy" in conversation.prompt else 10))

    with judging(greedy) as provider:
        write_judged_run(tmp_path, provider.url, tasks=2)
        summary = judged(tmp_path, "greedy", RIGHT)
    assert (summary.passed, summary.errors) == (1, 1)
    (failed,) = [record for record in records(tmp_path) if record["verification_status"] == "error"]
    assert "[judge-budget]" in failed["failure_message"]


def test_absurd_token_counts_are_no_internal_error(tmp_path: Path) -> None:
    """A token count that is too large for a float causes no error, and the run goes on."""
    with judging(lambda _: Say(verdict(passes=False), AnswerUsage(input=10**400))) as provider:
        write_judged_run(tmp_path, provider.url, tasks=2, prices={"input": 10, "output": 1})
        assert judged(tmp_path, WRONG).failed == 2


def test_outages_are_errors_and_resume_asks_the_judge_only(tmp_path: Path) -> None:
    """If a rate limit refuses a response and also the control response ``CONTROL``, the task is an error.

    ``--resume`` grades only that task again, and does not run the agent.
    """
    broken = [True]

    def limited(request: ModelRequest) -> Fault | None:
        words = request.conversation.text
        return Fail(429) if broken[0] and ("blocked" in words or CONTROL in words) else None

    with judging(fault=limited) as provider:
        write_judged_run(tmp_path, provider.url, tasks=2, calibration=KNOWN)
        summary = judged(tmp_path, RIGHT, "blocked Rayleigh")
        assert (summary.passed, summary.errors) == (1, 1)
        (failed,) = [record for record in records(tmp_path) if record["verification_status"] == "error"]
        assert failed["failure_reason"] == "provider_unavailable"
        assert failed["provenance"]["judge_usage"]["requests"] == 3 + 3  # for the response, and for the control
        assert not summary.usage.requests
        broken[0] = False
        before = len(provider.requests)
        parts = answering("unused")
        summary = run(tmp_path, parts=parts, variables=VARIABLES, resume=True)
        assert summary.passed == 2
        assert len(provider.requests) - before == 1 + 1 + 3  # probe, longest response, votes: no second calibration
    assert parts.make_producer(None).views == []  # type: ignore[arg-type,attr-defined]
    judge: Any = summary.to_json()["judge"]
    assert judge["calibration"]["kappa"] == 1
    (again,) = [record for record in records(tmp_path) if record["task_id"] == failed["task_id"]]
    assert again["provenance"]["judge_usage"]["requests"] == 3 + 3 + 3


def test_the_judge_counts_for_the_budget_of_a_run(tmp_path: Path) -> None:
    """The judge's cost counts for a run's budget. The run stops at its budget, and can be resumed with a larger one."""
    with judging() as provider:
        write_judged_run(tmp_path, provider.url, tasks=3)
        with pytest.raises(ConfigError) as raised:
            judged(tmp_path, RIGHT, budget_usd=8.0)
        assert raised.value.code == "price-missing"
        write_judged_run(tmp_path, provider.url, tasks=3, prices={"input": 1000, "output": 0})
        summary = judged(tmp_path, RIGHT, budget_usd=8.0)
        assert (summary.ending, summary.passed, summary.total.not_run) == (RunEnd.OUT_OF_BUDGET, 2, 1)
        summary = judged(tmp_path, RIGHT, budget_usd=50.0, resume=True)
        assert (summary.ending, summary.passed) == (RunEnd.FINISHED, 3)
    assert header(tmp_path)["decisive"]["judge"]["prices"]["input"] == 1000


def test_calibration_counts_and_ends_at_the_budget(tmp_path: Path) -> None:
    """If calibration reaches the run's budget, no task runs. Resuming with the same budget sends no request."""
    pack = {"votes": 1, "min_kappa": 0.5}
    with judging() as provider:
        write_judged_run(
            tmp_path, provider.url, calibration=KNOWN, pack_judge=pack, prices={"input": 1000, "output": 0}
        )
        summary = judged(tmp_path, RIGHT, budget_usd=3.0)
        assert (summary.ending, summary.total.not_run, records(tmp_path)) == (RunEnd.OUT_OF_BUDGET, 1, [])
        (check,) = header(tmp_path)["provider_checks"]
        assert "calibration" not in check["judge"]
        spent = summary.cost_usd or 0
        assert 3 <= spent < 4.5
        before = len(provider.requests)
        assert before < 1 + 1 + len(KNOWN)
        again = judged(tmp_path, RIGHT, budget_usd=3.0, resume=True)
        assert (again.ending, len(provider.requests)) == (RunEnd.OUT_OF_BUDGET, before)
        more = judged(tmp_path, RIGHT, budget_usd=50.0, resume=True)
    assert (more.ending, more.passed) == (RunEnd.FINISHED, 1)
    assert header(tmp_path)["provider_checks"][1]["judge"]["calibration"]["kappa"] == 1
    assert more.cost_usd == pytest.approx(spent + 1.2 * (len(provider.requests) - before), abs=0.01)
    assert f"Cost: about ${more.cost_usd:.2f} of $50.00, ${more.cost_usd:.2f} of it for the judge" in "\n".join(
        summary_lines(more)
    )
    facts = dict(view_of(read_run(tmp_path / "results"), 1).facts())
    assert facts["Cost"] == f"${more.cost_usd:.2f}"
    assert facts["Judge model"].endswith(facts["Cost"])
    assert problems(tmp_path / "results") == []


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (Fail(500), 3 + 3),
        (Fail(403), 1 + 1),
        (Fail(401), 1 + 1),
        (Fail(413), 1 + 1),
        (Fail(429), 3 + 3),
        (Fail(429, retry_after=3600), 1 + 1),
    ],
    ids=lambda fault: str(getattr(fault, "status", "")),
)
def test_a_response_that_breaks_the_provider_fails(tmp_path: Path, fault: Fail, tries: int) -> None:
    """If the provider always refuses a response, but accepts the control response ``CONTROL``, the task has failed."""

    def crash(request: ModelRequest) -> Fault | None:
        return fault if "crash" in request.conversation.text else None

    with judging(fault=crash) as provider:
        write_judged_run(tmp_path, provider.url)
        assert judged(tmp_path, "Rayleigh scattering, crash").failed == 1
        assert len([found for found in provider.requests if "crash" in str(found.body)]) == tries
    (record,) = records(tmp_path)
    assert record["failure_reason"] == FailureReason.JUDGE_NO_VERDICT
    assert problems(tmp_path / "results") == []


def test_a_rate_limit_that_ends_costs_nothing(tmp_path: Path) -> None:
    """A response that a rate limit refused twice is graded as soon as the provider accepts it."""
    refusals = [Fail(429, retry_after=0)] * 2

    def limited(request: ModelRequest) -> Fault | None:
        return refusals.pop() if refusals and RIGHT in request.conversation.text else None

    with judging(fault=limited) as provider:
        write_judged_run(tmp_path, provider.url)
        assert judged(tmp_path, RIGHT).passed == 1
    assert records(tmp_path)[0]["provenance"]["judge_usage"]["requests"] == 2 + 3


def test_a_key_that_is_refused_during_a_run_is_no_score(tmp_path: Path) -> None:
    """If the provider refuses both the response and the control response ``CONTROL``, the task is an error."""

    def revoked(request: ModelRequest) -> Fault | None:
        words = request.conversation.text
        return Fail(403) if CONTROL in words or WRONG in words else None

    with judging(fault=revoked) as provider:
        write_judged_run(tmp_path, provider.url)
        assert judged(tmp_path, WRONG).errors == 1
    assert "provider-refused" in records(tmp_path)[0]["failure_message"]


def test_a_gateway_that_dies_costs_no_verdict(tmp_path: Path) -> None:
    """If the gateway is killed during a vote, the verification is repeated through another gateway."""
    killed: list[int] = []

    def deadly(conversation: ModelConversation) -> Say:
        if "This sentence is only here" not in conversation.prompt and not killed:
            processes = family_of(os.getpid()).items()
            killed.extend(pid for pid, command in processes if "securebench.egress.process" in command)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        return obedient(conversation)

    with judging(deadly) as provider:
        write_judged_run(tmp_path, provider.url)
        assert judged(tmp_path, RIGHT).passed == 1
    (record,) = records(tmp_path)
    assert (len(killed), record["provenance"]["tries"]["verify"]) == (1, 2)


def test_a_run_with_another_judge_is_not_resumed(tmp_path: Path) -> None:
    """A run is not resumed with a different effort of the judge, and the message names the judge."""
    with judging() as provider:
        write_judged_run(tmp_path, provider.url)
        judged(tmp_path, RIGHT)
        write_judged_run(tmp_path, provider.url, effort="low")
        with pytest.raises(ConfigError, match="judge") as raised:
            judged(tmp_path, RIGHT, resume=True)
    assert raised.value.code == "resume-mismatch"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run with split votes, whose judge can no longer be reached."""
    root = tmp_path_factory.mktemp("split")
    replies = [verdict(passes=True), verdict(passes=False), verdict(passes=True)]
    replies += ["?", verdict(passes=False), verdict(passes=True), verdict(passes=False)]
    with judging(replying(*replies)) as provider, pytest.MonkeyPatch.context() as patch:
        pin_framework(patch.setattr)
        write_judged_run(root, provider.url, tasks=2)
        judged(root, RIGHT, RIGHT)
    return root


@pytest.fixture
def finished(split: Path, tmp_path: Path) -> Path:
    """Return a directory with a copy of the run with split votes and of its pack."""
    return shutil.copytree(split, tmp_path, dirs_exist_ok=True)


def test_verdicts_are_recomputed_without_the_judge(finished: Path) -> None:
    """``reverify`` needs neither key nor provider, and its records have the same verdicts and votes."""
    result = reverify(finished / "results", RunOptions(variables={}), parts=make_parts())
    assert (result.verdicts.same, result.verdicts.changed, result.verdicts.unjudged) == (2, (), ())
    assert result.differences == ()
    again = read_run(finished / "results.reverified")
    votes = [record.raw["verifier_metadata"]["evidence"]["votes"] for record in again.records()]
    assert votes == [[True, False, True], [False, True, False]]
    assert problems(again.directory) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [({"votes": 5}, "number of votes"), ({"template": "{{task}}{{criteria}}{{candidate}}"}, "a template other than")],
)
def test_verify_run_compares_the_rubric_of_the_pack(finished: Path, changed: dict[str, Any], problem: str) -> None:
    """With a pack, verify-run compares the number of votes and the template with those of the pack."""
    manifest, tasks = finished / "pack" / "manifest.yaml", finished / "pack" / "tasks.jsonl"
    assert problems(finished / "results", load_benchmark_pack(manifest, tasks)) == []
    manifest.write_text(json.dumps({"id": "pack", "version": 1, "judge": changed}))
    found = problems(finished / "results", load_benchmark_pack(manifest, tasks))
    assert any(problem in text for text in found), found


def test_verify_run_finds_a_pass_without_the_judge(finished: Path) -> None:
    """With the pack, verify-run finds a model-graded task whose record has another assurance and no votes."""
    path = finished / "results" / JOURNAL
    record = json.loads(path.read_text().split("\n", 1)[0])
    del record["verifier_metadata"]["evidence"]
    record["assurance"] = "full"
    path.write_text(json.dumps(record) + "\n")
    pack = load_benchmark_pack(finished / "pack" / "manifest.yaml", finished / "pack" / "tasks.jsonl")
    assert any("without the judge model" in text for text in problems(finished / "results", pack))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"votes": [true, false, true]', '"votes": [true, true, true]', "votes"),
        ("", "", ""),
        ('"planned_votes": 3', '"planned_votes": 1', "more replies"),
        ('"model": "judge-model", "config"', '"model": "better", "config"', "a judge model other than"),
        ('"replies": [{', '"replies": [{"trouble": "declined"}, {', "replies"),
    ],
)
def test_verify_run_compares_votes_and_verdict(finished: Path, old: str, new: str, problem: str) -> None:
    """verify-run reports a record whose judge, replies, votes and verdict contradict each other or the run."""
    path = finished / "results" / JOURNAL
    first, rest = path.read_text().split("\n", 1)
    if not problem:  # change replies and votes alike, so that only the verdict is wrong
        changed = first.replace(r"\"verdict\": \"pass\"", r"\"verdict\": \"fail\"").replace(
            "[true, false, true]", "[false, false, false]"
        )
        problem = "contradicts the verdict"
    else:
        changed = first.replace(old, new)
    assert changed != first
    path.write_text(f"{changed}\n{rest}")
    found = problems(finished / "results")
    assert any(problem in text for text in found), found
