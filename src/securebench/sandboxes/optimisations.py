"""Optimisations, which make tasks faster and change nothing else.

Each of them can be switched off, for example to find out whether it causes a problem::

    SECUREBENCH_DISABLE=warm-pool,cgroup-pool securebench run tester.yaml
    SECUREBENCH_DISABLE=all securebench run tester.yaml
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "SECUREBENCH_DISABLE"
"""The environment variable that lists optimisations to switch off, separated by commas, or ``all``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimisations:
    """Which optimisations are switched on.

    * ``warm_pool``: containers are started before they are needed (:mod:`~securebench.sandboxes.oci.warm_pool`).
    * ``cgroup_pool``: shells wait, each in its own cgroup, until they execute the runtime of a sandbox
      (:mod:`~securebench.sandboxes.oci.supervisor.cgroup_pool`).
    * ``compiled_filters``: compiled seccomp filters are kept on disk (:mod:`~securebench.sandboxes.oci.seccomp`).
    * ``sealed_runtime``: crun runs from an immutable copy in memory, so that it does not copy itself for each sandbox.
    * ``kept_tests``: the sandbox for the tests of code tasks is reused if a check proves that a task left nothing
      behind in it (``verifiers/code_completion/guest/forks.py``). This is tried with every driver, but Docker's
      sandboxes cannot be checked.

    All except ``kept_tests`` apply only to the ``oci`` driver.
    """

    warm_pool: bool = True
    cgroup_pool: bool = True
    compiled_filters: bool = True
    sealed_runtime: bool = True
    kept_tests: bool = True

    @classmethod
    def none(cls) -> Optimisations:
        """Return a value with all optimisations switched off."""
        return cls(**dict.fromkeys(_names(), False))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Optimisations:
        """Return the optimisations that :data:`VARIABLE` does not switch off.

        Raises :class:`ConfigError` (``optimisation-unknown``).
        """
        listed = {name.strip().replace("-", "_") for name in environ.get(VARIABLE, "").split(",")} - {""}
        if listed == {"all"}:
            return cls.none()
        if unknown := sorted(listed - set(_names())):
            known = ", ".join(name.replace("_", "-") for name in _names())
            raise ConfigError(
                f"{VARIABLE}: unknown optimisation {unknown[0]!r}",
                code="optimisation-unknown",
                hint=f"use 'all' or a list of these, separated by commas: {known}",
            )
        return cls(**dict.fromkeys(listed, False))


def _names() -> tuple[str, ...]:
    return tuple(one.name for one in fields(Optimisations))
