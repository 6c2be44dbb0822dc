"""What the tests of code tasks share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verifiers.code_completion.judging_code import local_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.testing.fake_sandbox import FakeDriver


@pytest.fixture(scope="module")
def local() -> Iterator[FakeDriver]:
    """Give a driver that runs the guests as local processes."""
    made = local_driver()
    yield made
    made.close()
