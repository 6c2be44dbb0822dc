"""Judge a test run by the outcomes that its runner reported. The rules are the same for every runner.

The judge also compares two fingerprints of the code that tests depend on: one from before the candidate's code ran,
and one from the end of the run.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from securebench.errors import FailureReason
from securebench.plurals import counted
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.repo_patch.evidence.channel import WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.sandboxes.base import CommandResult
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter, CasePlace
    from securebench.verifiers.repo_patch.evidence.channel import ReportedRun, ReportedTests
    from securebench.verifiers.repo_patch.evidence.collection import Required
    from securebench.verifiers.repo_patch.evidence.controls import Controls
    from securebench.verifiers.repo_patch.evidence.edited_file import ControlGroup
    from securebench.verifiers.repo_patch.request import RepoPatchRequest

TESTS_FAILED_EXIT: Final = 1
"""The exit code of a runner if a test failed. Controls fail, so honest runs with controls end with it, too."""

NOTHING_COLLECTED_EXIT: Final = 5
PASSING: Final = frozenset({"passed", "xpassed"})
EMPTY: Final = frozenset({"skipped", "xfailed"})
FAILING: Final = frozenset({"failed", "error"})


def changes(before: Mapping[str, str] | None, after: Mapping[str, str] | None, nonce: str) -> list[str]:
    """Return the names whose digests changed or disappeared. The digests in ``after`` are signed with ``nonce``.

    Returns ``["fingerprint"]`` if the reporter did not send both fingerprints. New names do not count as changes,
    because packages add functions and classes while they run.
    """
    if before is None or after is None:
        return ["fingerprint"]
    return sorted(name for name, digest in before.items() if after.get(name) != signed(digest, nonce))


def signed(digest: str, nonce: str) -> str:
    """Return the shortened SHA-256 of the nonce and ``digest``, as a reporter computes it."""
    return hashlib.sha256((nonce + digest).encode("utf-8")).hexdigest()[:32]


class Judge:
    """Judges one run. ``details`` is the verdict's metadata, and ``needed`` are tests that must pass.

    ``unchanged`` runs the tests without the candidate's change and returns their outcomes. It is expensive, so it is
    called only if the verdict depends on tests that were skipped or failed as expected.
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
        """Check that the evidence shows a pass. Raises :class:`CandidateFailedError` if it does not."""
        seen = _Seen(reported.outcomes, self._adapter, self._controls)
        evidence: dict[str, Any] = {
            "kind": "test_by_test",
            "runner": self._adapter.runner,
            "ran": len(seen.real),
            "controls": len(self._controls.styles),
            "controls_failed": len(seen.failed),
            "control_bits": round(seen.bits, 1),
            "styles": sorted(set(self._controls.styles)),
        }
        self._details["evidence"] = evidence
        if seen.passed:
            raise CandidateFailedError(FailureReason.TAMPERED, "a test that must fail did not fail")
        if "contradicted" in reported.outcomes.values():
            raise CandidateFailedError(FailureReason.TAMPERED, "a test's reported outcome contradicts how it ran")
        self._require_end(reported, result)
        self._require_fingerprint(reported, conversation, evidence)
        if seen.missing:
            raise CandidateFailedError(FailureReason.TAMPERED, "tests that must fail did not run")
        if not seen.failed and any(outcome in PASSING for outcome in seen.real.values()):
            evidence["kind"] = "exit_code"  # no control counts: the outcomes prove no more than the exit code
            if self._request.test_by_test:
                message = (
                    "none of the controls (tests that must fail) proves anything, but 'tests.require' is 'test_by_test'"
                )
                raise CandidateFailedError(FailureReason.NO_VERDICT, message)
        descriptions = {own: reported.descriptions.get(test, "") for own, test in seen.reported_as.items()}
        ids = self._ids(seen.real, descriptions)
        _require_real(seen.real, ids, reported, self._request, evidence)
        if self._needed is not None:
            self._require_needed(self._needed, seen, evidence)

    def _require_needed(self, needed: Required, seen: _Seen, evidence: dict[str, Any]) -> None:
        """Reject a run in which a test of ``needed`` did not run.

        A test that was skipped or xfailed with the change, but not without it, counts as not run: see :meth:`_emptied`.
        """
        missing = needed.missing(seen.places - self._emptied(seen.real, needed))
        evidence.update({"collected": len(needed.places), "collection": needed.state, "vanished": missing})
        if missing:
            required = counted(len(needed.places), "required test")
            message = f"{missing} of {required} did not run, or were newly skipped or xfailed"
            raise CandidateFailedError(FailureReason.TESTS_FAILED, message)

    def _emptied(self, real: Mapping[str, str], needed: Required) -> set[CasePlace]:
        """Return the places of required tests that are skipped or xfailed only with the candidate's change.

        The places in ``needed.may_skip`` are ignored.
        """
        empty = {
            test: place for test, outcome in real.items() if outcome in EMPTY and (place := self._adapter.place(test))
        }
        suspect = {test: place for test, place in empty.items() if place in needed.places - needed.may_skip}
        unchanged = self._unchanged() if suspect else {}
        return {place for test, place in suspect.items() if unchanged.get(test) not in EMPTY}

    def _ids(self, real: Mapping[str, str], descriptions: Mapping[str, str]) -> _Ids:
        """Return the outcomes by test id.

        If the verdict depends on ``xfailed`` tests, a test that is ``xfailed`` with the change, but not without it,
        counts as ``skipped``.
        """
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
        """Reject a run that stopped early or ran no test, or whose exit code is an error or contradicts the reports."""
        if reported.exit is None and result.exit_code == 0:
            raise CandidateFailedError(FailureReason.TAMPERED, "the test run ended with success before it was complete")
        if reported.exit is None:
            message = f"the test run ended early, with exit code {result.exit_code}"
            raise CandidateFailedError(FailureReason.NO_VERDICT, message)
        if reported.exit != result.exit_code:
            raise CandidateFailedError(
                FailureReason.TAMPERED, "the test run's exit code differs from the one that its runner reported"
            )
        if reported.exit == NOTHING_COLLECTED_EXIT or (reported.exit == 0 and not reported.outcomes):
            raise CandidateFailedError(FailureReason.NO_VERDICT, "no test ran")
        failed = reported.unloaded or not FAILING.isdisjoint(reported.outcomes.values())
        if reported.exit == 0 and failed:
            message = "the test run ended with success, but some tests failed or could not be loaded"
            raise CandidateFailedError(FailureReason.TAMPERED, message)
        if reported.exit not in (0, TESTS_FAILED_EXIT):
            raise CandidateFailedError(
                FailureReason.NO_VERDICT, f"the test runner reported an error: exit code {reported.exit}"
            )

    def _require_fingerprint(
        self, reported: ReportedTests, conversation: ReportedRun, evidence: dict[str, Any]
    ) -> None:
        """Reject a run that changed code the tests depend on, or did not report both fingerprints of this code."""
        at_end = changes(reported.before, reported.after, conversation.nonce)
        changed = sorted({*at_end, *reported.changed})
        evidence["fingerprint"] = len(reported.before or ())
        if changed:
            evidence["changed"] = changed[:20]
            names = ", ".join(changed[:3])
            message = f"code that the tests depend on was changed while they ran, or its state is unknown: {names}"
            raise CandidateFailedError(FailureReason.TAMPERED, message)


class _Seen:
    """The reported outcomes, divided into outcomes of the task's own tests and outcomes of controls.

    A control counts only if it ran in one of the ``homes`` of its :class:`ControlGroup`.
    """

    def __init__(self, outcomes: Mapping[str, str], adapter: Adapter, controls: Controls) -> None:
        self.real: dict[str, str] = {}
        self.reported_as: dict[str, str] = {}
        """The reported id of each test, by its id in the task."""
        self.passed: set[CasePlace] = set()
        self.missing: set[CasePlace] = set()
        self.places: set[CasePlace] = set()
        self.bits = 0.0
        self._outcomes = outcomes
        self._adapter = adapter
        self._passed_places: set[CasePlace] = set()
        self._passed_frames: set[str] = set()
        failed: set[CasePlace] = set()
        found = self._part(controls)
        own = {key: self._add_variant(group, ids) for key, (group, ids) in found.items()}
        homes: set[tuple[int, CasePlace]] = set()
        for key, (group, ids) in found.items():
            if key.home in group.homes:  # another class may override the tests
                homes.add((id(group), key.home))
                for function in group.controls:
                    failed |= self._weigh(group, function, ids.get(function, []), own[key])
        for group in controls.groups:
            names = {group.place._replace(function=function) for function in group.controls}
            if any((id(group), home) not in homes and self._is_due(group, home) for home in group.homes):
                self.missing |= names
            if names <= failed - self.passed - self.missing:
                self.bits += group.bits
        self.failed = failed - self.passed - self.missing

    def _part(self, controls: Controls) -> dict[_Key, tuple[ControlGroup, dict[str, list[str]]]]:
        """Return the ids of each test and its controls, by class and function.

        The outcomes of tests without controls are recorded in this object instead.
        """
        new = {name: group for group in controls.groups for name in group.new}
        known: dict[str, list[ControlGroup]] = {}
        for group in controls.groups:
            known.setdefault(group.place.function, []).append(group)
        found: dict[_Key, tuple[ControlGroup, dict[str, list[str]]]] = {}
        others: list[tuple[str, CasePlace | None]] = []
        for test in self._outcomes:
            place = self._adapter.place(test)
            if place is None or place.function not in new:
                others.append((test, place))
            else:
                group = new[place.function]
                ids = found.setdefault(_Key.of(group, place, test), (group, {}))[1]
                ids.setdefault(place.function, []).append(test)
        for test, place in others:
            # A variant that kept the test's original name is recognized by its class or module.
            groups = known.get(place.function, []) if place is not None else []
            keys = [key for group in groups if place and (key := _Key.of(group, place, test)) in found]
            if place is not None and keys:
                found[keys[0]][1].setdefault(place.function, []).append(test)
            else:
                self._add(test, test, place)
        return found

    def _add(self, own: str, test: str, place: CasePlace | None, outcome: str = "") -> None:
        """Keep the outcome of ``test``, whose id in the task is ``own``."""
        self.real[own] = outcome or self._outcomes[test]
        self.reported_as[own] = test
        if place is not None:
            self.places.add(place)
        if place is not None and self.real[own] in PASSING:
            self._passed_places.add(place)
            self._passed_frames.add(_frame(own, place.function))

    def _add_variant(self, group: ControlGroup, ids: dict[str, list[str]]) -> list[str]:
        """Record the outcomes of the group's test (``group.real``). Return its ids before it was renamed."""
        if not group.real:
            return []
        tests = ids.get(group.real, [])
        own = [test.replace(group.real, group.place.function, 1) for test in tests]
        named = ids.get(group.place.function, [])
        by_own = dict(zip(own, _paired(own, named, named) or named * len(own), strict=False))
        added = [one for one in own if one in by_own]
        for one, test in zip(own, tests, strict=True):
            if one in by_own:
                # The task's files may skip tests by name. Such a skip is meant for the task's own test, although the
                # name may now belong to a control.
                empty = self._outcomes[by_own[one]]
                self._add(one, test, self._adapter.place(one), empty if empty in EMPTY else "")
        return added

    def _weigh(self, group: ControlGroup, function: str, tests: list[str], own: list[str]) -> set[CasePlace]:
        """Return a set with the place of the control ``function``, or an empty set if no case of it had to fail.

        If the control did not fail as it must, add the place to ``passed`` or ``missing``. ``tests`` are the ids of the
        control's cases, and ``own`` the ids of the cases of the task's test.
        """
        place = group.place._replace(function=function)
        if not group.real:  # an added test must fail if any test of its class or module passed
            due = [test for test in tests if _frame(test, function) in self._passed_frames]
        else:
            # A case of the control must fail if the same case of the task's test passed. If the cases cannot be paired,
            # all of them must fail if any case of the task's test passed.
            named = [test.replace(function, group.place.function, 1) for test in tests]
            paired = _paired(own, named, tests)
            good = [self.real[one] in PASSING for one in own]
            due = [test for test, is_due in zip(paired, good, strict=True) if is_due] if paired else tests * any(good)
            if not tests and any(good):
                self.missing.add(place)
        outcomes = {self._outcomes[test] for test in due}
        if not outcomes.isdisjoint(PASSING | {"contradicted"}):
            self.passed.add(place)
        elif not outcomes <= FAILING:
            self.missing.add(place)
        return {place} if due else set()

    def _is_due(self, group: ControlGroup, home: CasePlace) -> bool:
        """Return whether the controls of ``group`` must fail in ``home``, which is a class or module."""
        # Controls made from a test of the task must fail if this test passed in ``home``. An added test, whose group
        # has no function in its ``place``, must fail if any test passed in ``home``.
        return any(
            _same_home(place, home) and group.place.function in ("", place.function) for place in self._passed_places
        )


class _Key(NamedTuple):
    """What the variants of one test have in common: their group, their class or module, and a part of their ids."""

    group: int
    home: CasePlace
    frame: str

    @classmethod
    def of(cls, group: ControlGroup, place: CasePlace, test: str) -> _Key:
        """Return the key of the variant ``test`` of ``group``."""
        return cls(id(group), place._replace(function=""), _frame(test, place.function))


def _paired(own: list[str], named: list[str], tests: list[str]) -> list[str]:
    # Returns ``tests`` in the order of ``own``: paired by name, or else by position. Returns an empty list if the
    # lists differ in length. ``named`` are the ids in ``tests`` after their function names were replaced with those
    # of ``own``.
    if sorted(own) == sorted(named):
        by_name = dict(zip(named, tests, strict=True))
        return [by_name[one] for one in own]
    return tests if len(own) == len(tests) else []  # ids can depend on the function's name, but the order does not


def _same_home(one: CasePlace, other: CasePlace) -> bool:
    """Return whether two tests are in one class or module.

    If one place has more names than the other, its extra leading names are ignored, because code can change them.
    """
    first, second = [(place.stem, *place.classes) for place in (one, other)]
    length = min(len(first), len(second))
    return first[-length:] == second[-length:]


def _frame(test: str, function: str) -> str:
    """Return a test id without its function and parameters. The result is the same for all tests of a class."""
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
        raise CandidateFailedError(FailureReason.NO_VERDICT, "no test passed: each was skipped or failed")


def _require_expected(ids: _Ids, request: RepoPatchRequest, evidence: dict[str, Any]) -> None:
    """Require that each expected test passed. A ``pass_to_pass`` test may also have the outcome ``xfailed``."""
    missed = [
        *ids.missed(request.fail_to_pass, PASSING, "fail_to_pass"),
        *ids.missed(request.pass_to_pass, PASSING | {"xfailed"}, "pass_to_pass"),
    ]
    evidence["required"] = len(request.expected)
    evidence["required_passed"] = len(request.expected) - len(missed)
    if missed:
        evidence["missed"] = missed[:20]  # positions in the task's lists, because an id is an evaluation input
        expected = counted(len(request.expected), "expected test")
        message = f"{len(missed)} of {expected} did not pass; the first is {missed[0]}"
        raise CandidateFailedError(FailureReason.TESTS_FAILED, message)


class _Ids:
    """Finds the outcomes of the tests that match an expected id.

    An id is usually the runner's own. Otherwise it is a name from a log, which need not be unique: a node id cut at a
    space, a function's name, or the first line of a docstring. It then matches every test with this name. If the task's
    files define tests with this name (at ``places``), at least one of these must be among the matching tests.
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
        """Return the index in ``wanted`` of each missed id, with the prefix ``name``, for example ``fail_to_pass/0``.

        An id is missed if no test matches the id, if a matching test has an outcome that is not in ``good``, or if
        :meth:`_is_own` returns ``False``.
        """
        missed = []
        for place, test in enumerate(wanted):
            outcomes = [self._real[test]] if test in self._real else self._by_name.get(test, [])
            if not outcomes or not good.issuperset(outcomes) or not self._is_own(test, good):
                missed.append(f"{name}/{place}")
        return missed

    def _is_own(self, test: str, good: frozenset[str]) -> bool:
        # The candidate can add tests with the name of a test of the task, and only the place tells these tests apart.
        places = () if test in self._real else self._places.get(test, ())
        return not places or any(good.issuperset(self._by_place.get(place, [""])) for place in places)


def _summary(counts: Mapping[str, int], reported: ReportedTests) -> str:
    parts = [f"{counts[outcome]} {outcome}" for outcome in ("failed", "error", "passed") if counts[outcome]]
    unloaded = [f"{counted(len(reported.unloaded), 'file')} not loaded"] if reported.unloaded else []
    return "not all tests passed: " + ", ".join([*parts, *unloaded])
