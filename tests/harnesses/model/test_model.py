"""The model harness on the host: what it runs in the sandbox, what it records, and how it classifies failures."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harnesses.conftest import VIEW, WORKSPACE_VIEW
from harnesses.provider_fakes import KEY, KEYS, FakeGateway, run_context
from securebench.egress.model import ProbeReport, RelayReport, Trouble
from securebench.errors import ConfigError, FailureReason, ProviderError
from securebench.harnesses.model.harness import ModelHarnessProducer
from securebench.harnesses.provider.endpoints import PLACEHOLDER
from securebench.harnesses.provider.program.runtime import RUNTIME_TARGET
from securebench.tester_config import ModelConfig

if TYPE_CHECKING:
    from pathlib import Path

    from harnesses.conftest import Bench
    from securebench.harnesses.base import AgentResult
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedDriver

ANSWERED = RelayReport(
    requests=1, answered=1, statuses={"200": 1}, input_tokens=95, output_tokens=10, models={"m-1": 1}
)
ANSWER = {"type": "answer", "text": "Answer: 4", "thought": "2 + 2", "input_tokens": 90, "output_tokens": 10}
END = {"type": "end", "reason": "finished", "turns": 1}
MACHINE = os.uname().machine
LOADER = f"lib/{MACHINE}-linux-gnu/ld-linux-{MACHINE.replace('_', '-')}.so.{2 if MACHINE == 'x86_64' else 1}"


class Place:
    """A model harness on a bench, with a fake gateway."""

    def __init__(self, bench: Bench, scripted: ScriptedDriver, **config: Any) -> None:
        self.harness = ModelHarnessProducer(ModelConfig(**{"dialect": "chat_completions", "model": "m", **config}))
        self.gateway = FakeGateway()
        self._bench, self._scripted = bench, scripted
        self.environment: dict[str, str] = {}

    def prepare(self, *images: str) -> Any:
        """Prepare the run, and return the agent's identity."""
        return self.harness.prepare(run_context(self._scripted, *images))

    def produce(
        self,
        *events: Any,
        view: Any = VIEW,
        relay: RelayReport = ANSWERED,
        answer: str = "Answer: 4",
        code: int = 0,
        seconds: float = 0,
    ) -> AgentResult:
        """Run a program that prints ``events`` and writes ``answer``. The relay's report is ``relay``."""
        self.prepare()
        self.gateway.relay = relay

        @self._scripted.program("python3")
        def program(context: ProgramContext) -> int:
            self.environment |= context.environment
            for event in events:
                context.stdout.write(json.dumps(event) + "\n")
            if answer:
                context.path("candidate.txt").write_text(answer)
            context.sleep(seconds)
            return code

        made = replace(self._bench.context(), gateway=self.gateway, pause=lambda _seconds: None)
        return self.harness.produce(view, made)


def test_an_answer_is_the_candidate(bench: Bench, scripted: ScriptedDriver) -> None:
    """An answer becomes the candidate, with the relay's token counts and a trajectory. The sandbox lacks the key."""
    place = Place(bench, scripted)
    result = place.produce({"type": "prompt", "text": "user: What?"}, ANSWER, END)
    assert result.failure is None
    assert result.candidate is not None
    assert result.stdout == "Answer: 4"
    assert result.metadata["outcome"] == "worked"
    usage: Any = result.metadata["usage"]
    assert (usage["input_tokens"], usage["turns"]) == (95, 1)
    assert usage["relay"]["models"] == {"m-1": 1}
    steps = [json.loads(line) for line in result.trajectory.splitlines()]
    assert [step["kind"] for step in steps] == ["prompt", "thought", "message", "usage"]
    assert KEY not in json.dumps(place.environment)
    assert place.environment["OPENAI_API_KEY"] == PLACEHOLDER


def test_a_run_states_everything_that_counts(bench: Bench, scripted: ScriptedDriver, tmp_path: Path) -> None:
    """The identity has the settings, the system prompt and the examples, and does not depend on the names of files."""
    line = {"family": "short_answer", "input": {"question": "?"}, "answer": "!"}
    for name in ("one", "two"):
        (tmp_path / name).write_text(json.dumps(line) + "\n")
    places = [
        Place(bench, scripted, temperature=0.0, effort="low", examples=tmp_path / name, system_prompt="Be brief.")
        for name in ("one", "two")
    ]
    identity, other = (place.prepare() for place in places)
    assert identity == other
    assert identity["program"] == "model"
    assert (identity["provider"], identity["model"], identity["endpoint"]) == (
        "chat_completions",
        "m",
        "api.openai.com",
    )
    settings = identity["settings"]
    assert settings.pop("examples")["number"] == 1
    assert settings.pop("system_prompt")["characters"] == 9
    assert settings == {
        "temperature": 0.0,
        "effort": "low",
        "retries": 1,
        "max_turns": 100,
        "command_timeout_seconds": 120.0,
    }
    assert Place(bench, scripted, temperature=0.1).prepare() != Place(bench, scripted).prepare()


@pytest.mark.parametrize(
    ("reason", "answer", "outcome"),
    [
        ("truncated", "Answer:", "truncated"),
        ("truncated", "", "truncated"),
        ("malformed", "hm", "worked"),
        ("malformed", "", "gave_up"),
    ],
)
def test_how_an_answer_ended(bench: Bench, scripted: ScriptedDriver, reason: str, answer: str, outcome: str) -> None:
    """A truncated or malformed answer is still the candidate, unless it is empty.

    The outcome of a truncated answer is ``truncated``, of a malformed one ``worked``, or ``gave_up`` if it is empty.
    """
    result = Place(bench, scripted).produce(ANSWER, {**END, "reason": reason}, answer=answer)
    assert result.metadata["outcome"] == outcome
    assert (result.candidate is None) == (not answer)


def test_a_refusal_is_a_failure(bench: Bench, scripted: ScriptedDriver) -> None:
    """A refusal is a failure even if there is a workspace that could be judged."""
    declined = replace(ANSWERED, answered=0, trouble=Trouble.DECLINED)
    place = Place(bench, scripted)
    result = place.produce(ANSWER, {**END, "reason": "refused"}, view=WORKSPACE_VIEW, relay=declined, answer="")
    assert result.failure is not None
    assert result.failure.reason is FailureReason.AGENT_REFUSED


def test_the_budget_and_the_provider(bench: Bench, scripted: ScriptedDriver) -> None:
    """A used-up budget is a failure; a provider that fails before any answer is a provider error instead."""
    error = {"type": "error", "status": 429, "text": "SecureBench: the budget"}
    spent = RelayReport(requests=0, trouble=Trouble.OUT_OF_BUDGET, refused={"budget": 1})
    result = Place(bench, scripted).produce(error, relay=spent, answer="", code=1)
    assert result.failure is not None
    assert result.failure.reason is FailureReason.AGENT_OUT_OF_BUDGET
    failed = RelayReport(requests=6, statuses={"500": 6}, trouble=Trouble.FAILED, message="the provider answered 500")
    result = Place(bench, scripted).produce({**error, "status": 500}, relay=failed, answer="", code=1)
    assert isinstance(result.fault, ProviderError)


@pytest.mark.parametrize(("probed", "failed"), [(None, True), (Trouble.UNREACHABLE, False), (Trouble.FAILED, False)])
def test_a_model_that_is_too_slow(bench: Bench, scripted: ScriptedDriver, probed: Trouble | None, failed: bool) -> None:
    """A timeout is a failure if the gateway's own probes of the provider succeed, and else a provider error."""
    place = Place(bench, scripted, timeout_seconds=0.3)
    place.gateway.answers = [ProbeReport(trouble=probed)] * 3
    waiting = RelayReport(requests=1)
    result = place.produce({"type": "prompt", "text": "user: What?"}, relay=waiting, answer="", seconds=30)
    if failed:
        assert result.failure is not None
        assert (result.failure.reason, result.metadata["outcome"]) == (FailureReason.AGENT_TIMEOUT, "timed_out")
    else:
        assert isinstance(result.fault, ProviderError)


def test_a_setup_of_any_size(bench: Bench, scripted: ScriptedDriver) -> None:
    """A long system prompt is split into several variables, each smaller than Linux's limit of 128 KiB."""
    place = Place(bench, scripted, system_prompt="ü" * 100_000)
    place.produce(ANSWER, END)
    assert max(len(f"{name}={value}".encode()) for name, value in place.environment.items()) < 128 * 1024


def test_an_image_without_python(bench: Bench, scripted: ScriptedDriver) -> None:
    """The base image's Python is mounted into an image without Python, and is started by the base image's loader."""
    scripted.add_image("securebench/python:3.11", files={"/usr/bin/python3.11": b"python", f"/{LOADER}": b"loader"})
    scripted.add_image("plain:1")
    place = Place(bench, scripted)
    assert place.prepare("plain:1", "securebench/python:3.11")["runtime"] == "python"
    invocation = place.harness.invocation(replace(VIEW, environment=replace(VIEW.environment, image="plain:1")))
    assert invocation.argv[0] == f"{RUNTIME_TARGET}/{LOADER}"
    assert f"{RUNTIME_TARGET}/usr/bin/python3.11" in invocation.argv
    assert [mount.target for mount in invocation.mounts] == [RUNTIME_TARGET]
    assert (place.harness.invocation(VIEW).argv[0], place.harness.invocation(VIEW).mounts) == ("python3", ())


def test_a_base_image_without_python(bench: Bench, scripted: ScriptedDriver) -> None:
    """If the base image has no Python, the run is refused before any task, with a hint."""
    scripted.add_image("plain:1")
    with pytest.raises(ConfigError, match="which the agent needs") as caught:
        Place(bench, scripted).prepare("plain:1")
    assert (caught.value.code, caught.value.hint) == ("agent-unfit", "run 'securebench images build'")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"system_prompt": "x", "system_prompt_file": "y"}, "remove one of the two"),
        ({"dialect": "messages", "seed": 1}, "seed is not supported with 'dialect: messages'"),
        ({"max_tokens": 200, "budget": {"tokens": 100}}, "raise the budget"),
        ({"temperature": 2.5}, "temperature must be at most 2"),
        ({"effort": "huge"}, "effort"),
        ({"system_prompt": " "}, "visible"),
        ({"retries": -1}, "retries must be at least 0"),
    ],
)
def test_settings_are_checked(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Settings that are out of range, contradict each other or are not supported by the API are refused."""
    from securebench.strict_input.models import fit

    value = {"dialect": "chat_completions", "model": "m", **config}
    settings, faults = fit(ModelConfig, value, context={"base": tmp_path})
    assert settings is None
    assert message in " ".join(f"{fault.message} {fault.hint}" for fault in faults)


def test_the_key_is_needed(bench: Bench, scripted: ScriptedDriver) -> None:
    """A missing key is refused unless there is a ``base_url``."""
    del bench
    assert "OPENAI_API_KEY" in KEYS
    config = ModelConfig(dialect="chat_completions", model="m")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        ModelHarnessProducer(config).prepare(run_context(scripted, variables={}))
    local = ModelConfig(dialect="chat_completions", model="m", base_url="http://127.0.0.1:8000/v1")
    assert ModelHarnessProducer(local).prepare(run_context(scripted, variables={}))["endpoint"] == "127.0.0.1"
