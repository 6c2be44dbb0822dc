"""Harnesses: from an agent's view of a task to a sealed candidate."""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.harnesses.base import AgentResult, HarnessProducer, ProduceContext
    from securebench.harnesses.command import CommandHarnessProducer
    from securebench.harnesses.provider.claude_code import ClaudeCodeHarnessProducer
    from securebench.harnesses.provider.codex import CodexHarnessProducer
    from securebench.harnesses.registry import build_harness_producer

__all__ = [
    "AgentResult",
    "ClaudeCodeHarnessProducer",
    "CodexHarnessProducer",
    "CommandHarnessProducer",
    "HarnessProducer",
    "ProduceContext",
    "build_harness_producer",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ClaudeCodeHarnessProducer": "provider.claude_code",
        "CodexHarnessProducer": "provider.codex",
        "CommandHarnessProducer": "command",
        "HarnessProducer": "base",
        "ProduceContext": "base",
        "AgentResult": "base",
        "build_harness_producer": "registry",
    },
)
