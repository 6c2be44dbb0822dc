"""The explanation of each note of a verdict."""

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
        "they use a builtin whose name the candidate also defines: define that name in starter_code to use the "
        "candidate's"
    ),
}

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "operator": "the tests apply an operator or len(), bool() or iter() to an object of the candidate's own making",
    "equality": "the tests compare objects of a class of the candidate that defines its own equality",
    "constructor": "the tests compare with an object of the candidate's class that does not store its arguments",
    "subclass": "the tests define a subclass of a class of the candidate",
    "own_operator": "the candidate applies an operator to an object of a class that the tests define",
    "argument": "the tests pass an object that is not plain data to the candidate",
    "source": "the tests read the source of the candidate",
    "patch": "the tests patch something that the candidate uses",
    "printed": "the tests read printed output",
    "copy": "the tests copy an object of a dataclass, or of a subclass of a plain type, of the candidate",
    "process": "the tests configure their own process: a random seed, environment variables, warnings",
    "files": "the tests create files, which the candidate cannot see",
    "attribute": "the tests change a list, dict or set that they got from an object of the candidate",
    "kind": "the tests inspect what kind of function the candidate defines",
}
NOTES: Final = frozenset({*_REASONS, *_UNSUPPORTED})


def explain(note: str) -> str:
    """Return the explanation of a note for a message, or an empty text for an unknown note."""
    if note in _UNSUPPORTED:
        return f"{_UNSUPPORTED[note]}, which does not work across the two sandboxes; set tests.isolation: shared"
    return _REASONS.get(note, "")
