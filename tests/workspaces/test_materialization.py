"""Each component gets exactly the files that it may see."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from securebench.errors import MaterializationError, PathPolicyError, StorageError
from securebench.fs.walk import TreeLimits
from securebench.resources import Component, FileReference, Resource, ResourceBundle, ResourceKind, Visibility
from securebench.tasks import AssetRoot
from securebench.workspaces.materialization import VisibilityAwareMaterializer, asset_digest, json_bytes
from workspaces.users import ORDINARY_USER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CANARY = "the-hidden-canary"
PUBLIC = Resource("question", "What?", Visibility.PUBLIC)
INPUTS = Resource("tests", CANARY, Visibility.EVALUATION_INPUTS)
HIDDEN = Resource("answer", CANARY, Visibility.HIDDEN)


@pytest.fixture
def pack(tmp_path: Path) -> AssetRoot:
    """Return an asset root with a file, and a directory with a program."""
    root = tmp_path / "pack" / "assets"
    (root / "data/inner").mkdir(parents=True)
    (root / "input.csv").write_text("1,2\n")
    (root / "data/inner/one").write_text("one")
    (root / "data/run.sh").write_text("#!/bin/sh\n")
    (root / "data/run.sh").chmod(0o755)
    (root.parent / "secret").write_text(CANARY)
    return AssetRoot(root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty directory."""
    path = tmp_path / "root"
    path.mkdir()
    return path


def _assets(*files: FileReference) -> Resource:
    return Resource("assets", [file.path for file in files], Visibility.PUBLIC, ResourceKind.ASSETS, files)


def _lay_out(
    root: Path, pack: AssetRoot, files: Sequence[FileReference], limits: TreeLimits | None = None
) -> dict[str, bytes]:
    materializer = VisibilityAwareMaterializer(Component.AGENT, *([limits] if limits else []))
    materializer.materialize(materializer.plan(ResourceBundle((_assets(*files),)), public_assets=pack), root)
    return _files(root)


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_the_agent_finds_its_payload_and_its_values(root: Path) -> None:
    """Contract 6: the agent gets task.json and one file for each public value, and nothing else."""
    materializer = VisibilityAwareMaterializer(Component.AGENT)
    bundle = ResourceBundle((PUBLIC, Resource("choices", ["a", "b"], Visibility.PUBLIC)))
    materializer.materialize(materializer.plan(bundle, task_file="task.json"), root)
    assert _files(root) == {
        "securebench/public/choices.json": b'[\n  "a",\n  "b"\n]\n',
        "securebench/public/question.json": b'"What?"\n',
        "task.json": b'{\n  "choices": [\n    "a",\n    "b"\n  ],\n  "question": "What?"\n}\n',
    }


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        (Component.AGENT, {"securebench/public/question.json"}),
        (
            Component.TEST_SANDBOX,
            {"securebench/public/question.json", "securebench/evaluation_inputs/tests.json"},
        ),
        (Component.EVALUATOR, {"securebench/public/question.json", "securebench/evaluator/answer.json"}),
    ],
)
def test_each_component_finds_its_lanes(root: Path, component: Component, expected: set[str]) -> None:
    """F06: each component gets only the lanes that it may see."""
    materializer = VisibilityAwareMaterializer(component)
    bundle = ResourceBundle((PUBLIC, INPUTS, HIDDEN)).visible_to(component)
    materializer.materialize(materializer.plan(bundle), root)
    files = _files(root)
    assert set(files) == expected
    if component is Component.AGENT:
        assert all(CANARY.encode() not in content for content in files.values())


def test_another_lane_is_never_planned() -> None:
    """F18: a bundle with a resource that the component may not see is refused, not silently filtered."""
    with pytest.raises(MaterializationError) as refused:
        VisibilityAwareMaterializer(Component.AGENT).plan(ResourceBundle((PUBLIC, HIDDEN)))
    assert refused.value.code == "resource-not-visible"
    assert CANARY not in str(refused.value)


def test_only_listed_files_are_copied(root: Path, pack: AssetRoot) -> None:
    """F06: files next to an asset are not copied."""
    assert set(_lay_out(root, pack, [FileReference("input.csv")])) == {
        "input.csv",
        "securebench/public/assets.json",
    }


def test_a_directory_is_copied_with_what_is_in_it(root: Path, pack: AssetRoot) -> None:
    """A directory is copied to its mount with all its content, and programs stay executable."""
    files = _lay_out(root, pack, [FileReference("data", "given/data", read_only=False)])
    assert files["given/data/inner/one"] == b"one"
    modes = {path: stat.S_IMODE((root / "given/data" / path).stat().st_mode) for path in ("run.sh", "inner/one")}
    assert modes == {"run.sh": 0o755, "inner/one": 0o644}


def test_a_read_only_asset_is_named(root: Path, pack: AssetRoot) -> None:
    """D10: a read-only asset has mode 0444 and is reported as read-only, so that the caller can mount it read-only."""
    materializer = VisibilityAwareMaterializer(Component.AGENT)
    resource = _assets(FileReference("input.csv"), FileReference("data", read_only=False))
    done = materializer.materialize(materializer.plan(ResourceBundle((resource,)), public_assets=pack), root)
    assert [(asset.target, asset.read_only) for asset in done] == [("input.csv", True), ("data", False)]
    assert stat.S_IMODE((root / "input.csv").stat().st_mode) == 0o444


def test_owners_are_those_who_may_write(root: Path, pack: AssetRoot) -> None:
    """D10: the agent owns its files, but not a read-only asset, because its owner could change its mode."""
    if os.getuid() != 0:
        pytest.skip("only root gives files away")
    materializer = VisibilityAwareMaterializer(Component.AGENT)
    resource = _assets(FileReference("input.csv", "a/input.csv"), FileReference("data", "b", read_only=False))
    plan = materializer.plan(ResourceBundle((resource,)), public_assets=pack, task_file="task.json")
    materializer.materialize(plan, root, (ORDINARY_USER, ORDINARY_USER))
    paths = ("task.json", "a", "a/input.csv", "b", "b/inner/one", "securebench/public")
    owners = {path: (root / path).stat().st_uid for path in paths}
    assert owners == dict.fromkeys(paths, ORDINARY_USER) | {"a/input.csv": 0}


def test_an_eval_file_appears_in_its_lane(root: Path, pack: AssetRoot) -> None:
    """Contract 6: an eval file is copied to its mount.

    Without a mount, it is copied to the directory of its lane and keeps its relative path.
    """
    resource = Resource(
        "test_files",
        None,
        Visibility.EVALUATION_INPUTS,
        ResourceKind.FILE,
        (FileReference("input.csv"), FileReference("data/run.sh", "securebench/evaluation_inputs/run-tests.sh")),
    )
    materializer = VisibilityAwareMaterializer(Component.TEST_SANDBOX)
    materializer.materialize(materializer.plan(ResourceBundle((resource,)), eval_assets=pack), root)
    assert set(_files(root)) == {
        "securebench/evaluation_inputs/input.csv",
        "securebench/evaluation_inputs/run-tests.sh",
    }


def test_a_file_without_an_asset_root_is_refused() -> None:
    """A reference to a file is refused in the plan if the asset root is unknown."""
    with pytest.raises(MaterializationError, match="no asset root"):
        VisibilityAwareMaterializer(Component.AGENT).plan(ResourceBundle((_assets(FileReference("input.csv")),)))


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([FileReference("input.csv", "a"), FileReference("data", "a")], id="equal"),
        pytest.param([FileReference("input.csv", "a"), FileReference("data", "a/b")], id="below"),
        pytest.param([FileReference("input.csv", "a"), FileReference("data", "A")], id="case"),
        pytest.param([FileReference("input.csv", "task.json")], id="task file"),
        pytest.param([FileReference("input.csv", ".git/config")], id=".git"),
        pytest.param([FileReference("input.csv", "securebench/public/question.json")], id="securebench"),
        pytest.param([FileReference("input.csv", "given.json")], id="the tester's task file"),
        pytest.param([FileReference("../secret", "secret")], id="source outside"),
    ],
)
def test_a_plan_never_collides(pack: AssetRoot, files: list[FileReference]) -> None:
    """K14, F06: colliding mounts, mounts reserved for SecureBench, and sources outside the assets are refused."""
    bundle = ResourceBundle((PUBLIC, _assets(*files)))
    with pytest.raises(PathPolicyError):
        VisibilityAwareMaterializer(Component.AGENT).plan(bundle, public_assets=pack, task_file="given.json")


@pytest.mark.parametrize("kind", ["link", "link below", "linked directory", "fifo", "set-id", "absent"])
def test_an_asset_that_turned_bad_is_refused(root: Path, pack: AssetRoot, host_canary: Path, kind: str) -> None:
    """K13, H01, H05: an asset that is a link, FIFO or set-id file, or missing, is refused without blocking."""
    path = "given/file"
    directory = pack.directory / "given"
    if kind == "linked directory":
        directory.symlink_to(host_canary.parent)
        path = f"given/{host_canary.name}"
    else:
        directory.mkdir()
        _set_asset_trap(directory / "file", kind, host_canary)
        path = "given" if kind == "link below" else path
    with processor_seconds(1), pytest.raises(MaterializationError) as refused:
        _lay_out(root, pack, [FileReference(path, "mounted")])
    assert refused.value.code == ("asset-missing" if kind == "absent" else "asset-unsafe")
    assert b"untouched" not in b"".join(_files(root).values())


def _set_asset_trap(file: Path, kind: str, canary: Path) -> None:
    if kind.startswith("link"):
        file.symlink_to(canary)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "set-id":
        file.write_text("content")
        file.chmod(0o4755)


@pytest.mark.parametrize("limits", [TreeLimits(total_bytes=5), TreeLimits(entries=2)])
def test_all_assets_of_a_task_share_one_limit(root: Path, pack: AssetRoot, limits: TreeLimits) -> None:
    """K13: the limits hold for all assets of a task together: two small assets fit, but three are refused."""
    for name in ("a", "b", "c"):
        (pack.directory / name).write_bytes(b"12")
    assert len(_lay_out(root, pack, [FileReference("a", "x"), FileReference("b", "y")], limits)) == 3
    other = root.parent / "other"
    other.mkdir()
    with pytest.raises(MaterializationError) as refused:
        _lay_out(other, pack, [FileReference("a"), FileReference("b"), FileReference("c")], limits)
    assert refused.value.code == "assets-too-large"


@pytest.mark.parametrize("kind", ["file", "link", "linked directory"])
def test_what_lies_in_the_way_is_never_written_over(root: Path, host_canary: Path, kind: str) -> None:
    """A13: a file or link in the way of a file of SecureBench is an error. Nothing is written through links."""
    place = root / "securebench/evaluation_inputs/tests.json"
    if kind == "linked directory":
        place.parent.parent.mkdir()
        place.parent.symlink_to(host_canary.parent)
    else:
        place.parent.mkdir(parents=True)
        place.symlink_to(host_canary) if kind == "link" else place.write_text("theirs")
    materializer = VisibilityAwareMaterializer(Component.TEST_SANDBOX)
    with pytest.raises(MaterializationError) as refused:
        materializer.materialize(materializer.plan(ResourceBundle((INPUTS,))), root)
    assert refused.value.code == "target-exists"


def test_a_disk_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    """L07: a missing target directory is an error of the machine, not of the pack."""
    materializer = VisibilityAwareMaterializer(Component.AGENT)
    with pytest.raises(StorageError):
        materializer.materialize(materializer.plan(ResourceBundle((PUBLIC,))), tmp_path / "absent")


class TestAssetDigest:
    """The digest that shows whether an asset has changed."""

    @pytest.mark.parametrize("path", ["input.csv", "data"])
    def test_a_copy_has_the_digest_that_was_reported(self, root: Path, pack: AssetRoot, path: str) -> None:
        """D10: an unchanged copy of an asset has the digest that materialisation reported."""
        materializer = VisibilityAwareMaterializer(Component.AGENT)
        plan = materializer.plan(ResourceBundle((_assets(FileReference(path, "x/y")),)), public_assets=pack)
        (asset,) = materializer.materialize(plan, root)
        assert asset_digest(root, "x/y") == asset.digest

    @pytest.mark.parametrize("change", ["content", "name", "more", "less", "kind", "mode"])
    def test_any_change_shows(self, pack: AssetRoot, change: str) -> None:
        """D10: a change of content, a name, a kind, the executable bit or the number of files changes the digest."""
        before = asset_digest(pack.directory, "data")
        one = pack.directory / "data/inner/one"
        if change == "content":
            one.write_text("two")
        elif change == "name":
            one.rename(one.with_name("two"))
        elif change == "more":
            (one.parent / "two").write_text("")
        elif change == "mode":
            one.chmod(0o755)
        else:
            one.unlink()
            if change == "kind":
                one.mkdir()
        assert asset_digest(pack.directory, "data") != before


def test_payloads_are_readable_and_sorted() -> None:
    """Contract 6: JSON has a two-space indent, sorted keys, a newline at the end, and unescaped letters."""
    assert json_bytes({"b": "größe", "a": [1]}) == '{\n  "a": [\n    1\n  ],\n  "b": "größe"\n}\n'.encode()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(value=_JSON | st.text(st.characters(categories=("Cs", "Ll"))))
def test_every_value_survives_the_way_through_a_file(value: object) -> None:
    """Any JSON value, even one with lone surrogates, is written as UTF-8.

    Reading it back gives the same value as reading the output of ``json.dumps``.
    """
    written = json_bytes(value).decode("utf-8")  # type: ignore[arg-type]  # hypothesis's type is too general
    assert json.loads(written) == json.loads(json.dumps(value))
