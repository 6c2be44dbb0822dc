"""The pipeline that all harnesses share: from an agent's view of a task to a sealed candidate.

::

    plan the files ─ make a fresh workspace ─ write the files ─ run the agent ─ remove the sandbox ─ check assets ─ seal

A harness only defines how its agent is invoked (:class:`Invocation`). The agent's sandbox is ephemeral: when its
command exits, all other processes in it are killed, and only then is the workspace read. Agent failures become typed
failures; the candidate is still sealed, if possible, as evidence.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from securebench.candidates.extraction import (
    MAX_CANDIDATE_BYTES,
    Sealed,
    seal_changes,
    seal_file,
    seal_output,
    seal_patch_file,
    seal_workspace,
)
from securebench.errors import CandidateError, FailurePhase, FailureReason, InfrastructureError, StorageError
from securebench.fs.rmtree import make_fresh_directory, make_private_directory
from securebench.fs.safe_open import TreeRefusedError
from securebench.harnesses.agent_session import AgentSession
from securebench.harnesses.base import AgentResult, HarnessProducer
from securebench.harnesses.output import OutputReporter, recorded
from securebench.harnesses.ownership import chown_workspace
from securebench.harnesses.place import ROOT, image_directory, place_of
from securebench.resources import Component
from securebench.sandboxes.base import BASE_ENVIRONMENT, Command, Mount, SandboxSpec, workspace_user
from securebench.sandboxes.collected import DirectoryReplacedError
from securebench.tasks import DEFAULT_IMAGE, CandidateKind
from securebench.workspaces.filling import fill
from securebench.workspaces.materialization import VisibilityAwareMaterializer, asset_digest
from securebench.workspaces.path_policy import DEFAULT_TASK_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from securebench.harnesses.agent_session import SessionEnd
    from securebench.harnesses.base import ProduceContext
    from securebench.harnesses.place import WorkPlace
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult, Sandbox
    from securebench.tasks import AgentView
    from securebench.workspaces.filling import Filled
    from securebench.workspaces.image_tree import HostTree
    from securebench.workspaces.materialization import MaterializationPlan, MaterializedAsset

TASK_FILE_VARIABLE = "SECUREBENCH_TASK_FILE"
"""Holds the absolute path of the task file, inside the sandbox."""

_MATERIALIZER = VisibilityAwareMaterializer(Component.AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How to run an agent on one task. ``artifact_path`` is the workspace file with its answer; by default, stdout.

    ``home`` is mounted as an empty tmpfs for the agent's home; the default is ``/tmp``, also a tmpfs.
    """

    argv: tuple[str, ...]
    timeout_seconds: float
    artifact_path: str | None = None
    task_file: str = DEFAULT_TASK_FILE
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    home: str | None = None


class Harness(HarnessProducer):
    """A harness that runs one command in a sandbox with the workspace in it.

    A subclass defines how its agent is invoked (:meth:`invocation`); the rest is the same for all.
    """

    @abstractmethod
    def invocation(self, view: AgentView) -> Invocation:
        """Return how to run the agent on this task. Pure."""

    def open_session(self, view: AgentView, context: ProduceContext) -> AgentSession:
        """Return the agent session of this task: it provides egress and parses the agent's events."""
        del view, context
        return AgentSession()

    def produce(self, view: AgentView, context: ProduceContext) -> AgentResult:
        """See :meth:`HarnessProducer.produce`."""
        started = time.monotonic()
        invocation = self.invocation(view)
        plan = plan_workspace(view, invocation.task_file)
        image = context.driver.resolve_image(view.environment.image or DEFAULT_IMAGE)
        place = place_of(view, image)
        with image_directory(place, context.driver, image) as tree, self.open_session(view, context) as agent_session:
            assets, filled = _prepare_workspace(plan, place, context, image, tree)
            spec = _agent_spec(place, invocation, context, image, assets, agent_session)
            work = _Work(view, invocation, context, tree)
            try:
                result = work.run(spec, agent_session)
                if place.is_changed and context.driver.info().foreign_files:
                    chown_workspace(context, image)
                with _reading(context.workspace):
                    sealed = work.sealed or _seal(work, result)
                    failure = _agent_failure(result, invocation) or _tampering(view, context.workspace, assets)
            except StorageError:
                raise
            except InfrastructureError as error:
                return self._void(agent_session.void(error), image, started)
            ending = agent_session.end(result, None if sealed.failure else sealed.candidate, failure)
        return AgentResult(
            candidate=None if ending.fault else sealed.candidate,
            failure=None if ending.fault else ending.failure or sealed.failure,
            fault=ending.fault,
            stdout=recorded(result.stdout) if ending.stdout is None else ending.stdout,
            stderr=recorded(result.stderr),
            metadata={
                **self._metadata(invocation, result, None if ending.failure is None else sealed.failure),
                **({"ignored": dict(work.ignored)} if work.sealed else {}),
                **({} if filled is None else {"from_image": {"files": filled.entries, "bytes": filled.size}}),
                **ending.metadata,
            },
            trajectory=ending.trajectory,
            image_id=image.id,
            duration_seconds=time.monotonic() - started,
        )

    def _void(self, ending: SessionEnd, image: ResolvedImage, started: float) -> AgentResult:
        """Return the result of an agent that an infrastructure failure ended: its usage and no candidate."""
        return AgentResult(
            candidate=None,
            fault=ending.fault,
            stdout=ending.stdout or "",
            metadata={"harness": self.name, **ending.metadata},
            trajectory=ending.trajectory,
            image_id=image.id,
            duration_seconds=time.monotonic() - started,
        )

    def _metadata(
        self, invocation: Invocation, result: CommandResult, seal_failure: CandidateError | None
    ) -> dict[str, JsonValue]:
        """Return the record's metadata. ``seal_failure`` is why nothing was sealed, if the failure is another one."""
        metadata: dict[str, JsonValue] = {
            "harness": self.name,
            "exit_code": result.exit_code,
            "timeout_seconds": invocation.timeout_seconds,
            "stdout_truncated": result.stdout_truncated,
            "stderr_truncated": result.stderr_truncated,
        }
        if seal_failure is not None:
            metadata["seal_failure"] = {"reason": seal_failure.reason.value, "message": seal_failure.message}
        return metadata


def plan_workspace(view: AgentView, task_file: str = DEFAULT_TASK_FILE) -> MaterializationPlan:
    """Plan where to put the agent's files. Pure.

    Raises :class:`PathPolicyError` for unsafe or colliding paths.
    """
    return _MATERIALIZER.plan(view.resources, public_assets=view.assets, task_file=task_file)


def _prepare_workspace(
    plan: MaterializationPlan, place: WorkPlace, context: ProduceContext, image: ResolvedImage, tree: HostTree | None
) -> tuple[tuple[MaterializedAsset, ...], Filled | None]:
    """Make a fresh workspace in a private directory and write its files, owned by the sandbox user.

    If that user is the container's root, it may be unprivileged on the host. The workspace is therefore
    world-writable; the private parent directory keeps other host users out.
    """
    workspace, is_open = context.workspace, place.user == ROOT
    owner = workspace_user() if os.getuid() == 0 else None
    make_private_directory(workspace.parent)
    try:
        make_fresh_directory(workspace, owner)
    except StorageError as error:
        if error.code != "workspace-stuck" or not is_open:
            raise
        chown_workspace(context, image)  # a killed run may have left files owned by root
        make_fresh_directory(workspace, owner)
    if is_open:
        workspace.chmod(0o777)
    filled = fill(workspace, tree, owner) if tree is not None and not place.is_changed else None
    return _MATERIALIZER.materialize(plan, workspace, owner, everybody=is_open), filled


def _agent_spec(
    place: WorkPlace,
    invocation: Invocation,
    context: ProduceContext,
    image: ResolvedImage,
    assets: tuple[MaterializedAsset, ...],
    agent_session: AgentSession,
) -> SandboxSpec:
    workspace, target = context.workspace.resolve(), place.workspace  # no symlinks in a mount's source
    home = invocation.home or BASE_ENVIRONMENT["HOME"]
    read_only = (Mount(workspace / a.target, f"{target}/{a.target}") for a in assets if a.read_only)
    return SandboxSpec(
        image=image,
        limits=context.limits,
        mounts=(Mount(workspace, target, read_only=False), *read_only, *invocation.mounts),
        environment={
            **BASE_ENVIRONMENT,
            **image.environment,  # the agent runs in the benchmark's own environment; a verifier never does
            "HOME": home,
            **context.environment,
            **invocation.environment,
            **agent_session.environment,
            TASK_FILE_VARIABLE: f"{target}/{invocation.task_file}",
        },
        workdir=place.workdir,
        user=place.user,
        read_only=not place.is_changed,
        tmpfs=tuple(dict.fromkeys((BASE_ENVIRONMENT["HOME"], home))),
        forwarded_ports=agent_session.forwarded_ports,
        collect=place.image_directory if place.is_changed and invocation.artifact_path is None else None,
        labels=context.labels,
    )


@dataclass(slots=True)
class _Work:
    """One agent's work on one task. A patch is sealed before the stopped sandbox is removed, into ``sealed``."""

    view: AgentView
    invocation: Invocation
    context: ProduceContext
    tree: HostTree | None
    sealed: Sealed | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)

    def run(self, spec: SandboxSpec, agent_session: AgentSession) -> CommandResult:
        """Run the agent until it exits. When this returns, none of its processes is left."""
        invocation = self.invocation
        command = Command(argv=invocation.argv, timeout_seconds=invocation.timeout_seconds, capture=MAX_CANDIDATE_BYTES)
        output = OutputReporter(self.context.report)

        def take(chunk: Chunk) -> None:
            output(chunk)
            agent_session.on_output(chunk)

        with self.context.driver.create(spec) as sandbox:
            agent_session.start(sandbox)
            result = sandbox.run(command, take)
            if spec.collect is not None:
                self._seal_changes(sandbox)
        output.finish()
        return result

    def _seal_changes(self, sandbox: Sandbox) -> None:
        assert self.tree is not None
        try:
            with _reading(self.context.workspace):
                self.sealed, self.ignored = seal_changes(self.context.store, sandbox.collected(), self.tree)
        except DirectoryReplacedError as failure:
            self.sealed = Sealed(None, failure)


def _agent_failure(result: CommandResult, invocation: Invocation) -> CandidateError | None:
    if result.timed_out:
        message = f"the agent did not finish within {invocation.timeout_seconds:g} seconds"
        return _failure(FailureReason.AGENT_TIMEOUT, message)
    if result.out_of_memory:
        return _failure(FailureReason.AGENT_OUT_OF_MEMORY, "the agent used more memory than its sandbox allows")
    if result.output_limit_exceeded:
        return _failure(FailureReason.AGENT_OUTPUT_LIMIT, "the agent wrote more output than its sandbox allows")
    if result.exit_code != 0:
        return _failure(FailureReason.AGENT_EXIT, f"the agent exited with status {result.exit_code}")
    return None


def _failure(reason: FailureReason, message: str) -> CandidateError:
    return CandidateError(reason, message, phase=FailurePhase.PRODUCE)


def _tampering(view: AgentView, workspace: Path, assets: tuple[MaterializedAsset, ...]) -> CandidateError | None:
    """Return a failure if the agent replaced a read-only asset, which it can do by renaming a parent directory."""
    if view.candidate_kind is not CandidateKind.WORKSPACE:
        return None
    changed = [asset.target for asset in assets if asset.read_only and not _is_unchanged(workspace, asset)]
    if not changed:
        return None
    message = f"read-only assets were replaced: {', '.join(changed)}"
    return CandidateError(FailureReason.TAMPERED, message, phase=FailurePhase.SEAL)


def _is_unchanged(workspace: Path, asset: MaterializedAsset) -> bool:
    try:
        return asset_digest(workspace, asset.target) == asset.digest
    except TreeRefusedError:
        return False


def _seal(work: _Work, result: CommandResult) -> Sealed:
    kind, context, path = work.view.candidate_kind, work.context, work.invocation.artifact_path
    if kind is CandidateKind.WORKSPACE:
        return seal_workspace(context.store, kind, context.workspace)
    if path is None:
        return seal_output(context.store, kind, result.stdout, truncated=result.stdout_truncated)
    if work.tree is not None:
        return seal_patch_file(context.store, context.workspace, path, work.tree)
    return seal_file(context.store, kind, context.workspace, path)


@contextmanager
def _reading(workspace: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read the workspace {workspace}: {error.strerror or error}") from error
