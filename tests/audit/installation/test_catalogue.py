"""The catalogue of attacks: mistakes in it are refused, and everything that it refers to exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from securebench.audit.installation.catalogue import (
    CatalogueEntry,
    CatalogueSection,
    entries_of,
    read_catalogue,
    select_entries,
)
from securebench.audit.installation.model import AuditOutcome
from securebench.audit.installation.render import rows_of
from securebench.audit.installation.run import KINDS
from securebench.errors import ConfigError
from securebench.testing.breakout import ATTEMPTS, EVIDENCE

ROOT = Path(__file__).resolve().parents[3]

SECURITY_PAGE = ROOT / "docs" / "explanation" / "security.md"

VALID = """\
sections:
  - id: A
    title: First
    entries:
      - id: A01
        title: One
        attack: It does something.
        contained_by: Something stops it.
        probes: [code]
      - id: A02
        title: Two
        attack: It does something.
        contained_by: Something stops it.
        not_applicable: it cannot happen
"""


@cache
def catalogue() -> tuple[CatalogueSection, ...]:
    """Return the catalogue. It is not read at import, because that would slow down each process that collects tests."""
    return read_catalogue()


@cache
def entries() -> dict[str, CatalogueEntry]:
    """Return the entries by id."""
    return {entry.id: entry for entry in entries_of(catalogue())}


def test_the_catalogue_is_complete() -> None:
    """All sections are there, in order. Descriptions of entries end with a full stop, and titles do not."""
    assert [section.id for section in catalogue()] == list("ABCDEFGHIJKLMNO")
    for entry in entries().values():
        assert entry.attack.endswith(".")
        assert entry.contained_by.endswith(".")
        assert not entry.title.endswith(".")


def test_every_probe_exists() -> None:
    """A probe is a known kind with an item for the entry, or ``kind/item`` with a known item of this kind."""
    kinds = {kind.name: kind for kind in KINDS}
    for entry in entries().values():
        for probe in entry.probes:
            name, _, item = probe.partition("/")
            assert name in kinds, f"{entry.id}: there is no kind {name!r}"
            if item:
                assert item in kinds[name].items, f"{entry.id}: {name} has no item {item!r}"
            else:
                assert entry.id in kinds[name].items.values(), f"{entry.id}: {name} has no item that names it"


def test_every_item_that_names_an_entry_is_used() -> None:
    """If an item names an entry, the probes of this entry contain ``kind`` or ``kind/item``."""
    for kind in KINDS:
        for item, entry_id in kind.items.items():
            if entry_id:
                assert entry_id in entries(), f"{kind.name}/{item} names {entry_id}, which is not in the catalogue"
                assert {kind.name, f"{kind.name}/{item}"} & set(entries()[entry_id].probes), f"{kind.name}/{item}"


def test_every_test_exists() -> None:
    """Each test that an entry refers to is in the file, and in the class, that the entry names."""
    for entry in entries().values():
        for test in entry.tests:
            file, *names = test.split("::")
            node: ast.AST = ast.parse((ROOT / file).read_text())
            for name in names:
                inside = [part for part in ast.iter_child_nodes(node) if getattr(part, "name", "") == name]
                assert inside, f"{entry.id}: {test} does not exist"
                node = inside[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_test_is_collected(request: pytest.FixtureRequest) -> None:
    """Pytest finds each test that an entry refers to. Those not collected in this run are collected separately."""
    collected = {item.nodeid.partition("[")[0] for item in request.session.items}
    names = sorted({test for entry in entries().values() for test in entry.tests} - collected)
    if not names:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _problem(tmp_path: Path, text: str) -> str:
    path = tmp_path / "catalogue.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_catalogue(path)
    return str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("title: Two", "titel: Two", "11:9", "did you mean 'title'"),
        ("id: A02", "id: A01", "10:13", "must come after 'A01'"),
        ("id: A02", "id: B02", "10:13", "must begin with 'A'"),
        ("id: A02", "id: a2", "10:13", "an id such as 'A01'"),
        ("        probes: [code]\n", "", "5:9", "must have 'probes', 'tests' or both"),
        ("probes: [code]", "probes: []", "9:17", "at least 1 item"),
        ("probes: [code]", "tests: [test_x]", "9:17", "is not a test such as"),
        ("        not_applicable: it", "        probes: [x]\n        not_applicable: it", "10:9", "or only"),
        ("title: One\n", "title: One\n        title: One\n", "7:9", "key"),
    ],
)
def test_a_wrong_catalogue_is_refused_with_its_place(tmp_path: Path, old: str, new: str, where: str, what: str) -> None:
    """A mistake in the catalogue is reported with its line and column."""
    problem = _problem(tmp_path, VALID.replace(old, new))
    assert f":{where}" in problem
    assert what in problem


def test_entries_are_selected_by_patterns() -> None:
    """Entries are selected by ids and patterns in upper or lower case. A pattern without a match is an error."""
    assert [entry.id for entry in entries_of(select_entries(catalogue(), ["b01", "N1*"]))] == [
        *("B01", "N10", "N11", "N12", "N13", "N14"),
    ]
    assert select_entries(catalogue(), []) == catalogue()
    with pytest.raises(ConfigError) as refused:
        select_entries(catalogue(), ["Z99"])
    assert refused.value.code == "audit-entry-unknown"


def test_the_security_page_shows_the_catalogue() -> None:
    """The page has a row for each entry, in order, with its texts and tests.

    It also has a row for each escape attempt, and for each check of the host after these attempts.
    No row has the outcome "not contained".
    """
    page = SECURITY_PAGE.read_text(encoding="utf-8")
    assert rows_of(page, "catalogue") == list(entries())
    for entry in entries().values():
        row = f"| {entry.id} | **{entry.title}.** {entry.attack} | {entry.contained_by} |"
        _, found, rest = page.partition(row)
        assert found, row
        assert re.findall(r"`(\S+\.py::\S+)`", rest.partition("\n")[0]) == [
            test.removeprefix("tests/") for test in entry.tests
        ], f"{row}: the table names other tests than the catalogue"
    assert sorted(rows_of(page, "breakout")) == sorted([*ATTEMPTS, *(one.name for one in EVIDENCE)])
    assert f"**{AuditOutcome.NOT_CONTAINED}**" not in page
