"""The outcome of a catalogue entry: "contained" means that an attack was tried and that none worked."""

from __future__ import annotations

import pytest

from securebench.audit.installation.catalogue import CatalogueEntry
from securebench.audit.installation.model import HOST, AuditOutcome, ProbeResult, judge_entry

CONTAINED, NOT_CONTAINED = AuditOutcome.CONTAINED, AuditOutcome.NOT_CONTAINED
NOT_APPLICABLE = AuditOutcome.NOT_APPLICABLE


def entry(*probes: str, tests: tuple[str, ...] = (), reason: str = "") -> CatalogueEntry:
    """Return a catalogue entry with these probes and tests."""
    return CatalogueEntry.model_construct(
        id="A01",
        title="One",
        attack="It does something.",
        contained_by="Something stops it.",
        probes=[*probes],
        tests=[*tests],
        not_applicable=reason,
    )


def result(outcome: AuditOutcome, item: str = "x", *, place: str = HOST, of: str = "A01") -> ProbeResult:
    """Return a result of the probe ``code/ITEM``, whose entry is ``of``."""
    return ProbeResult("code", item, of, place, outcome, f"how {item}")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([CONTAINED], CONTAINED),
        ([CONTAINED, NOT_APPLICABLE], CONTAINED),
        ([NOT_APPLICABLE], NOT_APPLICABLE),
        ([CONTAINED, NOT_CONTAINED, NOT_APPLICABLE], NOT_CONTAINED),
        ([NOT_APPLICABLE, NOT_CONTAINED], NOT_CONTAINED),
        ([], NOT_CONTAINED),
    ],
)
def test_the_worst_result_decides(outcomes: list[AuditOutcome], expected: AuditOutcome) -> None:
    """An entry is not contained if one of its attacks worked, or if none of its probes has a result."""
    results = [result(outcome, f"item {number}") for number, outcome in enumerate(outcomes)]
    assert judge_entry(entry("code"), results).outcome is expected


def test_only_its_own_probes_count() -> None:
    """``kind`` selects the items of this kind that name the entry.

    ``kind/item`` selects this item, even if it names another entry.
    """
    others = [result(NOT_CONTAINED, "x", of="B01"), result(CONTAINED, "y", of="A01")]
    assert judge_entry(entry("code"), others).outcome is CONTAINED
    assert judge_entry(entry("code/x"), others).outcome is NOT_CONTAINED
    assert judge_entry(entry("code", "code/x"), others).outcome is NOT_CONTAINED


def test_a_reason_names_what_worked_and_where() -> None:
    """The reason of an entry names its first attacks that worked, with place and effect, and counts the others."""
    results = [result(NOT_CONTAINED, f"item {number}", place="crun") for number in range(5)]
    why = judge_entry(entry("code"), results).why
    assert why.startswith("code/item 0 on crun: how item 0; ")
    assert why.endswith("; 2 more")


def test_an_entry_that_only_tests_show_is_not_checked() -> None:
    """An entry without probes has the outcome "not checked", and its reason names the tests that cover it."""
    judged = judge_entry(entry(tests=("tests/x.py::test_y",)), [])
    assert (judged.outcome, judged.why) == (AuditOutcome.NOT_CHECKED, "shown by tests/x.py::test_y")


def test_an_entry_that_cannot_happen_says_why() -> None:
    """An entry that is not applicable has the reason that the catalogue states."""
    judged = judge_entry(entry(reason="there is no such thing"), [])
    assert (judged.outcome, judged.why) == (NOT_APPLICABLE, "there is no such thing")
