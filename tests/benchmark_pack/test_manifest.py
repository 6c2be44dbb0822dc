"""Manifests of packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack_files import MANIFEST, codes_of, load, problems_of, row, write_pack
from securebench.benchmark_pack import AssetRoots, load_benchmark_pack
from securebench.errors import ConfigError
from securebench.tasks import Environment

if TYPE_CHECKING:
    from pathlib import Path

FULL = """\
id: my-benchmark   # required
version: 1
defaults:
  family: multiple_choice
  environment:
    image: python:3.11-slim
    timeout_seconds: 120
asset_roots:
  public: public/
  eval: secret/files/
asset_defaults:
  read_only: false
"""


def test_a_manifest_gives_what_rows_leave_out(tmp_path: Path) -> None:
    """The pack's id, version and asset roots, and defaults for its rows, are taken from the manifest."""
    pack = load(tmp_path, {key: value for key, value in row().items() if key != "family"}, manifest=FULL)
    assert (pack.id, pack.version) == ("my-benchmark", 1)
    assert pack.rows[0].family == "multiple_choice"
    assert pack.rows[0].environment == Environment("python:3.11-slim", None, 120)
    assert pack.asset_roots == AssetRoots("public/", "secret/files/", read_only=False)


def test_without_them_the_documented_defaults_hold(tmp_path: Path) -> None:
    """A manifest with only an id and a version is valid and gets the documented defaults."""
    pack = load(tmp_path, row())
    assert pack.asset_roots == AssetRoots("assets/", "hidden/", read_only=True)
    assert pack.rows[0].environment == Environment()


@pytest.mark.parametrize(
    ("own", "merged"),
    [
        ({}, Environment("base:1", "/app", 60.0)),
        ({"image": "own:2"}, Environment("own:2", "/app", 60.0)),
        ({"timeout_seconds": 5}, Environment("base:1", "/app", 5)),
        (
            {"workdir": "/src", "materialize_workdir_from_image": True},
            Environment("base:1", "/src", 60.0, materialize_workdir_from_image=True),
        ),
    ],
)
def test_k20_environments_merge_key_by_key(tmp_path: Path, own: dict[str, object], merged: Environment) -> None:
    """K20: a key in a row's environment replaces the manifest's default for that key; other defaults still apply."""
    defaults = "defaults: {environment: {image: 'base:1', workdir: /app, timeout_seconds: 60.0}}\n"
    pack = load(tmp_path, row("terminal_task", environment=own), manifest=MANIFEST + defaults)
    assert pack.rows[0].environment == merged


@pytest.mark.parametrize("family", ["multiple_choice", "code_completion", "repo_patch"])
def test_only_a_terminal_task_begins_as_its_image(tmp_path: Path, family: str) -> None:
    """D123: only a ``terminal_task`` row may set ``materialize_workdir_from_image``.

    A default for it in the manifest is accepted even in a pack whose rows belong to other families.
    """
    asking = row(family, environment={"workdir": "/app", "materialize_workdir_from_image": True})
    assert codes_of(tmp_path, asking) == ["field-value"]
    defaults = "defaults: {environment: {workdir: /app, materialize_workdir_from_image: true}}\n"
    assert load(tmp_path, row(family), manifest=MANIFEST + defaults).rows


def test_k20_null_removes_nothing(tmp_path: Path) -> None:
    """K20: null is refused in a row and in the manifest, so it cannot remove a default."""
    assert codes_of(tmp_path, row(environment={"image": None})) == ["field-type"]
    assert codes_of(tmp_path, row(), manifest=MANIFEST + "defaults:\n") == ["field-type"]


@pytest.mark.parametrize(
    ("manifest", "code", "place"),
    [
        pytest.param("version: 1\n", "field-missing", (1, 1), id="no-id"),
        pytest.param("id: x\n", "field-missing", (1, 1), id="no-version"),
        pytest.param("id: x\nversion: '1'\n", "field-type", (2, 10), id="version-text"),
        pytest.param("id: x\nversion: 1.0\n", "field-type", (2, 10), id="version-float"),
        pytest.param("id: x\nversion: true\n", "field-type", (2, 10), id="version-bool"),
        pytest.param("id: x\nversion: -1\n", "field-value", (2, 10), id="version-negative"),
        pytest.param("id: x\nversion: 0\n", "field-value", (2, 10), id="version-zero"),
        pytest.param("id: x\nversion: 0o7\n", "yaml-value", (2, 10), id="version-octal"),
        pytest.param("id: x\nversion: 0x10\n", "yaml-value", (2, 10), id="version-hex"),
        pytest.param("id: 7\nversion: 1\n", "field-type", (1, 5), id="id-number"),
        pytest.param("id: ''\nversion: 1\n", "id-invalid", (1, 5), id="id-empty"),
        pytest.param("id: 2024-01-01\nversion: 1\n", "yaml-value", (1, 5), id="K03-id-date"),
        pytest.param("id: no\nversion: 1\n", "yaml-value", (1, 5), id="K03-id-no"),
        pytest.param("- x\n", "field-type", (1, 1), id="a-list"),
        pytest.param("", "field-type", (1, 1), id="empty"),
        pytest.param(MANIFEST + "familly: x\n", "field-unknown", (3, 1), id="unknown-key"),
        pytest.param(MANIFEST + "defaults: {family: tool_cal}\n", "family-unknown", (3, 20), id="unknown-family"),
        pytest.param(MANIFEST + "defaults: {environment: {image: '-x'}}\n", "image-invalid", (3, 33), id="K15-image"),
        pytest.param(MANIFEST + "asset_roots: {public: /etc}\n", "path-unsafe", (3, 23), id="K12-absolute-root"),
        pytest.param(MANIFEST + "asset_roots: {eval: ../x}\n", "path-unsafe", (3, 21), id="K12-climbing-root"),
        pytest.param(MANIFEST + "asset_roots: {eval: 'a\\b'}\n", "path-unsafe", (3, 21), id="K12-backslash-root"),
        pytest.param(MANIFEST + "asset_roots: {public: .}\n", "path-unsafe", (3, 23), id="F06-root-is-the-pack"),
        pytest.param(MANIFEST + "asset_roots: {eval: assets}\n", "asset-roots-overlap", (3, 14), id="F06-same-root"),
        pytest.param(
            MANIFEST + "asset_roots: {public: a, eval: A/b}\n", "asset-roots-overlap", (3, 14), id="F06-root-in-root"
        ),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_place(
    tmp_path: Path, manifest: str, code: str, place: tuple[int, int]
) -> None:
    """Each fault in a manifest is reported with its code, line and column."""
    problem = problems_of(tmp_path, row(), manifest=manifest)[0]
    assert problem.location is not None
    assert (problem.code, problem.location.line, problem.location.column) == (code, *place)


def test_rows_never_lie_where_the_agent_looks(tmp_path: Path) -> None:
    """F06: a tasks file below the public asset root is refused, because the agent would see every answer."""
    (tmp_path / "assets").mkdir()
    manifest, tasks = write_pack(tmp_path, row())
    inside = tmp_path / "assets" / "tasks.jsonl"
    tasks.rename(inside)
    with pytest.raises(ConfigError) as caught:
        load_benchmark_pack(manifest, inside)
    assert caught.value.code == "asset-roots-overlap"


def test_a_link_in_place_of_a_manifest_or_rows_is_refused(tmp_path: Path) -> None:
    """K13: a symbolic link in place of the manifest or of the tasks file is refused."""
    manifest, tasks = write_pack(tmp_path, row())
    for file in (manifest, tasks):
        real = file.rename(tmp_path / "real")
        file.symlink_to(real)
        with pytest.raises(ConfigError) as caught:
            load_benchmark_pack(manifest, tasks)
        assert caught.value.code == "file-not-regular"
        file.unlink()
        real.rename(file)


def test_links_that_loop_are_refused(tmp_path: Path) -> None:
    """K13: a symbolic link to itself, in place of a file or of its directory, is a configuration error."""
    manifest, tasks = write_pack(tmp_path, row())
    (tmp_path / "loop").symlink_to("loop")
    for pair in ((tmp_path / "loop", tasks), (manifest, tmp_path / "loop"), (tmp_path / "loop" / "x", tasks)):
        with pytest.raises(ConfigError):
            load_benchmark_pack(*pair)


def test_a_manifest_is_not_endless(tmp_path: Path) -> None:
    """K01: a manifest that is larger than the limit is refused."""
    assert codes_of(tmp_path, row(), manifest=MANIFEST + "#" * 70_000) == ["file-too-large"]


@given(st.text(alphabet=st.sampled_from("idversonaultf: 01{}[],.-/'\"\n&*!~"), max_size=30), st.integers(0, 200))
def test_any_manifest_is_taken_or_refused(tmp_path: Path, noise: str, where: int) -> None:
    """A valid manifest with random text inserted is accepted, or refused with problems that have a location.

    No other error is raised.
    """
    for problem in problems_of(tmp_path, row(), manifest=FULL[:where] + noise + FULL[where:]):
        assert problem.location is not None
        assert problem.location.line is not None
