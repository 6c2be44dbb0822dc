"""Every public name can be imported from its documented module."""

from __future__ import annotations

import importlib
import subprocess
import sys

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
    "results.read": ("RecordedRun", "read_run"),
    "results.recorded_task": ("RecordedTask",),
    "results.summary": ("TesterRunSummary",),
    "sandboxes.base": ("SandboxDriver", "SandboxSpec", "resolve_sandbox_host_path"),
    "sandboxes.docker": ("DockerDriver", "DockerSandbox"),
    "sandboxes.host": ("HostSandbox",),
    "sandboxes.policy": ("CommandPolicy", "PolicySandbox"),
    "tasks": ("AgentView", "SecureBenchTask", "VerifierView", "task_from_spec"),
    "tester_config": ("TesterConfig", "load_env_file", "load_tester_config"),
    "tester_run": ("TesterRunSummary", "run_benchmark"),
    "testing.conformance": ("CHECKS", "run_conformance"),
    "testing.scripted_sandbox": ("ProgramContext", "ScriptedDriver"),
    "verifiers.base": ("VerificationResult", "Verifier"),
    "verifiers.registry": ("verifier_for",),
    "workspaces.materialization": ("VisibilityAwareMaterializer",),
    "workspaces.path_policy": ("require_mount",),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in names])
def test_a_public_name_is_where_it_is_said_to_be(module: str, name: str) -> None:
    """Each public name is an attribute of its module."""
    assert hasattr(importlib.import_module(f"securebench.{module}"), name)


PACKAGES = ("candidates", "harnesses", "sandboxes", "verifiers", "workspaces")
OF_PACKAGES = [
    (module, name)
    for module, names in PUBLIC.items()
    for name in names
    if module.partition(".")[0] in PACKAGES and name not in {"require_mount", "code_from_text"}
]


@pytest.mark.parametrize(("module", "name"), OF_PACKAGES)
def test_a_public_name_of_a_package_is_importable_from_it(module: str, name: str) -> None:
    """D18: a public name can also be imported from the package of its module, and is the same object there.

    The exceptions are ``require_mount`` and ``code_from_text``.
    """
    package = module.partition(".")[0]
    found = getattr(importlib.import_module(f"securebench.{package}"), name)
    assert found is getattr(importlib.import_module(f"securebench.{module}"), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_of_a_package_is_there(package: str) -> None:
    """Each name in ``__all__`` can be loaded. An unknown name raises AttributeError."""
    module = importlib.import_module(f"securebench.{package}")
    assert all(hasattr(module, name) for name in module.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_importing_the_packages_loads_nothing_heavy() -> None:
    """Importing the packages loads no slow library, so ``--help`` stays fast: they load their names on first use."""
    imports = "; ".join(f"import securebench.{package}" for package in PACKAGES)
    code = f"import sys; {imports}; print([m for m in ('docker', 'pydantic', 'rich', 'click') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"
