"""The verifier of repo_patch."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securebench.candidates.store import CandidateStore
from securebench.errors import FailureReason
from securebench.verifiers.base import CandidateFailedError, VerificationResult, Verifier
from securebench.verifiers.repo_patch.checks import CommandRun
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.collection import required
from securebench.verifiers.repo_patch.evidence.controls import plant
from securebench.verifiers.repo_patch.layout import PatchLayout
from securebench.verifiers.repo_patch.plan import Overlay, carried_over, require_allowed, require_tree, task_patch
from securebench.verifiers.repo_patch.preflight import require_judgeable
from securebench.verifiers.repo_patch.repository import require_commit
from securebench.verifiers.repo_patch.request import read_request
from securebench.verifiers.repo_patch.selection import Selection, has_usual_names, owns
from securebench.workspaces.image_tree import HostTree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.candidates.artifact import CandidateArtifact
    from securebench.images.model import ResolvedImage
    from securebench.patches.model import Delta, FileTree
    from securebench.tasks import VerifierView
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.collection import Required
    from securebench.verifiers.repo_patch.evidence.controls import Controls
    from securebench.verifiers.repo_patch.plan import PristineTree
    from securebench.verifiers.repo_patch.request import RepoPatchRequest


class RepoPatchVerifier(Verifier):
    """Runs the task's command on the repository with the candidate's changes, in a fresh sandbox of the task's image.

    Metadata: ``verifier``, ``version``, ``phase`` (``base_commit``, ``candidate_policy``, ``setup_patch``,
    ``candidate_patch``, ``test_patch``, ``checks``, ``verdict``), ``reason``, ``image_id``, ``changed_files``,
    ``violations`` (path and rule of the first twenty) and ``violation_count``, ``restored`` (the first twenty paths),
    ``evidence`` (its ``kind`` is ``test_by_test`` or ``exit_code``), ``exit_code`` and ``duration_seconds``.
    """

    family = "repo_patch"
    version = "3"

    def check_task(self, view: VerifierView, context: VerifyContext) -> None:
        """Raise :class:`MaterializationError` for a task that no candidate could pass (:func:`require_judgeable`)."""
        require_judgeable(read_request(view), context)

    def verify(self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext) -> VerificationResult:
        """Judge ``candidate`` and return the verdict.

        Raises :class:`InfrastructureError`, and :class:`MaterializationError` for an invalid task, but no error for
        anything that a candidate did.
        """
        began = time.monotonic()
        details: dict[str, Any] = {"verifier": self.family, "version": self.version, "phase": "base_commit"}
        reason, message = None, ""
        try:
            _RepoPatchVerification(view, candidate, context, details).run()
            details["phase"] = "verdict"
        except CandidateFailedError as fault:
            reason, message = fault.reason, fault.message
        details["reason"] = reason.value if reason else None
        details["duration_seconds"] = time.monotonic() - began
        return VerificationResult(reason=reason, message=message, metadata=details)


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """What is needed to run the tests without the candidate's changes.

    ``delta`` has the changes of the setup patch and the test patch. ``files`` has the content of the test files that
    may get controls. ``usual_names`` is the result of :func:`has_usual_names`.
    """

    delta: Delta
    files: Mapping[str, bytes]
    usual_names: bool


def _files(tree: FileTree, paths: Sequence[bytes]) -> dict[str, bytes]:
    """Return the content of those ``paths`` that exist."""
    versions = {path: tree.get(path) for path in paths}
    return {path.decode("utf-8", "replace"): version.content for path, version in versions.items() if version}


class _RepoPatchVerification:
    """One verification, phase by phase."""

    def __init__(
        self, view: VerifierView, candidate: CandidateArtifact, context: VerifyContext, details: dict[str, Any]
    ) -> None:
        self._request: RepoPatchRequest = read_request(view)
        self._candidate = candidate
        self._context = context
        self._details = details
        self._adapter: Adapter | None = recognise(self._request.command)
        self._controls: Controls | None = None
        self._unchanged: _Unchanged | None = None

    def run(self) -> None:
        """Judge the candidate. Raises :class:`CandidateFailedError` unless it passes."""
        image = self._context.driver.resolve_image(self._request.image)
        self._details["image_id"] = image.id
        layout = self._lay_out(image)
        self._details["phase"] = "checks"
        checks = CommandRun(self._request, image, self._context, self._details)
        if self._adapter is None or self._controls is None:
            checks.run_command(layout)
        else:
            unchanged = functools.partial(self._outcomes_unchanged, checks)
            checks.run_tests(layout, self._adapter, self._controls, self._needed(checks), unchanged)

    def _needed(self, checks: CommandRun) -> Required | None:
        """Return the tests that must pass if the task names none: those that exist without the candidate's changes.

        Returns ``None`` if the task names tests that must pass, or if the runner cannot list tests.
        """
        unchanged = self._unchanged
        collecting = self._adapter.collecting if self._adapter else None
        if self._adapter is None or collecting is None or unchanged is None or self._request.expected:
            return None
        reported = checks.collect(self._lay_out_unchanged(unchanged, "collected"), collecting)
        return required(reported, unchanged.files, self._adapter, usual_names=unchanged.usual_names)

    def _outcomes_unchanged(self, checks: CommandRun) -> Mapping[str, str]:
        """Return the outcomes of the tests without the candidate's change."""
        if self._adapter is None or self._unchanged is None:
            return {}
        return checks.run_unchanged(self._lay_out_unchanged(self._unchanged, "unchanged"), self._adapter)

    def _lay_out_unchanged(self, unchanged: _Unchanged, name: str) -> PatchLayout:
        directory = self._context.scratch.resolve() / name
        return PatchLayout(directory, unchanged.delta, self._request.repository, self._request.workdir)

    def _lay_out(self, image: ResolvedImage) -> PatchLayout:
        """Compute the final tree and return its layout. The image is released before the layout is written."""
        with (
            self._context.driver.image_tree(image) as lease,
            HostTree.of_image(lease.root, self._request.repository) as pristine,
        ):
            final = self._final(pristine)
        directory = self._context.scratch.resolve() / "changes"
        return PatchLayout(directory, final, self._request.repository, self._request.workdir)

    def _final(self, pristine: PristineTree) -> Delta:
        """Return the differences between the image and the tree to be judged."""
        request, details = self._request, self._details
        require_commit(pristine, request.base_commit)
        details["phase"] = "candidate_policy"
        changes = self._changes(pristine)
        details["phase"] = "setup_patch"
        setup = task_patch(request.setup_patch, pristine, "setup_patch")
        details["phase"] = "candidate_patch"
        carried = carried_over(changes, pristine, setup)
        require_tree({**setup, **carried}, pristine)
        details["phase"] = "test_patch"
        trusted = Overlay(pristine, setup)
        tests = task_patch(request.test_patch, trusted, "test_patch")
        return self._with_tests(carried, trusted, tests, pristine)

    def _changes(self, pristine: PristineTree) -> Mapping[bytes, Any]:
        """Return the candidate's changes, after checking that they are allowed."""
        changes = CandidateStore(self._candidate.path.parent).read_patch(self._candidate)
        self._details["changed_files"] = len(changes)
        if not changes:
            raise CandidateFailedError(FailureReason.CANDIDATE_EMPTY, "the candidate changes nothing in the repository")
        require_allowed(changes, pristine, self._request.policy, self._is_runners, self._details)
        return changes

    def _is_runners(self, path: bytes) -> bool:
        """Return whether ``path``, in the repository, belongs to the command's test runner."""
        return self._adapter is not None and owns(self._adapter, self._request, path)

    def _with_tests(self, carried: Delta, trusted: Overlay, tests: Delta, pristine: PristineTree) -> Delta:
        """Return all differences from the image: setup, candidate, tests, and controls if the runner is known."""
        final = {**trusted.delta, **carried, **tests}
        if self._adapter is not None:
            selection = Selection(self._request, self._adapter, pristine, {**trusted.delta, **tests})
            restored = selection.restored(carried.keys() - tests.keys(), trusted)
            self._put_back(final, restored, trusted)
            judged = Overlay(trusted, tests)
            expected = self._request.fail_to_pass or self._request.pass_to_pass
            self._controls = plant(selection.control_files, judged, expected, self._adapter)
            final.update(self._controls.files)
            self._unchanged = _Unchanged(
                delta={**trusted.delta, **tests},
                files=_files(judged, selection.control_files),
                usual_names=has_usual_names(self._request, judged),
            )
        require_tree(final, pristine)
        return final

    def _put_back(self, final: dict[bytes, Any], restored: list[bytes], trusted: Overlay) -> None:
        for path in restored:
            final[path] = trusted.get(path)
        if restored:
            self._details["restored"] = [path.decode("utf-8", "backslashreplace") for path in restored[:20]]
