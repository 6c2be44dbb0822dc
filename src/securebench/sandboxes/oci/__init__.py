"""The driver without a daemon: crun, runc or runsc straight on an unpacked image.

``OciDriver`` is loaded when it is first asked for: the keeper lives in this package too, and has to start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from securebench.sandboxes.oci.driver import OciDriver

__all__ = ["OciDriver"]


def __getattr__(name: str) -> Any:
    if name != "OciDriver":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from securebench.sandboxes.oci.driver import OciDriver

    return OciDriver
