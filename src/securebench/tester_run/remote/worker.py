"""A worker on a machine other than the coordinator's. The two share no files: the worker has its own directory.

The directory of a machine (``SECUREBENCH_NODE_DIR``) has a directory for each run. The directory of a run contains
the files that its workers share, and a directory for each worker. Directories in use are locked. A worker removes
the unlocked ones when it starts.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from securebench.errors import ImageError, InfrastructureError
from securebench.execution import RunControl
from securebench.execution.assignment import Assignment
from securebench.execution.verifier_output import output_file
from securebench.executors.base import RemoteWorker
from securebench.fs.durable import storage_errors
from securebench.fs.home import data_directory
from securebench.fs.locks import locked, take, take_now
from securebench.fs.rmtree import make_private_directory, remove_tree
from securebench.fs.streams import chunks
from securebench.fs.tree_archive import replace_content
from securebench.fs.walk import UNPACKED
from securebench.images.store.archive import add_archive
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin
from securebench.progress import Reporter
from securebench.results.recorded_task import parse_recorded_task
from securebench.results.run_directory.egress_log import EGRESS_LOG
from securebench.tester_run.options import RunParts
from securebench.tester_run.planning import directory as places
from securebench.tester_run.planning.plan import make_plan
from securebench.tester_run.remote.delivery import Sent, egress_lines, trajectories_of
from securebench.tester_run.remote.shipment import CANDIDATE, FILES, IMAGE, PROGRAM, files_of, read_settings
from securebench.tester_run.worker import TrialWorker, prepare_worker
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from securebench.execution import TaskContext

DIRECTORY_VARIABLE: Final = "SECUREBENCH_NODE_DIR"
_SOURCES: Final = {IMAGE: ImageSource.ARCHIVE, PROGRAM: ImageSource.AGENT}


def node_directory() -> Path:
    """Return the directory of the workers on this machine: ``SECUREBENCH_NODE_DIR``, or the default for this user."""
    return data_directory("node", DIRECTORY_VARIABLE)


class RemoteTrialWorker(RemoteWorker):
    """Executes trials of a run that another machine coordinates."""

    def __init__(self, settings: bytes) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self._opening = threading.Lock()
        self._is_closed = False
        self._control = RunControl()
        self._problems: list[str] = []
        self._log_end = 0
        self._place = self._make_places(hashlib.sha256(settings).hexdigest()[:32])
        self._content = self._place.parent / "content"
        self._content.mkdir(mode=0o700, exist_ok=True)

    def lacks(self, names: Iterable[str]) -> tuple[str, ...]:
        """See :class:`RemoteWorker`."""
        return tuple(name for name in names if not self._has(name))

    def take(self, name: str, piece: bytes) -> None:
        """See :class:`RemoteWorker`."""
        kind, digest, *_ = name.split(" ")
        arriving = self._place / f"arriving-{digest.removeprefix('sha256:')}"
        # Without the lock, close() could fail to remove a directory to which this writes, and leave it on the node.
        with self._opening, storage_errors(arriving):
            self._require_run()
            if piece:
                with arriving.open("ab") as file:
                    file.write(piece)
                return
            try:
                if kind in (FILES, CANDIDATE):
                    _keep_file(arriving, self._kept(kind, digest))
                else:
                    _keep_image(arriving, name)
            finally:
                arriving.unlink(missing_ok=True)

    def open(self) -> None:
        """See :class:`RemoteWorker`."""
        with self._opening:
            self._open(self._stack)

    def _open(self, stack: ExitStack) -> None:
        self._require_run()
        stack.enter_context(places.steady_umask())
        files, directory = self._place / "files", self._place / "run"
        for made in (files, directory):
            made.mkdir(mode=0o755)
        archived = self._content / files_of(self._settings)
        with storage_errors(files), archived.open("rb") as file:
            replace_content(files, chunks(file), UNPACKED)
        self._require_run()
        settings = read_settings(self._settings, files)
        options = replace(
            settings.options,
            output_dir=directory,
            variables={**os.environ, **settings.options.variables},
        )
        plan = make_plan(settings.config, options, RunParts())
        run, egress = prepare_worker(plan, options, settings.header, settings.commitment, stack, EGRESS_LOG)
        self._require_run()
        places.make_room(directory)
        run.driver.reap()
        for reference in sorted(run.header.images)[:1]:  # this tests the driver, so one image is enough
            run.driver.self_test(run.driver.resolve_image(reference), forwarded_ports=run.plan.producer.needs_gateway)
        self._driver = run.driver
        self._context: TaskContext = run.context(
            report=Reporter(()), egress=egress, control=self._control, note_problem=self._problems.append
        )
        stack.callback(self._context.removals.close)
        if self._context.kept is not None:
            stack.callback(self._context.kept.close)
        self._worker = TrialWorker(run, self._context)

    def execute(self, assignment: bytes) -> Iterator[bytes]:
        """See :class:`RemoteWorker`."""
        store, directory = self._context.store, self._place / "run"
        wanted = Assignment.from_bytes(assignment)
        for name in self._worker.needs(assignment):
            digest = name.split(" ")[1]
            candidate = self._kept(CANDIDATE, digest)
            with candidate.open("rb") as file:
                store.seal_copy(self._worker.candidate_kind(wanted.task_id), digest, chunks(file))
            candidate.unlink()
        record = self._worker(assignment)
        if not record:
            return
        sealed = parse_recorded_task(record).candidate_digest
        trial = TrialId(wanted.task_id, wanted.history.trial)
        kept = self._context.verifier_output
        output = output_file(kept, trial.directory) if kept else None
        egress, self._log_end = egress_lines(directory / EGRESS_LOG, self._log_end)
        trajectories = trajectories_of(record, directory)
        yield from Sent(
            record=record,
            candidate=store.root / sealed if sealed else None,
            trajectories=trajectories,
            output=output.read_text(errors="replace") if output and output.exists() else "",
            egress=egress,
            problems=tuple(self._problems),
        ).pieces()
        self._problems.clear()
        store.keep_only(())
        for path in (*trajectories, *([output] if output else [])):
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """See :class:`RemoteWorker`."""
        self._control.stop()
        with suppress(AttributeError):  # it is not open yet
            self._driver.kill_all()

    def close(self) -> None:
        """See :class:`RemoteWorker`."""
        self._is_closed = True
        with self._opening:  # waits for open(), so that everything that it opened is closed
            self._stack.close()

    def _require_run(self) -> None:
        """Raise :class:`InfrastructureError` if this worker was closed: a run may end while open() is running."""
        if self._is_closed:
            raise InfrastructureError("the run has ended", code="executor-failed")

    def _make_places(self, run: str) -> Path:
        """Remove what is left of killed workers on this machine, and return the path of a new, locked directory."""
        top = node_directory()
        with storage_errors(top):
            make_private_directory(top)
            with locked(top / "lock"):
                for directory in [path for path in top.iterdir() if path.is_dir()]:
                    for worker in directory.glob("worker-*"):
                        _remove_unused(worker)
                    if directory.name != run:
                        _remove_unused(directory)
                place = top / run / f"worker-{secrets.token_hex(8)}"
                make_private_directory(place.parent)
                place.mkdir(mode=0o700)
                held = [take(place.parent, shared=True), take(place)]
        self._stack.callback(self._remove_places, place, held)
        return place

    def _remove_places(self, place: Path, held: list[int]) -> None:
        with suppress(OSError), locked(node_directory() / "lock"):
            for descriptor in held:
                os.close(descriptor)
            _remove_unused(place)
            _remove_unused(place.parent)

    def _kept(self, kind: str, digest: str) -> Path:
        """Return the path of received files or of a candidate.

        Each worker has its own candidates, because a worker removes each candidate that it has sealed.
        """
        return (self._place if kind == CANDIDATE else self._content) / digest

    def _has(self, name: str) -> bool:
        kind, digest, *reference = name.split(" ")
        if kind in (FILES, CANDIDATE):
            return self._kept(kind, digest).exists()
        store = ImageStore()
        found, origin = store.find(reference[0]), store.origin(reference[0])
        is_program = origin is not None and origin.source is _SOURCES[PROGRAM]
        return found is not None and found.id == digest and is_program == (kind == PROGRAM)


def _keep_file(arriving: Path, kept: Path) -> None:
    with arriving.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != kept.name:
        raise InfrastructureError(f"received content has the digest {found}, expected {kept.name}")
    arriving.replace(kept)


def _keep_image(arriving: Path, name: str) -> None:
    """Put an image into the store. Raises :class:`ImageError` if its content does not have the expected id."""
    kind, image_id, reference = name.split(" ")
    store = ImageStore()
    with store.incoming(Origin(_SOURCES[kind])) as incoming, arriving.open("rb") as file:
        (added,) = add_archive(incoming, chunks(file), reference)
        if added.id != image_id:
            raise ImageError(f"image {reference} has the id {added.id} after the transfer, expected {image_id}")
        store.lease(image_id).close()
        incoming.name(image_id, reference)


def _remove_unused(directory: Path) -> None:
    """Remove a directory, unless a process has locked it."""
    held = take_now(directory)
    if held is not None:
        try:
            remove_tree(directory)
        finally:
            os.close(held)
