"""SecureBench runs benchmark packs against untrusted agents and judges them where the agent cannot reach.

Importing this package loads nothing but this file: each part is imported from where it lives, for example
``securebench.benchmark_pack.load_benchmark_pack``.
"""

__version__ = "0.1.0"
