"""The tester's configuration: which pack to run with which harness, policy and limits."""

from securebench.tester_config.env_file import load_env_file
from securebench.tester_config.loader import load_tester_config
from securebench.tester_config.model import (
    BenchmarkPaths,
    HarnessConfig,
    KeepWorkspaces,
    RunConfig,
    SandboxConfig,
    TaskSelection,
    TesterConfig,
    VerifierConfig,
)
from securebench.tester_config.places import require_output_dir
from securebench.tester_config.price_table import PriceTable, own_price_table, read_price_table
from securebench.tester_config.settings import (
    Budget,
    CommandConfig,
    CommandProvider,
    HarnessSettings,
    JudgeSettings,
    ModelConfig,
    ModelProvider,
    Prices,
    ProviderSettings,
)

__all__ = [
    "BenchmarkPaths",
    "Budget",
    "CommandConfig",
    "CommandProvider",
    "HarnessConfig",
    "HarnessSettings",
    "JudgeSettings",
    "KeepWorkspaces",
    "ModelConfig",
    "ModelProvider",
    "PriceTable",
    "Prices",
    "ProviderSettings",
    "RunConfig",
    "SandboxConfig",
    "TaskSelection",
    "TesterConfig",
    "VerifierConfig",
    "load_env_file",
    "load_tester_config",
    "own_price_table",
    "read_price_table",
    "require_output_dir",
]
