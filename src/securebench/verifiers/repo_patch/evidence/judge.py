"""What follows from what a test runner reported: one judge for every runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from securebench.errors import FailureReason
from securebench.verifiers.faults import CandidateFailedError
from securebench.verifiers.repo_patch.evidence.channel import WORST_FIRST
from securebench.verifiers.repo_patch.evidence.fingerprint import changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.sandboxes.base import CommandResult
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter, CasePlace
    from securebench.verifiers.repo_patch.evidence.channel import ReportedRun, ReportedTests
    from securebench.verifiers.repo_patch.evidence.collection import Required
    from securebench.verifiers.repo_patch.evidence.controls import Control, Controls
    from securebench.verifiers.repo_patch.request import RepoPatchRequest

TESTS_FAILED_EXIT: Final = 1
"""How a runner ends if a test failed, and with controls some always do."""

NOTHING_COLLECTED_EXIT: Final = 5
PASSING: Final = frozenset({"passed", "xpassed"})
EMPTY: Final = frozenset({"skipped", "xfailed"})
FAILING: Final = frozenset({"failed", "error"})


class Judge:
    """Weighs one run. ``details`` is the verdict's metadata, and ``needed`` are tests that must pass.

    ``unchanged`` returns the outcomes of the tests without the candidate's change. It runs them, so it is called only
    where a verdict depends on tests that were skipped, or that failed as expected.
    """

    def __init__(
        self,
        adapter: Adapter,
        controls: Controls,
        request: RepoPatchRequest,
        details: dict[str, Any],
        needed: Required | None = None,
        unchanged: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._unchanged = unchanged
        self._needed = needed
        self._adapter = adapter
        self._controls = controls
        self._request = request
        self._details = details

    def judge(self, reported: ReportedTests, result: CommandResult, conversation: ReportedRun) -> None:
        """Return if the evidence is that of a pass. Raises :class:`CandidateFailedError` with the reason if not."""
        seen = _Seen(reported.outcomes, self._adapter, self._controls)
        evidence: dict[str, Any] = {
            "kind": "test_by_test",
            "runner": self._adapter.runner,
            "ran": len(seen.real),
            "controls": len(self._controls.by_function),
            "controls_failed": len(seen.failed),
            "styles": sorted({control.style for control in self._controls.by_function.values()}),
        }
        self._details["evidence"] = evidence
        if seen.passed:
            raise CandidateFailedError(FailureReason.TAMPERED, "a test that must fail did not")
        if "contradicted" in reported.outcomes.values():
            raise CandidateFailedError(FailureReason.TAMPERED, "a test raised an error and was reported as passed")
        self._require_end(reported, result)
        self._require_fingerprint(reported, conversation, evidence)
        if seen.missing:
            raise CandidateFailedError(FailureReason.TAMPERED, "tests that must fail did not run")
        if not seen.failed and any(outcome in PASSING for outcome in seen.real.values()):
            evidence["kind"] = "exit_code"  # no file of these tests could hold a control
            if self._request.test_by_test:
                raise CandidateFailedError(
                    FailureReason.NO_VERDICT, "no test that must fail ran, and the task requires some"
                )
        ids = self._ids(seen.real, reported.descriptions)
        _require_real(seen.real, ids, reported, self._request, evidence)
        if self._needed is not None:
            self._require_needed(self._needed, seen, evidence)

    def _require_needed(self, needed: Required, seen: _Seen, evidence: dict[str, Any]) -> None:
        """Refuse a run without tests that there are where nothing is changed, or in which they came to nothing."""
        missing = needed.missing(seen.places - self._emptied(seen.real, needed))
        evidence.update({"collected": len(needed.places), "collection": needed.state, "vanished": missing})
        if missing:
            message = f"{missing} of {len(needed.places)} tests that there are without the change did not pass"
            raise CandidateFailedError(FailureReason.TESTS_FAILED, message)

    def _emptied(self, real: Mapping[str, str], needed: Required) -> set[CasePlace]:
        """Return where tests did not pass that must: those that did not without the change need not."""
        empty = {
            test: place for test, outcome in real.items() if outcome in EMPTY and (place := self._adapter.place(test))
        }
        suspect = {test: place for test, place in empty.items() if place in needed.places - needed.may_skip}
        unchanged = self._unchanged() if suspect else {}
        return {place for test, place in suspect.items() if unchanged.get(test) not in EMPTY}

    def _ids(self, real: Mapping[str, str], descriptions: Mapping[str, str]) -> _Ids:
        """Return the outcomes by what they are called. A failure is expected only if it was without the change."""
        ids = _Ids(real, self._adapter, descriptions, self._controls.places)
        wanted = self._request.pass_to_pass
        if not ids.missed(wanted, PASSING, "") or ids.missed(wanted, PASSING | {"xfailed"}, ""):
            return ids
        unchanged = self._unchanged()
        known = {
            test: "skipped" if outcome == "xfailed" and unchanged.get(test) != "xfailed" else outcome
            for test, outcome in real.items()
        }
        return _Ids(known, self._adapter, descriptions, self._controls.places)

    def _require_end(self, reported: ReportedTests, result: CommandResult) -> None:
        """Refuse a run that did not come to its end, or whose exit code is not what follows from its outcomes."""
        if reported.exit is None and result.exit_code == 0:
            raise CandidateFailedError(FailureReason.TAMPERED, "the tests ended with success before their end")
        if reported.exit is None:
            message = f"the tests ended before their end, with exit code {result.exit_code}"
            raise CandidateFailedError(FailureReason.NO_VERDICT, message)
        if reported.exit != result.exit_code:
            raise CandidateFailedError(
                FailureReason.TAMPERED, "the test run's exit code differs from the one it reported"
            )
        if reported.exit == NOTHING_COLLECTED_EXIT or (reported.exit == 0 and not reported.outcomes):
            raise CandidateFailedError(FailureReason.NO_VERDICT, "no test ran")
        failed = reported.unloaded or not FAILING.isdisjoint(reported.outcomes.values())
        if reported.exit == 0 and failed:
            raise CandidateFailedError(FailureReason.TAMPERED, "the tests ended with success, and some failed")
        if reported.exit not in (0, TESTS_FAILED_EXIT):
            raise CandidateFailedError(
                FailureReason.NO_VERDICT, f"the tests could not be run: exit code {reported.exit}"
            )

    def _require_fingerprint(
        self, reported: ReportedTests, conversation: ReportedRun, evidence: dict[str, Any]
    ) -> None:
        """Refuse a run in which what the tests depend on is not what it was before the candidate's code ran."""
        at_end = changes(reported.before, reported.after, conversation.nonce)
        changed = sorted({*at_end, *reported.changed})
        evidence["fingerprint"] = len(reported.before or ())
        if changed:
            evidence["changed"] = changed[:20]
            message = f"what the tests depend on was changed while they ran: {', '.join(changed[:3])}"
            raise CandidateFailedError(FailureReason.TAMPERED, message)


class _Seen:
    """Reported outcomes, parted: of the task's own tests, and of controls.

    A control counts where a test passed that it must not: the one that it copies, with the same parameters; or, for one
    that always fails, any test of the same file and class. A subclass inherits controls with the tests of a class;
    those are nobody's, for what is inherited may be overridden.
    """

    def __init__(self, outcomes: Mapping[str, str], adapter: Adapter, controls: Controls) -> None:
        self.real: dict[str, str] = {}
        self.failed: set[str] = set()
        self.passed: set[str] = set()
        self.missing: set[str] = set()
        self._copies: dict[str, list[str]] = {}
        """Ids of controls that were reported where they were planted, by function."""
        self.places: set[CasePlace] = set()
        self._by_place: dict[CasePlace, list[str]] = {}
        self._passed_places: set[CasePlace] = set()
        self._passed_frames: set[str] = set()
        for test, outcome in outcomes.items():
            place = adapter.place(test)
            control = controls.by_function.get(place.function) if place is not None else None
            if place is not None and control is not None:
                if place == control.place:
                    self._copies.setdefault(place.function, []).append(test)
                continue
            self.real[test] = outcome
            if place is not None:
                self.places.add(place)
                self._by_place.setdefault(place, []).append(test)
            if place is not None and outcome in PASSING:
                self._passed_places.add(place)
                self._passed_frames.add(_frame(test, place.function))
        for function, control in controls.by_function.items():
            copies = self._copies.get(function, [])
            due = {outcomes[test] for test in self._counting(copies, control)}
            if not due and (copies or not self._is_due(control)):
                continue
            if not due.isdisjoint(PASSING | {"contradicted"}):
                self.passed.add(function)
            elif due and due <= FAILING:
                self.failed.add(function)
            else:
                self.missing.add(function)

    def _counting(self, copies: list[str], control: Control) -> list[str]:
        """Return which of the ids ``copies``, of one control, count.

        Parameters may have other names in a copy, where a test makes them new, and code under test can see to that.
        They are in the same order; and where there are more or fewer of them, every one counts.
        """
        function = control.place.function
        if not control.original:
            return [test for test in copies if _frame(test, function) in self._passed_frames]
        frames = {_frame(test, function) for test in copies}
        originals = [
            test
            for test in self._by_place.get(control.place._replace(function=control.original), [])
            if _frame(test, control.original) in frames
        ]
        same = [test.replace(function, control.original, 1) for test in copies]
        if sorted(same) != sorted(originals):
            same = originals
        if len(same) != len(copies):
            return copies if any(self.real[test] in PASSING for test in originals) else []
        return [copy for copy, test in zip(copies, same, strict=True) if self.real[test] in PASSING]

    def _is_due(self, control: Control) -> bool:
        """Return whether a control that was not reported had to be."""
        return any(
            _same_home(place, control.place) and control.original in ("", place.function)
            for place in self._passed_places
        )


def _same_home(one: CasePlace, other: CasePlace) -> bool:
    """Return whether two tests are of one class or module. Code under test can move parts of a dotted name."""
    first, second = [(place.stem, *place.classes) for place in (one, other)]
    length = min(len(first), len(second))
    return first[-length:] == second[-length:]


def _frame(test: str, function: str) -> str:
    """Return what a test id has beside its function and parameters: the same for all of a file and class."""
    before, _, after = test.partition("[")[0].rpartition(function)
    return f"{before}:{after}"


def _require_real(
    real: dict[str, str], ids: _Ids, reported: ReportedTests, request: RepoPatchRequest, evidence: dict[str, Any]
) -> None:
    counts = {outcome: list(real.values()).count(outcome) for outcome in WORST_FIRST}
    evidence["outcomes"] = {outcome: count for outcome, count in counts.items() if count}
    evidence["not_loaded"] = len(reported.unloaded)
    if request.expected:
        _require_expected(ids, request, evidence)
    elif any(outcome in FAILING for outcome in real.values()) or reported.unloaded:
        raise CandidateFailedError(FailureReason.TESTS_FAILED, _summary(counts, reported))
    if not any(outcome in PASSING for outcome in real.values()):
        raise CandidateFailedError(FailureReason.NO_VERDICT, "no test passed: each was skipped, or is expected to fail")


def _require_expected(ids: _Ids, request: RepoPatchRequest, evidence: dict[str, Any]) -> None:
    """Require each expected test. Of those that passed before a test may stay expected to fail, as it was then."""
    missed = [
        *ids.missed(request.fail_to_pass, PASSING, "fail_to_pass"),
        *ids.missed(request.pass_to_pass, PASSING | {"xfailed"}, "pass_to_pass"),
    ]
    evidence["required"] = len(request.expected)
    evidence["required_passed"] = len(request.expected) - len(missed)
    if missed:
        evidence["missed"] = missed[:20]  # by place in the task's lists: an id is an evaluation input
        message = f"{len(missed)} of {len(request.expected)} expected tests did not pass, the first is {missed[0]}"
        raise CandidateFailedError(FailureReason.TESTS_FAILED, message)


class _Ids:
    """Finds the outcomes of the tests that an expected id stands for.

    An id is one as the runner reports it. Otherwise it is what a log shows of a test, which need not be unique: a
    node id that was cut at a space, a function's name, the first line of a docstring. It stands for each such test, and
    for one at the ``places`` where the task's files define it.
    """

    def __init__(
        self,
        real: Mapping[str, str],
        adapter: Adapter,
        descriptions: Mapping[str, str],
        places: Mapping[str, frozenset[CasePlace]],
    ) -> None:
        self._real = real
        self._places = places
        self._by_place: dict[CasePlace, list[str]] = {}
        self._by_name: dict[str, list[str]] = {}
        for test, outcome in real.items():
            if (place := adapter.place(test)) is not None:
                self._by_place.setdefault(place, []).append(outcome)
            for name in {*adapter.names(test), descriptions.get(test, "")} - {""}:
                self._by_name.setdefault(name, []).append(outcome)

    def missed(self, wanted: tuple[str, ...], good: frozenset[str], name: str) -> list[str]:
        """Return the places in the list ``name`` of the tests that did not pass."""
        missed = []
        for place, test in enumerate(wanted):
            outcomes = [self._real[test]] if test in self._real else self._by_name.get(test, [])
            if not outcomes or not good.issuperset(outcomes) or not self._is_own(test, good):
                missed.append(f"{name}/{place}")
        return missed

    def _is_own(self, test: str, good: frozenset[str]) -> bool:
        """Return whether a test of the task's files came out well under the id ``test``, as far as they tell."""
        places = () if test in self._real else self._places.get(test, ())
        return not places or any(good.issuperset(self._by_place.get(place, [""])) for place in places)


def _summary(counts: Mapping[str, int], reported: ReportedTests) -> str:
    parts = [f"{counts[outcome]} {outcome}" for outcome in ("failed", "error", "passed") if counts[outcome]]
    unloaded = [f"{len(reported.unloaded)} files not loaded"] if reported.unloaded else []
    return "of the tests: " + ", ".join([*parts, *unloaded])
