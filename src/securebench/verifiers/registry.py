"""Which verifier judges which family. A family without one ends as ``pending``."""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.verifiers.base import Verifier

_VERIFIERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "multiple_choice": ("securebench.verifiers.multiple_choice", "MultipleChoiceVerifier"),
        "short_answer": ("securebench.verifiers.short_answer", "ShortAnswerVerifier"),
        "free_response": ("securebench.verifiers.free_response", "FreeResponseVerifier"),
        "code_completion": ("securebench.verifiers.code_completion", "CodeCompletionVerifier"),
        "repo_patch": ("securebench.verifiers.repo_patch", "RepoPatchVerifier"),
        "terminal_task": ("securebench.verifiers.terminal_task", "TerminalTaskVerifier"),
    }
)
"""Module and class of each family's verifier: imported only when a pack asks for that family."""


def verifier_for(family: str) -> Verifier | None:
    """Return a new verifier of ``family``, or ``None`` where no one judges it."""
    if family not in _VERIFIERS:
        return None
    module, name = _VERIFIERS[family]
    verifier: Verifier = getattr(importlib.import_module(module), name)()
    return verifier
