"""code_completion: the agent writes a function or module, judged by tests that the agent does not see."""

from __future__ import annotations

import re
import sys
import warnings
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator

from securebench.families.base import Family
from securebench.families.fields import Source, SourceOrNothing, Text
from securebench.resources import Visibility
from securebench.strict_input.faults import Fault
from securebench.strict_input.models import OPTIONAL, WireModel, refusal
from securebench.tasks import DEFAULT_IMAGE, CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.tasks import Environment

LANGUAGES: Final = ("python", "python3")
"""The languages that the verifier can judge, in lower case."""


def _language(name: str) -> str:
    if name.lower() not in LANGUAGES:
        raise refusal("language-unsupported", "is not a supported language", "only Python is supported")
    return name


class CodeCompletionInput(WireModel):
    """The prompt and the optional starter code."""

    prompt: Text
    language: Annotated[str, AfterValidator(_language)] = OPTIONAL
    starter_code: SourceOrNothing = OPTIONAL


class CodeTests(WireModel):
    """Test code that uses the candidate's definitions. ``isolation: shared`` runs it in the candidate's process."""

    source: Literal["inline"]
    code: Source
    isolation: Literal["split", "shared"] = OPTIONAL


class CodeCompletionEval(WireModel):
    """The tests, and optional solutions that pass them."""

    tests: Annotated[CodeTests, Visibility.EVALUATION_INPUTS]
    reference_solution: Annotated[Source, Visibility.HIDDEN] = OPTIONAL
    canonical_solution: Annotated[Source, Visibility.HIDDEN] = OPTIONAL


def syntax_error(source: str) -> str | None:
    """Return ``None`` if this interpreter can compile ``source``, else the place of the error, such as `` at line 3``.

    The place may be empty. The source itself is never shown, because agents must not see tests.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "<source>", "exec", dont_inherit=True)
        except SyntaxError as error:
            return f" at line {error.lineno}" if error.lineno else ""
        except (ValueError, RecursionError, MemoryError):
            return ""
    return None


def _is_known_python(environment: Environment) -> bool:
    """Return whether the image is ``securebench/python:3.x``, with a Python that is not newer than this interpreter."""
    version = re.fullmatch(r"securebench/python:3\.(\d{1,3})", environment.image or DEFAULT_IMAGE)
    return version is not None and sys.version_info >= (3, int(version[1]))


def _check(_inputs: dict[str, Any], evals: dict[str, Any], environment: Environment) -> Iterable[Fault]:
    """Reject tests that do not compile, if the image's Python is known and not newer than this interpreter."""
    if _is_known_python(environment):
        yield from _broken_tests(evals)


def _warn(_inputs: dict[str, Any], evals: dict[str, Any], environment: Environment) -> Iterable[Fault]:
    """Warn about tests that do not compile with this interpreter, if the image's Python is unknown or newer."""
    if not _is_known_python(environment):
        yield from _broken_tests(evals)


def _broken_tests(evals: dict[str, Any]) -> Iterable[Fault]:
    wrong = syntax_error(evals["tests"]["code"])
    if wrong is not None:
        running = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        message = f"compiling the tests with {running} fails{wrong}"
        yield Fault(
            "tests-unusable",
            message,
            ("eval", "tests", "code"),
            "fix the tests: if the image's Python cannot compile them, no candidate can be judged",
        )


FAMILY = Family(
    name="code_completion",
    summary="The agent writes a function or module. Tests judge it.",
    candidate_kind=CandidateKind.CODE,
    input_model=CodeCompletionInput,
    eval_model=CodeCompletionEval,
    check=_check,
    warn=_warn,
)
