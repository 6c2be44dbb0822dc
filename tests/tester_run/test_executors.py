"""Executors in a run: they are chosen by name, their settings are checked, and their results are not trusted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from click.testing import CliRunner

from fault_hooks import hooked
from securebench import plugins
from securebench.cli import run_command
from securebench.errors import ConfigError
from securebench.executors.base import Executor
from securebench.executors.local import LocalExecutor
from securebench.faults import FaultPoint
from securebench.results.run_directory.header import HEADER, read_header
from securebench.results.summary import RunEnd
from securebench.strict_input.models import WireModel
from securebench.tester_run.worker import work
from tester_run.running import records, run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    from securebench.executors.base import Worker


class Settings(WireModel):
    """Settings of an executor."""

    queue: str = "default"


class Changing(Executor):
    """An executor that changes the results of workers."""

    settings_model = Settings
    change: ClassVar[Callable[[bytes], Iterable[bytes]]]
    seen: ClassVar[list[Any]] = []

    def __init__(self, workers: int, settings: Settings) -> None:
        super().__init__(workers)
        self.settings = settings

    def run(
        self,
        assignments: Iterable[bytes],
        worker: Worker,
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[bytes]:
        """See :meth:`Executor.run`."""
        self.seen.append((self.settings.queue, threading.current_thread()))
        for result in LocalExecutor(self.workers).run(assignments, worker, draining=draining, abandoned=abandoned):
            yield from type(self).change(result)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = dict(plugins._registered)
    plugins.register("executors", "changing", Changing)
    Changing.change = staticmethod(lambda result: [result])
    Changing.seen.clear()
    yield
    plugins._registered.clear()
    plugins._registered.update(before)


def choose(root: Path, lines: str) -> None:
    """Add lines to the section ``run`` of the tester YAML."""
    path = root / "tester.yaml"
    path.write_text(path.read_text().replace("  output_dir: results\n", f"  output_dir: results\n{lines}"))


def test_it_is_chosen_with_its_settings_and_recorded(tmp_path: Path) -> None:
    """The executor in ``run.executor`` is used and recorded, and a resume with another executor is refused."""
    write_run(tmp_path, 2)
    choose(tmp_path, "  executor: changing\n  executor_config: {queue: fast}\n")
    assert run(tmp_path).total.passed == 2
    assert [queue for queue, _ in Changing.seen] == ["fast"]
    header = read_header(tmp_path / "results")
    assert header is not None
    executor: Any = header.decisive["executor"]
    assert executor["extension"]["name"] == f"{__name__}:Changing"
    assert executor["config"]
    assert [record["provenance"]["executor"] for record in records(tmp_path)] == [executor, executor]
    with pytest.raises(ConfigError, match="executor"):
        run(tmp_path, resume=True, executor="local")


def test_an_option_replaces_it(tmp_path: Path) -> None:
    """``--executor`` overrides the tester YAML, and the built-in ``local`` executor is not recorded."""
    write_run(tmp_path, 1)
    choose(tmp_path, "  executor: changing\n")
    assert run(tmp_path, executor="local").total.passed == 1
    assert not Changing.seen
    assert "executor" not in records(tmp_path)[0]["provenance"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("  executor: fastest\n", "fastest"),
        ("  executor: changing\n  executor_config: {que: x}\n", "did you mean 'queue'"),
        ("  executor_config: {queue: x}\n", "queue"),
    ],
)
def test_names_and_settings_are_strict(tmp_path: Path, lines: str, message: str) -> None:
    """An unknown name or setting is an error of the tester YAML."""
    write_run(tmp_path, 1)
    choose(tmp_path, lines)
    with pytest.raises(ConfigError, match=message):
        run(tmp_path)


def test_an_unknown_name_is_wrong_usage(tmp_path: Path) -> None:
    """An unknown ``--executor`` is a usage error, and the message lists the known names."""
    write_run(tmp_path, 1)
    done = CliRunner().invoke(run_command.command, [str(tmp_path / "tester.yaml"), "--executor", "fastest"])
    assert done.exit_code == 2
    assert "'fastest' is not one of local, ray, changing" in done.output


def other_task(result: bytes) -> list[bytes]:
    """Return ``result`` as the record of a task that was not assigned."""
    return [result.replace(b"pack/task-", b"pack/tusk-")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: [b"{}"], "not a record"),
        (lambda _: [b"\xff"], "not a record"),
        (lambda result: [result.replace(b'"passed": true', b'"passed": false')], "not a record"),
        (lambda result: [result, result], "unexpected record"),
        (other_task, "unexpected record"),
        (lambda result: [result.replace(b'"run_id": "run"', b'"run_id": "other"')], "unexpected record"),
        (lambda _: [], "no result for 3 trials"),
    ],
)
def test_what_is_no_record_of_the_run_stops_it(
    tmp_path: Path, change: Callable[[bytes], Iterable[bytes]], message: str
) -> None:
    """An invalid, unexpected or missing result stops the run with a message, and no such result reaches the journal."""
    write_run(tmp_path, 3)
    Changing.change = staticmethod(change)
    summary = run(tmp_path, executor="changing")
    assert summary.ending is RunEnd.STOPPED
    assert message in summary.problems[0]
    assert "executor-failed" in summary.problems[0]
    assert len(records(tmp_path)) <= 1
    Changing.change = staticmethod(lambda result: [result])
    assert run(tmp_path, executor="changing", resume=True).total.passed == 3


def test_an_empty_result_is_no_record(tmp_path: Path) -> None:
    """An empty result counts as a missing one. Workers return one only after a stop, and this run was not stopped."""
    write_run(tmp_path, 1)
    Changing.change = staticmethod(lambda _: [b""])
    summary = run(tmp_path, executor="changing")
    assert "no result for 1 trial" in summary.problems[0]


def test_an_assignment_of_other_settings_is_refused(tmp_path: Path) -> None:
    """A worker refuses an assignment whose settings differ from those of its run."""
    write_run(tmp_path, 1)
    refused: list[str] = []

    class Mixing(LocalExecutor):
        def run(self, assignments: Iterable[bytes], worker: Worker, **flags: Any) -> Generator[bytes]:
            for assignment in assignments:
                with pytest.raises(ValueError, match="different settings") as error:
                    worker(assignment.replace(b'"run": "', b'"run": "f'))
                refused.append(str(error.value))
                yield worker(assignment)

    plugins.register("executors", "mixing", Mixing)
    assert run(tmp_path, executor="mixing").total.passed == 1
    assert len(refused) == 1


def test_an_entry_needs_its_run(tmp_path: Path) -> None:
    """A worker in a process that cannot find the header of the run fails before it executes a task."""
    write_run(tmp_path, 1)
    header, codes, begun = tmp_path / "results" / HEADER, list[str | None](), list[str]()

    def note(point: FaultPoint, subject: str) -> None:
        if point is FaultPoint.TASK_STARTED:
            begun.append(subject)

    class Hiding(LocalExecutor):
        def run(self, assignments: Iterable[bytes], worker: Worker, **flags: Any) -> Generator[bytes]:
            for assignment in assignments:
                header.rename(tmp_path / "hidden")
                with hooked(note), pytest.raises(ConfigError) as missing:
                    work(worker.settings, assignment)
                (tmp_path / "hidden").rename(header)
                codes.append(missing.value.code)
                yield worker(assignment)

    plugins.register("executors", "hiding", Hiding)
    assert run(tmp_path, executor="hiding").total.passed == 1
    assert (codes, begun) == (["output-dir-unusable"], [])
