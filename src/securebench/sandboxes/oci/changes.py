"""The changes of a container, as its supervisor reports them and passes them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import InfrastructureError
from securebench.sandboxes.collected import CollectedLayer, DirectoryReplacedError
from securebench.sandboxes.collecting import nothing_to_collect
from securebench.sandboxes.oci.supervisor.changes import CHANGED, REPLACED, UNCHANGED

if TYPE_CHECKING:
    from securebench.sandboxes.oci.handle import ProcessHandle


def changed_layer(handle: ProcessHandle, path: str) -> CollectedLayer:
    """Return the changes of the exited ``handle`` in ``path``. Raises the errors of :meth:`Sandbox.collected`."""
    report = handle.report(0.0)
    outcome = report.collected
    if outcome == UNCHANGED:
        return CollectedLayer(-1)
    if outcome == REPLACED:
        raise DirectoryReplacedError(path)
    if outcome != CHANGED:
        raise _lost(outcome) if outcome else nothing_to_collect()
    if handle.descriptor < 0:
        raise _lost("this process has too many open files")
    return CollectedLayer(handle.descriptor, report.opaque, whole=report.whole)


def _lost(why: str) -> InfrastructureError:
    return InfrastructureError(
        f"the changes of a sandbox could not be received: {why}",
        hint="raise the limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
    )
