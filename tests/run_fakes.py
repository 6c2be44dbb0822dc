"""A configurable fake harness and verifier, and the context of a run with fakes."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.candidates.store import CandidateStore
from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import CandidateError, FailurePhase, FailureReason
from securebench.execution import TaskContext
from securebench.execution.removal import Removals
from securebench.fs.rmtree import make_private_directory
from securebench.harnesses.base import AgentResult, HarnessProducer, ProduceContext, RunContext
from securebench.plugins import Identity
from securebench.progress import Event, Reporter
from securebench.resources import Resource, ResourceBundle, Visibility
from securebench.results.records.commitment import Commitment
from securebench.sandboxes.base import Limits
from securebench.tasks import AgentView, CandidateKind, SecureBenchTask, VerifierView
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.verifiers.base import VerificationResult, Verifier, VerifyContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.errors import Problem
    from securebench.resources import JsonValue
    from securebench.tester_config import PriceTable

HIDDEN = "the-hidden-answer"
TESTS = "assert the_hidden_test()"
FAKE = Identity("fake", "", "", "0" * 64)


def make_task(task_id: str = "pack/one", family: str = "short_answer") -> SecureBenchTask:
    """Return a task with a resource in every lane."""
    resources = (
        Resource("question", "What?", Visibility.PUBLIC),
        Resource("tests", {"code": TESTS}, Visibility.EVALUATION_INPUTS),
        Resource("answer", HIDDEN, Visibility.HIDDEN),
    )
    return SecureBenchTask(task_id, "pack", family, ResourceBundle(resources), row_digest="row", public_digest="public")


@dataclass
class FakeProducer(HarnessProducer):
    """A harness that seals ``answer`` and reports ``trajectory``.

    ``hook`` is called first, with the number of the call; a result that it returns is used instead. ``agent`` is the
    agent's identity, ``keys`` are the harness's credentials, and a harness that ``has_egress`` needs a gateway.
    ``use_prices`` returns ``cost_fault``. The arguments of calls are kept in ``views``, ``tables`` and ``prepared``.
    """

    name = "fake"
    answer: str = "right"
    hook: Callable[[int, AgentView, ProduceContext], AgentResult | None] = lambda *_: None
    views: list[AgentView] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    agent: Mapping[str, JsonValue] = field(default_factory=dict)
    has_egress: bool = False
    keys: tuple[str, ...] = ()
    trajectory: str = ""
    cost_fault: Problem | None = None
    tables: list[PriceTable | None] = field(default_factory=list)
    prepared: list[RunContext] = field(default_factory=list)

    def identity(self) -> Identity:
        """Return the same identity for every fake: the code of fakes is not under test."""
        return FAKE

    @property
    def needs_gateway(self) -> bool:
        """Whether the harness needs a gateway: the value of ``has_egress``."""
        return self.has_egress

    @property
    def credentials(self) -> tuple[str, ...]:
        """The secrets of the harness: the value of ``keys``."""
        return self.keys

    def use_prices(self, table: PriceTable | None) -> Problem | None:
        """Keep ``table``, and return ``cost_fault``."""
        self.tables.append(table)
        return self.cost_fault

    def prepare(self, run: RunContext) -> Mapping[str, JsonValue]:
        """Keep ``run``, and return the identity ``agent``."""
        self.prepared.append(run)
        return self.agent

    def produce(self, view: AgentView, context: ProduceContext) -> AgentResult:
        """Return the result of ``hook``, or a result with the sealed answer if that is ``None``."""
        with self.lock:
            self.views.append(view)
            number = len(self.views)
        agent_result = self.hook(number, view, context)
        if agent_result is not None:
            return agent_result
        return AgentResult(
            candidate=seal(context.store, self.answer),
            stdout=f"{self.answer}\n",
            metadata={"usage": {"tokens": 7}},
            trajectory=self.trajectory,
        )


@dataclass
class FakeVerifier(Verifier):
    """A verifier that passes only the text ``right``.

    ``hook`` is called first, with the number of the call; a verdict that it returns is used instead. ``check_task``
    raises ``check``. The candidates' texts and the views are kept in ``judged`` and ``views``.
    """

    family = "short_answer"
    version = "1"
    hook: Callable[[int, VerifierView, VerifyContext], VerificationResult | None] = lambda *_: None
    judged: list[str | None] = field(default_factory=list)
    views: list[VerifierView] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    check: Exception | None = None

    def identity(self) -> Identity:
        """Return the same identity for every fake: the code of fakes is not under test."""
        return FAKE

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:
        """Raise ``check``, unless it is ``None``."""
        if self.check is not None:
            raise self.check

    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Return the verdict of ``hook``, or the verdict on the text if that is ``None``."""
        with self.lock:
            self.judged.append(candidate.text)
            self.views.append(view)
            number = len(self.views)
        verdict = self.hook(number, view, context)
        if verdict is not None:
            return verdict
        reason = None if candidate.text == "right" else FailureReason.WRONG_ANSWER
        metadata = {"verifier": self.family, "version": self.version, "phase": "verify"}
        return VerificationResult(reason=reason, message="" if reason is None else "not right", metadata=metadata)


@dataclass
class Sink:
    """An event sink that keeps every event."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Keep the event."""
        self.events.append(event)

    def kinds(self, task_id: str | None = None) -> list[str]:
        """Return the kinds of the events of one task, or of all tasks."""
        return [event.kind.value for event in self.events if task_id in {None, event.task_id}]

    def counts(self) -> Counter[str]:
        """Return the number of events of each kind."""
        return Counter(self.kinds())


def seal(store: CandidateStore, text: str) -> CandidateArtifact:
    """Seal a text, and return the candidate."""
    return store.seal_bytes(CandidateKind.TEXT, text.encode(), text)


def agent_failure(store: CandidateStore | None = None) -> AgentResult:
    """Return the result of an agent that crashed. It has a candidate if a store is given."""
    failure = CandidateError(FailureReason.AGENT_EXIT, "the agent exited with 1", phase=FailurePhase.PRODUCE)
    return AgentResult(candidate=seal(store, "right") if store else None, failure=failure)


def make_context(root: Path, sink: Sink | None = None, **changes: Any) -> TaskContext:
    """Return the context of a run in ``root`` with fakes. ``changes`` replace its fields."""
    for name in ("workspaces", "scratch"):
        make_private_directory(root / name)
    verifier = changes.pop("verifier", FakeVerifier())
    fields: dict[str, Any] = {
        "run_id": "run",
        "producer": FakeProducer(),
        "verifier_for": {"short_answer": verifier}.get,
        "driver": ScriptedDriver(),
        "store": CandidateStore(root / "candidates"),
        "workspaces": root / "workspaces",
        "scratch": root / "scratch",
        "trajectories": root / "trajectories",
        "report": Reporter([sink] if sink else []),
        "limits": Limits(),
        "policy": VerificationPolicy(),
        "provenance": {"pack": "digest"},
        "commitment": Commitment(b"k" * 32),
        "removals": Removals(root / "scratch"),
    }
    return TaskContext(**{**fields, **changes})
