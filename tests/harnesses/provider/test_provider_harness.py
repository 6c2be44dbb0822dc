"""The common behaviour of agent programs: how they are prepared and run, and how their events and ends are judged."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from harnesses import streams
from harnesses.conftest import PATCH_VIEW, VIEW, WORKSPACE_VIEW
from harnesses.provider_fakes import KEY, KEYS, WORKED, FakeGateway, FakeStore, image_files, run_context
from securebench.egress.model import ProbeReport, RelayReport, Trouble
from securebench.errors import ConfigError, EgressError, EngineError, FailureReason, ProviderError
from securebench.harnesses.base import Spent
from securebench.harnesses.provider.endpoints import PLACEHOLDER
from securebench.harnesses.provider.harness import HOME, PROGRAMS_TARGET, ProviderHarness
from securebench.tasks import DEFAULT_IMAGE, CandidateKind, Environment
from securebench.tester_config import ProviderSettings
from securebench.trials import TrialId

if TYPE_CHECKING:
    from pathlib import Path

    from harnesses.conftest import Bench
    from securebench.harnesses.base import AgentResult
    from securebench.tasks import AgentView
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedDriver, ScriptedProgram

PROGRAMS = ("codex", "claude_code")
VERSIONS = {"codex": b"codex-cli 0.169.0\n", "claude_code": b"2.1.197 (Claude Code)\n"}
EVENTS = {"codex": streams.CODEX_WORKED, "claude_code": streams.CLAUDE_WORKED}
every_program = pytest.mark.parametrize("name", PROGRAMS)


def make(name: str, directory: Path, **config: Any) -> ProviderHarness:
    """Return a harness with its own program cache."""
    store = FakeStore(directory / "agents")
    model = {"codex": "gpt-5.5", "claude_code": "sonnet"}[name]
    return ProviderHarness(name, ProviderSettings(**{"model": model, **config}), store)


def agent_that(name: str, *events: dict[str, Any], answer: str = "42\n", code: int = 0) -> ScriptedProgram:
    """Return a program that prints its version if asked, or else writes an answer and prints ``events``."""

    def program(context: ProgramContext) -> int:
        if context.argv[1:] == ("--version",):
            context.stdout.write(VERSIONS[name])
            return 0
        if answer:
            context.path("candidate.txt").write_text(answer)
        context.stdout.write(streams.lines(*(events or EVENTS[name])))
        return code

    return program


class Place:
    """A bench with one prepared agent program and a fake gateway."""

    def __init__(self, bench: Bench, scripted: ScriptedDriver, name: str, **config: Any) -> None:
        self.bench, self.scripted, self.name = bench, scripted, name
        scripted.add_image(DEFAULT_IMAGE, files=image_files(name))
        self.install(agent_that(name))
        self.gateway = FakeGateway()
        self.harness = make(name, bench.root, **config)
        self.identity = self.harness.prepare(run_context(scripted))

    def install(self, program: ScriptedProgram) -> None:
        """Make the agent program behave like ``program`` from now on."""
        self.scripted.program({"codex": "codex", "claude_code": "claude"}[self.name])(program)

    def produce(self, view: AgentView = VIEW) -> AgentResult:
        """Run the agent on one task."""
        return self.harness.produce(view, replace(self.bench.context(), gateway=self.gateway))


@pytest.fixture(params=PROGRAMS)
def place(bench: Bench, scripted: ScriptedDriver, request: pytest.FixtureRequest) -> Place:
    """Return a bench with a prepared program, for each program."""
    return Place(bench, scripted, request.param)


def test_an_agent_works_and_is_recorded(place: Place) -> None:
    """An agent's answer is sealed; program, outcome and steps are recorded, and stdout is the agent's last message."""
    agent_result = place.produce()
    assert agent_result.failure is None
    assert agent_result.candidate is not None
    assert agent_result.candidate.text == "42\n"
    assert agent_result.metadata["agent"] == {"program": place.name, "version": place.identity["version"]}
    assert agent_result.metadata["outcome"] == "worked"
    assert agent_result.stdout == "done"
    assert [json.loads(line)["step"] for line in agent_result.trajectory.splitlines()] == list(
        range(1, agent_result.trajectory.count("\n") + 1)
    )


def test_all_counts_are_usage(place: Place) -> None:
    """``usage`` has the relay's token counts, and all other values that may differ between two honest runs."""
    metadata = place.produce().metadata
    usage: Any = metadata["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["cached_input_tokens"]) == (3600, 102, 2000)
    assert usage["requests"] == 3
    assert usage["turns"] == {"codex": 1, "claude_code": 2}[place.name]
    assert usage["cost_usd"] == {"codex": None, "claude_code": 0.00282}[place.name]
    assert usage["relay"] == {
        "answered": 3,
        "statuses": {"200": 3},
        "refused": {"path": 1},
        "forgiven": 0,
        "models": {},
        "bytes": 99,
        "trouble": None,
    }
    assert usage["egress"] == {"decisions": {"allowed": 2}, "hosts": {"example.org": 2}, "bytes": 7}
    assert set(metadata) == {
        *("harness", "exit_code", "timeout_seconds", "stdout_truncated", "stderr_truncated"),
        *("agent", "outcome", "usage"),
    }


def test_a_programs_warnings_are_recorded(bench: Bench, scripted: ScriptedDriver) -> None:
    """F7: Codex's warning about a model that it does not know is recorded in ``usage``."""
    place = Place(bench, scripted, "codex")
    usage: Any = place.produce().metadata["usage"]
    assert usage["warnings"] == ["Model metadata for `m` not found."]


@pytest.mark.parametrize(
    ("name", "config", "warned"),
    [
        ("codex", {"model": "gpt-5-codex"}, True),
        ("codex", {"model": "gpt-5.5"}, False),
        ("codex", {"model": "gpt-5.5-2026-04-01"}, False),
        ("codex", {"model": "local", "base_url": "http://127.0.0.1:8000/v1"}, False),
        ("claude_code", {"model": "claude-3-5-sonnet-latest"}, True),
        ("claude_code", {"model": "sonnet[1m]"}, False),
        ("claude_code", {"model": "claude-haiku-4-5-20251001"}, False),
    ],
)
def test_a_model_that_the_program_does_not_know_is_told_before_any_task(
    bench: Bench, scripted: ScriptedDriver, name: str, config: dict[str, str], warned: bool
) -> None:
    """F7: a model that the program does not list causes a warning before any task, except with a ``base_url``."""
    notes: list[str] = []
    scripted.add_image(DEFAULT_IMAGE, files=image_files(name))
    scripted.program({"codex": "codex", "claude_code": "claude"}[name])(agent_that(name))
    make(name, bench.root, **config).prepare(replace(run_context(scripted), notify=notes.append))
    assert [line for line in notes if f"does not list the model {config['model']}" in line] == notes[: int(warned)]
    assert len(notes) == int(warned)


def test_which_models_answered_is_recorded(place: Place) -> None:
    """G1: answers are counted by the model that the provider names, even if another model was requested."""
    place.gateway.relay = replace(WORKED, model="gpt-x-2026", models={"gpt-x-2026": 2, "cheaper": 1})
    usage: Any = place.produce().metadata["usage"]
    assert usage["relay"]["models"] == {"gpt-x-2026": 2, "cheaper": 1}


def test_no_key_is_in_a_sandbox(place: Place) -> None:
    """J15: the key is not in the arguments, environment, mounts or labels of a sandbox, and not in the result."""
    agent_result = place.produce()
    for spec, command in place.scripted.commands:
        assert KEY not in repr(
            (command.argv, dict(command.environment), dict(spec.environment), spec.mounts, spec.labels)
        )
    assert KEY not in repr((agent_result, place.identity))
    assert place.harness.credentials == (KEY,)
    assert place.gateway.plans[0][1].relay.key == KEY  # type: ignore[union-attr]  # the plan has a relay, with the key


def test_a_key_in_harness_env_is_withheld(place: Place) -> None:
    """J15: in the sandbox, a variable of ``harness.env`` that contains the key has a placeholder as its value."""
    place.bench.environment = {**KEYS, "MINE": f"Bearer {KEY}", "PLAIN": "plain"}
    place.produce()
    environment = place.scripted.commands[-1][0].environment
    own = {"codex": "OPENAI_API_KEY", "claude_code": "ANTHROPIC_API_KEY"}[place.name]
    assert environment[own] == environment["MINE"] == PLACEHOLDER
    assert environment["PLAIN"] == "plain"
    assert KEY not in repr(dict(environment))


@every_program
def test_passthrough_hands_over_the_key_and_says_so(bench: Bench, scripted: ScriptedDriver, name: str) -> None:
    """Passthrough puts the key into the sandbox, allows the provider's domain, and is recorded in the identity."""
    place = Place(bench, scripted, name, credentials="passthrough", allowed_domains=("example.org",))
    place.gateway.relay = None
    agent_result = place.produce()
    host = {"codex": "api.openai.com", "claude_code": "api.anthropic.com"}[name]
    own = {"codex": "OPENAI_API_KEY", "claude_code": "ANTHROPIC_API_KEY"}[name]
    assert scripted.commands[-1][0].environment[own] == KEY
    assert place.gateway.plans[0][1].domains == ("example.org", host)
    assert place.gateway.plans[0][1].relay is None
    assert place.identity["credentials"] == "passthrough"
    assert str(place.identity["assurance"]).startswith("lower")
    assert agent_result.metadata["outcome"] == "worked"
    usage: Any = agent_result.metadata["usage"]
    assert usage["input_tokens"] == {"codex": 2400, "claude_code": 2403}[name]
    assert "relay" not in usage


def test_a_cloud_is_never_asked(bench: Bench, scripted: ScriptedDriver) -> None:
    """A cloud, for which only the agent has credentials, is not probed before the run or after reported trouble."""
    place = Place(bench, scripted, "claude_code", credentials="passthrough", allowed_domains=("cloud.example",))
    notes: list[str] = []
    place.harness.prepare(run_context(scripted, variables={"CLAUDE_CODE_USE_BEDROCK": "1"}))
    place.gateway.relay = None
    assert place.harness.check_provider(lambda: place.gateway, notes.append) == {}
    assert "CLAUDE_CODE_USE_BEDROCK" in notes[0]
    events: Any = (*streams.CLAUDE_WORKED[:-1], *streams.claude_failed(529, "API Error: 529 overloaded")[-1:])
    place.install(agent_that("claude_code", *events, answer="", code=1))
    agent_result = place.produce()
    assert agent_result.fault is None
    assert agent_result.metadata["outcome"] == "crashed"
    assert place.gateway.probes == []
    assert place.gateway.plans[0][1].domains == ("cloud.example",)
    assert "ANTHROPIC_API_KEY" not in scripted.commands[-1][0].environment


def test_the_sandbox_is_as_closed_as_it_can_be(place: Place) -> None:
    """The sandbox has a read-only root, no network, no capabilities, a read-only program and a home on a tmpfs."""
    place.produce()
    spec = place.scripted.commands[-1][0]
    assert spec.read_only
    assert spec.network == "none"
    assert spec.cap_drop == ("ALL",)
    assert spec.tmpfs == ("/tmp", HOME)
    assert spec.environment["HOME"] == HOME
    (program,) = [mount for mount in spec.mounts if mount.target == PROGRAMS_TARGET]
    assert program.read_only


def test_the_way_out_is_the_sessions(place: Place) -> None:
    """The sandbox has the session's proxy variables, but uses no proxy for the relay. The session is closed."""
    place.gateway.environment = {"HTTPS_PROXY": "http://127.0.0.1:3128"}
    place.produce()
    environment = place.scripted.commands[-1][0].environment
    assert environment["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert environment["NO_PROXY"] == environment["no_proxy"] == "127.0.0.1,localhost"
    assert [trial for trial, _ in place.gateway.plans] == [TrialId(VIEW.task_id)]
    assert place.gateway.sessions[0].closed


@pytest.mark.parametrize(
    ("view", "artifact"),
    [
        (VIEW, "candidate.txt"),
        (replace(VIEW, family="code_completion", candidate_kind=CandidateKind.CODE), "candidate.py"),
        (PATCH_VIEW, None),
        (WORKSPACE_VIEW, None),
    ],
)
def test_an_answer_lies_where_its_kind_says(place: Place, view: AgentView, artifact: str | None) -> None:
    """Text and code are left in an answer file. For a patch or a workspace, there is no answer file."""
    view = replace(view, environment=Environment(workdir=view.environment.workdir))
    invocation = place.harness.invocation(view)
    assert invocation.artifact_path == artifact
    assert "SECUREBENCH_TASK_FILE" in invocation.argv[-1]
    assert invocation.argv[-2] == "--"


def test_the_shorter_time_limit_holds(place: Place) -> None:
    """The tester's time limit applies, unless the task's is shorter."""
    assert place.harness.invocation(VIEW).timeout_seconds == 900
    short = replace(VIEW, environment=Environment(timeout_seconds=5.0))
    assert place.harness.invocation(short).timeout_seconds == 5.0


def test_a_forged_success_is_no_success(place: Place) -> None:
    """J15: an agent that prints its program's success events, but exits with 3 and leaves no answer, has failed."""
    place.install(agent_that(place.name, *EVENTS[place.name], *EVENTS[place.name], answer="", code=3))
    agent_result = place.produce()
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.AGENT_EXIT
    assert agent_result.metadata["outcome"] == "crashed"


def test_a_forged_trouble_is_no_infrastructure_error(place: Place) -> None:
    """L: an agent that prints events of provider trouble has failed if the relay saw no trouble."""
    events = {
        "codex": streams.codex_failed("exceeded retry limit, last status: 429 Too Many Requests"),
        "claude_code": streams.claude_failed(529, "API Error: 529 overloaded"),
    }
    place.install(agent_that(place.name, *events[place.name], code=1))
    failure = place.produce().failure
    assert failure is not None
    assert failure.reason is FailureReason.AGENT_EXIT


def test_a_providers_trouble_is_infrastructure(place: Place) -> None:
    """Provider trouble that the relay saw is an infrastructure error, not a failure, and the session is closed."""
    place.gateway.relay = RelayReport(requests=1, trouble=Trouble.REFUSED, message="the provider answered 401")
    place.install(agent_that(place.name, answer="", code=1))
    agent_result = place.produce()
    assert isinstance(agent_result.fault, ProviderError)
    assert "401" in agent_result.fault.message
    assert (agent_result.candidate, agent_result.failure) == (None, None)
    assert place.gateway.sessions[0].closed


def test_a_void_try_tells_what_it_used(place: Place) -> None:
    """A try with an infrastructure error records its usage. After provider trouble, it also has outcome and steps."""
    place.gateway.relay = replace(WORKED, answered=0, statuses={}, trouble=Trouble.FAILED, forgiven=2)
    place.install(agent_that(place.name, code=1))
    void = place.produce()
    assert void.fault is not None
    usage: Any = void.metadata["usage"]
    assert (void.metadata["outcome"], usage["input_tokens"], usage["relay"]["forgiven"]) == ("provider_failed", 3600, 2)
    assert void.trajectory.count("\n") > 1
    place.scripted.fail_next(EngineError("the engine is gone"), on="wait")
    void = place.produce()
    assert isinstance(void.fault, EngineError)
    assert "outcome" not in void.metadata
    usage = void.metadata["usage"]
    assert usage["input_tokens"] == 3600


def test_earlier_tries_count_against_the_budget(place: Place) -> None:
    """The relay gets what earlier tries of a task used, so that the task's budget applies to all tries together."""
    context = replace(place.bench.context(), gateway=place.gateway, spent=Spent(3, 200, 1000))
    place.harness.produce(VIEW, context)
    relay = place.gateway.plans[-1][1].relay
    assert relay is not None
    assert (relay.spent_requests, relay.spent_tokens, relay.spent_bytes) == (3, 200, 1000)


def test_an_agent_without_an_answer_gave_up(place: Place) -> None:
    """An agent that exits with 0 without an answer file fails because of the missing candidate, and has given up."""
    place.install(agent_that(place.name, answer=""))
    agent_result = place.produce()
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.CANDIDATE_MISSING
    assert agent_result.metadata["outcome"] == "gave_up"


def test_an_empty_answer_is_no_work(place: Place) -> None:
    """A blank answer is kept as the candidate, but fails as empty, and the outcome is ``gave_up``."""
    place.install(agent_that(place.name, answer="\n"))
    agent_result = place.produce()
    assert agent_result.candidate is not None
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.CANDIDATE_EMPTY
    assert agent_result.metadata["outcome"] == "gave_up"


def test_events_are_what_stdout_holds(place: Place) -> None:
    """Events are read only from stdout, and the last one counts even without a line end."""

    def program(context: ProgramContext) -> None:
        context.path("candidate.txt").write_text("42\n")
        context.stdout.write(streams.lines(*EVENTS[place.name])[:-1])
        context.stderr.write(b"\n" + streams.lines(*EVENTS[place.name]))

    place.install(program)
    agent_result = place.produce()
    usage: Any = agent_result.metadata["usage"]
    assert usage["turns"] == {"codex": 1, "claude_code": 2}[place.name]
    assert usage["cached_input_tokens"] == 2000
    assert agent_result.trajectory.count('"usage"') == 1


def test_a_dead_gateway_ends_the_work_at_once(place: Place) -> None:
    """J19: if the gateway dies while the agent works, the sandbox is closed. The result has an infrastructure error."""

    def wait(context: ProgramContext) -> None:
        place.gateway.sessions[0].die(EgressError("the gateway died"))
        context.sleep(30)

    place.install(wait)
    started = time.monotonic()
    fault = place.produce().fault
    assert isinstance(fault, EgressError)
    assert "the gateway died" in fault.message
    assert time.monotonic() - started < 25
    assert not place.scripted.open_sandboxes


def test_without_a_gateway_nothing_runs(place: Place) -> None:
    """Without a gateway, an agent with a provider does not start."""
    place.gateway = None  # type: ignore[assignment]  # as in a run without egress
    with pytest.raises(EgressError, match="no egress"):
        place.produce()


def test_the_way_out_is_closed_whatever_happens(place: Place) -> None:
    """If no sandbox can be created, the engine's error is returned, and the session is closed."""
    place.scripted.fail_next(EngineError("the engine is gone"), on="create")
    assert isinstance(place.produce().fault, EngineError)
    assert place.gateway.sessions[0].closed


def test_an_authority_of_the_testers_is_taken_for_the_provider(place: Place, tmp_path: Path) -> None:
    """The relay gets the text of the CA file that the tester's ``SSL_CERT_FILE`` names."""
    authority = trustme.CA().cert_pem
    authority.write_to_path(tmp_path / "ca.pem")
    place.harness.prepare(run_context(place.scripted, variables={**KEYS, "SSL_CERT_FILE": str(tmp_path / "ca.pem")}))
    place.produce()
    relay = place.gateway.plans[-1][1].relay
    assert relay is not None
    assert relay.ca_bundle == authority.bytes().decode()


def test_an_endless_line_is_no_harm(place: Place) -> None:
    """L17: a line that is too long is skipped and counted, and the events after it are read."""

    def flood(context: ProgramContext) -> None:
        context.path("candidate.txt").write_text("42\n")
        for _ in range(40):
            context.stdout.write(b"x" * 65536)
        context.stdout.write(b"\n" + streams.lines(*EVENTS[place.name]))

    place.install(flood)
    agent_result = place.produce()
    usage: Any = agent_result.metadata["usage"]
    assert usage["events_skipped"] == 1
    assert agent_result.stdout == "done"


def test_without_a_message_stdout_is_what_was_printed(place: Place) -> None:
    """If a program crashes before any message event, the result's stdout is what the program printed."""

    def crash(context: ProgramContext) -> int:
        context.stdout.write("Segmentation fault\n")
        return 139

    place.install(crash)
    assert place.produce().stdout == "Segmentation fault\n"


@every_program
def test_a_way_past_the_relay_is_told(bench: Bench, scripted: ScriptedDriver, name: str) -> None:
    """J13: an allowed domain through which an agent can bypass the relay causes a warning before any task."""
    host = {"codex": "openai.com", "claude_code": "anthropic.com"}[name]
    place = Place(bench, scripted, name, allowed_domains=(host,))
    messages: list[str] = []
    place.harness.prepare(replace(run_context(scripted), notify=messages.append))
    assert [host in text for text in messages] == [True]


@every_program
def test_who_is_unprepared_does_not_work(name: str, tmp_path: Path) -> None:
    """A harness that was not prepared has no credentials, and cannot run a program."""
    harness = make(name, tmp_path)
    assert harness.credentials == ()
    assert harness.needs_gateway
    with pytest.raises(AssertionError, match="prepare"):
        harness.invocation(VIEW)


@every_program
def test_a_missing_key_ends_a_run_before_it_begins(name: str, tmp_path: Path, scripted: ScriptedDriver) -> None:
    """K12: without a key, preparation fails before anything is installed."""
    harness = make(name, tmp_path)
    with pytest.raises(ConfigError) as raised:
        harness.prepare(run_context(scripted, variables={}))
    assert raised.value.code == "env-missing"
    assert not (tmp_path / "agents").exists()


@every_program
def test_a_rejected_key_or_model_is_told_before_any_task(bench: Bench, scripted: ScriptedDriver, name: str) -> None:
    """If the provider refuses the key or does not have the model, the check before the run raises an error."""
    place, messages = Place(bench, scripted, name), list[str]()
    for report, code in (
        (ProbeReport(trouble=Trouble.REFUSED, message="the provider answered 401", status=401), "provider-refused"),
        (ProbeReport(trouble=Trouble.REJECTED, status=404, model_unknown=True), "provider-rejected"),
    ):
        place.gateway.answers = [report]
        with pytest.raises(ConfigError) as raised:
            place.harness.check_provider(lambda: place.gateway, messages.append)
        assert raised.value.code == code
        assert KEY not in str(raised.value)
    assert not messages


@every_program
def test_trouble_that_may_pass_by_does_not_stop_a_run(bench: Bench, scripted: ScriptedDriver, name: str) -> None:
    """If the probe before the run meets provider trouble that may pass, the only effect is a warning.

    Success and a refusal by the model cause no warning. The usage of the probe is returned.
    """
    place = Place(bench, scripted, name)
    for trouble in (
        Trouble.FAILED,
        Trouble.UNREACHABLE,
        Trouble.RATE_LIMITED,
        Trouble.REJECTED,
        None,
        Trouble.DECLINED,
    ):
        messages: list[str] = []
        place.gateway.answers = [ProbeReport(trouble=trouble, status=200, input_tokens=9, output_tokens=1)]
        used = place.harness.check_provider(lambda: place.gateway, messages.append)
        assert (used["requests"], used["input_tokens"], used["output_tokens"]) == (1, 9, 1)
        assert bool(messages) is (trouble not in {None, Trouble.DECLINED})
    assert {task for task, _ in place.gateway.probes} == {None}


def test_an_outage_that_the_gateway_does_not_see_is_the_agents_failure(place: Place) -> None:
    """If probes of the model that answered find no outage, the agent has failed. The probes are recorded."""
    place.gateway.relay = replace(WORKED, trouble=Trouble.FAILED, model="the-model")
    place.install(agent_that(place.name, code=1))
    agent_result = place.produce()
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.AGENT_EXIT
    usage: Any = agent_result.metadata["usage"]
    assert usage["probes"] == {"requests": 3, "input_tokens": 27, "output_tokens": 3, "troubles": [None] * 3}
    assert place.gateway.probes == [(TrialId(VIEW.task_id), "the-model")] * 3
