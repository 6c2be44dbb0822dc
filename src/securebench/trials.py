"""The identity of a trial. A run may have several trials of each task."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

_SLUG_LENGTH: Final = 40
_HASH_LENGTH: Final = 16


class TrialId(NamedTuple):
    """One trial of a task. ``trial`` is its number, from 1. ``str()`` omits the number of the first trial."""

    task_id: str
    trial: int = 1

    def __str__(self) -> str:
        return f"{self.task_id}{self.suffix(self.trial)}"

    def suffix(self, trials: int) -> str:
        """Return text such as ``" (trial 2)"`` to add to the task's id; empty if each task has one trial.

        ``trials`` is the number of trials of each task.
        """
        return f" (trial {self.trial})" if trials > 1 else ""

    @property
    def directory(self) -> str:
        """The name of the trial's directories and files in a run.

        It has a slug and a hash of the task's id and, except for the first trial, the number of the trial.
        """
        slug = re.sub(r"[^A-Za-z0-9]+", "-", self.task_id).strip("-")[:_SLUG_LENGTH].strip("-").lower() or "task"
        digest = hashlib.sha256(self.task_id.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
        return f"{slug}-{digest}" if self.trial == 1 else f"{slug}-{digest}-trial-{self.trial}"
