"""Probes in sandboxes: if a driver or verifier is weakened, the attacks on it are reported as not contained."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from securebench.audit.installation import candidate_probes, sandbox_probes
from securebench.audit.installation.model import AuditOutcome
from securebench.audit.installation.probes import ProbeContext
from securebench.audit.installation.run import KINDS
from securebench.egress.model import EgressPlan
from securebench.errors import EngineError
from securebench.sandboxes.base import Mount, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.wrapping import WrappedDriver
from securebench.testing.breakout import ATTEMPTS
from securebench.testing.judging.code import judge
from securebench.testing.judging.repository_image import repository_image
from securebench.testing.judging.unittests import unittest_job
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE as SCRIPTED_IMAGE
from securebench.testing.scripted_sandbox import ScriptedDriver
from testing.lying_drivers import AlwaysSucceeds, LyingDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import Sandbox, SandboxDriver

pytestmark = pytest.mark.oci

BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.fixture
def context(oci_driver: SandboxDriver, base_image: ResolvedImage, tmp_path: Path) -> ProbeContext:
    """Return a context in which probes use the oci driver."""
    tmp_path.chmod(0o755)
    return ProbeContext(tmp_path, "crun", oci_driver, base_image)


def outcomes(kind: str, context: ProbeContext, *names: str) -> dict[str, AuditOutcome]:
    """Run the named items of a kind in a new directory, and return the outcome of each."""
    place = Path(tempfile.mkdtemp(dir=context.scratch))
    place.chmod(0o755)
    context = replace(context, scratch=place)
    found = {finding.item: finding.outcome for finding in BY_NAME[kind].run(context, names)}
    return {name: found[name] for name in names}


def all_are(outcome: AuditOutcome, found: dict[str, AuditOutcome]) -> bool:
    """Return whether there are results, and all of them have this outcome."""
    return set(found.values()) == {outcome}


class SeesTheHost(WrappedDriver):
    """A driver whose sandboxes can access the temporary directory of the host."""

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Create a sandbox with that directory mounted."""
        place = Path(tempfile.gettempdir()).resolve()
        mounts = (*spec.mounts, Mount(place, str(place), read_only=False))
        return super().create(replace(spec, mounts=mounts, tmpfs=()), persistent=persistent)


READS = "read a file of the host by its absolute path"


def test_escapes_are_contained_and_an_open_host_is_noticed(context: ProbeContext) -> None:
    """A sandbox can read a file of the host only if the file's directory is mounted, and the probe then reports it."""
    assert all_are(AuditOutcome.CONTAINED, outcomes("breakout", context, READS))
    open_host = replace(context, driver=SeesTheHost(context.sandboxes[0]))
    assert all_are(AuditOutcome.NOT_CONTAINED, outcomes("breakout", open_host, READS))


def test_the_host_is_checked_after_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the host for damage first makes all attempts: without them, an undamaged host proves nothing."""
    made: list[list[str]] = []

    def record(_driver: object, _image: object, *, user: object, names: list[str]) -> list[object]:
        made.append(names)
        return []

    monkeypatch.setattr(sandbox_probes, "break_out", record)
    driver = ScriptedDriver()
    context = ProbeContext(Path(), "crun", driver, driver.resolve_image(SCRIPTED_IMAGE))
    list(BY_NAME["breakout"].run(context, ["remaining processes, after all attempts"]))
    assert made == [list(ATTEMPTS)] * 2
    list(BY_NAME["breakout"].run(context, [READS]))
    assert made[2:] == [[READS]] * 2


def test_a_driver_that_lies_does_not_conform(context: ProbeContext) -> None:
    """A driver that reports success for everything fails the checks of exit codes and time limits."""
    names = ("exit_codes_are_reported", "a_time_limit_ends_it")
    assert all_are(AuditOutcome.CONTAINED, outcomes("conformance", context, *names))
    lying = replace(context, driver=LyingDriver(context.sandboxes[0], process=AlwaysSucceeds))
    assert all_are(AuditOutcome.NOT_CONTAINED, outcomes("conformance", lying, *names))


@pytest.mark.slow
def test_a_proxy_that_allows_too_much_is_noticed(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox reaches the forbidden host only if the egress plan allows it, and the probe then reports it."""
    assert all_are(AuditOutcome.CONTAINED, outcomes("egress", context, "proxy"))
    both = ("allowed.example", "other.example")
    monkeypatch.setattr(sandbox_probes, "EgressPlan", lambda domains, relay: EgressPlan(domains=both, relay=relay))
    assert all_are(AuditOutcome.NOT_CONTAINED, outcomes("egress", context, "proxy"))


def test_a_key_in_any_form_is_reported_without_a_size(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message about a readable key states no number of bytes, because encoded forms have other lengths."""
    monkeypatch.setattr(sandbox_probes, "_KEY_PARTS", (b"placeholder".hex().encode(), b"placeholder"))
    (finding,) = BY_NAME["egress"].run(context, ["keys"])
    assert finding.outcome is AuditOutcome.NOT_CONTAINED
    assert finding.how == "the sandbox could read the host's key or a part of it"


def test_code_in_the_process_of_the_tests_is_noticed(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """If code runs in the process of its tests, two ways to cheat are reported as not contained.

    The code can return a value that is equal to everything, or end the loop over the test cases.
    """
    names = ("equal to everything", "end the loop over the cases")
    assert all_are(AuditOutcome.CONTAINED, outcomes("code", context, *names))
    monkeypatch.setattr(candidate_probes, "judge_code", partial(judge, isolation="shared"))
    assert all_are(AuditOutcome.NOT_CONTAINED, outcomes("code", context, *names))


def test_a_checker_whose_exit_code_is_lost_is_noticed(context: ProbeContext) -> None:
    """If the driver reports success for every command, wrong workspaces pass and are reported as not contained."""
    names = ("every known verdict file", "nothing")
    assert all_are(AuditOutcome.CONTAINED, outcomes("workspace", context, *names))
    lying = replace(context, driver=LyingDriver(context.sandboxes[0], process=AlwaysSucceeds))
    assert all_are(AuditOutcome.NOT_CONTAINED, outcomes("workspace", lying, *names))


@pytest.fixture
def with_repository(context: ProbeContext, base_image: ResolvedImage) -> Iterator[ProbeContext]:
    """Yield a context with a repository image, and with a driver that is closed before the image is removed."""
    with repository_image(base_image.reference) as name, closing(OciDriver()) as driver:
        yield replace(context, driver=driver, repository_image=name)


def test_tests_without_evidence_are_noticed(with_repository: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that ends the test process passes only if the verdict rests on the exit code alone."""
    names = ("os._exit(0) at import", "pytest.ini sets --collect-only")
    assert all_are(AuditOutcome.CONTAINED, outcomes("repository", with_repository, *names))
    by_exit_code = partial(unittest_job, command=["sh", "-c", "python3 -m unittest tests.test_numbers"], expect={})
    monkeypatch.setattr(candidate_probes, "unittest_job", by_exit_code)
    assert all_are(AuditOutcome.NOT_CONTAINED, outcomes("repository", with_repository, names[0]))


def test_without_a_known_solution_there_is_no_result(context: ProbeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the known solution fails, a cheat that fails proves nothing and is reported as not contained."""
    monkeypatch.setattr(candidate_probes, "_SORTS", "def solve(xs): return None")
    assert all_are(AuditOutcome.NOT_CONTAINED, outcomes("code", context, "SIGKILL"))


class Broken(WrappedDriver):
    """A driver that cannot create sandboxes."""

    def create(self, spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        """Raise an error of the engine."""
        raise EngineError("the engine is gone")


@pytest.mark.parametrize(("kind", "item"), [("workspace", "nothing"), ("code", "SIGKILL"), ("breakout", READS)])
def test_an_engine_that_fails_is_never_contained(context: ProbeContext, kind: str, item: str) -> None:
    """An error of the engine gives "no result", which the audit reports as not contained."""
    from securebench.audit.installation.catalogue import CatalogueEntry
    from securebench.audit.installation.run import AuditRequest, _run_kind

    broken = replace(context, driver=Broken(context.sandboxes[0]))
    entry = CatalogueEntry(id="A01", title="One", attack="x", contained_by="y", probes=[f"{kind}/{item}"])
    found: list[Any] = _run_kind(BY_NAME[kind], broken, [entry], AuditRequest(()))
    assert {result.outcome for result in found if result.item == item} == {AuditOutcome.NOT_CONTAINED}
    assert all(result.how.startswith("no result") for result in found if result.item == item)
