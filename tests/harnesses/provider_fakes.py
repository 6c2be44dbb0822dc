"""A fake program cache, a fake gateway and the files of a fake image, for tests of agents with a provider."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elf_files import AARCH64, X86_64, elf_file
from securebench.agents.catalogue import LATEST, PROGRAMS, machine_platform
from securebench.agents.model import AgentProgram
from securebench.agents.store import AgentStore
from securebench.egress.gateway import EgressSession, Gateway
from securebench.egress.model import EgressReport, ProbeReport, RelayReport
from securebench.harnesses.base import RunContext
from securebench.images.store.image_store import ImageStore
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from securebench.agents.progress import OnProgress
    from securebench.egress.model import EgressPlan, RelayPlan
    from securebench.errors import EgressError
    from securebench.resources import JsonValue
    from securebench.sandboxes.base import ForwardedPort
    from securebench.testing.scripted_sandbox import ScriptedDriver
    from securebench.trials import TrialId

KEY = "sk-canary-0123456789-abcdef"
KEYS = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
NEWEST = "9.9.9"
MACHINE = {"x86_64": X86_64, "aarch64": AARCH64}[os.uname().machine]
WORKED = RelayReport(
    requests=3, answered=3, statuses={"200": 3}, input_tokens=3600, output_tokens=102, bytes=99, refused={"path": 1}
)


def image_files(name: str, platform: str = "") -> dict[str, bytes]:
    """Return the files of an image in which the program ``name`` runs. The default ``platform`` is this machine's."""
    loader = PROGRAMS[name].variant(platform or machine_platform()).interpreter
    files = {"/bin/sh": elf_file(MACHINE), "/etc/passwd": b"root:x:0:0::/:\n"}
    return files | ({loader: elf_file(MACHINE, mark=b"GLIBC_PRIVATE")} if loader else {})


class FakeStore(AgentStore):
    """A program cache that creates each requested program. ``requested`` lists the requested versions."""

    def __init__(self, directory: Path) -> None:
        super().__init__(ImageStore(directory))
        self.requested: list[str | None] = []

    def install(
        self,
        name: str,
        version: str | None = None,
        platform: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> AgentProgram:
        """Create and return a program whose executable names the loader of its platform."""
        self.requested.append(version)
        variant = PROGRAMS[name].variant(platform or machine_platform())
        directory = self.images.directory / variant.platform
        executable = directory / variant.executable
        executable.parent.mkdir(parents=True, exist_ok=True)
        executable.write_bytes(elf_file(MACHINE, variant.interpreter))
        found = NEWEST if version == LATEST else version or PROGRAMS[name].pinned
        return AgentProgram(
            name=name,
            version=found,
            platform=variant.platform,
            integrity=f"sha512-{variant.platform}",
            directory=directory,
            executable=variant.executable,
        )


class FakeSession(EgressSession):
    """An egress session without connections. ``report`` is its report; :meth:`die` simulates the gateway's death."""

    def __init__(self, report: EgressReport, environment: Mapping[str, str]) -> None:
        self.forwarded_ports: tuple[ForwardedPort, ...] = ()
        self.environment = environment
        self.relay_url = "http://127.0.0.1:8788"
        self.report = report
        self.closed = 0
        self.error: EgressError | None = None
        self._calls: list[Callable[[], None]] = []

    def on_death(self, call: Callable[[], None]) -> None:
        """Store ``call``, which :meth:`die` calls."""
        self._calls.append(call)

    def die(self, error: EgressError) -> None:
        """Simulate the death of the gateway because of ``error``."""
        self.error = error
        for call in self._calls:
            call()

    def close(self) -> EgressReport:
        """Return the report, or raise the error of :meth:`die`."""
        self.closed += 1
        if self.error is not None:
            raise self.error
        return self.report


@dataclass
class FakeGateway(Gateway):
    """A gateway that records the plans of its sessions. ``relay`` is the relay report of each session."""

    relay: RelayReport | None = WORKED
    environment: dict[str, str] = field(default_factory=dict)
    plans: list[tuple[TrialId, EgressPlan]] = field(default_factory=list)
    sessions: list[FakeSession] = field(default_factory=list)
    answers: list[ProbeReport] = field(default_factory=list)
    """The reports that the next probes return, in order. When none are left, probes succeed."""
    probes: list[tuple[TrialId | None, str]] = field(default_factory=list)
    """The trial and the model of each probe."""

    def probe(self, trial: TrialId | None, plan: RelayPlan, model: str) -> ProbeReport:
        """Record the probe, and return the next report from ``answers``."""
        self.probes.append((trial, model))
        return self.answers.pop(0) if self.answers else ProbeReport(status=200, input_tokens=9, output_tokens=1)

    def open(self, trial: TrialId, plan: EgressPlan) -> FakeSession:
        """Record the plan, and return a fake session."""
        self.plans.append((trial, plan))
        report = EgressReport(decisions={"allowed": 2}, hosts={"example.org": 2}, bytes=7, relay=self.relay)
        self.sessions.append(FakeSession(report, self.environment))
        return self.sessions[-1]

    def close(self) -> None:
        """Do nothing."""


def run_context(
    driver: ScriptedDriver,
    *images: str,
    variables: Mapping[str, str] | None = None,
    agent: Mapping[str, JsonValue] | None = None,
) -> RunContext:
    """Return the context that a harness gets to prepare a run."""
    return RunContext(
        driver=driver,
        images=tuple(driver.resolve_image(image) for image in images or (DEFAULT_IMAGE,)),
        variables=KEYS if variables is None else variables,
        notify=lambda _text: None,
        agent=agent or {},
    )
