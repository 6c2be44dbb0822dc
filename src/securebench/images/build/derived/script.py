"""The steps of a recipe as one shell script, which announces each step and stops at the first failure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.images.build.recipe_kinds import Argv, DerivedRecipe

TOOLS: Final = "/run/securebench"
"""Where a build's inputs are mounted read-only. Images do not keep files below ``/run``."""

MARK: Final = "securebench: step"


def steps(recipe: DerivedRecipe) -> tuple[Argv, ...]:
    """Return all steps that need a sandbox."""
    wheels = (("python3", f"{TOOLS}/install_wheels.py", f"{TOOLS}/wheels"),) if recipe.requirements else ()
    return (*wheels, *recipe.install, *recipe.run)


def script(argvs: Sequence[Argv], workdir: str) -> str:
    """Return the script. Each step starts in ``workdir``."""
    lines = ["set -eu", "umask 022"]
    for number, argv in enumerate(argvs, start=1):
        lines += [
            f"echo {shlex.quote(f'{MARK} {number} of {len(argvs)}: {shlex.join(argv)}')}",
            f"( cd {shlex.quote(workdir or '/')} && exec {shlex.join(argv)} )",
        ]
    return "\n".join(lines)
