"""A program's events become a self-report and a trajectory, whatever the events contain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harnesses import streams
from harnesses.streams import lines
from securebench.egress.model import Trouble
from securebench.harnesses.provider.events.claude_code import ClaudeEventParser
from securebench.harnesses.provider.events.codex import CodexEventParser
from securebench.harnesses.provider.events.stream import EventReader
from securebench.harnesses.provider.self_report import MAX_TEXT, EventParser, Trajectory, trouble_of_status

PARSERS = (CodexEventParser, ClaudeEventParser)


def on_output(parser: EventParser, *events: dict[str, Any]) -> EventParser:
    """Pass events to ``parser`` as the output of a program, and return ``parser``."""
    reader = EventReader(parser.take)
    reader.feed(lines(*events))
    reader.finish()
    return parser


def steps(parser: EventParser) -> list[dict[str, Any]]:
    """Return the steps of the trajectory."""
    return [json.loads(line) for line in parser.trajectory.text().splitlines()]


def test_codex_tells_what_it_did() -> None:
    """Codex: the last message, the turns and all tokens are reported, and a warning is no provider trouble."""
    self_report = on_output(CodexEventParser(), *streams.CODEX_WORKED).self_report
    assert self_report.answered
    assert self_report.finished
    assert not self_report.failed
    assert self_report.message == "done"
    assert self_report.turns == 1
    assert self_report.cost_usd is None
    assert self_report.tokens == streams.CODEX_USAGE
    assert self_report.trouble is None


def test_codex_steps() -> None:
    """Codex: each step of the trajectory has a number, a kind and the content of the event."""
    change = streams.codex_item("file_change", changes=[{"path": "a.py", "kind": "update"}, {"path": "b.py"}, 7])
    thought = streams.codex_item("reasoning", text="hm")
    other = streams.codex_item("web_search", query="x")
    parser = on_output(CodexEventParser(), *streams.CODEX_WORKED[:-1], change, thought, other, streams.CODEX_END)
    assert steps(parser) == [
        {"step": 1, "kind": "error", "text": "Model metadata for `m` not found."},
        {"step": 2, "kind": "command", "command": "/bin/bash -lc 'echo 42'"},
        {"step": 3, "kind": "result", "output": "42\n", "exit_code": 0},
        {"step": 4, "kind": "message", "text": "done"},
        {"step": 5, "kind": "change", "text": "a.py\nb.py"},
        {"step": 6, "kind": "thought", "text": "hm"},
        {"step": 7, "kind": "other", "text": "web_search"},
        {"step": 8, "kind": "usage", **streams.CODEX_USAGE},
    ]


@pytest.mark.parametrize(
    ("message", "trouble"),
    [
        ("unexpected status 401 Unauthorized: no, url: http://127.0.0.1:8788/v1/responses", Trouble.REFUSED),
        ("unexpected status 529 <unknown status code>: no", Trouble.FAILED),
        ("exceeded retry limit, last status: 429 Too Many Requests", Trouble.RATE_LIMITED),
        ('{"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}', Trouble.REJECTED),
        (
            "We\N{RIGHT SINGLE QUOTATION MARK}re currently experiencing high demand, which may cause temporary errors.",
            Trouble.FAILED,
        ),
        ("stream disconnected before completion: error decoding response body", Trouble.FAILED),
        ("Connection failed: error sending request", Trouble.UNREACHABLE),
        ("Reconnecting... waiting for network (Connection failed: error sending request)", Trouble.UNREACHABLE),
        ("something else with 429 in it", None),
    ],
)
def test_codex_names_its_trouble_in_words(message: str, trouble: Trouble | None) -> None:
    """Codex: provider trouble is derived from the text of the error message."""
    self_report = on_output(CodexEventParser(), *streams.codex_failed(message)).self_report
    assert self_report.trouble is trouble
    assert self_report.failed
    assert not self_report.finished
    assert not self_report.answered
    assert self_report.error == message


def test_codex_warnings_are_kept_few_and_short() -> None:
    """F7: the first few different warnings of Codex are kept. A long one is clipped, and a repeated one is ignored."""
    texts = ["Model metadata for `x` not found.", "x" * 10_000, *map(str, range(99))]
    events = [streams.codex_item("error", message=text) for text in texts for _ in range(2)]
    self_report = on_output(CodexEventParser(), *streams.CODEX_BEGIN, *events).self_report
    assert self_report.warnings == ["Model metadata for `x` not found.", "x" * 512, "0", "1", "2"]
    assert not self_report.answered


def test_a_command_that_began_is_an_answer() -> None:
    """Codex: the start of a command counts as an answer, because the command may kill the program."""
    begun = streams.codex_item("command_execution", what="started", command="kill", status="in_progress")
    assert on_output(CodexEventParser(), *streams.CODEX_BEGIN, begun).self_report.answered
    warning = streams.codex_item("error", what="started", message="hm")
    assert not on_output(CodexEventParser(), *streams.CODEX_BEGIN, warning).self_report.answered


def test_claude_tells_what_it_did() -> None:
    """Claude Code: message, turns, estimated cost and tokens are reported, and cached tokens count as input."""
    self_report = on_output(ClaudeEventParser(), *streams.CLAUDE_WORKED).self_report
    assert self_report.answered
    assert self_report.finished
    assert not self_report.failed
    assert self_report.message == "done"
    assert self_report.turns == 2
    assert self_report.cost_usd == 0.00282
    assert self_report.tokens == {
        "input_tokens": 2403,
        "cached_input_tokens": 2000,
        "cache_write_input_tokens": 3,
        "output_tokens": 68,
    }


def test_claude_steps() -> None:
    """Claude Code: each step has a number, a kind and its content, and the text parts of a result are joined."""
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    result = {"message": {"content": [{"type": "tool_result", "content": parts, "is_error": True}]}, "type": "user"}
    parser = on_output(ClaudeEventParser(), *streams.CLAUDE_WORKED[:2], result, *streams.CLAUDE_WORKED[3:])
    assert steps(parser) == [
        {"step": 1, "kind": "thought", "text": "hm"},
        {"step": 2, "kind": "command", "tool": "Bash", "command": "echo 42"},
        {"step": 3, "kind": "result", "output": "a\n\nb", "failed": True},
        {"step": 4, "kind": "message", "text": "done"},
        {
            "step": 5,
            "kind": "usage",
            "turns": 2,
            "cost_usd": 0.00282,
            "input_tokens": 2403,
            "cached_input_tokens": 2000,
            "cache_write_input_tokens": 3,
            "output_tokens": 68,
        },
    ]


@pytest.mark.parametrize(
    ("status", "message", "trouble"),
    [
        (400, "API Error: 400 no", Trouble.REJECTED),
        (401, "Failed to authenticate. API Error: 401 no", Trouble.REFUSED),
        (429, "API Error: Request rejected (429) · no", Trouble.RATE_LIMITED),
        (529, "API Error: 529 no", Trouble.FAILED),
        (None, "API Error: Unable to connect to API (ConnectionRefused)", Trouble.UNREACHABLE),
        (None, "Reached maximum number of turns", None),
    ],
)
def test_claude_says_is_error(status: int | None, message: str, trouble: Trouble | None) -> None:
    """Claude Code: ``is_error`` means failure even if ``subtype`` is ``success``; an error message is no answer."""
    self_report = on_output(ClaudeEventParser(), *streams.claude_failed(status, message)).self_report
    assert self_report.failed
    assert not self_report.finished
    assert not self_report.answered
    assert self_report.trouble is trouble
    assert self_report.error == message


def test_an_end_without_is_error_is_none_that_went_well() -> None:
    """Claude Code: an end whose ``is_error`` is anything but ``false`` is a failure."""
    for odd in (None, 0, "false"):
        self_report = on_output(ClaudeEventParser(), streams.claude_end(is_error=odd)).self_report
        assert self_report.failed
        assert not self_report.finished


def test_a_refusal_is_told() -> None:
    """Claude Code: an error with the stop reason ``refusal`` is a refusal by the model, not provider trouble."""
    end = streams.claude_end(is_error=True, stop_reason="refusal", result="API Error: unable to respond")
    self_report = on_output(ClaudeEventParser(), streams.CLAUDE_INIT, end).self_report
    assert self_report.refused
    assert self_report.failed
    assert self_report.trouble is None


def test_denials_are_counted() -> None:
    """Tool calls that Claude Code denied and commands that Codex declined are counted."""
    end = streams.claude_end(permission_denials=[{"tool_name": "Bash"}, {"tool_name": "Write"}])
    assert on_output(ClaudeEventParser(), streams.CLAUDE_INIT, end).self_report.denials == 2
    declined = streams.codex_item("command_execution", command="x", status="declined", exit_code=None)
    assert on_output(CodexEventParser(), declined).self_report.denials == 1


@pytest.mark.parametrize(
    ("parser", "failed", "answer"),
    [
        (
            CodexEventParser,
            streams.codex_failed("exceeded retry limit, last status: 429 x")[:-1],
            streams.CODEX_MESSAGE,
        ),
        (ClaudeEventParser, streams.claude_failed(429, "API Error")[:-1], streams.CLAUDE_MESSAGE),
    ],
)
def test_trouble_ends_with_an_answer(
    parser: type[EventParser], failed: tuple[dict[str, Any], ...], answer: dict[str, Any]
) -> None:
    """A model answer resets earlier provider trouble and its error message."""
    assert on_output(parser(), *failed).self_report.trouble is Trouble.RATE_LIMITED
    self_report = on_output(parser(), *failed, answer).self_report
    assert self_report.trouble is None
    assert self_report.error == ""


_KEYS = st.sampled_from(
    [
        "type",
        "subtype",
        "item",
        "message",
        "content",
        "usage",
        "error",
        "result",
        "text",
        "changes",
        "exit_code",
        "input",
    ]
)
_WORDS = st.sampled_from(
    [
        *("item.completed", "item.started", "error", "turn.failed", "turn.completed", "turn.started", "system"),
        *("api_retry", "assistant", "user", "result", "text", "tool_use", "tool_result", "command_execution"),
        *("file_change", "agent_message", "reasoning", "thinking", "\ud800", "unexpected status 999"),
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("parser", PARSERS)
@given(events=st.lists(st.dictionaries(_KEYS, _VALUES, max_size=5), max_size=6))
def test_no_event_raises(parser: type[EventParser], events: list[dict[str, Any]]) -> None:
    """No event raises an error, whatever it contains, and the results can be written as JSON and UTF-8."""
    parsed = parser()
    for event in events:
        parsed.take(event)
    for line in parsed.trajectory.text().splitlines():
        json.loads(line)
    json.dumps(
        [parsed.self_report.message, parsed.self_report.error, parsed.self_report.tokens, parsed.self_report.cost_usd],
        allow_nan=False,
    )
    (parsed.self_report.message + parsed.self_report.error).encode()


def test_a_trajectory_is_bounded() -> None:
    """A trajectory drops the steps beyond its limit, and its last line says so."""
    trajectory = Trajectory(limit=1000)
    for _ in range(100):
        trajectory.add("message", text="x" * 100)
    kept = [json.loads(line) for line in trajectory.text().splitlines()]
    assert kept[-1] == {"step": len(kept), "kind": "clipped"}
    assert 500 < len(trajectory.text()) < 1100


def test_a_step_is_clipped() -> None:
    """A long text in a step is clipped, and ends with the number of missing characters."""
    trajectory = Trajectory()
    trajectory.add("result", output="x" * (MAX_TEXT + 5))
    assert json.loads(trajectory.text())["output"] == "x" * MAX_TEXT + "\n[5 more characters]"


def test_statuses() -> None:
    """Each HTTP error status means one trouble, and other statuses mean none."""
    by_trouble = {
        Trouble.REFUSED: (401, 402, 403),
        Trouble.RATE_LIMITED: (429,),
        Trouble.FAILED: (500, 502, 503, 529),
        Trouble.REJECTED: (400, 404, 413, 422),
        None: (0, 200, 304),
    }
    assert all(trouble_of_status(status) is trouble for trouble, found in by_trouble.items() for status in found)
