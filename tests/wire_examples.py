"""One example of the traffic in each dialect of a model API.

Each stream has the events that the official client libraries know, in a plausible order. The shapes are those of the
public types of ``openai``, ``anthropic`` and ``google-genai``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from relay_setup import CHAT, CLAUDE, GEMINI, PATHS, PLAN

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.egress.model import RelayPlan

TAKEN, GIVEN = 100, 20
"""The input and output tokens of each example."""


@dataclass(frozen=True)
class WireExample:
    """An example of one dialect.

    ``events`` is a whole stream, and the event at index ``end`` completes its answer. ``whole`` is an answer that is
    not streamed. ``model`` is the model that the answers name. ``request`` returns a request with a given text, and
    ``text_event`` returns an event with a given text. ``whole_path`` is the path of a request for an answer that is not
    streamed, if it differs from ``path``.
    """

    plan: RelayPlan
    events: tuple[bytes, ...]
    end: int
    model: str
    whole: dict[str, Any]
    request: Callable[[str], dict[str, Any]]
    text_event: Callable[[str], bytes]
    whole_path: str = ""

    @property
    def path(self) -> str:
        """The path of a request for a streamed answer."""
        return PATHS[self.plan.provider]


def event(**fields: Any) -> bytes:
    """Return one event of a stream, named after its type if it has one."""
    name = f"event: {fields['type']}\n" if "type" in fields else ""
    return f"{name}data: {json.dumps(fields)}\n\n".encode()


def _numbered(*kinds: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple(event(**kind, sequence_number=number) for number, kind in enumerate(kinds))


# Responses

_RESPONSE: Final = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5.5-2026-01-01", "output": []}
_RESPONSE_USAGE: Final = {
    "input_tokens": TAKEN,
    "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 0},
    "output_tokens": GIVEN,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": TAKEN + GIVEN,
}
_COMPLETED: Final = {**_RESPONSE, "status": "completed", "error": None, "usage": _RESPONSE_USAGE}
_AT: Final = {"item_id": "item_1", "output_index": 0}
_IN: Final = {**_AT, "content_index": 0}
_OF: Final = {**_AT, "summary_index": 0}
_TEXT: Final = {"type": "output_text", "text": "", "annotations": []}
_ITEM: Final = {"type": "message", "id": "item_1", "role": "assistant", "status": "in_progress", "content": []}


def _calls(name: str, *stages: str) -> list[dict[str, Any]]:
    return [{"type": f"response.{name}.{stage}", **_AT} for stage in stages]


RESPONSES: Final = WireExample(
    plan=PLAN,
    events=_numbered(
        {"type": "response.queued", "response": {**_RESPONSE, "status": "queued"}},
        {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}},
        {"type": "response.in_progress", "response": {**_RESPONSE, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": _ITEM},
        {"type": "response.reasoning_summary_part.added", **_OF, "part": {"type": "summary_text", "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **_OF, "delta": "Hm"},
        {"type": "response.reasoning_summary_text.done", **_OF, "text": "Hm"},
        {"type": "response.reasoning_summary_part.done", **_OF, "part": {"type": "summary_text", "text": "Hm"}},
        {"type": "response.reasoning_text.delta", **_IN, "delta": "Hm"},
        {"type": "response.reasoning_text.done", **_IN, "text": "Hm"},
        {"type": "response.content_part.added", **_IN, "part": _TEXT},
        {"type": "response.output_text.delta", **_IN, "delta": "Hello", "logprobs": []},
        {"type": "response.output_text.annotation.added", **_IN, "annotation_index": 0, "annotation": {}},
        {"type": "response.output_text.done", **_IN, "text": 'the word "error" in a text', "logprobs": []},
        {"type": "response.refusal.delta", **_IN, "delta": ""},
        {"type": "response.refusal.done", **_IN, "refusal": ""},
        {"type": "response.content_part.done", **_IN, "part": _TEXT},
        {"type": "response.audio.delta", "delta": "AA=="},
        {"type": "response.audio.done"},
        {"type": "response.audio.transcript.delta", "delta": "x"},
        {"type": "response.audio.transcript.done"},
        {"type": "response.function_call_arguments.delta", **_AT, "delta": '{"command":"ls"}'},
        {"type": "response.function_call_arguments.done", **_AT, "arguments": '{"command":"ls"}'},
        {"type": "response.custom_tool_call_input.delta", **_AT, "delta": "x"},
        {"type": "response.custom_tool_call_input.done", **_AT, "input": "x"},
        {"type": "response.shell_call_command.added", "output_index": 0, "command_index": 0, "command": ""},
        {"type": "response.shell_call_command.delta", "output_index": 0, "command_index": 0, "delta": "ls"},
        {"type": "response.shell_call_command.done", "output_index": 0, "command_index": 0, "command": "ls"},
        {"type": "response.shell_call_output_content.delta", **_AT, "command_index": 0, "delta": {"stdout": "x"}},
        {"type": "response.shell_call_output_content.done", **_AT, "command_index": 0, "output": []},
        {"type": "response.code_interpreter_call_code.delta", **_AT, "delta": "1"},
        {"type": "response.code_interpreter_call_code.done", **_AT, "code": "1"},
        *_calls("code_interpreter_call", "in_progress", "interpreting", "completed"),
        *_calls("file_search_call", "in_progress", "searching", "completed"),
        *_calls("web_search_call", "in_progress", "searching", "completed"),
        *_calls("image_generation_call", "in_progress", "generating", "completed"),
        {
            "type": "response.image_generation_call.partial_image",
            **_AT,
            "partial_image_b64": "AA==",
            "partial_image_index": 0,
        },
        {"type": "response.mcp_call_arguments.delta", **_AT, "delta": "{}"},
        {"type": "response.mcp_call_arguments.done", **_AT, "arguments": "{}"},
        *_calls("mcp_call", "in_progress", "completed", "failed"),
        *_calls("mcp_list_tools", "in_progress", "completed", "failed"),
        *_calls("compaction", "compacting"),
        {"type": "response.output_item.done", "output_index": 0, "item": {**_ITEM, "status": "completed"}},
        {"type": "response.completed", "response": _COMPLETED},
    ),
    end=-1,
    model="gpt-5.5-2026-01-01",
    whole=_COMPLETED,
    request=lambda text: {
        "model": PLAN.model,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}],
        "store": False,
        "stream": True,
    },
    text_event=lambda text: event(type="response.output_text.delta", **_IN, delta=text, logprobs=[], sequence_number=9),
)

# Messages

_CACHES: Final = {"cache_creation_input_tokens": 20, "cache_read_input_tokens": 70}
_MESSAGE: Final[dict[str, Any]] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-20260101",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 10, **_CACHES, "output_tokens": 1, "service_tier": "standard"},
}
_BLOCKS: Final[list[tuple[dict[str, Any], list[dict[str, Any]]]]] = [
    (
        {"type": "thinking", "thinking": "", "signature": ""},
        [{"type": "thinking_delta", "thinking": "Hm"}, {"type": "signature_delta", "signature": "AA=="}],
    ),
    ({"type": "redacted_thinking", "data": "AA=="}, []),
    (
        {"type": "text", "text": "", "citations": None},
        [
            {"type": "text_delta", "text": 'message_stop and "error"'},
            {"type": "citations_delta", "citation": {"type": "char_location"}},
        ],
    ),
    (
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}},
        [{"type": "input_json_delta", "partial_json": '{"command":"ls"}'}],
    ),
    ({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}, []),
    ({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}, []),
]
_ENDED: Final = {"stop_reason": "tool_use", "stop_sequence": None}

MESSAGES: Final = WireExample(
    plan=CLAUDE,
    events=(
        event(type="message_start", message=_MESSAGE),
        event(type="ping"),
        *(
            piece
            for index, (block, deltas) in enumerate(_BLOCKS)
            for piece in (
                event(type="content_block_start", index=index, content_block=block),
                *(event(type="content_block_delta", index=index, delta=delta) for delta in deltas),
                event(type="content_block_stop", index=index),
            )
        ),
        event(type="message_delta", delta=_ENDED, usage={"output_tokens": GIVEN}),
        event(type="message_stop"),
    ),
    end=-1,
    model="claude-sonnet-5-20260101",
    whole={**_MESSAGE, **_ENDED, "usage": {"input_tokens": 10, **_CACHES, "output_tokens": GIVEN}},
    request=lambda text: {
        "model": "claude-sonnet-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
        "stream": True,
    },
    text_event=lambda text: event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
)

# Chat Completions

_CHAT: Final = {"id": "chatcmpl-1", "created": 1, "model": "gpt-5.5-2026-01-01", "service_tier": "default"}
_CHAT_USAGE: Final = {
    "prompt_tokens": TAKEN,
    "completion_tokens": GIVEN,
    "total_tokens": TAKEN + GIVEN,
    "prompt_tokens_details": {"cached_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event(**_CHAT, object="chat.completion.chunk", choices=[choice], usage=None)


_CALL: Final = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "shell", "arguments": ""}}

CHAT_COMPLETIONS: Final = WireExample(
    plan=CHAT,
    events=(
        _chunk({"role": "assistant", "content": "", "refusal": None}),
        _chunk({"content": "Hello"}),
        _chunk({"audio": {"id": "audio_1", "data": "AA==", "transcript": "x"}}),
        _chunk({"function_call": {"name": "shell", "arguments": "{}"}}),
        _chunk({"tool_calls": [_CALL]}),
        _chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"command":"ls"}'}}]}),
        _chunk({}, "tool_calls"),
        event(**_CHAT, object="chat.completion.chunk", choices=[], usage=_CHAT_USAGE),
        b"data: [DONE]\n\n",
    ),
    end=-3,
    model="gpt-5.5-2026-01-01",
    whole={
        **_CHAT,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        "usage": _CHAT_USAGE,
    },
    request=lambda text: {
        "model": CHAT.model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    text_event=lambda text: _chunk({"content": text}),
)

# Gemini

_SAID: Final = {"modelVersion": "gemini-3-pro-001", "responseId": "r1"}
_GEMINI_USAGE: Final = {
    "promptTokenCount": TAKEN - 10,
    "toolUsePromptTokenCount": 10,
    "cachedContentTokenCount": 10,
    "candidatesTokenCount": GIVEN - 5,
    "thoughtsTokenCount": 5,
    "totalTokenCount": TAKEN + GIVEN,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": TAKEN}],
}


def _answer(part: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    content = {"content": {"parts": [part], "role": "model"}, "index": 0}
    counted = {"promptTokenCount": TAKEN - 10, "toolUsePromptTokenCount": 10, "totalTokenCount": TAKEN}
    return {"candidates": [{**content, **candidate}], "usageMetadata": counted, **_SAID}


_LAST: Final = {
    **_answer({"text": ""}, finishReason="STOP", finishMessage="x", safetyRatings=[], citationMetadata={}),
    "usageMetadata": _GEMINI_USAGE,
}

GEMINI_API: Final = WireExample(
    plan=GEMINI,
    events=(
        event(promptFeedback={"safetyRatings": []}, **_SAID),
        event(**_answer({"text": "Hm", "thought": True})),
        event(**_answer({"text": "Hello", "thoughtSignature": "AA=="}, finishReason="FINISH_REASON_UNSPECIFIED")),
        event(**_answer({"functionCall": {"id": "1", "name": "shell", "args": {"command": "ls"}}})),
        event(**_answer({"inlineData": {"mimeType": "image/png", "data": "AA=="}})),
        event(**_answer({"executableCode": {"language": "PYTHON", "code": "1"}})),
        event(**_answer({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}})),
        event(
            **_answer({"text": "x"}, groundingMetadata={}, urlContextMetadata={}, avgLogprobs=-0.1, logprobsResult={})
        ),
        event(**_LAST),
    ),
    end=-1,
    model="gemini-3-pro-001",
    whole=_LAST,
    request=lambda text: {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    text_event=lambda text: event(**_answer({"text": text})),
    whole_path="/v1beta/models/gemini-3-pro:generateContent",
)

EXAMPLES: Final = {
    "responses": RESPONSES,
    "messages": MESSAGES,
    "chat_completions": CHAT_COMPLETIONS,
    "gemini": GEMINI_API,
}
