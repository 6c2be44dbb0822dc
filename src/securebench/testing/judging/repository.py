"""Judge changes to a repository like a run does, from a task, a small repository and the changed files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securebench.candidates.store import CandidateStore
from securebench.dangerous_commands import VerificationPolicy
from securebench.patches.model import FileVersion
from securebench.patches.render import render
from securebench.progress import Reporter
from securebench.resources import Component, Resource, ResourceBundle, Visibility
from securebench.sandboxes.base import MIB, Limits
from securebench.tasks import Environment, VerifierView
from securebench.testing.judging.commit_objects import CommitObjects
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.repo_patch import RepoPatchVerifier

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.verifiers.base import VerificationResult

REPOSITORY = "/srv/project"
LIMITS = Limits(memory=256 * MIB, output=4 * MIB)

BROKEN = "def double(number):\n    return number + number + 1\n\n\ndef half(number):\n    return number / 2\n"
FIXED = BROKEN.replace(" + 1", "")
OLD_TESTS = "from project.numbers import half\n\n\ndef test_half():\n    assert half(4) == 2\n"
TEST_PATCH = """\
diff --git a/tests/test_numbers.py b/tests/test_numbers.py
--- a/tests/test_numbers.py
+++ b/tests/test_numbers.py
@@ -1,5 +1,17 @@
-from project.numbers import half
+import pytest
+
+from project.numbers import double, half


 def test_half():
     assert half(4) == 2
+
+
+@pytest.mark.parametrize("number", [2, 3])
+def test_double(number):
+    assert double(number) == number * 2
+
+
+class TestDouble:
+    def test_zero(self):
+        assert double(0) == 0
"""
FAIL_TO_PASS = [
    f"tests/test_numbers.py::{name}" for name in ("test_double[2]", "test_double[3]", "TestDouble::test_zero")
]
PASS_TO_PASS = ["tests/test_numbers.py::test_half"]
TREE = {
    "README.md": "Numbers.\n",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "project/__init__.py": "",
    "project/numbers.py": BROKEN,
    "tests/test_numbers.py": OLD_TESTS,
    "tests/odd/it's a name": "odd\n",
}
GIT = CommitObjects(TREE)
COMMIT = GIT.commit
FILES = {**TREE, ".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"}
"""The files that a verifier needs in the repository. Git also needs the objects in :data:`GIT`."""
PYTEST = ["python3", "-m", "pytest", "-q", "tests/test_numbers.py"]
EVERYTHING = {"allow_sensitive_paths": ["**"]}
"""A policy that allows all sensitive paths."""


@dataclass
class RepositoryJob:
    """A ``repo_patch`` task on the small repository, which ``image`` contains.

    ``test_patch`` and ``setup_patch`` are the texts of patches. The other fields except ``limits`` are as in a row,
    where ``policy`` and ``timeout`` are named ``candidate_policy`` and ``timeout_seconds``.
    """

    command: Any = field(default_factory=lambda: list(PYTEST))
    test_patch: str = TEST_PATCH
    setup_patch: str = ""
    policy: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(
        default_factory=lambda: {"fail_to_pass": FAIL_TO_PASS, "pass_to_pass": PASS_TO_PASS}
    )
    base_commit: str = COMMIT
    timeout: float = 60.0
    workdir: str | None = None
    require: str | None = None
    image: str = ""
    limits: Limits = LIMITS

    def judge(
        self, driver: SandboxDriver, root: Path, changes: Mapping[str, str | FileVersion | None]
    ) -> VerificationResult:
        """Return the verdict on ``changes``, which map paths to new content, or to ``None`` for a removed file.

        ``root`` is an unused directory.
        """
        delta = {name.encode("utf-8", "surrogateescape"): _version(version) for name, version in changes.items()}
        store = CandidateStore(root / "candidates")
        candidate = store.seal_patch(delta, render(delta, _EmptyTree()))
        scratch = root / "scratch"
        scratch.mkdir(parents=True)
        context = VerifyContext(
            driver=driver, policy=VerificationPolicy(), report=Reporter([]), limits=self.limits, scratch=scratch
        )
        return RepoPatchVerifier().verify(self.view(), candidate, context)

    def view(self) -> VerifierView:
        """Return the view of the task."""
        tests: dict[str, Any] = {"source": "command", "command": self.command, "timeout_seconds": self.timeout}
        patches = {"test_patch": self.test_patch, "setup_patch": self.setup_patch}
        tests |= {name: {"source": "inline", "patch": patch} for name, patch in patches.items() if patch}
        extra = {"candidate_policy": self.policy, "expect": self.expect, "workdir": self.workdir}
        extra["require"] = self.require
        tests |= {name: value for name, value in extra.items() if value}
        bundle = ResourceBundle(
            (
                Resource("base_commit", self.base_commit, Visibility.PUBLIC),
                Resource("tests", tests, Visibility.EVALUATION_INPUTS),
            )
        )
        return VerifierView(
            task_id="task",
            family="repo_patch",
            test_sandbox=bundle.visible_to(Component.TEST_SANDBOX),
            evaluator=bundle.visible_to(Component.EVALUATOR),
            environment=Environment(image=self.image, workdir=REPOSITORY),
        )


class _EmptyTree:
    """An empty tree."""

    def get(self, _path: bytes) -> FileVersion | None:
        """Return ``None``: no file exists."""
        return None


def _version(version: str | FileVersion | None) -> FileVersion | None:
    return FileVersion(version.encode("utf-8", "surrogateescape")) if isinstance(version, str) else version
