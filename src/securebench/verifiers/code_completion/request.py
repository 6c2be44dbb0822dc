"""The request for a judgement. It is read from the task and the sealed candidate before a sandbox is used."""

from __future__ import annotations

import symtable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.candidates.extraction import code_from_text
from securebench.errors import FailureReason
from securebench.tasks import DEFAULT_IMAGE
from securebench.verifiers.code_completion.relay import Deadlines, JudgingEndedError

if TYPE_CHECKING:
    from securebench.candidates.artifact import CandidateArtifact
    from securebench.tasks import VerifierView

SPLIT: Final = "split"
SHARED: Final = "shared"
MAX_SOURCE_BYTES: Final = 1024 * 1024
"""The longest candidate that is judged, in bytes of UTF-8. Honest answers are far shorter."""
_LANGUAGES: Final = frozenset({"python", "python3"})
_PHASE: Final = "extraction"


@dataclass(frozen=True, slots=True)
class CodeRequest:
    """One judgement: the candidate's program, the tests, and where and how long they run.

    ``starter`` contains the names of the functions and classes that the row's starter code defines.
    """

    program: str
    tests: str
    starter: tuple[str, ...]
    isolation: str
    image: str
    deadlines: Deadlines


def read_request(view: VerifierView, candidate: CandidateArtifact) -> CodeRequest:
    """Return the request. Raises :class:`JudgingEndedError` if the candidate cannot be judged and so does not pass."""
    resources = view.test_sandbox
    tests = resources["tests"].value if "tests" in resources else None
    code = tests.get("code") if isinstance(tests, dict) and tests.get("source") == "inline" else None
    isolation = tests.get("isolation", SPLIT) if isinstance(tests, dict) else SPLIT
    language = resources["language"].value if "language" in resources else "python"
    if not isinstance(code, str) or isolation not in {SPLIT, SHARED}:
        raise JudgingEndedError(
            FailureReason.NO_VERDICT, "the task has no inline tests that this verifier can run", _PHASE
        )
    if str(language).lower() not in _LANGUAGES:
        raise JudgingEndedError(FailureReason.NO_VERDICT, "the task requires a language other than Python", _PHASE)
    return CodeRequest(
        program=_program(candidate.text),
        tests=code,
        starter=_defined_names(resources["starter_code"].value if "starter_code" in resources else None),
        isolation=SHARED if isolation == SHARED else SPLIT,
        image=view.environment.image or DEFAULT_IMAGE,
        deadlines=Deadlines.of(view.environment.timeout_seconds),
    )


def _program(text: str | None) -> str:
    """Return the program in the candidate's text. Does not check its syntax. Raises :class:`JudgingEndedError`."""
    if text is None:
        raise JudgingEndedError(FailureReason.CANDIDATE_NOT_TEXT, "the candidate is not text", _PHASE)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        message = f"the candidate is longer than {MAX_SOURCE_BYTES} bytes"
        raise JudgingEndedError(FailureReason.CANDIDATE_TOO_LARGE, message, _PHASE)
    program = code_from_text(text)
    if not program.strip():
        raise JudgingEndedError(FailureReason.CANDIDATE_EMPTY, "the candidate contains no code", _PHASE)
    return program


def _defined_names(starter: object) -> tuple[str, ...]:
    """Return the names of functions and classes in starter code; empty if this Python cannot parse it."""
    try:
        table = symtable.symtable(starter if isinstance(starter, str) else "", "starter", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(sorted(symbol.get_name() for symbol in table.get_symbols() if symbol.is_namespace()))
