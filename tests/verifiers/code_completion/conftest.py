"""Fixtures for tests of code tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verifiers.code_completion.judging_code import local_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.testing.scripted_sandbox import ScriptedDriver


@pytest.fixture(scope="module")
def local() -> Iterator[ScriptedDriver]:
    """Return a driver that runs the guest programs as local processes."""
    made = local_driver()
    yield made
    made.close()
