"""The sandbox program of the model harness, run here on the host: its requests, answers and events.

A scripted provider answers the requests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from securebench.harnesses.model.guest import client, main
from securebench.harnesses.model.guest.apis import APIS
from securebench.testing.provider import Cut, Fail, Garble, Say, ScriptedProvider, Shell, at_first

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.testing.provider import TextBook

DIALECTS = ("chat_completions", "responses", "messages", "gemini")
CHOICE = {"question": "Which is red?", "choices": ["sky", "blood"]}


@dataclass
class Guest:
    """A task directory in which the program runs."""

    directory: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    setup: dict[str, Any] = field(default_factory=dict)

    def run(self, provider: ScriptedProvider, task: Mapping[str, Any], **setup: Any) -> list[dict[str, Any]]:
        """Run the program and return its events."""
        given = {
            "dialect": "chat_completions",
            "model": "scripted-model",
            "url": f"{provider.url}/{'v1beta' if setup.get('dialect') == 'gemini' else 'v1'}",
            "key": "placeholder",
            "is_own": False,
            "system": None,
            "examples": [],
            "family": "multiple_choice",
            "answer_file": "candidate.txt",
            "instruction": "Do it.",
            "retries": 1,
            "max_turns": 5,
            "command_timeout_seconds": 20.0,
            **setup,
        }
        text = json.dumps(given)
        self.monkeypatch.setenv(f"{main.SETUP}0", text[:20])
        self.monkeypatch.setenv(f"{main.SETUP}1", text[20:])
        (self.directory / "task.json").write_text(json.dumps(task))
        self.monkeypatch.setenv("SECUREBENCH_TASK_FILE", str(self.directory / "task.json"))
        main.main()
        return self.events()

    def events(self) -> list[dict[str, Any]]:
        """Return the events that were printed since the last call."""
        return [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]

    @property
    def answer(self) -> str:
        """The content of the answer file."""
        return (self.directory / "candidate.txt").read_text()


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Guest:
    """Return a task directory, and make the program retry failed requests at most twice, after short pauses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "PAUSES", (0.01, 0.01))
    return Guest(tmp_path, monkeypatch, capsys)


def saying(*texts: str) -> TextBook:
    """Return a function that answers the user's n-th message with the n-th text.

    Use it only for tasks without few-shot examples, which the provider would count as messages of the user.
    """
    return lambda conversation: Say(texts[len(conversation.questions) - 1])


def bodies(provider: ScriptedProvider) -> list[Any]:
    """Return the bodies of all requests."""
    return [request.body for request in provider.requests]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_turn(guest: Guest, dialect: str) -> None:
    """In each API, a question is asked with its labelled choices, and the reply becomes the answer."""
    with ScriptedProvider((), texts=saying("Blood is red.\nAnswer: B")) as provider:
        events = guest.run(provider, CHOICE, dialect=dialect)
        (request,) = provider.requests
    assert guest.answer == "Blood is red.\nAnswer: B\n"
    assert request.conversation is not None
    assert "Which is red?\n\nA. sky\nB. blood" in request.conversation.prompt
    assert [event["type"] for event in events] == ["prompt", "answer", "end"]
    assert (events[1]["input_tokens"], events[1]["output_tokens"]) == (1200, 34)
    assert events[2] == {"type": "end", "reason": "finished", "turns": 1}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_loop(guest: Guest, dialect: str) -> None:
    """Commands run one after another, their output is sent back, and a message without a command ends the work."""
    script = (Shell("echo one > made; cat made; exit 3"), Shell("cat made made"), Say("It is done."))
    with ScriptedProvider(script) as provider:
        events = guest.run(provider, {"instructions": "Make it."}, dialect=dialect, answer_file=None)
        last = provider.requests[-1].conversation
    assert last is not None
    assert last.results == ("one\n\n[exit code 3]", "one\none\n\n[exit code 0]")
    assert "Make it." in last.prompt
    assert [event["exit_code"] for event in events if event["type"] == "result"] == [3, 0]
    assert events[-1] == {"type": "end", "reason": "finished", "turns": 3}
    assert not (guest.directory / "candidate.txt").exists()


@pytest.mark.parametrize(
    ("dialect", "sent"),
    [
        ("chat_completions", {"temperature": 0.5, "seed": 7, "max_tokens": 99, "reasoning_effort": "low"}),
        ("responses", {"temperature": 0.5, "max_output_tokens": 99, "reasoning": {"effort": "low"}, "store": False}),
        ("messages", {"temperature": 0.5, "max_tokens": 99, "output_config": {"effort": "low"}}),
        (
            "gemini",
            {
                "generationConfig": {
                    "temperature": 0.5,
                    "seed": 7,
                    "maxOutputTokens": 99,
                    "thinkingConfig": {"thinkingLevel": "low"},
                }
            },
        ),
    ],
)
def test_settings_are_sent(guest: Guest, dialect: str, sent: dict[str, Any]) -> None:
    """Each setting is sent under its name in the API; the system prompt and the examples precede the task."""
    settings = {"temperature": 0.5, "seed": 7, "max_tokens": 99, "effort": "low", "system": "Be brief."}
    examples = [{"input": {"question": "What is up?", "choices": ["sky", "sea"]}, "answer": "Answer: A"}]
    with ScriptedProvider((), texts=lambda _conversation: Say("Answer: B")) as provider:
        guest.run(provider, CHOICE, dialect=dialect, examples=examples, **settings)
        (body,) = bodies(provider)
    assert {name: body[name] for name in sent} == sent
    messages = body.get("messages") or body.get("input") or body["contents"]
    texts = [
        message["content"] if "content" in message else message["parts"][0]["text"]
        for message in messages
        if message["role"] != "system"
    ]
    assert [text.partition("\n\n")[2] for text in (texts[0], texts[2])] == [
        "What is up?\n\nA. sky\nB. sea",
        "Which is red?\n\nA. sky\nB. blood",
    ]
    assert texts[1] == "Answer: A"
    assert "Be brief." in json.dumps(
        [body.get(name) for name in ("system", "instructions", "systemInstruction")] + messages[:1]
    )


def test_what_is_not_set_is_not_sent(guest: Guest) -> None:
    """A setting that is not configured is not sent, except for the token limit that the Messages API requires."""
    with ScriptedProvider((), texts=saying("Answer: B")) as provider:
        for dialect in DIALECTS:
            guest.run(provider, CHOICE, dialect=dialect)
        found = [body.keys() - {"model", "messages", "input", "store", "contents"} for body in bodies(provider)]
    assert found == [set(), set(), {"max_tokens"}, set()]


def test_a_malformed_answer_is_asked_for_again(guest: Guest) -> None:
    """The model is asked again after a malformed answer, ``retries`` times; then its last reply is the answer."""
    with ScriptedProvider((), texts=saying("It may be\nthe second one.", "Answer: B")) as provider:
        events = guest.run(provider, CHOICE)
        assert guest.answer == "Answer: B\n"
        assert "malformed" in [event["type"] for event in events]
        events = guest.run(provider, CHOICE, retries=0)
    assert guest.answer == "It may be\nthe second one.\n"
    assert events[-1]["reason"] == "malformed"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("```python\nx = 1\n```", "```python\nx = 1\n```\n"),
        ("x = 1", "x = 1\n"),
        ("<think>```python\nno\n```</think>\nHere:\n```\nx = 1\n```", "Here:\n```\nx = 1\n```\n"),
    ],
)
def test_code_is_kept_as_it_is(guest: Guest, text: str, kept: str) -> None:
    """A reply with one Python module is kept unchanged; thoughts before it are left out."""
    with ScriptedProvider((), texts=saying(text)) as provider:
        events = guest.run(provider, {"prompt": "Set x.", "starter_code": "x ="}, family="code_completion")
        assert "```python\nx =\n```" in bodies(provider)[0]["messages"][0]["content"]
    assert guest.answer == kept
    assert events[-1]["reason"] == "finished"


@pytest.mark.parametrize("text", ["I cannot.", "```\nx\n```\n```\ny\n```", ""])
def test_other_code_is_malformed(guest: Guest, text: str) -> None:
    """A reply with prose only, with two code blocks or without text is malformed."""
    with ScriptedProvider((), texts=lambda _conversation: Say(text)) as provider:
        events = guest.run(provider, {"prompt": "Set x."}, family="code_completion")
    assert events[-1] == {"type": "end", "reason": "malformed", "turns": 2}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("answer_file", ["candidate.txt", None])
def test_a_refusal_leaves_no_answer(guest: Guest, dialect: str, answer_file: str | None) -> None:
    """An answer that the API marks as a refusal ends the task, and no answer file is written."""
    refusal = Say("I will not.", refused=True)
    with ScriptedProvider((refusal,), texts=lambda _conversation: refusal) as provider:
        events = guest.run(provider, CHOICE, dialect=dialect, answer_file=answer_file)
    assert events[-1]["reason"] == "refused"
    assert not (guest.directory / "candidate.txt").exists()


def test_turns_are_limited(guest: Guest) -> None:
    """A model that never ends its work is stopped after ``max_turns`` turns."""
    with ScriptedProvider(tuple(Shell("true") for _ in range(9))) as provider:
        events = guest.run(provider, {"instructions": "Go."}, answer_file=None, max_turns=3)
        assert len(provider.requests) == 3
    assert events[-1] == {"type": "end", "reason": "out_of_turns", "turns": 3}


@pytest.mark.parametrize("fault", [Fail(500), Fail(429, retry_after=0), Garble(), Cut(100), Cut(0)])
def test_a_failure_is_tried_again(guest: Guest, fault: Any) -> None:
    """A request that fails once is repeated, and the task is completed."""
    with ScriptedProvider((), texts=saying("Answer: B"), fault=at_first(1, fault)) as provider:
        events = guest.run(provider, CHOICE)
    assert guest.answer == "Answer: B\n"
    assert [event["type"] for event in events] == ["prompt", "error", "answer", "end"]


@pytest.mark.parametrize(("status", "requests"), [(401, 1), (400, 1), (529, 3)])
def test_a_failure_that_stays_ends_the_task(guest: Guest, status: int, requests: int) -> None:
    """If the provider keeps failing, the program exits with code 1. A rejected request is not repeated."""
    with (
        ScriptedProvider((), texts=saying("unused"), fault=Fail(status)) as provider,
        pytest.raises(SystemExit) as ended,
    ):
        guest.run(provider, CHOICE)
    assert ended.value.code == 1
    assert len(provider.requests) == requests
    assert [event.get("status") for event in guest.events()][1:] == [status] * requests


@pytest.mark.parametrize("statuses", [[400, 200], [400, 400]], ids=["accepted", "refused"])
def test_the_other_name_of_the_limit_is_tried_once(
    statuses: list[int], guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying the other name of the token limit costs no retry. If it is rejected too, the program exits."""
    sent: list[dict[str, Any]] = []
    reply = json.dumps({"choices": [{"message": {"content": "Answer: B"}, "finish_reason": "stop"}]})

    def answer(_client: client.ModelClient, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        status = statuses[len(sent)]
        sent.append(body)
        return status, {}, (reply if status == 200 else "use 'max_completion_tokens', not 'max_tokens'").encode()

    monkeypatch.setattr(client.ModelClient, "_post", answer)
    monkeypatch.setattr(client, "PAUSES", ())
    api = APIS["chat_completions"]({"model": "m", "is_own": False, "max_tokens": 5, "turns": []})
    model = client.ModelClient(api, "http://127.0.0.1:1/v1", "key")
    if statuses[-1] == 200:
        assert model.ask().text == "Answer: B"
    else:
        with pytest.raises(SystemExit):
            model.ask()
    assert ["max_tokens" in body for body in sent] == [True, False]
    assert len(guest.events()) == 2
