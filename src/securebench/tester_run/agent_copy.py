"""The agent's directory as it is when a run begins: sandboxes are shown a copy, so an edit changes no task."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.fs.durable import storage_errors
from securebench.fs.rmtree import make_fresh_directory, make_private_directory, remove_tree
from securebench.results.provenance import harness_provenance
from securebench.tester_config import CommandConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.tester_run.options import RunParts
    from securebench.tester_run.plan import Plan

AGENT_COPY: Final = "agent"
"""The directory of the run directory that holds the copy while the run is on."""

_FILES: Final = "files"


@contextmanager
def with_agent_copy(plan: Plan, parts: RunParts) -> Iterator[Plan]:
    """Give the plan with a harness that uses a copy of its agent's directory, which is removed in the end.

    A plan without such a directory is given as it is. The caller holds the lock of the run directory. Raises
    :class:`ConfigError` (``agent-dir-changed``, ``agent-dir-unreadable``) and :class:`StorageError`.
    """
    config = plan.config.harness.config
    if not isinstance(config, CommandConfig) or config.agent_dir is None:
        yield plan
        return
    place = plan.directory / AGENT_COPY
    make_private_directory(place)
    copy = place / _FILES
    try:
        with storage_errors(copy):
            _copy(config.agent_dir, copy)
        harness = replace(plan.config.harness, config=config.model_copy(update={"agent_dir": copy}))
        producer = parts.make_producer(harness)
        if harness_provenance(harness, producer) != plan.harness:
            raise ConfigError(
                f"harness.config.agent_dir: {config.agent_dir} changed while it was copied",
                code="agent-dir-changed",
                hint="let nothing write to it while a run begins",
            )
        yield replace(plan, producer=producer)
    finally:
        remove_tree(copy)
        with suppress(OSError):
            shutil.rmtree(place)


def _copy(source: Path, target: Path) -> None:
    """Copy a directory with its modes, owners and links as they are."""
    make_fresh_directory(target)  # what a run that was killed left goes
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    if os.getuid() == 0:
        for directory, names, files in os.walk(target):
            for path in (Path(directory, name) for name in (*names, *files)):
                found = (source / path.relative_to(target)).lstat()
                os.chown(path, found.st_uid, found.st_gid, follow_symlinks=False)
