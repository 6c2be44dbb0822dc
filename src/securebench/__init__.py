"""Run benchmark packs against untrusted agents, and judge the agents' work out of their reach.

Programs that embed or extend SecureBench use the names below: see ``docs/how-to/embed.md`` and
``docs/how-to/extend.md``. Each is loaded when it is first used, so importing this package loads none of them.
"""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.errors import ConfigError, InfrastructureError
    from securebench.executors.base import Executor
    from securebench.families.base import Family
    from securebench.harnesses.pipeline import Harness, Invocation
    from securebench.plugins import register
    from securebench.results.read import RecordedRun, read_run
    from securebench.results.recorded_task import RecordedTask
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tester_config.settings import HarnessSettings
    from securebench.tester_run.front import load_config, run
    from securebench.verifiers.base import VerificationResult, Verifier

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Executor",
    "Family",
    "Harness",
    "HarnessSettings",
    "InfrastructureError",
    "Invocation",
    "RecordedRun",
    "RecordedTask",
    "SandboxDriver",
    "VerificationResult",
    "Verifier",
    "load_config",
    "read_run",
    "register",
    "run",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ConfigError": "errors",
        "Executor": "executors.base",
        "Family": "families.base",
        "Harness": "harnesses.pipeline",
        "HarnessSettings": "tester_config.settings",
        "InfrastructureError": "errors",
        "Invocation": "harnesses.pipeline",
        "RecordedRun": "results.read",
        "RecordedTask": "results.recorded_task",
        "SandboxDriver": "sandboxes.base",
        "VerificationResult": "verifiers.base",
        "Verifier": "verifiers.base",
        "load_config": "tester_run.front",
        "read_run": "results.read",
        "register": "plugins",
        "run": "tester_run.front",
    },
)
