"""Judge workspaces like a run does, from Python values: a task, its hidden files and a tree that an agent left."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.candidates.store import CandidateStore
from securebench.dangerous_commands import VerificationPolicy
from securebench.progress import Reporter
from securebench.resources import Component, FileReference, Resource, ResourceBundle, ResourceKind, Visibility
from securebench.sandboxes.base import MIB, Limits
from securebench.tasks import AssetRoot, CandidateKind, Environment, VerifierView
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.terminal_task import TerminalTaskVerifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.progress import Event
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import SandboxDriver
    from securebench.verifiers.base import VerificationResult

LIMITS = Limits(memory=128 * MIB, output=MIB)
"""Small limits, so that a resource bomb reaches them at once."""

CHECK = "securebench/evaluation_inputs/check.py"
"""The path of the test file ``check.py`` in the sandbox of the checker, relative to the workspace."""


@dataclass(frozen=True)
class TreeLink:
    """A symbolic link in a tree."""

    target: str


Tree = dict[str, str | bytes | TreeLink | None]
"""Content by relative path. ``None`` is an empty directory. A file whose content begins with ``#!`` is executable."""


@dataclass
class WorkspaceJob:
    """A terminal task. ``files`` are the hidden files in ``eval.test_files``; ``public`` are read-only assets.

    ``evals`` and ``hidden`` are further fields of ``eval``, in the lanes ``evaluation_inputs`` and ``hidden``.
    """

    checker: Any = field(default_factory=lambda: {"command": ["python3", CHECK]})
    files: Mapping[str, str] = field(default_factory=dict)
    public: Mapping[str, str] = field(default_factory=dict)
    evals: Mapping[str, JsonValue] = field(default_factory=dict)
    hidden: Mapping[str, JsonValue] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    policy: VerificationPolicy = field(default_factory=VerificationPolicy)
    sinks: list[Callable[[Event], None]] = field(default_factory=list)
    limits: Limits = LIMITS

    def judge(self, driver: SandboxDriver, root: Path, tree: Tree) -> VerificationResult:
        """Seal ``tree`` as an agent's workspace, and return the verdict on it. ``root`` is an unused directory."""
        return self.judge_sealed(driver, root, sealed(root, tree))

    def judge_sealed(self, driver: SandboxDriver, root: Path, candidate: CandidateArtifact) -> VerificationResult:
        """Return the verdict on a candidate."""
        scratch = root / "scratch"
        scratch.mkdir(parents=True)
        context = VerifyContext(
            driver=driver, policy=self.policy, report=Reporter(self.sinks), limits=self.limits, scratch=scratch
        )
        return TerminalTaskVerifier().verify(self.view(root), candidate, context)

    def view(self, root: Path) -> VerifierView:
        """Write the files of the task below ``root``, and return the verifier's view of the task."""
        bundle = ResourceBundle(tuple(self._resources()))
        write_tree(root / "hidden", dict(self.files))
        write_tree(root / "assets", dict(self.public))
        return VerifierView(
            task_id="task",
            family="terminal_task",
            test_sandbox=bundle.visible_to(Component.TEST_SANDBOX),
            evaluator=bundle.visible_to(Component.EVALUATOR),
            environment=self.environment,
            public_assets=AssetRoot(root / "assets"),
            eval_assets=AssetRoot(root / "hidden"),
        )

    def _resources(self) -> list[Resource]:
        made = [
            Resource("instructions", "Do it.", Visibility.PUBLIC),
            Resource("checker", self.checker, Visibility.EVALUATION_INPUTS),
            *(Resource(name, value, Visibility.EVALUATION_INPUTS) for name, value in self.evals.items()),
            *(Resource(name, value, Visibility.HIDDEN) for name, value in self.hidden.items()),
        ]
        if self.files:
            made.append(_files("test_files", self.files, Visibility.EVALUATION_INPUTS))
        if self.public:
            made.append(_files("assets", self.public, Visibility.PUBLIC))
        return made


def sealed(root: Path, tree: Tree) -> CandidateArtifact:
    """Write ``tree`` below ``root``, seal it, and return the candidate."""
    workspace = root / "left"
    write_tree(workspace, tree)
    store = CandidateStore(root / "candidates")
    artifact: Any = store.seal_tree(CandidateKind.WORKSPACE, workspace)
    return store.load(CandidateKind.WORKSPACE, artifact.digest)


def write_tree(root: Path, tree: Mapping[str, str | bytes | TreeLink | None]) -> None:
    """Write ``tree`` below ``root``."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif isinstance(content, TreeLink):
            path.symlink_to(content.target)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            path.chmod(0o755 if path.read_bytes().startswith(b"#!") else 0o644)


def state_of(root: Path) -> dict[str, bytes]:
    """Return every file below ``root`` with its content."""
    return {
        os.path.relpath(Path(directory) / name, root): (Path(directory) / name).read_bytes()
        for directory, _, names in os.walk(root)
        for name in names
    }


def _files(name: str, files: Mapping[str, str], lane: Visibility) -> Resource:
    references = tuple(FileReference(path) for path in files)
    kind = ResourceKind.ASSETS if lane is Visibility.PUBLIC else ResourceKind.FILE
    return Resource(name, [{"path": path} for path in files], lane, kind, references)
