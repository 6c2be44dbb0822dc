"""The oci driver: it runs crun, runc or runsc on unpacked images, without a daemon.

``OciDriver`` is imported on first use, because the supervisor imports this package and must start fast.
"""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.sandboxes.oci.driver import OciDriver

__all__ = ["OciDriver"]

__getattr__ = lazy_names(__name__, {"OciDriver": "driver"})
