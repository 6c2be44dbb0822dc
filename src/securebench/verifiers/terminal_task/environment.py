"""The environment of a checker. It keeps Python 3.11+, Perl and R from loading code from the candidate's workspace."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.pack_paths import LANE_ROOTS, is_at_or_below
from securebench.resources import Visibility
from securebench.sandboxes.base import BASE_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

SAFE_INTERPRETERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # The checker starts in the workspace. With this variable, Python 3.11 and later leave the working directory
        # (`-c`, `-m`) and the script's directory out of sys.path. Older versions ignore it and need `-I`.
        "PYTHONSAFEPATH": "1",
        # HOME is /tmp, where a program of the candidate that the checker runs can write ~/.local/lib/python3*/.
        "PYTHONNOUSERSITE": "1",
        "PERL_USE_UNSAFE_INC": "0",
        # R reads .Rprofile and .Renviron from the working directory unless these variables are set.
        "R_PROFILE_USER": "/dev/null",
        "R_ENVIRON_USER": "/dev/null",
    }
)
"""Variables that keep interpreters from loading code from the working directory or ``HOME``."""


def checker_environment(target: str) -> dict[str, str]:
    """Return the environment of a checker whose workspace is at ``target`` in its sandbox.

    ``PATH`` is fixed, without directories of the workspace. ``PYTHONPATH`` is the read-only directory of evaluation
    inputs, so that a checker can still import the modules that the pack puts next to the checker.
    """
    path = ":".join(entry for entry in BASE_ENVIRONMENT["PATH"].split(":") if not is_at_or_below(entry, target))
    inputs = f"{target}/{LANE_ROOTS[Visibility.EVALUATION_INPUTS]}"
    return {**BASE_ENVIRONMENT, **SAFE_INTERPRETERS, "PATH": path, "PYTHONPATH": inputs}
