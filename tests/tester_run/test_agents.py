"""How a run handles agent programs, keys and egress. The agents are fakes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from fault_hooks import hooked
from run_fakes import FakeProducer, FakeVerifier, Sink, seal
from securebench.egress.gateway import Gateway
from securebench.errors import (
    ConfigError,
    EgressError,
    EngineError,
    ImageError,
    MaterializationError,
    ProviderError,
    StorageError,
)
from securebench.execution import retry
from securebench.faults import FaultPoint
from securebench.harnesses.base import AgentResult
from securebench.results.run_directory.egress_log import EGRESS_LOG
from securebench.results.run_directory.header import HEADER
from securebench.results.summary import RunEnd
from securebench.tester_run.agents import exposed_secrets
from securebench.tester_run.breaker import ERRORS_IN_A_ROW
from securebench.testing.scripted_sandbox import ScriptedDriver
from tester_run.running import comparables, make_parts, pin_framework, records, row, run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext, RunContext
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue
    from securebench.tasks import AgentView, VerifierView
    from securebench.tester_run import TesterRunSummary
    from securebench.verifiers.base import VerificationResult, VerifyContext

KEY = "sk-canary-0123456789"
AGENT: dict[str, JsonValue] = {"program": "codex", "version": "1.2.3", "endpoint": "api.example.com"}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACK_OFF", (0, 0))
    monkeypatch.setattr(retry, "PROVIDER_BACK_OFF", (0, 0))
    pin_framework(monkeypatch.setattr)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a pack of six tasks and a tester YAML."""
    write_run(tmp_path)
    return tmp_path


@dataclass
class FakeGateways:
    """A factory for fake gateways, which it keeps in ``made``."""

    made: list[FakeGateway] = field(default_factory=list)

    def __call__(self, log: Callable[[Mapping[str, JsonValue]], None]) -> FakeGateway:
        """Return a new fake gateway."""
        self.made.append(FakeGateway(log))
        return self.made[-1]


class FakeGateway(Gateway):
    """A gateway that opens nothing, and counts how often it is closed."""

    def __init__(self, log: Callable[[Mapping[str, JsonValue]], None]) -> None:
        self.log = log
        self.closed = 0

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


def reaching(host: str) -> FakeProducer:
    """Return a harness with egress. Each of its agents is denied a connection to ``host``."""

    def hook(_: int, view: AgentView, context: ProduceContext) -> None:
        assert isinstance(context.gateway, FakeGateway)
        context.gateway.log({"task_id": view.task_id, "kind": "connect", "host": host, "decision": "denied"})

    return FakeProducer(hook=hook, has_egress=True, keys=(KEY,))


def decisions(root: Path) -> list[dict[str, Any]]:
    """Return the lines of the egress log."""
    return [json.loads(line) for line in (root / "results" / EGRESS_LOG).read_bytes().splitlines()]


def test_a_harness_is_prepared_once_before_any_task(root: Path) -> None:
    """A harness is prepared once, before any task, with the agents' images and the tester's variables."""
    rows = [row("pack/task-0"), {**row("pack/task-1"), "environment": {"image": "other:1"}}]
    (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    driver = ScriptedDriver()
    driver.add_image("other:1")
    producer = FakeProducer(agent=AGENT, hook=lambda *_: assert_prepared(producer))
    run(root, parts=make_parts(producer, driver), variables={"SOME": "thing"}, workers=2)
    (prepared,) = producer.prepared
    assert prepared.driver is driver
    assert sorted(image.reference for image in prepared.images) == ["other:1", "securebench/python:3.11"]
    assert prepared.variables == {"SOME": "thing"}
    assert prepared.agent == {}


def assert_prepared(producer: FakeProducer) -> None:
    """Assert that the harness was prepared once."""
    assert len(producer.prepared) == 1


def test_an_image_of_a_checker_is_none_of_the_agents(root: Path) -> None:
    """A harness is not prepared for a checker's image, because no agent program runs in it."""
    task = {
        "id": "pack/terminal",
        "family": "terminal_task",
        "input": {"instructions": "?"},
        "environment": {"image": "app:1"},
        "eval": {"checker": {"command": ["true"], "image": "checker:1"}},
    }
    (root / "pack" / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    driver, producer = ScriptedDriver(), FakeProducer()
    for reference in ("app:1", "checker:1"):
        driver.add_image(reference)
    run(root, parts=make_parts(producer, driver))
    assert [image.reference for image in producer.prepared[0].images] == ["app:1"]


def test_which_agent_it_was_stands_in_the_header_and_in_every_record(root: Path) -> None:
    """The agent's identity is in the provenance of each record and in the decisive part of the header."""
    run(root, parts=make_parts(FakeProducer(agent=AGENT)), limit=2)
    header = json.loads((root / "results" / HEADER).read_text())
    assert header["decisive"]["agent"] == AGENT
    assert [record["provenance"]["agent"] for record in records(root)] == [AGENT, AGENT]


def test_an_agent_without_a_program_leaves_no_trace_of_one(root: Path) -> None:
    """The records and the header of a plain command contain no agent, and its run has no egress log."""
    run(root, limit=1)
    assert "agent" not in json.loads((root / "results" / HEADER).read_text())["decisive"]
    assert "agent" not in records(root)[0]["provenance"]
    assert not (root / "results" / EGRESS_LOG).exists()


def test_a_resumed_run_tells_which_agent_it_began_with(root: Path) -> None:
    """A resumed run passes the agent version that it began with to the harness, so a newer version is not used."""
    run(root, parts=make_parts(FakeProducer(agent=AGENT)), limit=2)

    class Latest(FakeProducer):
        def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
            return run.agent or {"program": "codex", "version": "9.9.9"}

    assert run(root, parts=make_parts(Latest()), resume=True).passed == 6
    assert {record["provenance"]["agent"]["version"] for record in records(root)} == {"1.2.3"}


@pytest.mark.parametrize("change", [{"version": "1.2.4"}, {"endpoint": "other.example.com"}])
def test_another_agent_does_not_go_on_with_a_run(root: Path, change: dict[str, JsonValue]) -> None:
    """A run is not resumed with another agent version or endpoint. The error names the change (L05)."""
    run(root, parts=make_parts(FakeProducer(agent=AGENT)), limit=2)
    producer = FakeProducer(agent={**AGENT, **change})
    with pytest.raises(ConfigError, match=f"agent.{next(iter(change))}") as caught:
        run(root, parts=make_parts(producer), resume=True)
    assert caught.value.code == "resume-mismatch"
    assert not producer.views


def test_another_build_of_the_same_version_is_the_same_agent(root: Path) -> None:
    """A resumed run may add a build of its agent for another C library. A changed build is refused (L05)."""
    glibc, musl = {"linux-x64": "sha512-one"}, {"linux-x64-musl": "sha512-two"}
    builds: tuple[dict[str, JsonValue], ...] = ({**glibc}, {**glibc, **musl}, {**musl})
    for limit, integrity in enumerate(builds, start=1):
        parts = make_parts(FakeProducer(agent={**AGENT, "integrity": integrity}))
        assert run(root, parts=parts, limit=limit, resume=True).passed == limit
    header = json.loads((root / "results" / HEADER).read_text())
    assert header["decisive"]["agent"]["integrity"] == {**glibc, **musl}
    other: dict[str, JsonValue] = {"linux-x64-musl": "sha512-other"}
    producer = FakeProducer(agent={**AGENT, "integrity": other})
    with pytest.raises(ConfigError, match=r"agent\.integrity\.linux-x64-musl"):
        run(root, parts=make_parts(producer), resume=True)
    assert not producer.views


@pytest.mark.parametrize("error", [ConfigError("no key", code="key-missing"), ImageError("no libc")])
def test_a_harness_that_cannot_begin_ends_the_run_before_it_does(root: Path, error: Exception) -> None:
    """If a harness cannot be prepared, no task starts, and the directory can be used for another run."""

    class Unready(FakeProducer):
        def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
            raise error

    producer, gateways = Unready(has_egress=True), FakeGateways()
    with pytest.raises(type(error)):
        run(root, parts=make_parts(producer, make_gateway=gateways))
    assert not producer.views
    assert not gateways.made
    assert not list((root / "results").iterdir())
    assert run(root).passed == 6


@pytest.mark.parametrize("has_egress", [False, True])
def test_sandboxes_are_looked_at_with_the_ports_that_they_will_have(root: Path, has_egress: bool) -> None:
    """J01: the self-test has forwarded ports if agents have egress. If it fails, the harness is not prepared."""
    calls: list[bool] = []

    class Driver(ScriptedDriver):
        def self_test(self, image: ResolvedImage, *, forwarded_ports: bool = False) -> None:
            calls.append(forwarded_ports)
            raise EngineError("a resolver is reached", code="sandbox-not-isolated")

    producer = FakeProducer(has_egress=has_egress)
    with pytest.raises(EngineError, match="resolver"):
        run(root, parts=make_parts(producer, Driver()))
    assert calls == [has_egress]
    assert not producer.prepared


def test_one_gateway_a_run_is_lent_and_ended(root: Path) -> None:
    """All tasks share one gateway. Its decisions are logged, and it is closed when the run ends."""
    gateways = FakeGateways()
    run(root, parts=make_parts(reaching("evil.example"), make_gateway=gateways), workers=3)
    (gateway,) = gateways.made
    assert gateway.closed == 1
    assert sorted(line["task_id"] for line in decisions(root)) == [f"pack/task-{n}" for n in range(6)]


def test_an_agent_without_a_way_out_has_no_gateway(root: Path) -> None:
    """No gateway is made for agents without egress."""
    gateways = FakeGateways()
    run(root, parts=make_parts(FakeProducer(), make_gateway=gateways))
    assert not gateways.made


def test_the_real_gateway_is_made_by_default(root: Path) -> None:
    """A run uses the real gateway if its parts do not replace the gateway."""
    seen: list[Any] = []
    producer = FakeProducer(hook=lambda _, __, context: seen.append(context.gateway), has_egress=True)
    assert run(root, parts=make_parts(producer), limit=1).passed == 1
    assert type(seen[0]) is Gateway


def test_the_log_goes_on_when_a_run_does(root: Path) -> None:
    """A resumed run appends to the egress log and keeps the earlier lines."""
    for limit, resume in ((2, False), (6, True)):
        parts = make_parts(reaching("evil.example"), make_gateway=FakeGateways())
        run(root, parts=parts, limit=limit, resume=resume)
    assert len(decisions(root)) == 6


def test_a_gateway_is_closed_also_when_the_run_breaks(root: Path) -> None:
    """The gateway is closed even if an unexpected exception ends the run."""
    gateways = FakeGateways()

    def interrupt(point: FaultPoint, _subject: str) -> None:
        if point is FaultPoint.TASK_STARTED:
            raise KeyboardInterrupt

    parts = make_parts(reaching("x"), make_gateway=gateways)
    with hooked(interrupt), pytest.raises(KeyboardInterrupt):
        run(root, parts=parts)
    assert gateways.made[0].closed == 1


def test_a_log_that_lacks_something_is_a_problem_of_the_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An egress log that lacks lines because it is full is reported as a problem of the run."""
    from securebench.results.run_directory import egress_log

    monkeypatch.setattr(egress_log, "MAX_BYTES", 100)
    summary = run(root, parts=make_parts(reaching("evil.example"), make_gateway=FakeGateways()))
    assert summary.passed == 6
    assert "egress.jsonl is full" in summary.problems[0]


def test_j15_a_key_stands_nowhere(root: Path) -> None:
    """J15: a key that the harness, an agent or an error prints is redacted in files, events, messages and summary."""

    class Telling(FakeProducer):
        def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
            run.notify(f"the key is {KEY}")
            return AGENT

    def hook(number: int, view: AgentView, context: ProduceContext) -> AgentResult:
        assert isinstance(context.gateway, FakeGateway)
        context.gateway.log({"task_id": view.task_id, "host": f"{KEY}.evil.example", "decision": "denied"})
        if number > 3:
            raise ProviderError(f"401 for {KEY}", code="provider-refused")
        steps = json.dumps({"text": KEY})
        return AgentResult(candidate=seal(context.store, "right"), stdout=KEY, metadata={"k": KEY}, trajectory=steps)

    sink, messages = Sink(), list[str]()
    producer = Telling(hook=hook, has_egress=True, keys=(KEY,), agent=AGENT)
    parts = make_parts(producer, make_gateway=FakeGateways())
    summary = run(root, parts=parts, sinks=[sink], notify=messages.append, show_agent_output=True)
    assert messages[-1] == "the key is <redacted>"
    assert summary.errors == 3
    assert KEY not in repr(sink.events) + repr(summary) + json.dumps(summary.to_json())
    files = [path for path in (root / "results").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"candidates.jsonl", EGRESS_LOG, HEADER}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("OPENAI_API_KEY", True),
        ("GITHUB_TOKEN", True),
        ("db_password", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("GOOGLE_CREDENTIALS", True),
        ("APIKEY", True),
        ("KEYBOARD", False),
        ("TOKENIZER", False),
        ("MODE", False),
        ("AUTHOR", False),
    ],
)
def test_names_that_look_like_secrets(name: str, looks: bool) -> None:
    """A variable whose name looks like a secret is reported, unless its value is kept outside the sandbox."""
    assert exposed_secrets({name: "v"}, ()) == ([name] if looks else [])
    assert exposed_secrets({name: "v"}, ("v",)) == []


def test_secrets_in_the_environment_are_told_of(tmp_path: Path) -> None:
    """A secret in ``harness.env`` causes a warning that contains its name and not its value."""
    write_run(tmp_path, 1, env=["GITHUB_TOKEN", "MODE"])
    messages: list[str] = []
    run(tmp_path, variables={"GITHUB_TOKEN": "ghp-0123456789", "MODE": "fast"}, notify=messages.append)
    (warning,) = (line for line in messages if "harness.env" in line)
    assert "GITHUB_TOKEN" in warning
    assert "MODE" not in warning
    assert "ghp-" not in warning


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProviderError("529 Overloaded"), "the model provider is unavailable"),
        (EgressError("gone"), "egress gateway fails"),
    ],
)
def test_a_provider_that_is_down_ends_the_run(root: Path, error: Exception, expected: str) -> None:
    """If the provider or the gateway fails, the run stops early, names the cause, and can be resumed (L24)."""

    def down(*_: object) -> None:
        raise error

    summary = run(root, parts=make_parts(FakeProducer(hook=down)))
    assert (summary.ending, summary.errors, summary.total.not_run) == (RunEnd.STOPPED, ERRORS_IN_A_ROW, 1)
    assert expected in summary.problems[0]
    assert str(error.args[0]) in summary.problems[0]
    assert {record["failure_reason"] for record in records(root)} <= {"provider_unavailable", "egress_failed"}
    assert {record["provenance"]["tries"]["produce"] for record in records(root)} == {3}
    assert run(root, resume=True).passed == 6


def test_what_was_used_is_added_up(root: Path) -> None:
    """The summary adds up tokens, turns and cost of all records, including those from before the run was resumed."""
    usage: dict[str, JsonValue] = {"input_tokens": 100, "output_tokens": 10, "turns": 2, "cost_usd": 0.25}

    def hook(_: int, __: AgentView, context: ProduceContext) -> AgentResult:
        return AgentResult(candidate=seal(context.store, "right"), metadata={"usage": usage})

    run(root, parts=make_parts(FakeProducer(hook=hook)), limit=2)
    summary = run(root, parts=make_parts(FakeProducer(hook=hook)), resume=True)
    wanted = {"input_tokens": 600, "output_tokens": 60, "turns": 12, "cost_usd": 1.5}
    assert summary.to_json()["usage"] == wanted
    assert "usage" not in run(write_elsewhere(root)).to_json()


def test_the_header_names_the_models_that_answered(root: Path) -> None:
    """The header has each model name in the current records, and the number of these records with that name."""

    def answering(*names: str) -> FakeProducer:
        usage: dict[str, JsonValue] = {"relay": {"models": dict.fromkeys(names, 2)}}
        return FakeProducer(
            hook=lambda _, __, context: AgentResult(candidate=seal(context.store, "right"), metadata={"usage": usage})
        )

    run(root, parts=make_parts(answering("m-1", "m-2")), limit=2)
    header: Any = json.loads((root / "results" / HEADER).read_text())
    assert header["information"]["models"] == {"m-1": 2, "m-2": 2}
    run(root, parts=make_parts(answering("m-2")), resume=True)
    header = json.loads((root / "results" / HEADER).read_text())
    assert header["information"]["models"] == {"m-1": 2, "m-2": 6}


def write_elsewhere(root: Path) -> Path:
    """Write another pack with one task to a subdirectory of ``root``, and return the subdirectory."""
    place = root / "elsewhere"
    place.mkdir()
    write_run(place, 1)
    return place


def test_an_agent_is_not_paid_again_for_a_verification_that_failed(root: Path) -> None:
    """If a verification failed, a resumed run judges the sealed candidate again without starting the agent.

    In the end, the records equal those of a run in which no verification failed.
    """
    usage: dict[str, JsonValue] = {"input_tokens": 100, "output_tokens": 10, "turns": 2}

    def hook(number: int, view: AgentView, context: ProduceContext) -> AgentResult:
        answer = seal(context.store, "right" if number % 2 else "wrong")
        return AgentResult(candidate=answer, stdout=view.task_id, metadata={"usage": usage}, trajectory="{}")

    def broken(_: int, view: VerifierView, __: VerifyContext) -> VerificationResult | None:
        if view.task_id.endswith(("1", "2", "3")):
            raise MaterializationError("a hidden file is missing")
        return None

    smooth = root / "smooth"
    smooth.mkdir()
    write_run(smooth)
    run(smooth, parts=make_parts(FakeProducer(hook=hook), verifier_for=lambda _family, _config: FakeVerifier()))
    verifier = FakeVerifier(hook=broken)
    for resume in (False, True):
        producer = FakeProducer(hook=hook)
        summary = run(root, parts=make_parts(producer, verifier_for=lambda _family, _config: verifier), resume=resume)
        assert (summary.errors, len(producer.views)) == (3, 0 if resume else 6)
    producer = FakeProducer(hook=hook)
    summary = run(root, parts=make_parts(producer, verifier_for=lambda _family, _config: FakeVerifier()), resume=True)
    assert (summary.errors, len(producer.views)) == (0, 0)
    assert comparables(root) == comparables(smooth)
    assert summary.to_json()["usage"] == {"input_tokens": 600, "output_tokens": 60, "turns": 12}


def test_everything_that_was_spent_is_added_up(root: Path) -> None:
    """The usage in the summary includes all tries and attempts, and each check of the provider.

    It also includes tasks that ended in an error and have not been run again.
    """
    error = ProviderError("529", code="provider-failed")
    usage: dict[str, JsonValue] = {"input_tokens": 100, "output_tokens": 10}

    class Checked(FakeProducer):
        def check_provider(self, *_: object) -> Mapping[str, JsonValue]:
            return {"input_tokens": 7, "output_tokens": 1, "requests": 1}

    def down(*_: object) -> AgentResult:
        return AgentResult(candidate=None, fault=error, metadata={"usage": usage})

    def up(_: int, __: AgentView, context: ProduceContext) -> AgentResult:
        return AgentResult(candidate=seal(context.store, "right"), metadata={"usage": usage})

    def up_twice(number: int, view: AgentView, context: ProduceContext) -> AgentResult:
        if number > 2:
            raise StorageError("the disk is full")
        return up(number, view, context)

    def spent(summary: TesterRunSummary) -> tuple[int, int]:
        return summary.usage.input_tokens, summary.usage.output_tokens

    summary = run(root, parts=make_parts(Checked(hook=down)))
    assert (summary.errors, spent(summary)) == (5, (5 * 300 + 7, 5 * 30 + 1))
    assert [record["provenance"]["spent"]["input_tokens"] for record in records(root)] == [300] * 5
    summary = run(root, parts=make_parts(Checked(hook=up_twice)), resume=True)
    assert spent(summary) == (5 * 300 + 2 * 100 + 14, 5 * 30 + 20 + 2)
    summary = run(root, parts=make_parts(Checked(hook=up)), resume=True)
    assert (summary.passed, spent(summary)) == (6, (5 * 300 + 6 * 100 + 21, 5 * 30 + 60 + 3))
    done = run(root, parts=make_parts(Checked(hook=up)), resume=True)
    assert spent(done) == spent(summary), "nothing was to be done, so nobody was asked"


def test_a_rejected_key_leaves_an_empty_directory(root: Path) -> None:
    """If the provider rejects the key, no task starts, and another run can begin in the same directory.

    A resumed run also checks the key, unless no task is left.
    """

    class Rejected(FakeProducer):
        def check_provider(self, *_: object) -> Mapping[str, JsonValue]:
            raise ConfigError("no such key", code="provider-refused")

    producer = Rejected()
    with pytest.raises(ConfigError, match="no such key"):
        run(root, parts=make_parts(producer))
    assert not producer.views
    assert not list((root / "results").iterdir())
    assert run(root, limit=2).passed == 2
    assert run(root, parts=make_parts(producer), resume=True, limit=2).passed == 2
    with pytest.raises(ConfigError, match="no such key"):
        run(root, parts=make_parts(producer), resume=True)
    assert not producer.views
    assert run(root, resume=True).passed == 6
