"""Harnesses: from an agent's view of a task to a sealed candidate."""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.harnesses.base import AgentResult, HarnessProducer, ProduceContext
    from securebench.harnesses.command import CommandHarnessProducer
    from securebench.harnesses.model.harness import ModelHarnessProducer
    from securebench.harnesses.provider.harness import ProviderHarness
    from securebench.harnesses.registry import build_harness_producer

__all__ = [
    "AgentResult",
    "CommandHarnessProducer",
    "HarnessProducer",
    "ModelHarnessProducer",
    "ProduceContext",
    "ProviderHarness",
    "build_harness_producer",
]

__getattr__ = lazy_names(
    __name__,
    {
        "CommandHarnessProducer": "command",
        "HarnessProducer": "base",
        "ModelHarnessProducer": "model.harness",
        "ProduceContext": "base",
        "ProviderHarness": "provider.harness",
        "AgentResult": "base",
        "build_harness_producer": "registry",
    },
)
