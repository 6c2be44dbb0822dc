"""The entry point of a supervisor process. The first frame contains its settings and a pidfd of its driver."""

from __future__ import annotations

import os
import signal

from securebench.ipc.frames import inherited_channel, pack, send
from securebench.sandboxes.oci.supervisor.context import SupervisorContext
from securebench.sandboxes.oci.supervisor.loop import Supervisor
from securebench.sandboxes.oci.wire import SupervisorSettings


def main(descriptor: int) -> None:
    """Set up everything, report that the supervisor is ready, and serve until the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o022)
    control, (settings, (owner,)) = inherited_channel(descriptor, 1)
    context = SupervisorContext(SupervisorSettings(**settings["context"]))
    try:
        send(control, pack(context.prepare(settings["files"])))
        Supervisor(control, context).serve(owner)
    except OSError as error:
        send(control, pack({"failed": str(error)}))
    finally:
        context.remove()
