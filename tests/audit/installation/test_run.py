"""A whole audit: the drivers that it uses, its report if none is available, and the removal of its files."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import pytest

from securebench.audit.installation import run
from securebench.audit.installation.catalogue import (
    CatalogueEntry,
    CatalogueSection,
    read_catalogue,
    select_entries,
)
from securebench.audit.installation.model import AuditOutcome
from securebench.audit.installation.probes import ProbeFinding, ProbeKind
from securebench.audit.installation.run import AuditRequest, audit_installation
from securebench.errors import EngineError
from securebench.images.store.image_store import ImageStore
from securebench.testing.judging.repository_image import repository_image
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE as SCRIPTED_IMAGE
from securebench.testing.scripted_sandbox import ScriptedDriver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from securebench.audit.installation.model import AuditReport


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create temporary files in a directory of the test that other users may enter."""
    place = tmp_path / "tmp"
    place.mkdir()
    for path in (place, *list(place.parents)[:2]):
        path.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(place))


def audit(*entries: str, drivers: tuple[str, ...] = ()) -> AuditReport:
    """Audit the catalogue entries with these ids or patterns."""
    return audit_installation(AuditRequest(select_entries(read_catalogue(), entries), drivers))


def no_driver(name: str) -> NoReturn:
    """Raise the error of a driver that is not installed."""
    raise EngineError(f"{name} is not installed")


def test_a_machine_without_drivers_can_be_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without drivers, sandbox probes are not applicable, host probes run, and each missing driver has a reason."""
    monkeypatch.setattr(run, "_open", no_driver)
    report = audit("B01", "E01", "E14", "N01")
    assert {name: result.outcome for name, result in report.entries.items()} == {
        "B01": AuditOutcome.NOT_APPLICABLE,
        "E01": AuditOutcome.CONTAINED,
        "E14": AuditOutcome.NOT_CHECKED,
        "N01": AuditOutcome.NOT_APPLICABLE,
    }
    assert report.entries["B01"].why == "no driver can make sandboxes on this machine"
    assert [driver.missing for driver in report.drivers] == [f"{name} is not installed" for name in run.DRIVERS]
    assert report.holds


def test_a_driver_that_was_named_must_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a driver that the user named is not available, the audit raises its error."""
    monkeypatch.setattr(run, "_open", no_driver)
    with pytest.raises(EngineError, match="crun is not installed"):
        audit("B01", drivers=("crun",))


def test_without_need_no_driver_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver is opened if the selected entries are checked only on the host."""
    monkeypatch.setattr(run, "_open", no_driver)
    assert audit("E*", drivers=("crun",)).drivers == ()


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ((), {"breakout on crun", "code on crun", "breakout on docker"}),
        (("crun", "docker"), {"breakout on crun", "code on crun", "breakout on docker", "code on docker"}),
    ],
)
def test_verdicts_are_attacked_on_one_driver_unless_several_are_named(
    monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...], expected: set[str]
) -> None:
    """By default only the first available driver runs the kinds marked ``once``. Each named driver runs all kinds."""

    def kind(name: str, *, once: bool) -> ProbeKind:
        def contained(_context: object, names: Collection[str]) -> list[ProbeFinding]:
            return [ProbeFinding.of(item, "", "stopped") for item in names]

        return ProbeKind(name, name, {"x": "B01"}, contained, sandboxed=True, once=once)

    def open_driver(name: str) -> ScriptedDriver:
        return ScriptedDriver() if name in {"crun", "docker"} else no_driver(name)

    monkeypatch.setattr(run, "KINDS", (kind("breakout", once=False), kind("code", once=True)))
    monkeypatch.setattr(run, "_open", open_driver)
    entry = CatalogueEntry(id="B01", title="One", attack="x", contained_by="y", probes=["breakout", "code"])
    sections = (CatalogueSection(id="B", title="Code", entries=[entry]),)
    report = audit_installation(AuditRequest(sections, named, image=SCRIPTED_IMAGE))
    assert {f"{one.kind} on {one.place}" for one in report.entries["B01"].results} == expected


@pytest.mark.oci
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("oci_driver")
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit removes its temporary files and the image with a repository that it built."""
    made: set[str] = set()

    def names_of(image: str) -> set[str]:
        names = [{entry.reference or entry.id, entry.id} for entry in ImageStore().entries()]
        return next((each for each in names if image in each), set())

    @contextmanager
    def noted(base: str) -> Iterator[str]:
        with repository_image(base) as name:
            made.update(names_of(name))
            yield name

    monkeypatch.setattr(run, "repository_image", noted)
    report = audit("A02", "C19", "G01", drivers=("crun",))
    assert {result.outcome for result in report.entries.values()} == {AuditOutcome.CONTAINED}
    assert list((tmp_path / "tmp").iterdir()) == []
    assert len(made) == 2  # a reference and an id
    assert not any(map(names_of, made))
