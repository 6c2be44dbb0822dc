"""How the tokens and the outcome of an answer are read while it is forwarded."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_setup import STREAM
from securebench.egress.model import Provider, Trouble
from securebench.egress.relay import usage
from securebench.egress.relay.providers import dialect_of
from securebench.egress.relay.usage import AnswerMeter
from securebench.money import TokenPrices


def read(provider: Provider, *pieces: bytes, request_bytes: int = 400, is_stream: bool = True) -> AnswerMeter:
    """Return a meter that has read an answer of ``pieces``."""
    meter = AnswerMeter(dialect_of(provider), request_bytes=request_bytes, is_stream=is_stream)
    for piece in pieces:
        meter.feed(piece)
    meter.finish()
    return meter


@pytest.mark.parametrize("provider", list(Provider))
@given(cuts=st.lists(st.integers(0, 300), max_size=8))
def test_cuts_change_nothing(provider: Provider, cuts: list[int]) -> None:
    """However a stream is split into pieces, the same tokens and outcome are read."""
    stream = STREAM[provider]
    ends = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    meter = read(provider, *(stream[start:end] for start, end in pairwise(ends)))
    assert (meter.tokens(), meter.ended, meter.trouble) == ((100, 20), True, None)


@pytest.mark.parametrize("provider", list(Provider))
def test_line_ends(provider: Provider) -> None:
    """Lines may end with CRLF, and the last line needs no line end."""
    assert read(provider, STREAM[provider].replace(b"\n", b"\r\n")).tokens() == (100, 20)
    assert read(provider, STREAM[provider].rstrip(b"\n")).ended


@given(st.binary(max_size=400).filter(lambda data: not data.lstrip().startswith(b"{")), st.booleans())
def test_garbage_is_no_answer(data: bytes, is_stream: bool) -> None:
    """Reading invalid data raises nothing, and its tokens are estimated from its length."""
    meter = read(Provider.OPENAI, data, is_stream=is_stream)
    assert meter.tokens() == (100, len(data) // 4)
    assert not meter.ended


def test_words_of_the_model_are_no_usage() -> None:
    """Usage in the text of the model, or in an event that reports no usage, is ignored."""
    text = '{\\"type\\":\\"response.completed\\",\\"usage\\":{\\"input_tokens\\":0}}'
    delta = f'data: {{"type":"response.output_text.delta","delta":"{text}","usage":{{"input_tokens":1}}}}\n\n'
    meter = read(Provider.OPENAI, delta.encode())
    assert not meter.ended
    assert meter.tokens() == (100, len(delta) // 4)


def test_usage_of_an_unended_answer_is_no_bargain() -> None:
    """The output of an incomplete answer is estimated from its length if that is more than was reported."""
    start = STREAM[Provider.ANTHROPIC].split(b"event: message_delta")[0]
    text = b'data: {"type":"content_block_delta","delta":{"text":"word"}}\n\n' * 100
    assert read(Provider.ANTHROPIC, start, text).tokens() == (100, (len(start) + len(text)) // 4)


def test_answer_that_ends_without_usage() -> None:
    """The tokens of a complete answer without usage are estimated from the lengths."""
    done = b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'
    meter = read(Provider.OPENAI, done)
    assert (meter.ended, meter.tokens()) == (True, (100, len(done) // 4))


IMPLAUSIBLE = ["-5", "1.5", "true", '"9"', "null", "[1]", "{}", "1" + "0" * 20, "1" + "0" * 400, "1" + "0" * 5000]


@pytest.mark.parametrize("value", IMPLAUSIBLE)
@pytest.mark.parametrize(
    ("provider", "usage", "taken", "given"),
    [
        (Provider.OPENAI, "usage", "input_tokens", "output_tokens"),
        (Provider.ANTHROPIC, "usage", "input_tokens", "output_tokens"),
        (Provider.CHAT_COMPLETIONS, "usage", "prompt_tokens", "completion_tokens"),
        (Provider.GEMINI, "usageMetadata", "promptTokenCount", "candidatesTokenCount"),
    ],
)
def test_implausible_counts_are_estimated(provider: Provider, usage: str, taken: str, given: str, value: str) -> None:
    """A token count that is not a plausible whole number is ignored, and estimated from the length instead."""
    body = f'{{"{usage}":{{"{taken}":{value},"{given}":{value}}}}}'.encode()
    meter = read(provider, body, is_stream=False)
    assert meter.tokens() == (100, len(body) // 4)
    assert meter.cost(TokenPrices(input=1, cached_input=0, cache_write=0, cache_write_1h=0, output=1)) == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is too long is not kept in memory, and the events after it are read."""
    monkeypatch.setattr(usage, "MAX_EVENT_BYTES", 1000)
    meter = AnswerMeter(dialect_of(Provider.OPENAI), request_bytes=400, is_stream=True)
    for _ in range(100):
        meter.feed(b"data: " + b"x" * 94)
        assert len(meter._held) <= 1000
    meter.feed(b"\n" + STREAM[Provider.OPENAI])
    meter.finish()
    assert (meter.ended, meter.tokens()) == (True, (100, 20))


def test_long_whole_answer_is_counted_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unstreamed answer that is too long to parse counts as complete, with tokens estimated from its length."""
    monkeypatch.setattr(usage, "MAX_EVENT_BYTES", 100)
    meter = read(Provider.OPENAI, b'{"usage":{"output_tokens":1},', b'"x":"' + b"x" * 200 + b'"}', is_stream=False)
    assert meter.ended
    assert meter.tokens()[1] > 50


def test_error_in_a_stream_is_kept() -> None:
    """An error in a stream is reported even if a complete answer follows it."""
    error = b'data: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    assert read(Provider.ANTHROPIC, error + STREAM[Provider.ANTHROPIC]).trouble is Trouble.FAILED
