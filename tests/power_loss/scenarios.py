"""Programs whose file operations are recorded: ``python -m power_loss.scenarios NAME ROOT``.

Each program calls :func:`promise` when SecureBench reports that data is stored: from then on, it must be on disk.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from image_archives import directory, file, layer
from power_loss.recorder import promise
from run_fakes import FakeProducer
from securebench import faults
from securebench.candidates.store import CandidateStore
from securebench.errors import ImageError
from securebench.execution import retry
from securebench.faults import FaultPoint
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin
from securebench.results.records.chain import line_hash
from securebench.results.run_directory.files import JOURNAL
from securebench.tasks import CandidateKind
from securebench.tester_run import RunOptions, run_benchmark
from tester_run.running import configuration, make_parts, pin_framework

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.tasks import AgentView

TRAJECTORY: Final = '{"step": 1}\n{"step": 2}\n'


def candidates(root: Path) -> None:
    """Seal two texts, the first of them again, and a tree into a new store."""
    tree = root / "tree"
    store = CandidateStore(root / "run" / "candidates")
    for text in ("one", "two", "one"):
        promise(store.seal_bytes(CandidateKind.TEXT, text.encode(), text).digest)
    promise(store.seal_tree(CandidateKind.WORKSPACE, tree).digest)


def images(root: Path) -> None:
    """Import an image, restore its changed tree, give its name to another image, prune, and import the first again."""
    store = ImageStore(root / "images")
    first = import_image(store, "one")
    store.lease(first).close()
    os.utime(store.tree(first) / "etc" / "os", (0, 0))
    store.restore(first)
    store.lease(first).close()
    import_image(store, "two")
    store.prune()
    store.lease(import_image(store, "one")).close()


def import_image(store: ImageStore, text: str) -> str:
    """Import an image with two files that contain ``text``, and return its id."""
    root = layer(directory("etc"), file("etc/os", text.encode()), directory("bin"), file("bin/sh", text.encode()))
    with store.incoming(Origin(ImageSource.ARCHIVE)) as incoming:
        image_id = add_root(incoming, [root], RootConfig({"TEXT": text}), "the test's root")
        incoming.name(image_id, "tool:1")
    promise(text)
    return image_id


def new_run(root: Path) -> None:
    """Run a pack. Two of its tasks get no verdict, because their image is missing."""

    def lacks_images(_: int, view: AgentView, __: Any) -> None:
        if view.task_id.endswith(("1", "2")):
            raise ImageError("gone")

    _run(root, FakeProducer(hook=lacks_images, trajectory=TRAJECTORY), RunOptions(workers=1))


def resumed_run(root: Path) -> None:
    """Resume the run of :func:`new_run`, so that the tasks without a verdict get one."""
    _run(root, FakeProducer(trajectory=TRAJECTORY), RunOptions(workers=1, resume=True))


def _run(root: Path, producer: FakeProducer, options: RunOptions) -> None:
    journal = root / "results" / JOURNAL

    def promises(point: FaultPoint, _subject: str) -> None:
        if point is FaultPoint.RECORD_WRITTEN:
            promise(f"record/{line_hash(journal.read_bytes().splitlines()[-1])}")
        elif point in {FaultPoint.HEADER_WRITTEN, FaultPoint.RUN_DONE}:
            promise(point)

    faults.install(promises)
    pin_framework()
    retry.BACK_OFF = ()  # no pauses
    run_benchmark(configuration(root), options, (), make_parts(producer))


SCENARIOS: Final[Mapping[str, Callable[[Path], None]]] = {
    scenario.__name__: scenario for scenario in (candidates, images, new_run, resumed_run)
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
