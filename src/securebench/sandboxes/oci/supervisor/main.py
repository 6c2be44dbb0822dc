"""Where a supervisor starts. Its one argument is JSON: descriptors, names and paths."""

from __future__ import annotations

import json
import os
import signal
import socket

from securebench.sandboxes.oci.supervisor.context import SupervisorContext
from securebench.sandboxes.oci.supervisor.loop import Supervisor
from securebench.sandboxes.oci.wire import send_frame


def main(argument: str) -> None:
    """Set everything up, say hello, and serve until the driver is gone."""
    settings = json.loads(argument)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o022)
    for descriptor in (settings["control"], settings["owner"]):
        os.set_inheritable(descriptor, False)  # they came that way, and go no further
    control = socket.socket(fileno=settings["control"])
    context = SupervisorContext(**settings["context"])
    try:
        send_frame(control, context.prepare(settings["files"]))
        Supervisor(control, context).serve(settings["owner"])
    except OSError as error:
        send_frame(control, {"failed": str(error)})
    finally:
        context.remove()
