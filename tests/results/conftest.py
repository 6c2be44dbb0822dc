"""Fixtures of the tests of results."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture
def stats() -> Any:
    """Return ``scipy.stats``. Its import takes a second, which only workers that run these tests should spend."""
    return importlib.import_module("scipy.stats")
