"""Benchmark packs: a manifest, task rows and the files that they reference, read strictly."""

from securebench.benchmark_pack.loader import load_benchmark_pack
from securebench.benchmark_pack.model import AssetRoots, BenchmarkPack, BenchmarkRow, RowSource

__all__ = ["AssetRoots", "BenchmarkPack", "BenchmarkRow", "RowSource", "load_benchmark_pack"]
