"""The runtime of agent programs that need Python or Node, mounted read-only beside them.

Python, the loader and the C library are those of the base image; Node is installed like an agent program. Python and
Node run through this loader, so the C library of a task's image does not matter. The runtime sets no environment
variables, so programs that the agent starts run as they would without it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.agents.catalogue import NODE, find
from securebench.agents.progress import lines
from securebench.agents.pypi import PYTHON
from securebench.errors import ConfigError
from securebench.fs.resolve import opened_inside
from securebench.sandboxes.base import Mount
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.agents.declaration import Runtime
    from securebench.agents.store import AgentStore
    from securebench.harnesses.base import RunContext
    from securebench.images.store.image_store import TreeLease
    from securebench.resources import JsonValue

RUNTIME_TARGET: Final = "/opt/securebench/runtime"
"""Where the files of the base image are mounted."""

NODE_TARGET: Final = "/opt/securebench/node"
"""Where Node is mounted."""

_NODE_OPTIONS: Final = ("--liftoff-only",)
"""Turns off the optimizing compiler for WebAssembly. For the shell parser of an agent, the compiler can use more than a
gigabyte of memory."""

_LOADERS: Final = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_PYTHONS: Final = (f"usr/local/bin/python{PYTHON}", f"usr/bin/python{PYTHON}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRuntime:
    """The Python or Node that runs an agent program.

    ``command`` is the beginning of the agent program's command line. ``mounts`` are the mounts that Python or Node
    needs. ``identity`` is the runtime's part of the run's identity. ``lease`` protects the files of the base image from
    removal.
    """

    command: tuple[str, ...]
    mounts: tuple[Mount, ...]
    identity: dict[str, JsonValue]
    lease: TreeLease


def prepare_runtime(kind: Runtime, store: AgentStore, run: RunContext) -> AgentRuntime:
    """Return the runtime for the agents of a run.

    Raises the errors of the image store, those of :meth:`AgentStore.install` for Node, and :class:`ConfigError`
    (``agent-unfit``) if the base image lacks Python or the loader of its C library.
    """
    image = run.driver.resolve_image(DEFAULT_IMAGE)
    lease = run.driver.image_tree(image)
    root = lease.root.resolve()  # a mount's source must not contain a link
    machine = os.uname().machine
    library = f"{machine}-linux-gnu"
    loader = _real(root, f"lib/{library}/{_LOADERS[machine]}", f"lib64/{_LOADERS[machine]}", f"lib/{_LOADERS[machine]}")
    places = ("usr/local/lib", f"lib/{library}", f"usr/lib/{library}", "lib64", "usr/lib64")
    path = ":".join(f"{RUNTIME_TARGET}/{place}" for place in places)
    command = (f"{RUNTIME_TARGET}/{loader}", "--library-path", path)
    mounts = (Mount(root, RUNTIME_TARGET),)
    identity: dict[str, JsonValue] = {"runtime": kind, "runtime_image": image.id}
    if kind == "python":
        python = f"{RUNTIME_TARGET}/{_real(root, *_PYTHONS)}"
        # Ignore PYTHON* variables and user packages, which are those of the task's image, and write no bytecode.
        return AgentRuntime(command=(*command, python, "-EsB"), mounts=mounts, identity=identity, lease=lease)
    node = store.install(NODE, on_progress=lines(run.notify))
    return AgentRuntime(
        command=(*command, f"{NODE_TARGET}/{node.executable}", *_NODE_OPTIONS),
        mounts=(*mounts, Mount(node.directory, NODE_TARGET)),
        identity={**identity, "node": find(NODE).pinned},
        lease=lease,
    )


def _real(root: Path, *paths: str) -> str:
    """Return the real path, relative to the tree ``root``, of the first of ``paths`` that is a file in it."""
    for path in paths:
        with opened_inside(root, path) as descriptor:
            if descriptor is not None:
                return os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), root)  # noqa: PTH115 - a descriptor
    raise ConfigError(
        f"the image {DEFAULT_IMAGE} has no {paths[0]}, which the agent needs",
        code="agent-unfit",
        hint="run 'securebench images build'",
    )
