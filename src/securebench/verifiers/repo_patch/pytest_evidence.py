"""What pytest said on its channel, and what follows from it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason
from securebench.verifiers.faults import FaultError

if TYPE_CHECKING:
    from securebench.sandboxes.base import CommandResult
    from securebench.verifiers.repo_patch.canaries import Canaries
    from securebench.verifiers.repo_patch.request import Request

MAX_CHANNEL_BYTES: Final = 48 * 1024 * 1024
"""What is kept of the channel: some hundred thousand tests."""

TESTS_FAILED_EXIT: Final = 1
"""How pytest ends if a test failed: always, for some must fail."""

NOTHING_COLLECTED_EXIT: Final = 5
_WORST_FIRST: Final = ("contradicted", "error", "failed", "skipped", "xfailed", "xpassed", "passed")
_PASSING: Final = frozenset({"passed", "xpassed"})
_FAILING: Final = frozenset({"failed", "error"})
_LINE = re.compile(rb"([0-9a-f]{32}) (\d{1,9}) (\[.*\])")


@dataclass(slots=True)
class Told:
    """What was said. ``outcomes`` by the id of each test; ``exit`` is ``None`` where the end was not announced."""

    outcomes: dict[str, str] = field(default_factory=dict)
    unloaded: list[str] = field(default_factory=list)
    exit: int | None = None
    started: bool = False

    def add(self, words: list[Any]) -> None:
        """Take one line. Raises ``ValueError`` for what is none of ours."""
        match words:
            case ["start", str()] if not self.started:
                self.started = True
            case ["test", str(name), str(outcome)] if outcome in _WORST_FIRST:
                self.outcomes[name] = min(outcome, self.outcomes.get(name, outcome), key=_WORST_FIRST.index)
            case ["unloaded", str(name)]:
                self.unloaded.append(name)
            case ["end", int(code)] if self.exit is None:
                self.exit = code
            case _:
                raise ValueError


def read_channel(data: bytes, mark: str) -> Told:
    """Return what was said. Raises :class:`FaultError` (``tampered``) for what is not ours after the first line.

    What was printed before that, while Python and pytest started, is passed by.
    """
    told = Told()
    begin = data.find(mark.encode("ascii") + b" 0 ")
    if begin < 0:
        return told
    for count, line in enumerate(data[begin:].removesuffix(b"\n").split(b"\n")):
        match = _LINE.fullmatch(line)
        try:
            if match is None or match[1].decode() != mark or int(match[2]) != count or told.exit is not None:
                raise ValueError  # noqa: TRY301 - as what the others raise
            told.add(json.loads(match[3]))
        except (ValueError, RecursionError):
            raise FaultError(FailureReason.TAMPERED, "the channel of the tests holds what we did not write") from None
    return told


def judge(told: Told, result: CommandResult, canaries: Canaries, request: Request, details: dict[str, Any]) -> None:
    """Return if the evidence is that of a pass. Raises :class:`FaultError` with the reason if not."""
    found, passed = _canaries(told, canaries)
    real = {name: outcome for name, outcome in told.outcomes.items() if not _is_canary(name, canaries)}
    evidence: dict[str, Any] = {
        "kind": "test_by_test",
        "ran": len(real),
        "canaries": len(canaries.must_fail),
        "canaries_failed": len(canaries.must_fail & found),
        "copies": len(canaries.may_vanish),
        "copies_failed": len(canaries.may_vanish & found),
    }
    details["evidence"] = evidence
    _require_whole(told, result, passed, real)
    if canaries.must_fail - found:
        raise FaultError(FailureReason.TAMPERED, "tests that must fail did not run")
    _require_real(real, told, request, evidence)


def _require_whole(told: Told, result: CommandResult, passed: set[str], real: dict[str, str]) -> None:
    """Refuse a run that was not whole, or that says two things."""
    if passed:
        raise FaultError(FailureReason.TAMPERED, "a test that must fail did not")
    if "contradicted" in real.values():
        raise FaultError(FailureReason.TAMPERED, "a test raised an error and was reported as passed")
    if told.exit is None and result.exit_code == 0:
        raise FaultError(FailureReason.TAMPERED, "the tests ended with success before their end")
    if told.exit is None:
        message = f"the tests ended before their end, with exit code {result.exit_code}"
        raise FaultError(FailureReason.NO_VERDICT, message)
    if told.exit != result.exit_code:
        raise FaultError(FailureReason.TAMPERED, "the tests did not end as they said they would")
    if told.exit == NOTHING_COLLECTED_EXIT or (told.exit == 0 and not told.outcomes):
        raise FaultError(FailureReason.NO_VERDICT, "no test ran")
    if told.exit == 0:
        raise FaultError(FailureReason.TAMPERED, "the tests ended with success, and some must fail")
    if told.exit != TESTS_FAILED_EXIT:
        raise FaultError(FailureReason.NO_VERDICT, f"the tests could not be run: exit code {told.exit}")


def _require_real(real: dict[str, str], told: Told, request: Request, evidence: dict[str, Any]) -> None:
    counts = {outcome: list(real.values()).count(outcome) for outcome in _WORST_FIRST}
    evidence["outcomes"] = {outcome: count for outcome, count in counts.items() if count}
    evidence["not_loaded"] = len(told.unloaded)
    if request.expected:
        _require_expected(real, request, evidence)
    elif any(outcome in _FAILING for outcome in real.values()) or told.unloaded:
        raise FaultError(FailureReason.TESTS_FAILED, _summary(counts, told))
    if not any(outcome in _PASSING for outcome in real.values()):
        raise FaultError(FailureReason.NO_VERDICT, "no test passed: each was skipped, or is expected to fail")


def _require_expected(real: dict[str, str], request: Request, evidence: dict[str, Any]) -> None:
    """Require each expected test. Of those that passed before a test may stay expected to fail, as it was then."""
    by_word = _by_first_word(real)
    missed = [
        *_missed(request.fail_to_pass, _PASSING, real, by_word, "fail_to_pass"),
        *_missed(request.pass_to_pass, _PASSING | {"xfailed"}, real, by_word, "pass_to_pass"),
    ]
    evidence["required"] = len(request.expected)
    evidence["required_passed"] = len(request.expected) - len(missed)
    if missed:
        evidence["missed"] = missed[:20]  # by place in the task's lists: an id is an evaluation input
        message = f"{len(missed)} of {len(request.expected)} expected tests did not pass, the first is {missed[0]}"
        raise FaultError(FailureReason.TESTS_FAILED, message)


def _missed(
    wanted: tuple[str, ...], good: frozenset[str], real: dict[str, str], by_word: dict[str, list[str]], name: str
) -> list[str]:
    """Return the places in the list ``name`` of the tests that did not pass.

    An id is one as pytest has it. One that was cut at a space, as logs have it, stands for all that begin so.
    """
    missed = []
    for place, test in enumerate(wanted):
        outcomes = [real[test]] if test in real else by_word.get(test, [])
        if not outcomes or not good.issuperset(outcomes):
            missed.append(f"{name}/{place}")
    return missed


def _by_first_word(real: dict[str, str]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for name, outcome in real.items():
        words.setdefault(name.split(" ", 1)[0], []).append(outcome)
    return words


def _canaries(told: Told, canaries: Canaries) -> tuple[set[str], set[str]]:
    """Return which canaries failed, and which passed or claim to have.

    A copied class has what it inherits, too: such a test is none of ours, and may pass.
    """
    found: set[str] = set()
    passed: set[str] = set()
    for name, outcome in told.outcomes.items():
        path, _, test = name.partition("::")
        known = f"{path.rpartition('/')[2]}::{test.partition('[')[0]}"
        if known in canaries.must_fail | canaries.may_vanish:
            (found if outcome in _FAILING else passed if outcome not in ("skipped", "xfailed") else set()).add(known)
    return found - passed, passed


def _is_canary(name: str, canaries: Canaries) -> bool:
    return name.partition("::")[0].rpartition("/")[2] in canaries.names


def _summary(counts: dict[str, int], told: Told) -> str:
    parts = [f"{counts[outcome]} {outcome}" for outcome in ("failed", "error", "passed") if counts[outcome]]
    unloaded = [f"{len(told.unloaded)} files not loaded"] if told.unloaded else []
    return "of the tests: " + ", ".join([*parts, *unloaded])
