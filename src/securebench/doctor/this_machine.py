"""Facts about this machine. Methods import what they need, so that a slow import delays only one check."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import securebench
from securebench.doctor.model import ClockFacts, EngineFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.http.timeouts import Timeouts
    from securebench.sandboxes.base import DriverInfo
    from securebench.sandboxes.oci.isolation import Isolation
    from securebench.sandboxes.oci.runtime import OciRuntime
    from securebench.tester_run.planning.capacity import Capacity

_SYSTEM_PROGRAMS: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of system programs, which are not in every user's ``PATH``."""

_NETWORK_SECONDS: Final = 1.2
_CLOCK_SECONDS: Final = 0.1


class ThisMachine:
    """The machine that this process runs on."""

    @cached_property
    def is_root(self) -> bool:
        """Whether this user is root."""
        return os.geteuid() == 0

    @cached_property
    def user(self) -> str:
        """This user's name, or user id if there is no name."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return str(os.getuid())

    @cached_property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's version."""
        found = re.match(r"\d+(\.\d+)*", platform.release())
        return tuple(map(int, found[0].split("."))) if found else ()

    @cached_property
    def python(self) -> str:
        """The version and path of this interpreter."""
        return f"{platform.python_version()}, {sys.executable}"

    def read(self, path: str) -> str | None:
        """Return a file's text, or ``None`` if it cannot be read."""
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return None

    def has(self, program: str) -> bool:
        """Return whether ``program`` is on ``PATH`` or in a directory of system programs."""
        return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PROGRAMS}") is not None

    def succeeds(self, argv: Sequence[str]) -> bool:
        """Run a command without input, and return whether it succeeded: ``False`` if its program is not installed."""
        from securebench.images.build.bootstrap import query

        return self.has(argv[0]) and query(argv).returncode == 0

    def runtime(self, name: str) -> OciRuntime:
        """Find a runtime and its version."""
        from securebench.sandboxes.oci.runtime import find_runtime

        return find_runtime(name)

    def init(self) -> Path:
        """Find the init program."""
        from securebench.sandboxes.oci.runtime import find_init

        return find_init()

    def libseccomp(self) -> str:
        """Load libseccomp and return its version."""
        from securebench.sandboxes.oci.libseccomp import Library

        return Library().version

    def cgroups(self) -> tuple[str, tuple[str, ...]]:
        """Return the layout of cgroups, and the controllers that the oci driver's supervisor can use."""
        from securebench.sandboxes.oci.supervisor.cgroups import find_hierarchies

        kinds = set(re.findall(r" - (cgroup2?) ", self.read("/proc/self/mountinfo") or ""))
        layout = {frozenset(): "", frozenset({"cgroup"}): "v1", frozenset({"cgroup2"}): "v2"}
        usable = (name for hierarchy in find_hierarchies() for name in hierarchy.controllers)
        return layout.get(frozenset(kinds), "hybrid of v1 and v2"), tuple(dict.fromkeys(usable))

    def isolation(self) -> Isolation:
        """Create a sandbox with the oci driver, and return what is enforced in it."""
        from securebench.sandboxes.oci import OciDriver

        driver = OciDriver()
        try:
            return driver.prove()
        finally:
            driver.close()

    def engine(self) -> EngineFacts:
        """Connect to the Docker Engine and return facts about it."""
        from securebench.engine.client import connect
        from securebench.sandboxes.docker.facts import describe

        engine = connect()
        try:
            with engine.doing("list its runtimes"):
                known = engine.client.info().get("Runtimes") or {}
            names = tuple(sorted(name for name in known if "." not in name))
            return EngineFacts(engine.endpoint.url, describe(engine, None), names)
        finally:
            engine.close()

    def chosen(self) -> tuple[DriverInfo, str]:
        """Return the driver that a run would use, and the messages about this choice."""
        from securebench.plugins import AUTO_DRIVER
        from securebench.sandboxes.select import open_driver

        messages: list[str] = []
        driver = open_driver(AUTO_DRIVER, None, "", messages.append)
        try:
            return driver.info(), "; ".join(messages)
        finally:
            driver.close()

    def store(self) -> Path:
        """Return the image store's directory."""
        from securebench.images.store.places import default_directory

        return default_directory()

    def here(self) -> Path:
        """Return the current directory."""
        return Path.cwd()

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes of the file system of ``path``, or of its nearest parent that exists."""
        return shutil.disk_usage(_existing(path)).free

    def may_write(self, path: Path) -> bool:
        """Return whether this user may write to ``path`` or, if it is missing, to its nearest parent that exists."""
        return os.access(_existing(path), os.W_OK | os.X_OK)

    def base_images(self) -> tuple[str, ...]:
        """Return the references of the images that SecureBench's own recipes build."""
        from securebench.images.build.recipes import all_recipes

        return tuple(recipe.reference for recipe in all_recipes())

    def is_stored(self, reference: str) -> bool:
        """Return whether the image store has the image ``reference``."""
        from securebench.images.store.image_store import ImageStore

        return ImageStore().find(reference) is not None

    def engine_has(self, reference: str) -> bool:
        """Return whether Docker Engine has the image ``reference``."""
        from securebench.engine.client import connect

        engine = connect()
        try:
            with engine.doing("list its images"):
                return bool(engine.client.images(name=reference))
        finally:
            engine.close()

    def registry(self) -> str:
        """Check that the default registry answers, and return its name."""
        from securebench.images.reference import DEFAULT_REGISTRY
        from securebench.images.registry import ask

        ask(DEFAULT_REGISTRY, _timeouts())
        return DEFAULT_REGISTRY

    def agents(self) -> tuple[str, ...]:
        """Return the names in the catalogue of agent programs."""
        from securebench.agents.catalogue import PROGRAMS

        return tuple(PROGRAMS)

    def has_agent(self, name: str) -> bool:
        """Return whether the agent store has the program's default version for this machine, undamaged."""
        from securebench.agents.catalogue import machine_platform
        from securebench.agents.store import AgentStore

        return any(
            found.program.name == name and found.program.platform == machine_platform()
            for found in AgentStore().installed()
            if found.pinned and found.intact
        )

    def npm_registry(self) -> str:
        """Check that the npm registry answers, and return its name."""
        from securebench.agents.registry import NpmRegistry

        registry = NpmRegistry(timeouts=_timeouts())
        registry.ask()
        return str(registry)

    def package_mirror(self) -> str:
        """Contact apt's first mirror through apt's proxy, and return the mirror's address."""
        from securebench.http.address import parse_address
        from securebench.http.client import HttpClient
        from securebench.http.errors import HttpError
        from securebench.http.timeouts import Deadline
        from securebench.images.build.debian import machine_mirrors

        addresses = (word for line in machine_mirrors("stable") for word in line.split() if word.startswith("http"))
        address = next(addresses, None)
        if address is None:
            raise LookupError("apt is not installed or has no Debian mirror")
        try:
            http = HttpClient(Deadline(_timeouts()), proxies=self._apt_proxies())
            http.get(parse_address(address, allow_plain=True)).close()
        except HttpError as error:
            raise OSError(f"{address} does not respond: {error}") from error
        return address

    def capacity(self) -> Capacity:
        """Measure the capacity as a run does."""
        from securebench.tester_run.planning.capacity import Capacity

        return Capacity.of_this_machine((self.here(), self.store()))

    def clock(self) -> ClockFacts:
        """Read the clock twice, and the time of a new file."""
        wall, steady = time.time(), time.monotonic()
        time.sleep(_CLOCK_SECONDS)
        with tempfile.TemporaryFile(dir=_existing(self.here()) if self.may_write(self.here()) else None) as file:
            written = os.fstat(file.fileno()).st_mtime
            now = time.time()
        jumped = (now - wall) - (time.monotonic() - steady)
        return ClockFacts(now, written, Path(securebench.__file__).stat().st_mtime, jumped)

    def _apt_proxies(self) -> dict[str, str]:
        from securebench.images.build.bootstrap import query

        found = {}
        for scheme in ("http", "https"):
            answer = query(("apt-config", "shell", "proxy", f"Acquire::{scheme}::Proxy")).stdout.strip()
            if match := re.fullmatch(r"proxy='(\S+)'", answer):
                found[scheme] = match[1]
        return found


def _timeouts() -> Timeouts:
    from securebench.http.timeouts import Timeouts

    return Timeouts(connect=_NETWORK_SECONDS, read=_NETWORK_SECONDS, total=_NETWORK_SECONDS)


def _existing(path: Path) -> Path:
    """Return ``path``, or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if place.exists())
