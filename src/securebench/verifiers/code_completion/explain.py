"""The sentence for each note of a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.verifiers.code_completion.guest import notes

if TYPE_CHECKING:
    from collections.abc import Mapping

_REASONS: Final[Mapping[str, str]] = {
    notes.NAN: "they compare a NaN of the candidate with < or >, which is always False, and never ask for isnan",
    notes.CHANGED_ARGUMENT: (
        "a call changed its argument, and the same comparison computes the expected value from it: compute the "
        "expected value first"
    ),
    notes.BROAD_EXCEPTION: "an exception class of the candidate is a base of AssertionError, or that class itself",
    notes.UNITTEST: "a unittest or doctest run failed, and the tests did not use its result",
    notes.BUILTIN: (
        "they use the builtin of a name that the candidate also defines: define that name in starter_code if the "
        "candidate's is meant"
    ),
}

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "operator": "the tests apply an operator or len(), bool() or iter() to an object of the candidate's own making",
    "equality": "the tests compare objects of a class of the candidate that defines its own equality",
    "constructor": "the tests compare with an object of the candidate's class that does not hold what they built it of",
    "subclass": "the tests define a subclass of a class of the candidate",
    "own_operator": "the candidate applies an operator to an object of a class that the tests define",
    "argument": "the tests give the candidate an object that is not plain data",
    "source": "the tests ask for the source of the candidate",
    "patch": "the tests patch what the candidate uses",
    "printed": "the tests read what is printed",
    "copy": "the tests copy an object of a dataclass, or of a subclass of a plain type, of the candidate",
    "process": "the tests set up their own process: a random seed, environment variables, warnings",
    "files": "the tests make files, which the candidate does not have",
    "attribute": "the tests change a list, dict or set that they got from an object of the candidate",
    "kind": "the tests ask what kind of function the candidate defines",
}
NOTES: Final = frozenset({*_REASONS, *_UNSUPPORTED})


def explain(note: str) -> str:
    """Return what a note says, for a message; empty for an unknown one."""
    if note in _UNSUPPORTED:
        return (
            f"{_UNSUPPORTED[note]}, which code_completion does not carry between sandboxes; set tests.isolation: shared"
        )
    return _REASONS.get(note, "")
