"""Load the example packs, and judge an answer to one of their tasks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.candidates.artifact import CandidateArtifact
from securebench.dangerous_commands import VerificationPolicy
from securebench.limits import Limits
from securebench.progress import Reporter
from securebench.verifiers.base import VerifyContext
from securebench.verifiers.registry import verifier_for

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import SecureBenchTask
    from securebench.verifiers.base import VerificationResult

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def tasks_of(pack: str, tasks: Path | None = None) -> dict[str, SecureBenchTask]:
    """Return the tasks of an example pack by id. For a recipe, ``tasks`` is the imported tasks file."""
    directory = BENCHMARKS / pack
    loaded = load_benchmark_pack(directory / "manifest.yaml", tasks or directory / "tasks.jsonl")
    return {task.id: task for task in compile_benchmark_pack(loaded)}


def judged(task: SecureBenchTask, answer: str, driver: SandboxDriver, scratch: Path) -> VerificationResult:
    """Judge ``answer`` with the verifier of the task's family, as a run judges a sealed candidate."""
    data = answer.encode()
    digest = hashlib.sha256(data).hexdigest()
    candidate = CandidateArtifact(task.candidate_kind, digest, len(data), scratch / digest, answer)
    verifier = verifier_for(task.task_type)
    assert verifier is not None
    context = VerifyContext(
        driver=driver, policy=VerificationPolicy(), report=Reporter(), limits=Limits(), scratch=scratch
    )
    return verifier.verify(task.verifier_view(), candidate, context)
