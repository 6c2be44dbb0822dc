"""One task, from workspace to record."""

from __future__ import annotations

from securebench.execution.context import RunControl, RunStoppedError, TaskContext
from securebench.execution.history import History
from securebench.execution.task import execute_task

__all__ = ["History", "RunControl", "RunStoppedError", "TaskContext", "execute_task"]
