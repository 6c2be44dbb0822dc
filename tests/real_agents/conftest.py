"""Fixtures for runs by the real agent programs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.packs import BENCHMARKS


@pytest.fixture(scope="session")
def images() -> None:
    """Build the images of the pack ``repo-patch-smoke`` that are missing."""
    command = [sys.executable, "-m", "securebench", "images", "build", str(BENCHMARKS / "repo-patch-smoke/images")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
