"""Which driver creates the sandboxes of a run: the named one, or the best that works on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench import plugins
from securebench.errors import EngineError, InfrastructureError
from securebench.plugins import AUTO_DRIVER, ExtensionKind
from securebench.sandboxes.enforcement import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.base import SandboxDriver
    from securebench.strict_input.models import WireModel

_HOW_TO_GET_ONE: Final = (
    "'apt-get install crun tini' gives the oci driver what it needs, 'apt-get install docker.io' an engine; "
    "'securebench doctor' says what this machine lacks"
)

_TAKE_THE_WEAKER: Final = (
    "to accept the weaker oci driver: securebench run --driver oci, or sandbox.driver: oci in the tester YAML"
)


def open_driver(
    driver: str,
    runtime: str | None,
    run_id: str,
    notify: Callable[[str], None],
    settings: WireModel | None = None,
) -> SandboxDriver:
    """Return an open driver: the named one, or with ``auto`` the oci driver where nothing about it is weaker.

    ``runtime`` is the runtime beneath it, ``None`` the driver's own choice. ``settings`` are those of an installed
    driver. ``notify`` is given, in plain words, why ``auto`` uses Docker, and what is weaker about a named driver.

    Raises :class:`InfrastructureError` as the driver does; for ``auto``, where neither works, :class:`EngineError`
    (``driver-unavailable``) with the reasons of both.
    """
    if driver == AUTO_DRIVER:
        return _best(runtime, run_id, notify)
    found: type[SandboxDriver] = plugins.load(ExtensionKind.DRIVER, driver)
    return found.open_for_run(run_id, runtime, settings, notify)


def _best(runtime: str | None, run_id: str, notify: Callable[[str], None]) -> SandboxDriver:
    from securebench.sandboxes.oci import OciDriver

    try:
        oci, weaker = OciDriver.open_proven(runtime)
    except InfrastructureError as error:
        return _docker_instead(runtime, run_id, error, notify)
    if not weaker:
        return oci
    oci.close()
    trouble = EngineError(f"it works but is weaker than Docker. Not enforced: {in_words(weaker)}")
    return _docker_instead(runtime, run_id, trouble, notify, weaker=True)


def _docker_instead(
    runtime: str | None,
    run_id: str,
    why: InfrastructureError,
    notify: Callable[[str], None],
    *,
    weaker: bool = False,
) -> SandboxDriver:
    from securebench.sandboxes.docker.driver import DockerDriver

    try:
        docker = DockerDriver(run_id=run_id, runtime=runtime)
    except EngineError as error:
        problem = "no driver was chosen" if weaker else "no driver can make sandboxes here"
        raise EngineError(
            f"{problem}\n  oci: {_and_hint(why)}\n  docker: {_and_hint(error)}",
            code="driver-unavailable",
            hint=_TAKE_THE_WEAKER if weaker else _HOW_TO_GET_ONE,
        ) from error
    notify(f"using Docker, not the oci driver: {why.message}")
    return docker


def _and_hint(error: InfrastructureError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
