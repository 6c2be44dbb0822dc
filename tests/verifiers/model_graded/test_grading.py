"""How replies of a judge become votes and a verdict. A response gains nothing by confusing the judge.

The control is a fixed response that shows whether the judge works at all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scripted_judge import rubric, verdict
from securebench.errors import FailureReason, ProviderError
from securebench.verifiers.model_graded.grading import (
    MAX_REPLY,
    grade,
    graded,
    read_replies,
    recorded_reply,
    regraded,
    verdict_of,
)
from securebench.verifiers.model_graded.prompt import CONTROL, JudgePrompt
from securebench.verifiers.model_graded.session import JudgeReply, JudgeSession

if TYPE_CHECKING:
    from collections.abc import Iterable

PASS, FAIL = JudgeReply(verdict(passes=True), model="m-1"), JudgeReply(verdict(passes=False), model="m-1")
BAD = JudgeReply("I would say pass.", model="m-1")
DECLINED = JudgeReply(trouble="declined")
NO_VERDICT = FailureReason.JUDGE_NO_VERDICT
VALUES = {"prompt": "Why?", "rubric": rubric()}


class Scripted(JudgeSession):
    """A session that returns the given replies in order, and keeps the prompts."""

    def __init__(self, replies: Iterable[JudgeReply]) -> None:
        super().__init__({"model": "m"})
        self._coming = iter(replies)
        self.prompts: list[JudgePrompt] = []

    def ask(self, prompt: JudgePrompt, *, is_control: bool) -> JudgeReply:
        """Return the next reply."""
        assert is_control == (CONTROL in prompt.user)
        self.prompts.append(prompt)
        return next(self._coming)


def votes(*replies: JudgeReply, number: int = 3) -> tuple[tuple[bool, ...], FailureReason | None]:
    """Return the votes and the failure reason that result from ``replies``. Every reply must be used."""
    coming = iter(replies)
    found = grade(lambda _: next(coming), number)
    assert not list(coming)
    return found.votes, found.reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pass",
        "null",
        "[]",
        '{"verdict": "pass"}',
        '{"analysis": "a", "verdict": true}',
        '{"analysis": "a", "verdict": "PASS"}',
        '{"analysis": "a", "verdict": ["pass"]}',
        '{"analysis": 1, "verdict": "pass"}',
        '{"analysis": "a", "verdict": "pass", "confidence": 1}',
        '{"analysis": "a", "verdict": "fail", "verdict": "pass"}',
        '{"analysis": "a", "verdict": "pass"} {"analysis": "a", "verdict": "fail"}',
        'Verdict: {"analysis": "a", "verdict": "pass"}',
        '```\n{"analysis": "a", "verdict": "pass"}\n```\nDone.',
        '{"analysis": "a", "verdict": "pass"',
        json.dumps({"analysis": "a" * MAX_REPLY, "verdict": "pass"}),
        "[" * 10_000,
    ],
)
def test_anything_else_is_no_verdict(text: str) -> None:
    """Only the JSON object that the prompt asks for, alone or as a code block, is a verdict."""
    assert verdict_of(JudgeReply(text)) is None


def test_a_whole_reply_may_be_a_code_block() -> None:
    """A code block is accepted if it is the whole reply, because many models write one."""
    assert verdict_of(JudgeReply(f"```json\n{verdict(passes=True)}\n```")) is True
    assert verdict_of(JudgeReply(f" {verdict(passes=False)}\n")) is False


def test_the_majority_decides() -> None:
    """The majority of the votes decides, and all votes are collected."""
    assert votes(PASS, FAIL, PASS) == ((True, False, True), None)
    assert votes(PASS, FAIL, FAIL) == ((True, False, False), FailureReason.WRONG_ANSWER)
    assert votes(PASS, number=1) == ((True,), None)


def test_the_judge_is_asked_again_up_to_three_times() -> None:
    """If a reply is no verdict, the judge is asked again for the same vote, up to three times in total."""
    assert votes(BAD, BAD, PASS, FAIL, BAD, PASS) == ((True, False, True), None)


@pytest.mark.parametrize(
    "bad", [[BAD] * 3, *([JudgeReply(trouble=trouble)] for trouble in ("declined", "rejected", "refused", "failed"))]
)
def test_a_response_that_confuses_the_judge_fails(bad: list[JudgeReply]) -> None:
    """If the judge grades the control, but still not the response, the response fails, and there is no error."""
    assert votes(*bad, FAIL, bad[0], number=1) == ((), NO_VERDICT)
    assert votes(PASS, *bad, BAD, FAIL, bad[0]) == ((True,), NO_VERDICT)


def test_a_judge_that_recovers_gives_its_vote() -> None:
    """After the judge has graded the control, it is asked about the response once more, and that verdict counts."""
    assert votes(BAD, BAD, BAD, FAIL, PASS, number=1) == ((True,), None)


@pytest.mark.parametrize("control", [[BAD] * 3, [DECLINED], [BAD, DECLINED]])
def test_a_judge_that_does_not_grade_the_control_is_no_verdict(control: list[JudgeReply]) -> None:
    """If the judge does not grade the control either, the result is an infrastructure error and not a verdict."""
    with pytest.raises(ProviderError) as raised:
        votes(BAD, BAD, BAD, *control)
    assert raised.value.code == "judge-unfit"


def test_the_control_is_asked_about_without_the_response() -> None:
    """The prompt that asks about the control does not contain the response."""
    session = Scripted([BAD, BAD, BAD, FAIL, BAD])
    graded(VALUES, "Disturb the judge!", session, {})
    assert ["Disturb" in prompt.user for prompt in session.prompts] == [True, True, True, False, True]
    assert CONTROL in session.prompts[3].user


def test_a_verification_that_is_tried_again_asks_for_the_rest_only() -> None:
    """A repeated verification uses the replies that the judge already gave, and requests only the missing ones."""

    class Failing(Scripted):
        def ask(self, prompt: JudgePrompt, *, is_control: bool) -> JudgeReply:
            if len(self.prompts) == 2:
                self.prompts.append(prompt)
                raise ProviderError("gone")
            return super().ask(prompt, is_control=is_control)

    session = Failing([PASS, FAIL, PASS])
    with pytest.raises(ProviderError):
        graded(VALUES, "text", session, {})
    assert graded(VALUES, "text", session, {}).passed
    assert len(session.prompts) == 4


def test_the_evidence_gives_the_same_verdict_again() -> None:
    """Grading the recorded replies gives the recorded votes. The record does not contain the judge's words."""
    for replies in ([PASS, FAIL, PASS], [FAIL, BAD, FAIL, PASS], [BAD, BAD, BAD, FAIL, DECLINED]):
        result = graded(VALUES, "text", Scripted(replies), {"verifier": "free_response", "version": "1"})
        evidence: Any = json.loads(json.dumps(dict(result.metadata)))["evidence"]
        again = regraded(evidence)
        assert (list(again.votes), again.reason) == (evidence["votes"], result.reason)
        assert "It names it" not in json.dumps(evidence)
        assert result.metadata["reason"] == (result.reason.value if result.reason else None)
        assert result.message or result.passed


@pytest.mark.parametrize(
    "evidence",
    [
        {},
        {"replies": [], "planned_votes": 1},
        {"replies": [{"text": verdict(passes=True)}], "planned_votes": 3},
        {"replies": [{"text": verdict(passes=True)}] * 2, "planned_votes": 1},
        {"replies": [{"text": verdict(passes=True)}], "planned_votes": True},
        {"replies": [{"text": 1}], "planned_votes": 1},
        {"replies": "pass", "planned_votes": 1},
        {"replies": [{"trouble": "declined"}, {"trouble": "declined"}], "planned_votes": 1},
    ],
)
def test_evidence_without_a_verdict_is_refused(evidence: dict[str, Any]) -> None:
    """Evidence is refused if its replies are missing, too many, of the wrong type or give no verdict."""
    with pytest.raises(ValueError, match=r"replies|votes"):
        regraded(evidence)


def test_a_response_that_is_too_long_is_not_sent() -> None:
    """The limit applies to the bytes of the quoted response, with escapes. The judge is not asked about longer ones."""
    session = Scripted([])
    values = {**VALUES, "rubric": rubric(max_bytes=100)}
    for text in ("x" * 99, "\x00" * 20, "\U00020000" * 25):
        result = graded(values, text, session, {})
        assert result.reason is FailureReason.CANDIDATE_TOO_LARGE
        assert "evidence" not in result.metadata
    assert not session.prompts


def test_replies_survive_a_record() -> None:
    """Replies that were recorded and read again have the same verdict, trouble and model."""
    replies = [PASS, BAD, DECLINED]
    read = read_replies({"replies": [recorded_reply(reply) for reply in replies]})
    assert [verdict_of(reply) for reply in read] == [True, None, None]
    assert [(reply.trouble, reply.model) for reply in read] == [("", "m-1"), ("", "m-1"), ("declined", "")]
