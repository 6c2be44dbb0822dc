"""Tasks, a scripted driver and a bench that runs a harness on a task, for tests of harnesses."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from forbidden_tools import no_tools  # noqa: F401 - a fixture
from harnesses import repository
from layered_image import add_layered_image
from securebench.candidates.store import CandidateStore
from securebench.fs.rmtree import remove_tree
from securebench.harnesses.base import ProduceContext
from securebench.harnesses.command import CommandHarnessProducer
from securebench.images.engine_images import load_into_engine
from securebench.progress import Event, EventKind, Reporter
from securebench.resources import FileReference, Resource, ResourceBundle, ResourceKind, Visibility
from securebench.sandboxes.base import MIB, Limits
from securebench.sandboxes.docker.driver import DockerDriver
from securebench.tasks import AgentView, AssetRoot, CandidateKind, Environment
from securebench.tester_config import CommandConfig
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.trials import TrialId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from securebench.engine.client import Engine
    from securebench.harnesses.base import AgentResult
    from securebench.images.store.image_store import ImageStore
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import SandboxDriver

VIEW = AgentView(
    task_id="pack/task-1",
    family="short_answer",
    candidate_kind=CandidateKind.TEXT,
    resources=ResourceBundle((Resource("question", "What?", Visibility.PUBLIC),)),
    environment=Environment(),
)
WORKSPACE_VIEW = replace(
    VIEW,
    family="terminal_task",
    candidate_kind=CandidateKind.WORKSPACE,
    environment=Environment(workdir="/app"),
)
PATCH_VIEW = replace(
    VIEW,
    family="repo_patch",
    candidate_kind=CandidateKind.PATCH,
    environment=Environment(workdir=repository.WORKDIR),
)

NEVER_OF_GVISOR = ("fifo", "unix_socket")
"""Traps that never reach the host with gVisor: FIFOs and sockets exist only in its own kernel. Nothing in the
workspace on the host is then refused."""


def with_assets(view: AgentView, root: Path, *files: FileReference) -> AgentView:
    """Return ``view`` with ``files`` as assets below ``root``."""
    raw: list[JsonValue] = [file.path for file in files]
    assets = Resource("assets", raw, Visibility.PUBLIC, ResourceKind.ASSETS, files)
    return replace(view, resources=ResourceBundle((*view.resources, assets)), assets=AssetRoot(root))


@dataclass
class Bench:
    """What a harness needs to run a task, and the events that it reported."""

    driver: SandboxDriver
    root: Path
    limits: Limits = field(default_factory=lambda: Limits(output=4 * MIB))
    environment: Mapping[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        """The workspace on the host."""
        return self.root / "workspaces" / "task-1"

    @property
    def is_gvisor(self) -> bool:
        """Whether the driver's sandboxes run in gVisor, which has its own kernel."""
        return self.driver.info().runtime == "runsc"

    @property
    def store(self) -> CandidateStore:
        """The store of candidates."""
        return CandidateStore(self.root / "candidates")

    def context(self) -> ProduceContext:
        """Return the context that a harness gets for a task."""
        return ProduceContext(
            driver=self.driver,
            store=self.store,
            workspace=self.workspace,
            report=Reporter([self.events.append], trial=TrialId("pack/task-1")),
            limits=self.limits,
            environment=self.environment,
            labels={"securebench.test": "yes"},
        )

    def produce(self, view: AgentView = VIEW, **config: object) -> AgentResult:
        """Run the command harness with ``config`` (default: the program ``agent``)."""
        settings: dict[str, object] = {"command": ("agent",), "timeout_seconds": 30.0, **config}
        harness = CommandHarnessProducer(CommandConfig(**settings))  # type: ignore[arg-type]  # keywords of the test
        return harness.produce(view, self.context())

    def agent_output(self) -> list[tuple[JsonValue, JsonValue]]:
        """Return the stream and the text of each ``agent_output`` event."""
        found = [event for event in self.events if event.kind is EventKind.AGENT_OUTPUT]
        return [(event.data["stream"], event.data["text"]) for event in found]


@pytest.fixture
def scripted() -> ScriptedDriver:
    """Return a scripted driver."""
    return ScriptedDriver()


@pytest.fixture
def bench(scripted: ScriptedDriver, tmp_path: Path) -> Iterator[Bench]:
    """Yield a bench with the scripted driver, and remove its workspace after the test."""
    bench = Bench(scripted, tmp_path)
    yield bench
    remove_tree(bench.workspace)


@pytest.fixture(scope="session")
def _repository_image(store: ImageStore, doomed_images: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Add an image with a repository to the store, and return the image's name."""
    reference = f"securebench-tests/repository:{os.getpid()}"
    root = tmp_path_factory.mktemp("repository")
    repository.make_repository(root)
    add_layered_image(store, reference, *repository.image_parts(root / ".git"), workdir=repository.WORKDIR)
    doomed_images.append(reference)
    return reference


@pytest.fixture(scope="session")
def repository_in_engine(engine: Engine, store: ImageStore, _repository_image: str) -> Iterator[AgentView]:
    """Load the image with a repository into the engine, and yield a task in that image."""
    load_into_engine(engine, store, _repository_image, lambda _line: None)
    yield replace(PATCH_VIEW, environment=replace(PATCH_VIEW.environment, image=_repository_image))
    engine.client.remove_image(_repository_image, force=True)


@pytest.fixture
def repository_view(driver: SandboxDriver, _repository_image: str, request: pytest.FixtureRequest) -> AgentView:
    """Return a task in the image with a repository. Load the image into the engine if the driver needs it there."""
    if isinstance(driver, DockerDriver):
        request.getfixturevalue("repository_in_engine")
    return replace(PATCH_VIEW, environment=replace(PATCH_VIEW.environment, image=_repository_image))
