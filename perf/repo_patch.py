"""Measure what judging a change to a repository costs beyond its containers and the tests themselves.

The lower bound is the time of two sandboxes of the same driver. In the first, the agent's command changes a file. The
second is persistent: a script writes the changed file and the tests, and runs the test command without plugins or
controls. The lower bound leaves out everything else that the framework does: reading the changes, sealing, computing
and laying out the tree, evidence, records. The image is the one that SecureBench's own tests use: the base image with a
small repository and this machine's pytest.
"""

from __future__ import annotations

import os
import shlex
import statistics
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from report import Table, within
from runs import repeated

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))  # the tests define the repository's image

from image_archives import layer
from securebench.engine.client import connect
from securebench.images.build.derived.compose import Additions, Base, add_image
from securebench.images.engine_images import load_into_engine
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.judging.repository import (
    COMMIT,
    FAIL_TO_PASS,
    FIXED,
    OLD_TESTS,
    PASS_TO_PASS,
    PYTEST,
    REPOSITORY,
    TEST_PATCH,
)
from verifiers.repo_patch.repository_image import image_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sides import Side

    from securebench.sandboxes.base import SandboxDriver

RATIO_BOUND: Final = 1.3
_FILE: Final = f"{REPOSITORY}/project/numbers.py"
_WRITE: Final = f"cat > {_FILE} <<'END'\n{FIXED}END\n"
AGENT: Final = ("/bin/sh", "-c", _WRITE)
_TESTS: Final = f"cat > {REPOSITORY}/tests/test_numbers.py <<'END'\n{OLD_TESTS}END\n"


def table(sides: Sequence[Side], scratch: Path, *, tasks: int, rounds: int) -> Table:
    """Measure the time of a task with each driver. The tasks run one at a time."""
    columns = ("who", "ms a task", "its containers and tests, ms", "ratio")
    made = Table(f"A change to a repository: {tasks} tasks a cell, median of {rounds}", columns)
    with image(sides) as reference:
        workload = repeated(scratch, row(reference), tasks, AGENT)
        for side in sides:
            workload.run_here(side, 1, scratch)  # the first run unpacks the image
            pairs = [
                (_floor(side, reference, tasks), workload.run_here(side, 1, scratch) / tasks) for _ in range(rounds)
            ]
            bare, ours = (statistics.median(values) * 1000 for values in zip(*pairs, strict=True))
            made.add(side.name, ours, bare, within(statistics.median(b / a for a, b in pairs), RATIO_BOUND))
    return made


def row(image: str) -> dict[str, Any]:
    """Return the row of a task in the repository of ``image``. :data:`AGENT` solves the task."""
    return {
        "family": "repo_patch",
        "input": {"repo": "bench/project", "base_commit": COMMIT, "instructions": "Mend double."},
        "eval": {
            "tests": {
                "source": "command",
                "command": PYTEST,
                "test_patch": {"source": "inline", "patch": TEST_PATCH},
                "expect": {"fail_to_pass": FAIL_TO_PASS, "pass_to_pass": PASS_TO_PASS},
            }
        },
        "environment": {"image": image, "workdir": REPOSITORY},
    }


def _floor(side: Side, image: str, tasks: int) -> float:
    """Return the mean seconds of a task's sandboxes and tests without the framework."""
    with closing(side.open()) as driver:
        spec = SandboxSpec(image=driver.resolve_image(image), read_only=False, user=(0, 0), workdir=REPOSITORY)
        _once(driver, spec)
        started = time.perf_counter()
        for _ in range(tasks):
            _once(driver, spec)
        return (time.perf_counter() - started) / tasks


def _once(driver: SandboxDriver, spec: SandboxSpec) -> None:
    tests = f"{_WRITE}{_TESTS}exec {shlex.join(PYTEST)}"
    with driver.create(spec) as agent:
        agent.run(Command(argv=AGENT, timeout_seconds=60))
    with driver.create(spec, persistent=True) as checks:
        result = checks.run(Command(argv=("/bin/sh", "-c", tests), timeout_seconds=60))
    if result.exit_code != 0:
        raise SystemExit("the tests fail without the framework, so the figures would be meaningless")


@contextmanager
def image(sides: Sequence[Side]) -> Iterator[str]:
    """Add an image to the store and, for Docker, to the engine. Yield its reference. Remove the image at the end."""
    store, reference = ImageStore(), f"securebench-bench/project:{os.getpid()}"
    found = store.find(DEFAULT_IMAGE)
    assert found is not None, "the base image is missing; run 'securebench images build'"
    with store.incoming(Origin(ImageSource.ARCHIVE, "bench")) as incoming:
        base = Base(found.id, *store.documents(found.id))
        incoming.name(add_image(incoming, base, [incoming.take([layer(*image_parts())])], Additions()), reference)
    engine = connect() if any(side.is_docker for side in sides) else None
    try:
        if engine is not None:
            load_into_engine(engine, store, reference, lambda _line: None)
        yield reference
    finally:
        if engine is not None:
            engine.client.remove_image(reference, force=True)
            engine.close()
        store.remove(reference)
