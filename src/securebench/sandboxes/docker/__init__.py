"""The Docker driver: sandboxes over the Engine API."""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.sandboxes.docker.sandbox import DockerSandbox

__all__ = ["DockerDriver", "DockerSandbox"]

__getattr__ = lazy_names(__name__, {"DockerDriver": "driver", "DockerSandbox": "sandbox"})
