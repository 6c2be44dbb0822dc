"""Sandboxes: their interface, the drivers, and the policy wrapper."""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.sandboxes.base import (
        Command,
        CommandResult,
        Limits,
        Mount,
        Sandbox,
        SandboxDriver,
        SandboxSpec,
        resolve_sandbox_host_path,
    )
    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.sandboxes.docker.sandbox import DockerSandbox
    from securebench.sandboxes.host import HostSandbox
    from securebench.sandboxes.oci import OciDriver
    from securebench.sandboxes.policy import CommandPolicy, PolicySandbox

__all__ = [
    "Command",
    "CommandPolicy",
    "CommandResult",
    "DockerDriver",
    "DockerSandbox",
    "HostSandbox",
    "Limits",
    "Mount",
    "OciDriver",
    "PolicySandbox",
    "Sandbox",
    "SandboxDriver",
    "SandboxSpec",
    "resolve_sandbox_host_path",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Command": "base",
        "CommandPolicy": "policy",
        "CommandResult": "base",
        "DockerDriver": "docker",
        "DockerSandbox": "docker",
        "HostSandbox": "host",
        "Limits": "base",
        "Mount": "base",
        "OciDriver": "oci",
        "PolicySandbox": "policy",
        "Sandbox": "base",
        "SandboxDriver": "base",
        "SandboxSpec": "base",
        "resolve_sandbox_host_path": "base",
    },
)
