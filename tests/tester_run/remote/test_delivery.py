"""Deliveries of workers on other machines: what belongs to the record is stored, and anything else is refused."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from run_fakes import FakeProducer
from securebench.candidates.extraction import seal_output
from securebench.candidates.store import CandidateStore
from securebench.executors.base import DeliveryError
from securebench.harnesses.base import AgentResult
from securebench.results.run_directory.files import JOURNAL
from securebench.tasks import CandidateKind
from securebench.tester_run.remote import delivery
from securebench.tester_run.remote.delivery import Receiver, Sent, egress_lines, trajectories_of
from securebench.trials import TrialId
from tester_run.running import make_parts, run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.harnesses.base import ProduceContext
    from securebench.tasks import AgentView

TRIAL = TrialId("pack/task-0", 1)
DECISION = json.dumps({"task_id": TRIAL.task_id, "trial": 1, "kind": "connect", "decision": "denied"}).encode()


class Received:
    """A coordinator with its own directory, and the delivery of one worker, whose pieces tests can change."""

    def __init__(self, root: Path, producer: FakeProducer | None = None) -> None:
        write_run(root, 1)
        run(root, parts=make_parts(producer or FakeProducer(trajectory='{"step": 1}')))
        self.results, self.root = root / "results", root / "coordinator"
        self.record = (self.results / JOURNAL).read_bytes()
        self.digest = json.loads(self.record)["candidate_digest"]
        self.problems: list[str] = []
        self.logged: list[Any] = []
        context: Any = SimpleNamespace(
            run_id="run",
            store=CandidateStore(self.root / "candidates"),
            trajectories=self.root / "trajectories",
            verifier_output=self.root / "verifier-output",
            show_verifier_output=None,
            note_problem=self.problems.append,
        )
        self.receiver = Receiver(context=context, log_egress=self.logged.append)

    def sent(self) -> list[bytes]:
        """Return the pieces of a valid delivery."""
        sent = Sent(
            record=self.record,
            candidate=self.results / "candidates" / self.digest,
            trajectories=trajectories_of(self.record, self.results),
            output="$ check (exit 0)\n",
            egress=[DECISION],
            problems=["the pack changed"],
        )
        return list(sent.pieces())

    def receive(self, pieces: list[bytes]) -> bytes:
        """Let the coordinator receive a delivery of the first attempt, and return the record."""
        return self.receiver.receive(pieces, TRIAL, 1, CandidateKind.TEXT)

    def files(self) -> list[str]:
        """Return the files that the coordinator stored."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())


@pytest.fixture
def received(tmp_path: Path) -> Received:
    """Return a coordinator and the delivery of a worker."""
    return Received(tmp_path)


def test_a_record_and_its_files_are_stored(received: Received) -> None:
    """The coordinator stores the files of a delivery under the same names as a local run."""
    assert received.receive(received.sent()) == received.record
    name = TRIAL.directory
    assert received.files() == [
        f"candidates/{received.digest}",
        f"trajectories/{name}.jsonl",
        f"verifier-output/{name}.log",
    ]
    assert received.problems == ["the pack changed"]
    assert received.logged == [json.loads(DECISION)]


def test_output_that_is_not_text_is_a_candidate_like_any_other(tmp_path: Path) -> None:
    """Output that is not UTF-8 is stored like any candidate. It causes a failure, and no delivery error."""

    def produce(_number: int, _view: AgentView, context: ProduceContext) -> AgentResult:
        sealed = seal_output(context.store, CandidateKind.TEXT, b"\xffhi", truncated=False)
        return AgentResult(candidate=sealed.candidate, failure=sealed.failure, stdout="")

    received = Received(tmp_path, FakeProducer(hook=produce))
    assert json.loads(received.receive(received.sent()))["failure_reason"] == "candidate_not_text"
    assert (received.root / "candidates" / received.digest).read_bytes() == b"\xffhi"


def test_a_stopped_worker_returns_nothing(received: Received) -> None:
    """An empty delivery means that the worker was stopped. It is not an error."""
    assert received.receive([]) == b""


def changed(pieces: list[bytes], part: bytes, change: bytes | None) -> list[bytes]:
    """Return ``pieces`` in which ``part`` is replaced by one piece with the content ``change``.

    If ``change`` is ``None``, ``part`` is left out.
    """
    kept = [piece for piece in pieces if piece[:1] != part]
    place = next(number for number, piece in enumerate(pieces) if piece[:1] == part)
    return kept if change is None else [*kept[:place], part + change, *kept[place:]]


@pytest.mark.parametrize(
    ("part", "change", "stored"),
    [
        (b"R", b"{}", []),
        (b"R", b"\xff", []),
        (b"C", b"another answer", []),
        (b"C", None, []),
        (b"T", b"../run.json\n{}", ["candidates"]),
        (b"T", TRIAL.directory.encode() + b".jsonl\n{}", ["candidates"]),
        (b"O", b"o" * 10_000_000, ["candidates", "trajectories"]),
        (b"E", b"[]", ["candidates", "trajectories", "verifier-output"]),
        (b"E", b"{", ["candidates", "trajectories", "verifier-output"]),
        (b"E", b'{"task_id": "pack/task-1", "trial": 1}', ["candidates", "trajectories", "verifier-output"]),
        (b"P", b"p" * 100_000, ["candidates", "trajectories", "verifier-output"]),
    ],
)
def test_what_does_not_belong_to_the_record_is_refused(
    received: Received, part: bytes, change: bytes | None, stored: list[str]
) -> None:
    """Altered, missing or too much content, other file names, and log lines about other tasks are refused.

    Only the valid files that precede the wrong part in the delivery are stored.
    """
    with pytest.raises(DeliveryError):
        received.receive(changed(received.sent(), part, change))
    assert [name.partition("/")[0] for name in received.files()] == stored
    assert received.problems == []
    assert len(received.logged) == (1 if part == b"P" else 0)


@pytest.mark.parametrize("extra", [b"", b"X", b"C", b"R{}"])
def test_nothing_may_follow(received: Received, extra: bytes) -> None:
    """A delivery with data after its last part is refused."""
    with pytest.raises(DeliveryError):
        received.receive([*received.sent(), extra])


def test_another_trial_is_refused(received: Received) -> None:
    """A record of another trial than the one that the worker was asked for is refused."""
    with pytest.raises(DeliveryError, match=r"the record of trial pack/task-0 instead of pack/task-0 \(trial 2\)"):
        received.receiver.receive(received.sent(), TrialId("pack/task-0", 2), 1, CandidateKind.TEXT)


def test_a_different_run_is_refused(received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record with another run id than the coordinator's is refused."""
    monkeypatch.setattr(received.receiver.context, "run_id", "other")
    with pytest.raises(DeliveryError, match="a record of pack/task-0 from a different run"):
        received.receiver.receive(received.sent(), TRIAL, 1, CandidateKind.TEXT)


def test_an_earlier_attempt_keeps_its_trajectory(received: Received) -> None:
    """A delivery for the second attempt cannot contain the trajectory of the first attempt."""
    with pytest.raises(DeliveryError, match="trajectory"):
        received.receiver.receive(received.sent(), TRIAL, 2, CandidateKind.TEXT)
    assert not (received.root / "trajectories").exists()


def test_an_endless_candidate_is_cut_off(received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that is larger than the limit is refused, and no unfinished file is left."""
    monkeypatch.setattr(delivery, "_MAX_CANDIDATE", 10_000)
    record, *_ = received.sent()

    def endless() -> Any:
        yield record
        while True:
            yield b"C" + bytes(1000)

    with pytest.raises(DeliveryError, match=r"too much data \(limit: 10000 bytes\)"):
        received.receiver.receive(endless(), TRIAL, 1, CandidateKind.TEXT)
    assert not received.files()


def test_lines_of_the_log_are_sent_once(tmp_path: Path) -> None:
    """Reading the egress log from the end of the last task's lines returns only new lines."""
    path = tmp_path / "egress.jsonl"
    assert egress_lines(path, 0) == ([], 0)
    path.write_bytes(b"one\n")
    lines, end = egress_lines(path, 0)
    with path.open("ab") as file:
        file.write(b"two\n")
    assert (lines, egress_lines(path, end)) == ([b"one"], ([b"two"], 8))
