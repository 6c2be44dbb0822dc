"""Benchmark packs: a manifest, rows of tasks, and the files that they refer to, read strictly."""

from securebench.benchmark_pack.loader import load_benchmark_pack
from securebench.benchmark_pack.model import AssetRoots, BenchmarkPack, BenchmarkRow, RowSource

__all__ = ["AssetRoots", "BenchmarkPack", "BenchmarkRow", "RowSource", "load_benchmark_pack"]
