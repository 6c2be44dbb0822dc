"""Measure one cycle with each driver and with the bare runtime.

A cycle creates a sandbox, writes a file, runs Python, reads a file, and removes the sandbox. The bare runtime is ``crun
run`` on a bundle with the configuration that the oci driver compiles. ``bare_runtime.py`` runs it in a loop, without an
overlay, cgroups, a time limit or an output limit.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from measure import run_measured
from report import Table, within

from securebench.images.store.image_store import ImageStore
from securebench.sandboxes.base import Command, Mount, SandboxSpec, workspace_user
from securebench.sandboxes.oci.config import INIT_TARGET, HostIds, HostLayout, compile_config, identity_map
from securebench.sandboxes.oci.runtime import find_init, find_runtime
from securebench.sandboxes.oci.seccomp import seccomp_for
from securebench.sandboxes.spec_rules import NAME_FILES
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sides import Side

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

WORKSPACE: Final = "/workspace"
CODE: Final = "open('/workspace/out', 'w').write(open('/workspace/in').read().upper())"
COMMAND: Final = Command(argv=("python3", "-I", "-B", "-c", CODE), timeout_seconds=60)
TEXT: Final = "file in, file out\n"
BARE_BOUND: Final = 1.5
DOCKER_BOUND: Final = 8.0
_BARE: Final = Path(__file__).resolve().parent / "bare_runtime.py"


def cycles(sides: Sequence[Side], scratch: Path, *, rounds: int, count: int) -> Table:
    """Measure ``rounds`` rounds of ``count`` cycles, one after the other.

    For Docker, a quarter of the cycles is measured, but at least two.
    """
    table = Table("One cycle, ms (median of rounds)", ("who", "ms a cycle", "x bare crun", "x faster than docker"))
    found: dict[str, list[float]] = {"bare crun": []} if bare_can_run(sides) else {}
    for _ in range(rounds):
        if "bare crun" in found:
            found["bare crun"].append(_bare(scratch, count))
        for side in sides:
            many = max(2, count // 4) if side.is_docker else count
            found.setdefault(side.name, []).append(_driven(side, scratch, many))
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, ms in medians.items():
        table.add(name, ms, *_ratios(name, ms, medians))
    table.notes.append("The time of a driver includes the end of its last sandbox, but not the start of the driver.")
    return table


def _ratios(name: str, ms: float, medians: dict[str, float]) -> Iterator[str]:
    bare, docker = medians.get("bare crun"), medians.get("docker")
    bounded = name == "crun"
    yield "" if not bare else within(ms / bare, BARE_BOUND) if bounded else f"{ms / bare:.2f}"
    yield "" if not docker else within(docker / ms, DOCKER_BOUND, at_least=True) if bounded else f"{docker / ms:.2f}"


def _driven(side: Side, scratch: Path, count: int) -> float:
    directory = make_workspace(scratch)
    with closing(side.open()) as driver:
        image = driver.resolve_image(DEFAULT_IMAGE)
        _one(driver, image, directory)  # the first cycle also starts what the driver keeps for all sandboxes
        started = time.perf_counter()
        for _ in range(count):
            _one(driver, image, directory)
        driver.close()
        return (time.perf_counter() - started) / count * 1000


def _one(driver: SandboxDriver, image: ResolvedImage, directory: Path) -> None:
    (directory / "in").write_text(TEXT)
    with driver.create(workspace_spec(image, directory)) as sandbox:
        result = sandbox.run(COMMAND)
    if result.exit_code or (directory / "out").read_text() != TEXT.upper():
        raise SystemExit(f"a cycle failed: {result}")
    (directory / "out").unlink()


def workspace_spec(image: ResolvedImage, directory: Path) -> SandboxSpec:
    """Return the specification of a sandbox of ``image`` with ``directory`` as its workspace."""
    mounts = (Mount(directory, WORKSPACE, read_only=False),)
    return SandboxSpec(image=image, mounts=mounts, user=workspace_user())


def make_workspace(scratch: Path) -> Path:
    """Return a new directory in ``scratch`` that sandboxes can use as their workspace."""
    directory = Path(tempfile.mkdtemp(dir=scratch)).resolve()
    os.chown(directory, *workspace_user())
    return directory


def bare_can_run(sides: Sequence[Side]) -> bool:
    """Return whether the bare runtime can be run here: this needs root, and crun among the ``sides``."""
    return os.geteuid() == 0 and any(side.name == "crun" for side in sides)


def _bare(scratch: Path, count: int) -> float:
    """Return the median ms of a cycle of the bare runtime. The start-up of the measuring process is not included."""
    workspace = make_workspace(scratch)
    with bare_bundles(scratch, workspace) as make_bundle:
        argv = make_bundle(COMMAND)
        call = json.dumps({"argv": argv, "workspace": str(workspace), "text": TEXT, "count": count})
        return float(run_measured(apart(_BARE, call))[1])


def apart(program: Path, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a Python program in a new mount namespace."""
    return ("unshare", "--mount", "--propagation", "slave", sys.executable, "-I", "-S", str(program), *arguments)


@contextmanager
def bare_bundles(scratch: Path, workspace: Path) -> Iterator[Callable[[Command], list[str]]]:
    """Yield a function that makes a bundle for a command, and returns the argv that runs it with the bare runtime.

    The argv can be run many times, but only one after the other. The command works in ``workspace``, which is mounted
    at ``WORKSPACE``.
    """
    runtime, store = find_runtime("crun"), ImageStore()
    image = store.find(DEFAULT_IMAGE)
    if image is None:
        raise SystemExit(f"{DEFAULT_IMAGE} is not in the image store")
    # The containers' state is in memory, because ext4 without a journal does not reuse the inodes of deleted files for
    # some minutes and has to skip them for each new file. This would slow down the next measurements.
    with store.lease(image.id) as tree, tempfile.TemporaryDirectory(dir="/dev/shm") as state:

        def make_bundle(command: Command) -> list[str]:
            bundle = Path(tempfile.mkdtemp(dir=scratch))
            bundle.chmod(0o711)
            layout = host_layout(image, workspace, tree.root)
            (bundle / "config.json").write_text(
                json.dumps(compile_config(workspace_spec(image, workspace), command, layout))
            )
            # The name of the state directory's parent is part of the container's id.
            own = Path(state, bundle.name)
            own.mkdir()
            return runtime.run_argv(str(bundle), str(own / "state"), "bare")

        yield make_bundle


def host_layout(image: ResolvedImage, workspace: Path, root: Path) -> HostLayout:
    """Return where the oci driver would find the parts of a sandbox on the host."""
    uid_map, gid_map = identity_map(workspace_user(), HostIds.of_root())
    names = {f"/etc/{path.name}": str(path) for path in NAME_FILES}
    return HostLayout(
        root=str(root),
        sources={**names, INIT_TARGET: str(find_init()), WORKSPACE: str(workspace)},
        uid_map=uid_map,
        gid_map=gid_map,
        seccomp=seccomp_for(workspace_spec(image, workspace)),
        runtime=find_runtime("crun"),
        cgroup="/none",
    )
