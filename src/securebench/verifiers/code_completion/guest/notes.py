"""The notes that a verdict may have besides its outcome: a fixed list, so that no text of a test is recorded.

``relay.py`` has a message for each note.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAN = "nan"
"""The candidate sent a NaN, and the tests use ``<`` or ``>``. With a NaN, these comparisons are always False."""
CHANGED_ARGUMENT = "changed_argument"
"""A call changed an argument, and the comparison that contains the call uses that argument for the expected value."""
BROAD_EXCEPTION = "broad_exception"
"""The candidate provides ``AssertionError`` or one of its base classes as an exception class.

A test that catches this class would hide failed asserts.
"""
UNITTEST = "unittest"
"""A ``unittest`` or ``doctest`` run failed, and the tests ignored its result."""
BUILTIN = "builtin"
"""The tests use the name of a builtin that the candidate also defines, and it is unclear which is meant."""

REJECTIONS = frozenset({NAN, CHANGED_ARGUMENT, BROAD_EXCEPTION, UNITTEST})
"""The notes that turn a pass into a failure. All other notes only explain a failure."""


class UnsupportedError(TypeError):
    """The tests use a feature that does not work between the sandboxes. ``feature`` is its short name."""

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} does not work between the sandboxes; set tests.isolation to shared")
        self.feature = feature


class Notes:
    """What was noted during one judgement: the first rejection, and the first hint at an unsupported feature.

    ``is_split`` is ``False`` if candidate and tests share a process. Then every feature works, so no hint is needed.
    ``watched`` has the lists, dicts and sets that the tests read from attributes of the candidate's objects. Each comes
    with its outline (``hints.py``): its length when it was read, and the lengths of the containers in it.
    """

    def __init__(self, *, is_split: bool = True) -> None:
        self.is_split = is_split
        self.rejection = ""
        self.hint = ""
        self.watched: list[tuple[Any, Any]] = []

    def reject(self, note: str) -> None:
        """Note why the candidate fails, even if the tests pass."""
        self.rejection = self.rejection or note

    def unsupported(self, feature: str) -> UnsupportedError:
        """Note an unsupported feature, to explain a failure of the tests, and return the error to raise."""
        self.hint = self.hint or feature
        return UnsupportedError(feature)
