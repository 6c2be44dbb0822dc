"""What a container has changed, as its keeper reports it and hands it over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import InfrastructureError
from securebench.sandboxes.collected import CollectedLayer, DirectoryReplacedError
from securebench.sandboxes.collecting import nothing_to_collect
from securebench.sandboxes.oci.supervisor.changes import CHANGED, REPLACED, UNCHANGED

if TYPE_CHECKING:
    from securebench.sandboxes.oci.request import ProcessRequest


def changed_layer(job: ProcessRequest, path: str) -> CollectedLayer:
    """Return what ``job``, which has ended, changed in ``path``. Raises as :meth:`Sandbox.collected` does."""
    report = job.report(0.0)
    outcome = report.get("collected")
    if outcome == UNCHANGED:
        return CollectedLayer(-1)
    if outcome == REPLACED:
        raise DirectoryReplacedError(path)
    if outcome != CHANGED:
        raise nothing_to_collect() if outcome is None else _lost(str(outcome))
    if job.descriptor < 0:
        raise _lost("this process has no room for more descriptors")
    return CollectedLayer(job.descriptor, report["opaque"], whole=report["whole"])


def _lost(why: str) -> InfrastructureError:
    return InfrastructureError(
        f"what a sandbox changed could not be handed over: {why}",
        hint="raise the limit of open files (ulimit -n), or run fewer tasks at once (--workers)",
    )
