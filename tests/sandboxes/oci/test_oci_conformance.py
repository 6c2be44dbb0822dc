"""The oci driver on the runtimes that the tests were not asked for anyway: the whole conformance suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError
from securebench.sandboxes.oci import OciDriver
from securebench.testing.conformance import CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.testing.conformance import Check

pytestmark = pytest.mark.oci


@pytest.fixture(scope="module", params=["crun", "runc", "runsc"])
def oci(request: pytest.FixtureRequest) -> Iterator[OciDriver]:
    """Give a driver on each runtime that is installed, but those that ``test_conformance`` runs on."""
    if request.param in request.config.getoption("drivers").split(","):
        pytest.skip(f"{request.param} is among --drivers, so test_conformance holds it to every check")
    try:
        driver = OciDriver(run_id="conformance", runtime=request.param)
    except EngineError as error:
        if error.code != "runtime-unavailable":
            raise
        pytest.skip(error.message)
    yield driver
    driver.close()


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_runtime_conforms(check: Check, oci: OciDriver, tmp_path: Path) -> None:
    """Every runtime passes each check."""
    tmp_path.chmod(0o755)
    check.run(oci, oci.resolve_image("securebench/python:3.11"), tmp_path.resolve())
