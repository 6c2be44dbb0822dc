"""Collects the votes of a judge on one response, and derives the verdict from them.

A reply is valid if it is exactly the JSON object that the prompt asks for, possibly in a code block. After an invalid
reply, the judge is asked again. A response may provoke a judge into replies of any kind. So if the judge gives no valid
reply, it is asked to grade a control: a response that no judge can misunderstand. If the judge grades the control, but
still not the response, the response is the cause and fails. If the judge cannot grade the control either, the judge is
unusable, and there is no verdict.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason, ProviderError
from securebench.resources import REDACTED
from securebench.strict_input.json_text import UnfitJsonError, decode_json
from securebench.verifiers.base import VerificationResult
from securebench.verifiers.model_graded.prompt import CONTROL, GradingTask, quoted_bytes
from securebench.verifiers.model_graded.session import Conversation, JudgeReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.resources import JsonValue
    from securebench.verifiers.model_graded.session import JudgeSession

MAX_ASKS: Final = 3
"""The maximum number of attempts to get a valid reply about the response, or about the control."""

MAX_REQUESTS_A_VOTE: Final = 2 * MAX_ASKS + 1
"""The maximum number of requests for one vote.

These are ``MAX_ASKS`` about the response, as many about the control, and one more about the response.
"""

MAX_REPLY: Final = 20_000
"""The maximum number of characters in a valid reply."""

JUDGE_UNFIT: Final = "judge-unfit"

_FENCED: Final = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
"""A reply that is a single code block, as many models write it."""

_VERDICTS: Final = {"pass": True, "fail": False}

_MESSAGES: Final = {
    FailureReason.WRONG_ANSWER: "the judge found that the response does not meet the criteria",
    FailureReason.JUDGE_NO_VERDICT: "the judge gave no valid verdict on the response, but it graded a control response",
    FailureReason.CANDIDATE_TOO_LARGE: "the response is too long for the judge",
}


@dataclass(frozen=True, slots=True)
class Grading:
    """The votes on a response, and the reason why the response failed, or ``None`` if it passed."""

    votes: tuple[bool, ...]
    reason: FailureReason | None


def graded(
    values: Mapping[str, Any], response: str, session: JudgeSession, verifier: Mapping[str, JsonValue]
) -> VerificationResult:
    """Let a judge grade a response that is not empty, and return the verdict.

    ``values`` are the task's public and hidden values. ``verifier`` is the verifier's name and version, for the
    metadata. Raises :class:`ProviderError` and :class:`EgressError`.
    """
    task = GradingTask.of(values)
    if quoted_bytes(response) > task.max_bytes:
        return _result(FailureReason.CANDIDATE_TOO_LARGE, {**verifier, "phase": "extraction", "rule": "length"})
    conversation = Conversation(session)
    grading = grade(partial(_ask, conversation, task, response), task.votes)
    replies = session.replies[: conversation.replies_used]
    evidence: dict[str, JsonValue] = {
        "kind": "model_graded",
        "judge": dict(session.identity),
        "template": task.template_digest,
        "planned_votes": task.votes,
        "votes": list(grading.votes),
        "replies": [recorded_reply(reply) for reply in replies],
    }
    return _result(grading.reason, {**verifier, "phase": "grading", "rule": "model_graded", "evidence": evidence})


def grade(ask: Callable[[bool], JudgeReply], votes: int) -> Grading:
    """Collect ``votes`` votes and return the result. ``ask(is_control)`` asks about the response or the control.

    Raises the errors of ``ask``, and :class:`ProviderError` (``judge-unfit``).
    """
    found: list[bool] = []
    for _ in range(votes):
        verdict = _vote(ask, is_control=False)
        if verdict is None:
            if _vote(ask, is_control=True) is None:
                raise unfit()
            verdict = verdict_of(ask(False))
        if verdict is None:
            return Grading(tuple(found), FailureReason.JUDGE_NO_VERDICT)
        found.append(verdict)
    return Grading(tuple(found), None if 2 * sum(found) > votes else FailureReason.WRONG_ANSWER)


def unfit() -> ProviderError:
    """Return the error of a judge that gives no valid verdicts."""
    return ProviderError(
        "the judge gave no valid verdict, not even on a harmless control response",
        code=JUDGE_UNFIT,
        hint="use another model in 'judge.model', or a larger 'judge.max_tokens'",
    )


def verdict_of(reply: JudgeReply) -> bool | None:
    """Return the verdict in a reply, or ``None`` if the reply is not exactly what the prompt asks for."""
    text = reply.text.strip()
    if len(text) > MAX_REPLY:
        return None
    try:
        value, _ = decode_json(fenced[1] if (fenced := _FENCED.fullmatch(text)) else text)
    except UnfitJsonError:
        return None
    if not isinstance(value, dict) or value.keys() != {"analysis", "verdict"}:
        return None
    verdict = value["verdict"]
    if not isinstance(value["analysis"], str) or not isinstance(verdict, str):
        return None
    return _VERDICTS.get(verdict)


def recorded_reply(reply: JudgeReply) -> dict[str, JsonValue]:
    """Return a reply for a record: the same verdict without the judge's words, which may describe hidden criteria."""
    if reply.trouble:
        return {"trouble": reply.trouble}
    verdict = verdict_of(reply)
    valid = {"analysis": REDACTED, "verdict": "pass" if verdict else "fail"}
    return {"model": reply.model, "text": REDACTED if verdict is None else json.dumps(valid)}


def read_replies(value: Any) -> list[JudgeReply]:
    """Return the replies in the ``evidence`` of a record. Raises ``ValueError`` if they are invalid."""
    replies = value.get("replies") if isinstance(value, dict) else None
    if not isinstance(replies, list) or not all(isinstance(reply, dict) for reply in replies):
        raise ValueError("'evidence.replies' is not a list of objects")
    found = [{name: reply.get(name, "") for name in ("text", "trouble", "model")} for reply in replies]
    if not all(isinstance(text, str) for reply in found for text in reply.values()):
        raise ValueError("'evidence.replies' contains an invalid reply")
    return [JudgeReply(**reply) for reply in found]


def regraded(evidence: Mapping[str, Any]) -> Grading:
    """Grade a response again by the recorded replies. Raises ``ValueError`` for too few, too many or invalid ones."""
    replies, votes = read_replies(evidence), evidence.get("planned_votes")
    if type(votes) is not int:
        raise ValueError("'evidence.planned_votes' is not an integer")
    remaining = iter(replies)
    try:
        grading = grade(lambda _is_control: next(remaining), votes)
    except (StopIteration, ProviderError):
        raise ValueError("the recorded replies of the judge do not give a verdict") from None
    if any(True for _ in remaining):
        raise ValueError("the judge gave more replies than the votes need")
    return grading


def _ask(conversation: Conversation, task: GradingTask, response: str, is_control: bool) -> JudgeReply:  # noqa: FBT001
    return conversation.ask(partial(task.prompt, CONTROL if is_control else response), is_control=is_control)


def _vote(ask: Callable[[bool], JudgeReply], *, is_control: bool) -> bool | None:
    for _ in range(MAX_ASKS):
        reply = ask(is_control)
        if (verdict := verdict_of(reply)) is not None or reply.trouble:
            return verdict
    return None


def _result(reason: FailureReason | None, metadata: dict[str, JsonValue]) -> VerificationResult:
    return VerificationResult(
        reason=reason,
        message=_MESSAGES[reason] if reason else "",
        metadata={**metadata, "reason": reason.value if reason else None},
    )
