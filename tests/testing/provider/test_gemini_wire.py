"""The Gemini API of the scripted provider: answers as a stream, and answers as one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provider_client import Answer, ask, request_of
from securebench.testing.provider import AnswerUsage, Fail, Say, ScriptedProvider, Shell

if TYPE_CHECKING:
    from securebench.testing.provider import Script

API = "gemini"
WHOLE = "/v1beta/models/m:generateContent"
USAGE = AnswerUsage(input=500, cached=400, output=60, reasoning=7)
COUNTS = {
    "promptTokenCount": 500,
    "cachedContentTokenCount": 400,
    "candidatesTokenCount": 53,
    "thoughtsTokenCount": 7,
    "totalTokenCount": 560,
}


def answered(script: Script, fault: Fail | None = None, path: str | None = None) -> Answer:
    """Return the first answer of a script over HTTP."""
    with ScriptedProvider(script, fault=fault) as provider:
        return ask(provider.url, API, request_of(API), path=path)


def test_a_stream_has_the_order_of_the_api() -> None:
    """A stream has the text in pieces, a whole call, and a last event with the finish reason and all counts."""
    events = answered((Say("x" * 40), Shell("true", USAGE))).events
    kinds = [next(iter(event["candidates"][0]["content"]["parts"][0])) for event in events]
    assert kinds == ["text", "text", "functionCall", "text"]
    assert [event["candidates"][0].get("finishReason") for event in events] == [None] * 3 + ["STOP"]
    assert events[-1]["usageMetadata"] == COUNTS
    assert {event["modelVersion"] for event in events} == {"m"}
    assert len({event["responseId"] for event in events}) == 1


def test_a_whole_answer() -> None:
    """``generateContent`` returns one object with all parts, the finish reason and the usage."""
    answer = answered((Say("So."), Shell("ls", USAGE)), path=WHOLE).value
    (candidate,) = answer["candidates"]
    call = {"name": "run_shell_command", "args": {"command": "ls"}}
    assert candidate["content"] == {"parts": [{"text": "So."}, {"functionCall": call}], "role": "model"}
    assert (candidate["finishReason"], answer["usageMetadata"]) == ("STOP", COUNTS)


def test_a_refusal_is_marked() -> None:
    """A refusal has no text. Its finish reason is that of the safety filter."""
    for path in (None, WHOLE):
        answer = answered((Say("No.", refused=True),), path=path)
        (event,) = answer.events if path is None else [answer.value]
        assert event["candidates"] == [{"finishReason": "SAFETY", "index": 0}]


def test_an_error_within_a_stream() -> None:
    """A stream that fails has status 200 and ends with an error object."""
    answer = answered((Say("x" * 90),), Fail(503, in_stream=True))
    assert answer.status == 200
    assert answer.events[-1]["error"]["status"] == "UNAVAILABLE"


def test_other_paths() -> None:
    """The API counts tokens and lists models. An unknown path has status 404."""
    with ScriptedProvider((Say("x"),)) as provider:
        counted = ask(provider.url, API, request_of(API), path="/v1beta/models/m:countTokens")
        listed = ask(provider.url, API, b"", path="/v1beta/models", method="GET")
        missing = ask(provider.url, API, request_of(API), path="/v1beta/others")
    assert counted.value == {"totalTokens": 1200}
    assert listed.value["models"][0]["name"] == "models/scripted-model"
    assert (missing.status, missing.value["error"]["status"]) == (404, "NOT_FOUND")
