"""Every name that the documentation gives to users is importable from where it says."""

from __future__ import annotations

import importlib

import pytest

PUBLIC = {
    "benchmark_pack": ("BenchmarkPack", "BenchmarkRow", "load_benchmark_pack"),
    "benchmark_compiler": ("EVAL_VISIBILITY", "compile_benchmark_pack", "eval_visibility_for"),
    "candidates.artifact": ("CandidateArtifact",),
    "candidates.extraction": ("code_from_text",),
    "candidates.store": ("CandidateStore",),
    "cli": ("main",),
    "dangerous_commands": ("DANGEROUS_COMMANDS", "VerificationPolicy"),
    "errors": ("ConfigError", "MaterializationError", "PathPolicyError", "CandidateError", "InfrastructureError"),
    "execution": ("execute_task",),
    "executors.local": ("LocalExecutor",),
    "families.registry": ("FAMILIES", "validate_benchmark_row_family"),
    "families.schema": ("row_json_schema",),
    "harnesses.command": ("CommandHarnessProducer",),
    "harnesses.registry": ("build_harness_producer",),
    "progress": ("Event", "EventKind", "Reporter"),
    "resources": ("Resource", "ResourceBundle", "Visibility"),
    "results.summary": ("TesterRunSummary",),
    "sandboxes.base": ("SandboxDriver", "SandboxSpec", "resolve_sandbox_host_path"),
    "sandboxes.docker": ("DockerDriver", "DockerSandbox"),
    "sandboxes.host": ("HostSandbox",),
    "sandboxes.policy": ("CommandPolicy", "PolicySandbox"),
    "tasks": ("AgentView", "SecureBenchTask", "VerifierView", "task_from_spec"),
    "tester_config": ("TesterConfig", "load_env_file", "load_tester_config"),
    "tester_run": ("TesterRunSummary", "run_benchmark"),
    "testing.conformance": ("CHECKS", "run_conformance"),
    "testing.fake_sandbox": ("FakeDriver",),
    "verifiers.base": ("VerificationResult", "Verifier"),
    "verifiers.registry": ("verifier_for",),
    "workspaces.materialization": ("VisibilityAwareMaterializer",),
    "workspaces.path_policy": ("require_mount",),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in names])
def test_a_public_name_is_where_it_is_said_to_be(module: str, name: str) -> None:
    """A name that users rely on is found in its module."""
    assert hasattr(importlib.import_module(f"securebench.{module}"), name)
