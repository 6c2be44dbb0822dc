"""The whole conformance suite on the oci driver, with the runtimes that ``test_conformance`` does not run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.optimisations import Optimisations
from securebench.testing.conformance import CHECKS, expected_failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.testing.conformance import Check

NO_OPTIMISATIONS = "crun without optimisations"

pytestmark = [pytest.mark.oci, pytest.mark.long]


@pytest.fixture(scope="module", params=["crun", "runc", "runsc", NO_OPTIMISATIONS])
def oci_driver(request: pytest.FixtureRequest, conforming: tuple[str, ...]) -> Iterator[OciDriver]:
    """Yield a driver with each installed runtime that ``test_conformance`` does not run on."""
    if request.param in conforming:
        pytest.skip(f"test_conformance holds {request.param} to every check")
    switched = Optimisations.none() if request.param == NO_OPTIMISATIONS else None
    try:
        driver = OciDriver(runtime=request.param.split()[0], optimisations=switched)
    except EngineError as error:
        if error.code != "runtime-unavailable":
            raise
        pytest.skip(error.message)
    driver.info()  # starts the supervisor
    yield driver
    driver.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_runtime_conforms(check: Check, oci_driver: OciDriver, base_image: ResolvedImage, tmp_path: Path) -> None:
    """Every runtime passes each check, except for declared exceptions, each of which has a reason."""
    tmp_path.chmod(0o755)
    try:
        check.run(oci_driver, base_image, tmp_path.resolve())
    except Exception:
        if reason := expected_failure(check, oci_driver.info()):
            pytest.xfail(reason)
        raise
