"""The driver without a daemon: crun, runc or runsc straight on an unpacked image.

``OciDriver`` is loaded on first use: the supervisor is part of this package, and must start fast.
"""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.sandboxes.oci.driver import OciDriver

__all__ = ["OciDriver"]

__getattr__ = lazy_names(__name__, {"OciDriver": "driver"})
