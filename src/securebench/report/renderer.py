"""The renderer of plots: a child process, so that it starts while the caller reads records.

Its JavaScript engine takes half a second to start, and holds the GIL for that time. On some input, it aborts its
process. In a child process, this costs one plot and not the report.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import vl_convert

from securebench.ipc.child import ChildError, SupervisedChild
from securebench.ipc.frames import FrameError, inherited_channel, pack, receive, send

if TYPE_CHECKING:
    from collections.abc import Mapping

_SITE: Final = str(Path(vl_convert.__file__).parents[1])
_SECONDS: Final = 60.0
"""Time limit in seconds for each plot, including the start of the renderer if needed.

Stopping the renderer has the same limit.
"""


class Renderer:
    """A renderer in a separate process, started with the first plot or with :meth:`start`. Threads may share it."""

    def __init__(self) -> None:
        """Make a renderer without starting its process."""
        self._child: SupervisedChild | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process in the background unless it is already running.

        Errors are ignored: :meth:`draw` tries again.
        """
        with self._lock:
            self._start()

    def draw(self, spec: Mapping[str, Any]) -> str | None:
        """Return a Vega-Lite plot as SVG, or ``None`` if it cannot be drawn. Nothing is loaded from the network."""
        with self._lock:
            self._start()
            if self._child is None:
                return None
            try:
                send(self._child.channel, pack({"spec": json.dumps(spec)}))
                self._child.channel.settimeout(_SECONDS)
                frame = receive(self._child.channel, 1)
                if frame is not None:
                    with os.fdopen(frame.descriptors[0], encoding="utf-8") as file:
                        return file.read()
            except (OSError, FrameError):
                pass
            self._end()
            return None

    def close(self) -> None:
        """End the process. Idempotent; the next plot starts another."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        if self._child is None:
            with suppress(ChildError):
                self._child = SupervisedChild("securebench.report.renderer", {}, paths=(_SITE,))

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.close(_SECONDS)
            self._child = None


def main(descriptor: int) -> None:
    """Draw the plots that the parent sends, until it closes the channel."""
    channel, _ = inherited_channel(descriptor)
    vl_convert.vegalite_to_svg('{"mark": "bar"}', allowed_base_urls=[])  # the first plot starts the engine
    while frame := receive(channel):
        svg = vl_convert.vegalite_to_svg(frame.body["spec"], allowed_base_urls=[])
        with os.fdopen(os.memfd_create("plot"), "w", encoding="utf-8") as file:
            file.write(svg)
            file.seek(0)  # the parent's copy of the descriptor shares the file position
            send(channel, pack({}), (file.fileno(),))
