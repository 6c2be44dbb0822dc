"""Fault points: the named places at which tests make a run fail.

A run passes fault points in each of its phases, and where it writes to disk, starts a process or sends a request to
another process. A fault point does nothing unless a test has installed a hook in this process, with :func:`install`.
No option, variable or file can install a hook, so neither an agent nor a pack can cause a fault.

``docs/reference/faults.md`` says what a run does after a fault at each point.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class FaultPoint(StrEnum):
    """The fault points. The comments say in parentheses what :func:`reached` gets as the ``subject``, if anything."""

    # The phases of a run, and of its trials (the task's id).
    RUN_PREPARED = "run.prepared"
    HEADER_WRITTEN = "run.header-written"
    TASK_STARTED = "run.task-started"
    AGENT_DONE = "run.agent-done"
    VERDICT_DONE = "run.verdict-done"
    RECORD_READY = "run.record-ready"
    RECORD_WRITTEN = "run.record-written"
    RUN_DONE = "run.done"

    # Files that have to survive a crash (the path).
    FILE_OPEN = "file.open"
    FILE_WRITE = "file.write"
    FILE_SYNC = "file.sync"
    FILE_RENAME = "file.rename"
    DIRECTORY_SYNC = "directory.sync"
    CANDIDATE_READ = "candidate.read"

    # Trees of files: workspaces, scratch directories, the agent's copy (the path).
    TREE_MAKE = "tree.make"
    TREE_WRITE = "tree.write"
    TREE_COPY = "tree.copy"
    TREE_REMOVE = "tree.remove"

    # Calls of a sandbox driver, for an image (its reference) or for a sandbox (no subject).
    IMAGE_RESOLVE = "image.resolve"
    IMAGE_LEASE = "image.lease"
    SANDBOX_CREATE = "sandbox.create"
    SANDBOX_START = "sandbox.start"
    SANDBOX_READ = "sandbox.read"
    SANDBOX_WAIT = "sandbox.wait"
    SANDBOX_COLLECT = "sandbox.collect"
    SANDBOX_CLOSE = "sandbox.close"

    # Other processes: a request to an engine (the request), the start of a child (its module), a request to the
    # supervisor (no subject), and a request to the gateway (the request).
    ENGINE_REQUEST = "engine.request"
    CHILD_START = "child.start"
    SUPERVISOR_REQUEST = "supervisor.request"
    GATEWAY_REQUEST = "gateway.request"

    # Inside the supervisor of the oci driver. Only the start of a runtime has a subject (``exec`` or ``run``).
    SUPERVISOR_SERVE = "supervisor.serve"
    CONTAINER_PREPARE = "container.prepare"
    RUNTIME_START = "runtime.start"
    CONTAINER_REPORT = "container.report"
    CONTAINER_REMOVE = "container.remove"

    # Inside the egress gateway (the request).
    GATEWAY_SERVE = "gateway.serve"


class _Hooks:
    """What tests have installed in this process."""

    call: Callable[[FaultPoint, str], None] | None = None
    in_children: str = ""


_hooks: Final = _Hooks()


def reached(point: FaultPoint, subject: object = "") -> None:
    """Call the installed hook, if any, for ``point``. ``subject`` is passed to the hook as text.

    Raises whatever the hook of a test raises.
    """
    if _hooks.call is not None:
        _hooks.call(point, str(subject))


def install(hook: Callable[[FaultPoint, str], None] | None, in_children: str = "") -> None:
    """For tests only: call ``hook`` whenever a thread of this process reaches a fault point. ``None`` removes the hook.

    ``in_children`` is Python code that each :class:`~securebench.ipc.child.SupervisedChild` runs first. With this code,
    a test can install a hook in the child process, too.
    """
    _hooks.call, _hooks.in_children = hook, in_children


def code_for_children() -> str:
    """Return the code that each ``SupervisedChild`` runs first. It is empty unless a test has installed such code."""
    return _hooks.in_children
