"""The tests' side: notices a failed run of ``unittest`` or ``doctest`` whose result the tests ignore."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def watch(source: str) -> Callable[[], bool]:
    """Watch the runs of ``unittest`` and ``doctest`` in the tests. Return a function that checks if a run has failed.

    ``unittest.main(exit=False)``, a runner and ``doctest.testmod`` return a result and raise nothing. Tests that ignore
    the result would pass even if it is a failure.
    """
    results: list[Any] = []
    try:
        if "unittest" in source:
            from unittest import TestResult

            construct = TestResult.__init__

            def construct_and_keep(self: Any, *positional: Any, **named: Any) -> None:
                results.append(self)
                construct(self, *positional, **named)

            TestResult.__init__ = construct_and_keep  # type: ignore[method-assign]
        if "doctest" in source:
            from doctest import DocTestRunner

            def keep(report: Any) -> Any:
                def report_and_keep(*arguments: Any) -> None:
                    results.append(False)
                    report(*arguments)

                return report_and_keep

            for name in ("report_failure", "report_unexpected_exception"):
                setattr(DocTestRunner, name, keep(getattr(DocTestRunner, name)))
    except (ImportError, AttributeError):
        return bool  # bool() is False: the tests cannot import these modules either, so no run has failed
    return lambda: any(map(_has_failed, results))


def _has_failed(result: Any) -> bool:
    return result is False or not result.wasSuccessful()
