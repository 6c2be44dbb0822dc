"""Fixtures that many tests share: drivers of real sandboxes, their base image, and checks for leftovers.

The fixture ``driver`` runs a test on crun, and a test that is marked ``every_driver`` also on Docker. The option
``--drivers`` replaces this choice for every test: it lists ``docker``, ``docker:RUNTIME``, or runtimes of the oci
driver (``crun``, ``runc``, ``runsc``). A test whose driver is missing fails. It is skipped only in these cases:

* Docker: ``DOCKER_HOST`` names an engine that does not answer, or ``SECUREBENCH_NO_ENGINE`` gives a reason.
* Any driver: the runtime is not installed.
* The oci driver: the user is not root and cannot create sandboxes, for example because the kernel forbids namespaces.

``agent_program`` provides the real agent programs to tests that are marked ``agents``. They are skipped only if
``SECUREBENCH_NO_AGENTS`` gives a reason.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import hypothesis
import pytest

from leftovers import container_traces, host_traces, remove_images
from securebench.errors import EngineError
from synthetic_run import write_run
from turns import Scheduling, Turns, put_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from securebench.agents.model import AgentProgram
    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.images.store.image_store import ImageStore
    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.docker.driver import DockerDriver
    from securebench.sandboxes.oci import OciDriver

BASE_IMAGE = "securebench/python:3.11"
ONE_DRIVER = ("crun",)
EVERY_DRIVER = ("docker", "crun")

_REMOVAL_SECONDS = 20.0
_DRIVER_FIXTURES = ("driver", "docker_driver", "oci_driver")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the drivers and allow slow tests."""
    parser.addoption("--drivers", help="run every test that asks for a driver on these: docker, crun, runc, runsc")
    parser.addoption("--long", action="store_true", help="run the tests that take minutes, too")
    parser.addoption(
        "--thorough",
        action="store_true",
        help="--long, every driver for every test, and many examples of each property",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples hypothesis makes, and handle interrupts, which some tests send.

    If a shell starts pytest in the background, pytest ignores interrupts by default.
    """
    hypothesis.settings.register_profile(
        "tests",
        max_examples=400 if config.getoption("thorough") else 50,
        derandomize=not config.getoption("thorough"),  # with fixed examples, a new failure means changed code
        deadline=None,  # a busy machine must not fail a test
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
    )
    hypothesis.settings.load_profile("tests")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses ``driver`` once on each chosen driver."""
    if "driver" in metafunc.fixturenames:
        every = metafunc.definition.get_closest_marker("every_driver") is not None
        names = _driver_names(metafunc.config) or (EVERY_DRIVER if every else ONE_DRIVER)
        marked = [
            pytest.param(name, marks=pytest.mark.engine if _is_docker(name) else pytest.mark.oci) for name in names
        ]
        metafunc.parametrize("driver", marked, indirect=True)


def _driver_names(config: pytest.Config) -> tuple[str, ...]:
    """Return the drivers that the options choose for every test, or none if each test uses its default drivers."""
    names: str = config.getoption("drivers") or ""
    return tuple(names.split(",")) if names else EVERY_DRIVER if config.getoption("thorough") else ()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """If several workers share the tests, put the tests in an order that keeps all workers busy."""
    if _workers_directory(config) is not None:
        put_in_order(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside the test's time limit: waiting does not count
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Run a test that is marked ``alone`` or ``sandboxes_alone`` only while no other worker runs a conflicting test."""
    place = _workers_directory(item.config)
    if place is None:
        return (yield)
    with _turns(place).turn(item, nextitem):
        return (yield)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Choose which worker runs a test."""
    return Scheduling(config, log)


@cache
def _turns(place: Path) -> Turns:
    return Turns(place)


def _workers_directory(config: pytest.Config) -> Path | None:
    """Return a directory that the workers of this run share, or ``None`` if one process runs all tests."""
    return Path(config.getoption("basetemp")).parent if hasattr(config, "workerinput") else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests whose engine or programs are not available, and slow tests unless the options ask for them."""
    if item.get_closest_marker("engine") is not None and (reason := why_no_engine()):
        pytest.skip(reason)
    if item.get_closest_marker("agents") is not None and (no_agents := os.environ.get("SECUREBENCH_NO_AGENTS")):
        pytest.skip(no_agents)
    if item.get_closest_marker("long") is not None and not (
        item.config.getoption("long") or item.config.getoption("thorough")
    ):
        pytest.skip("it takes minutes, or varies a test that was run: use --long")


@cache
def why_no_engine() -> str:
    """Return why no engine is available, or an empty string if tests that need one must run."""
    if reason := os.environ.get("SECUREBENCH_NO_ENGINE"):
        return reason
    if not os.environ.get("DOCKER_HOST"):
        return ""
    from securebench.engine.client import connect

    try:
        connect().close()
    except EngineError as error:
        return f"no Docker Engine is available: {error.message}"
    return ""


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Yield the Docker Engine of this machine."""
    from securebench.engine.client import connect

    if reason := why_no_engine():
        pytest.skip(reason)
    connected = connect()
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def doomed_images() -> Iterator[list[str]]:
    """Yield a list for the names of images that tests make. The images are removed after the drivers are closed."""
    from securebench.images.store.image_store import ImageStore

    references: list[str] = []
    yield references
    for problem in remove_images(ImageStore(), references):
        print(problem, file=sys.stderr)  # noqa: T201 - an exception here would keep pytest from printing its summary


@pytest.fixture(scope="session")
def _drivers(request: pytest.FixtureRequest, doomed_images: list[str]) -> Iterator[Callable[[str], SandboxDriver]]:
    """Yield a function that opens a driver by its name. Each is opened once and shared, as it is within a run."""
    del doomed_images  # requested so that it is torn down after the drivers
    with ExitStack() as stack:

        @cache
        def open_driver(name: str) -> SandboxDriver:
            if _is_docker(name):
                request.getfixturevalue("engine")  # skips the test if there is no engine
                return stack.enter_context(closing(_docker(name)))
            return stack.enter_context(closing(_oci(name)))

        yield open_driver


def _is_docker(name: str) -> bool:
    return name.partition(":")[0] == "docker"


def _docker(name: str) -> DockerDriver:
    from securebench.sandboxes.docker.driver import DockerDriver

    try:
        return DockerDriver(run_id="tests", runtime=name.partition(":")[2] or None)
    except EngineError as error:
        raise _skipped_if_not_to_be_had(error) from error


def _oci(name: str) -> OciDriver:
    from securebench.sandboxes.oci import OciDriver

    try:
        driver = OciDriver(runtime=name)
    except EngineError as error:
        raise _skipped_if_not_to_be_had(error) from error
    try:
        driver.prove()  # starts the supervisor now, so that it does not count as left behind by a test
    except EngineError as error:
        driver.close()
        raise _skipped_if_not_to_be_had(error) from error
    return driver


def _skipped_if_not_to_be_had(error: EngineError) -> BaseException:
    forbidden = error.code == "sandbox-unavailable" and os.geteuid() != 0
    if forbidden or error.code == "runtime-unavailable":
        return pytest.skip.Exception(str(error))
    return error


@pytest.fixture
def driver(request: pytest.FixtureRequest, _drivers: Callable[[str], SandboxDriver]) -> SandboxDriver:
    """Return the driver for which this test is parametrised. All tests of the session share it."""
    return _drivers(request.param)


@pytest.fixture
def _with_ports(request: pytest.FixtureRequest) -> None:
    """Skip a test if its driver reports that its sandboxes cannot have forwarded ports."""
    from securebench.sandboxes.enforcement import DriverFeature

    driver = _driver_of(request)
    if driver is not None and DriverFeature.FORWARDED_PORTS in driver.info().lacks:
        pytest.skip("no sandbox has a way out there: see tests/sandboxes/test_forwarding.py")


@pytest.fixture(scope="session")
def docker_driver(_drivers: Callable[[str], SandboxDriver]) -> DockerDriver:
    """Return the Docker driver, for tests that only this driver can pass."""
    return cast("DockerDriver", _drivers("docker"))


@pytest.fixture(scope="session")
def oci_driver(request: pytest.FixtureRequest, _drivers: Callable[[str], SandboxDriver]) -> OciDriver:
    """Return the oci driver. Its runtime is the first one that the options name, or crun if they name none."""
    names = [name for name in _driver_names(request.config) if not _is_docker(name)]
    return cast("OciDriver", _drivers(names[0] if names else "crun"))


@pytest.fixture(scope="session")
def conforming(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the names of the drivers that ``test_conformance`` runs on."""
    return _driver_names(request.config) or EVERY_DRIVER


@pytest.fixture(scope="session")
def store() -> ImageStore:
    """Return the image store of this user, which contains the base image."""
    from securebench.images.store.image_store import ImageStore

    return ImageStore()


@pytest.fixture(scope="session")
def agent_program() -> Iterator[Callable[[str], AgentProgram]]:
    """Yield a function that installs an agent program by name: its pinned version, for glibc if possible."""
    from securebench.agents.store import AgentStore

    with AgentStore() as cache:
        yield cache.install


@pytest.fixture
def base_image(request: pytest.FixtureRequest) -> ResolvedImage:
    """Return the base image, resolved by the test's driver.

    If the test uses no driver fixture, its markers choose the driver: oci if it is marked ``oci``, otherwise Docker.
    """
    usual = "oci_driver" if request.node.get_closest_marker("oci") is not None else "docker_driver"
    driver: SandboxDriver = _driver_of(request) or request.getfixturevalue(usual)
    return driver.resolve_image(BASE_IMAGE)


def _driver_of(request: pytest.FixtureRequest) -> SandboxDriver | None:
    name = next((name for name in _DRIVER_FIXTURES if name in request.fixturenames), None)
    return None if name is None else cast("SandboxDriver", request.getfixturevalue(name))


@pytest.fixture(scope="session")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run of 10,000 tasks. All workers share it, so tests must not change it."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "large-run"
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            write_run(directory.with_suffix(".partial"), 10_000).rename(directory)
    return directory


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test on real sandboxes if it leaves a container, process, mount, cgroup or run directory behind."""
    traces = _traces(request)
    if traces is None:
        yield
        return
    before = traces()
    yield
    _end_what_was_started_ahead(request)
    deadline = time.monotonic() + _REMOVAL_SECONDS  # removal is in the background
    left = traces() - before
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left &= traces()  # new traces belong to another worker
    assert not left, "left behind:\n" + "\n".join(sorted(left))


def _end_what_was_started_ahead(request: pytest.FixtureRequest) -> None:
    """End the warm containers of open drivers. They wait for later tests, so they do not count as left behind."""
    for name in _DRIVER_FIXTURES:
        driver = request.getfixturevalue(name) if name in request.fixturenames else None
        if warm_pool := getattr(getattr(driver, "_context", None), "warm_pool", None):
            warm_pool.clear()


def _traces(request: pytest.FixtureRequest) -> Callable[[], set[str]] | None:
    """Open a test's drivers. Return a function that finds traces of sandboxes, or ``None`` if the test uses none."""
    for name in _DRIVER_FIXTURES:
        if name in request.fixturenames:
            request.getfixturevalue(name)
    if request.node.get_closest_marker("engine") is not None:
        engine: Engine = request.getfixturevalue("engine")
        return lambda: host_traces() | container_traces(engine)
    return host_traces if request.node.get_closest_marker("oci") is not None else None


@pytest.fixture
def host_canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a file of the host outside the run, and fail the test if the file or its directory changes."""
    canary = tmp_path_factory.mktemp("host") / "canary.txt"
    canary.write_text("untouched\n")
    before = canary.stat()
    yield canary
    after = canary.stat()
    assert canary.read_text() == "untouched\n"
    assert (after.st_ino, after.st_mode, after.st_uid, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_uid,
        before.st_mtime_ns,
    )
    assert sorted(path.name for path in canary.parent.iterdir()) == ["canary.txt"]
