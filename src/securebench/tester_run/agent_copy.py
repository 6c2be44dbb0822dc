"""A copy of the agent's directory for the whole run, so that later edits do not affect any task."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.faults import FaultPoint, reached
from securebench.fs.durable import storage_errors
from securebench.fs.rmtree import make_fresh_directory, make_private_directory, remove_private_directory
from securebench.results.records.provenance import harness_provenance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.tester_run.options import RunParts
    from securebench.tester_run.planning.plan import Plan

AGENT_COPY: Final = "agent"
"""The directory of the copy, inside the run directory."""

_FILES: Final = "files"


@contextmanager
def with_agent_copy(plan: Plan, parts: RunParts) -> Iterator[Plan]:
    """Yield the plan with a harness that uses a copy of the agent's directory. The copy is removed at the end.

    A plan without an agent's directory is not changed. The caller holds the lock of the run directory. Raises
    :class:`ConfigError` (``agent-dir-changed``, ``agent-dir-unreadable``) and :class:`StorageError`.
    """
    config = plan.config.harness.config
    agent_dir: Path | None = getattr(config, "agent_dir", None)
    if agent_dir is None:
        yield plan
        return
    place = plan.directory / AGENT_COPY
    make_private_directory(place)
    copy = place / _FILES
    try:
        with storage_errors(copy):
            _copy(agent_dir, copy)
        harness = replace(plan.config.harness, config=config.model_copy(update={"agent_dir": copy}))
        producer = parts.make_producer(harness)
        producer.use_prices(plan.price_table)
        if harness_provenance(harness, producer) != plan.harness:
            raise ConfigError(
                f"harness.config.agent_dir: {agent_dir} changed while the run began",
                code="agent-dir-changed",
                hint="make sure that nothing writes to it while a run begins",
            )
        yield replace(plan, producer=producer, config=replace(plan.config, harness=harness))
    finally:
        remove_private_directory(place)


def _copy(source: Path, target: Path) -> None:
    """Copy a directory with its modes and symbolic links. If this user is root, also copy the owners."""
    make_fresh_directory(target)  # removes the copy that a killed run left
    reached(FaultPoint.TREE_COPY, target)
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    if os.getuid() == 0:
        for path in (target, *target.rglob("*")):  # does not follow links
            found = (source / path.relative_to(target)).lstat()
            os.chown(path, found.st_uid, found.st_gid, follow_symlinks=False)
