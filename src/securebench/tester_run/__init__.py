"""A whole run: plan, execute, journal, summarize."""

from __future__ import annotations

from securebench.results.summary import TesterRunSummary
from securebench.tester_run.options import RunOptions, RunParts
from securebench.tester_run.run import run_benchmark

__all__ = ["RunOptions", "RunParts", "TesterRunSummary", "run_benchmark"]
