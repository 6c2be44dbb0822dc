"""The pipeline that all harnesses share: from an agent's view of a task to a sealed candidate.

::

    plan the files ─ make a fresh workspace ─ write the files ─ run the agent ─ remove the sandbox ─ seal ─ check assets

A harness defines how its agent is invoked (:class:`Invocation`). The agent's sandbox is ephemeral: when its
command exits, all other processes in it are killed, and only then is the workspace read. Changes to a repository are
sealed just before the sandbox is removed. If the agent fails, the reason is recorded, and the candidate is still
sealed, if possible, as evidence.
"""

from __future__ import annotations

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
from securebench.errors import (
    CandidateError,
    FailurePhase,
    FailureReason,
    InfrastructureError,
    MaterializationError,
    StorageError,
)
from securebench.fs.rmtree import make_fresh_directory, make_private_directory, remove_tree
from securebench.fs.safe_open import TreeRefusedError
from securebench.harnesses.agent_session import AgentSession, OutputReporter, recorded
from securebench.harnesses.base import AgentResult, HarnessProducer
from securebench.harnesses.ownership import chown_workspace
from securebench.resources import Component
from securebench.sandboxes.base import BASE_ENVIRONMENT, ROOT_USER, Command, Mount, SandboxSpec, workspace_user
from securebench.sandboxes.collected import DirectoryReplacedError
from securebench.tasks import DEFAULT_IMAGE, WORKSPACE_TARGET, CandidateKind
from securebench.workspaces.bounded import WritableDirectory, copy_safe_files, workspace_owner, writable_directory
from securebench.workspaces.filling import fill
from securebench.workspaces.image_tree import HostTree
from securebench.workspaces.materialization import VisibilityAwareMaterializer, asset_digest
from securebench.workspaces.path_policy import DEFAULT_TASK_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from securebench.harnesses.agent_session import SessionEnd
    from securebench.harnesses.base import ProduceContext
    from securebench.images.model import ResolvedImage
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Chunk, CommandResult, Sandbox, SandboxDriver
    from securebench.tasks import AgentView, SecureBenchTask
    from securebench.workspaces.filling import Filled
    from securebench.workspaces.materialization import MaterializationPlan, MaterializedAsset

TASK_FILE_VARIABLE = "SECUREBENCH_TASK_FILE"
"""The variable with the absolute path of the task file, inside the sandbox."""

_MATERIALIZER = VisibilityAwareMaterializer(Component.AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How to run an agent on one task.

    ``artifact_path`` is the workspace file with the agent's answer. If it is ``None``, the answer is stdout, the
    workspace or the changes to a repository, depending on the family. ``home`` is mounted as an empty tmpfs for the
    agent's home; the default is ``/tmp``, which is a tmpfs, too.
    """

    argv: tuple[str, ...]
    timeout_seconds: float
    artifact_path: str | None = None
    task_file: str = DEFAULT_TASK_FILE
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    home: str | None = None


def time_limit(seconds: float, view: AgentView) -> float:
    """Return the shorter of the tester's limit in ``seconds`` and the task's own."""
    task_limit = view.environment.timeout_seconds
    return seconds if task_limit is None else min(seconds, task_limit)


class Harness(HarnessProducer):
    """A harness that runs one command in a sandbox with the workspace in it.

    A subclass defines how its agent is invoked (:meth:`invocation`), and may define its session (:meth:`open_session`).
    Everything else is the same for all.
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
        with (
            image_directory(place, context.driver, image) as tree,
            self.open_session(view, context) as agent_session,
            workspace_for(context, place) as directory,
        ):
            work = _Work(view, invocation, context, place, tree, directory)
            work.prepare(plan)
            try:
                result = work.run(agent_session)
                sealed = work.seal(result)
                failure = work.overflow() or _agent_failure(result, invocation) or work.tampering()
            except StorageError:
                raise
            except InfrastructureError as error:
                return self._void(agent_session.void(error), image, started)
            session_end = agent_session.end(result, None if sealed.failure else sealed.candidate, failure)
        return AgentResult(
            candidate=None if session_end.fault else sealed.candidate,
            failure=None if session_end.fault else session_end.failure or sealed.failure,
            fault=session_end.fault,
            stdout=recorded(result.stdout) if session_end.stdout is None else session_end.stdout,
            stderr=recorded(result.stderr),
            metadata={
                **self._metadata(invocation, result, None if session_end.failure is None else sealed.failure),
                **work.metadata(),
                **session_end.metadata,
            },
            trajectory=session_end.trajectory,
            image_id=image.id,
            duration_seconds=time.monotonic() - started,
        )

    def _void(self, session_end: SessionEnd, image: ResolvedImage, started: float) -> AgentResult:
        """Return the result of an agent that an infrastructure failure ended: its usage and no candidate."""
        return AgentResult(
            candidate=None,
            fault=session_end.fault,
            stdout=session_end.stdout or "",
            metadata={"harness": self.name, **session_end.metadata},
            trajectory=session_end.trajectory,
            image_id=image.id,
            duration_seconds=time.monotonic() - started,
        )

    def _metadata(
        self, invocation: Invocation, result: CommandResult, seal_failure: CandidateError | None
    ) -> dict[str, JsonValue]:
        """Return the record's metadata. ``seal_failure`` is why a failed agent's candidate was not sealed."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlace:
    """The agent's image, ``workspace``, working directory and user. Paths are absolute paths in the agent's sandbox.

    ``image_directory`` is set only if the task needs a directory of its image. It is either a repository that the agent
    changes in place (``is_changed``), or a directory whose files are copied into the workspace.
    """

    image: ResolvedImage
    workspace: str = WORKSPACE_TARGET
    workdir: str = WORKSPACE_TARGET
    user: tuple[int, int]
    image_directory: str | None = None
    is_changed: bool = False


def place_of(view: AgentView, image: ResolvedImage) -> WorkPlace:
    """Return where the agent works on this task.

    An agent that changes a repository runs as root, but without capabilities: root owns the repository in most images.
    Raises :class:`MaterializationError` (``image-workdir-missing``) if the task needs a directory of its image, but
    neither the task nor the image names one. ``/`` does not count.
    """
    if view.candidate_kind is CandidateKind.PATCH:
        repository = _directory(view, image)
        return WorkPlace(image=image, workdir=repository, user=ROOT_USER, image_directory=repository, is_changed=True)
    is_workspace = view.candidate_kind is CandidateKind.WORKSPACE
    target = (view.environment.workdir if is_workspace else None) or WORKSPACE_TARGET
    # A mixed pack may set this in its manifest's defaults for its terminal tasks; other families ignore it.
    filled = is_workspace and view.environment.materialize_workdir_from_image
    directory = _directory(view, image) if filled else None
    return WorkPlace(image=image, workspace=target, workdir=target, user=workspace_user(), image_directory=directory)


@contextmanager
def image_directory(place: WorkPlace, driver: SandboxDriver, image: ResolvedImage) -> Iterator[HostTree | None]:
    """Yield the image directory that the task needs, unpacked on the host; ``None`` if it needs none.

    Raises :class:`MaterializationError` (``image-workdir-missing``) and the driver's errors.
    """
    if place.image_directory is None:
        yield None
        return
    with driver.image_tree(image) as lease, HostTree.of_image(lease.root, place.image_directory) as tree:
        yield tree


@contextmanager
def workspace_for(context: ProduceContext, place: WorkPlace) -> Iterator[WritableDirectory]:
    """Yield the empty workspace of an agent. Afterwards, ``context.workspace`` has its files if they are to be kept.

    Raises :class:`StorageError`, and the driver's errors.
    """
    workspace = context.workspace
    make_private_directory(workspace.parent)
    try:
        remove_tree(workspace)
    except StorageError as error:
        if error.code != "workspace-stuck" or place.user != ROOT_USER:
            raise
        # A killed run may have left files owned by root.
        chown_workspace(context, WritableDirectory(workspace, workspace), place.image)
    with writable_directory(context.driver, workspace, context.limits.workspace) as directory:
        yield directory
        if directory.bounded and context.keep_workspace:
            with _reading(workspace):
                make_fresh_directory(workspace, workspace_owner())
                copy_safe_files(directory.files, workspace)


def needs_image_tree(task: SecureBenchTask) -> bool:
    """Return whether the agent of ``task`` works on files of its image, which :func:`image_directory` then reads."""
    is_workspace = task.candidate_kind is CandidateKind.WORKSPACE
    is_filled = is_workspace and task.environment.materialize_workdir_from_image
    return is_filled or task.candidate_kind is CandidateKind.PATCH


def _directory(view: AgentView, image: ResolvedImage) -> str:
    directory = view.environment.workdir or image.workdir
    if directory.strip("/"):
        return directory
    raise MaterializationError(
        f"the task needs a working directory other than '/', but the task and its image {image.reference} set none",
        code="image-workdir-missing",
        hint="set environment.workdir in the task",
    )


class _Work:
    """One agent's work on one task: its workspace, its sandbox and its sealed candidate.

    Changes to a repository are sealed after the agent has ended, before the sandbox is removed.
    """

    def __init__(
        self,
        view: AgentView,
        invocation: Invocation,
        context: ProduceContext,
        place: WorkPlace,
        tree: HostTree | None,
        directory: WritableDirectory,
    ) -> None:
        self._directory = directory
        self._view = view
        self._invocation = invocation
        self._context = context
        self._place = place
        self._tree = tree
        self._assets: tuple[MaterializedAsset, ...] = ()
        self._filled: Filled | None = None
        self._changes: Sealed | None = None
        self._ignored: Mapping[str, int] = {}

    def prepare(self, plan: MaterializationPlan) -> None:
        """Write the files of the workspace.

        All but the read-only assets belong to the owner that :func:`workspace_owner` returns or, if that is ``None``,
        to the user who runs SecureBench. If the sandbox user is the container's root, the workspace is world-writable,
        because this root may be unprivileged on the host. The private parent directory keeps other host users out.
        Raises :class:`MaterializationError` (``image-workdir-too-large``) if the files do not fit, and the errors of
        :func:`fill` and :meth:`VisibilityAwareMaterializer.materialize`.
        """
        files, is_open = self._directory.files, self._place.user == ROOT_USER
        if is_open:
            files.chmod(0o777)
        try:
            if self._tree is not None and not self._place.is_changed:
                self._filled = fill(files, self._tree, workspace_owner())
            self._assets = _MATERIALIZER.materialize(plan, files, workspace_owner(), everybody=is_open)
        except StorageError as error:
            if not self._directory.is_full():
                raise
            raise MaterializationError(
                f"the files of the task do not fit into a workspace of {self._context.limits.workspace} bytes",
                code="image-workdir-too-large",
                hint="raise sandbox.limits.workspace",
            ) from error

    def run(self, agent_session: AgentSession) -> CommandResult:
        """Run the agent until it exits. When this returns, none of its processes is left."""
        command = Command(
            argv=self._invocation.argv,
            timeout_seconds=self._invocation.timeout_seconds,
            capture=MAX_CANDIDATE_BYTES,
        )
        output = OutputReporter(self._context.report)

        def take(chunk: Chunk) -> None:
            output(chunk)
            agent_session.on_output(chunk)

        spec = self._spec(agent_session)
        with self._context.driver.create(spec) as sandbox:
            agent_session.start(sandbox)
            result = sandbox.run(command, take)
            if spec.collect is not None:
                self._seal_changes(sandbox)
        output.finish()
        if self._place.is_changed and self._context.driver.info().foreign_files:
            chown_workspace(self._context, self._directory, self._place.image)
        return result

    def overflow(self) -> CandidateError | None:
        """Return a failure if the agent filled its workspace: what it wrote last may be incomplete."""
        if not self._directory.is_full():
            return None
        size = self._context.limits.workspace
        message = f"the agent filled its workspace ({size} bytes or the maximum number of files)"
        return _failure(FailureReason.AGENT_WORKSPACE_FULL, message)

    def seal(self, result: CommandResult) -> Sealed:
        """Return the sealed candidate; seal it if :meth:`run` has not done so. Raises :class:`StorageError`."""
        if self._changes is not None:
            return self._changes
        kind, store, path = self._view.candidate_kind, self._context.store, self._invocation.artifact_path
        files = self._directory.files
        with _reading(self._context.workspace):
            if kind is CandidateKind.WORKSPACE:
                return seal_workspace(store, kind, files)
            if path is None:
                return seal_output(store, kind, result.stdout, truncated=result.stdout_truncated)
            if self._tree is not None:
                return seal_patch_file(store, files, path, self._tree)
            return seal_file(store, kind, files, path)

    def tampering(self) -> CandidateError | None:
        """Return a failure if the agent replaced a read-only asset, which it can do by renaming a parent directory.

        Assets are checked only if the workspace is the candidate.
        """
        if self._view.candidate_kind is not CandidateKind.WORKSPACE:
            return None
        with _reading(self._context.workspace):
            changed = [asset.target for asset in self._assets if asset.read_only and not self._is_unchanged(asset)]
        if not changed:
            return None
        message = f"read-only assets were replaced: {', '.join(changed)}"
        return CandidateError(FailureReason.TAMPERED, message, phase=FailurePhase.SEAL)

    def metadata(self) -> dict[str, JsonValue]:
        """Return the record's metadata about files: how many paths were ignored, and what was copied from the image."""
        filled = self._filled
        return {
            **({"ignored": dict(self._ignored)} if self._changes else {}),
            **({} if filled is None else {"from_image": {"files": filled.entries, "bytes": filled.size}}),
        }

    def _spec(self, agent_session: AgentSession) -> SandboxSpec:
        context, invocation, place = self._context, self._invocation, self._place
        workspace, target = self._directory.source.resolve(), place.workspace  # a mount source must be a real path
        bounded = self._directory.bounded
        home = invocation.home or BASE_ENVIRONMENT["HOME"]
        read_only = (
            Mount(workspace / a.target, f"{target}/{a.target}", bounded=bounded) for a in self._assets if a.read_only
        )
        return SandboxSpec(
            image=self._place.image,
            limits=context.limits,
            mounts=(Mount(workspace, target, read_only=False, bounded=bounded), *read_only, *invocation.mounts),
            environment={
                **BASE_ENVIRONMENT,
                **place.image.environment,  # a verifier keeps at most a few harmless variables of the image
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

    def _seal_changes(self, sandbox: Sandbox) -> None:
        assert self._tree is not None
        try:
            with _reading(self._context.workspace):
                self._changes, self._ignored = seal_changes(self._context.store, sandbox.collected(), self._tree)
        except DirectoryReplacedError as failure:
            self._changes = Sealed(None, failure)

    def _is_unchanged(self, asset: MaterializedAsset) -> bool:
        try:
            return asset_digest(self._directory.files, asset.target) == asset.digest
        except TreeRefusedError:
            return False


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


@contextmanager
def _reading(workspace: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read the workspace {workspace}: {error.strerror or error}") from error
