"""Runs the tests as a module and reports how they ended."""

from __future__ import annotations

import builtins
import os
import sys

from securebench.verifiers.code_completion.guest.names import FILE, Names, Ownership, catches_failures
from securebench.verifiers.code_completion.guest.notes import (
    BROAD_EXCEPTION,
    BUILTIN,
    UNITTEST,
    Notes,
)
from securebench.verifiers.code_completion.guest.wire import VERDICT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from securebench.verifiers.code_completion.guest.wire import Wire


class Run:
    """One run of the tests.

    ``starter`` contains the names that the row's starter code defines. ``lookup`` returns the candidate's object for a
    name. ``defined`` returns those of the given names that the candidate defines.
    """

    def __init__(
        self,
        source: str,
        starter: Sequence[str],
        lookup: Callable[[str], Any],
        defined: Callable[[list[str]], Sequence[str]],
        notes: Notes,
    ) -> None:
        self._source = source
        self._starter = starter
        self._lookup = lookup
        self._defined = defined
        self._notes = notes

    def verdict(self) -> dict[str, Any]:
        """Run the tests and return the verdict: the outcome and, for a failure, error type, line number and note."""
        try:
            code = compile(self._source, FILE, "exec", dont_inherit=True)
            names = Ownership(self._source, self._starter, self._defined)
        except Exception as error:  # noqa: BLE001 - however the tests fail to compile
            return {"outcome": "invalid", "error": _public_name(error), "line": getattr(error, "lineno", None)}
        results: Callable[[], bool] | None = None
        if "unittest" in self._source or "doctest" in self._source:
            from securebench.verifiers.code_completion.guest.results import watch

            results = watch(self._source)
        verdict = self._execute(code, Names(names.free, self._look_up))
        if verdict["outcome"] == "passed" and results is not None and results():
            self._notes.reject(UNITTEST)
        if self._notes.rejection:
            return {**verdict, "outcome": "failed", "note": self._notes.rejection}
        if verdict["outcome"] == "failed":
            verdict["note"] = self._notes.hint or (BUILTIN if names.is_disputed() else self._hint(code))
        return verdict

    def _hint(self, code: Any) -> str:
        if not self._notes.is_split:
            return ""
        from securebench.verifiers.code_completion.guest.hints import explain_failure

        return explain_failure(self._notes, code)

    def _look_up(self, name: str) -> Any:
        value = self._lookup(name)
        if catches_failures(value):
            self._notes.reject(BROAD_EXCEPTION)
            text = f"the candidate's {name} would catch failed asserts: it is AssertionError or a base of it"
            raise TypeError(text)
        return value

    @staticmethod
    def _execute(code: Any, names: Names) -> dict[str, Any]:
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        vars(module)["__builtins__"] = names
        try:
            exec(code, vars(module))  # noqa: S102 - this is the sandbox that the tests are meant to run in
        except SystemExit as leaving:
            if leaving.code not in (None, 0, False) or not _is_own_exit(leaving):
                return {"outcome": "failed", "error": "SystemExit", "line": _line(leaving)}
        except BaseException as error:  # noqa: BLE001 - whatever ends the tests early fails them
            missing = isinstance(error, ImportError)
            return {"outcome": "failed", "error": _public_name(error), "line": _line(error), "import": missing}
        return {"outcome": "passed"}


def _public_name(error: BaseException) -> str:
    """Return the name of the nearest builtin base of ``error``. Other names could reveal arguments of the tests."""
    return str(next(each.__name__ for each in type(error).__mro__ if vars(builtins).get(each.__name__) is each))


def _frames(error: BaseException) -> list[Any]:
    """Return the frames of an error's traceback, from :class:`Run` to the origin of the error, with line numbers."""
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found


def _line(error: BaseException) -> int | None:
    """Return the line number of the innermost frame of ``error`` that is in the tests, or ``None``."""
    return next((line for frame, line in reversed(_frames(error)) if frame.f_code.co_filename == FILE), None)


def _is_own_exit(leaving: SystemExit) -> bool:
    """Return whether the tests themselves or ``unittest.main()``, and not the candidate, raised ``leaving``.

    The candidate may share this process, and its exit is not a pass.
    """
    runner = vars(sys.modules.get("unittest.main", sys))
    frames = [frame for frame, _ in _frames(leaving)][1:]
    return all(frame.f_code.co_filename == FILE or frame.f_globals is runner for frame in frames)


def send_verdict(wire: Wire, verdict: dict[str, Any]) -> NoReturn:
    """Send the verdict, and end the process at once: nothing runs after it."""
    wire.write(VERDICT, verdict)
    os._exit(0 if verdict["outcome"] == "passed" else 1)
