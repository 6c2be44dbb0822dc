"""Files of a pack that rows refer to: how they are checked, mounted and hashed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from pack_files import MANIFEST, codes_of, load, problems_of, row
from securebench.benchmark_pack import assets, model
from securebench.benchmark_pack.assets import digest_asset
from securebench.errors import ConfigError
from securebench.resources import FileReference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def pack_dir(tmp_path: Path) -> Path:
    """Return the directory of a pack, with a file and a tree in each of ``assets`` and ``hidden``."""
    for root in ("assets", "hidden"):
        (tmp_path / root / "tree" / "inner").mkdir(parents=True)
        (tmp_path / root / "a.txt").write_text(f"{root} a")
        (tmp_path / root / "tree" / "inner" / "b.txt").write_text("b")
    return tmp_path


def asset(path: str, **more: Any) -> dict[str, Any]:
    """Return a row with one public asset."""
    return row(assets=[{"path": path, **more}])


def terminal(**evals: Any) -> dict[str, Any]:
    """Return a ``terminal_task`` row with these additional eval fields."""
    return row("terminal_task", eval={"checker": {"command": "true"}, **evals})


def test_assets_are_mounted_where_they_say(pack_dir: Path) -> None:
    """The default of ``mount`` is the path of the asset. The manifest may set the default of ``read_only``."""
    given = [{"path": "a.txt", "mount": "in/x.txt", "read_only": False}, {"path": "tree"}]
    pack = load(pack_dir, row(assets=given))
    assert pack.rows[0].files == (FileReference("a.txt", "in/x.txt", read_only=False), FileReference("tree", "tree"))
    assert pack.rows[0].assets == tuple(given)
    writable = load(pack_dir, asset("tree"), manifest=MANIFEST + "asset_defaults: {read_only: false}\n")
    assert writable.rows[0].files == (FileReference("tree", "tree", read_only=False),)


def test_eval_files_are_mounted_below_their_lane(pack_dir: Path) -> None:
    """An eval field has one reference or several. A file without a ``mount`` is placed in the directory of its lane."""
    pack = load(
        pack_dir,
        terminal(
            run_tests={"path": "a.txt", "mount": "securebench/evaluation_inputs/run-tests.sh"},
            test_files=[{"path": "tree/inner"}, {"path": "a.txt"}],
            expected_state={"path": "tree", "mount": "securebench/evaluator/tree"},
        ),
    )
    assert pack.rows[0].eval_files == {
        "run_tests": (FileReference("a.txt", "securebench/evaluation_inputs/run-tests.sh"),),
        "test_files": (
            FileReference("tree/inner", "securebench/evaluation_inputs/tree/inner"),
            FileReference("a.txt", "securebench/evaluation_inputs/a.txt"),
        ),
        "expected_state": (FileReference("tree", "securebench/evaluator/tree"),),
    }


def test_an_answer_with_a_path_is_an_answer(tmp_path: Path) -> None:
    """In a field that takes no files, an object with a ``path`` is an ordinary value.

    In ``expected_state``, an object is a file reference only if it has a ``path``, a ``mount`` in the directory of the
    field's lane, and no unknown key. All other objects are ordinary values.
    """
    pack = load(tmp_path, row("desktop_task", eval={"success_check": {"path": "/etc/hosts", "mount": "x"}}))
    assert pack.rows[0].eval_files == {}
    states: list[Any] = [
        {"output.txt": "hello"},
        {"path": "/app/x", "size": 3},
        {"path": "a.txt"},
        {"path": "a.txt", "mount": "/mnt/data"},
        {"path": "a.txt", "mount": 3},
        {"mount": "securebench/evaluator/x"},
        {"path": "a", "mount": "securebench/evaluator/a", "more": 1},
        [{"path": "a.txt"}],
    ]
    for state in states:
        assert load(tmp_path, terminal(expected_state=state)).rows[0].eval_files == {}


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"path": "a.txt"}},
        {"a": [{"path": "a.txt", "mount": "securebench/evaluation_inputs/x"}]},
        [["x", {"path": "a.txt", "read_only": True}]],
    ],
)
def test_a_reference_inside_other_data_is_refused(pack_dir: Path, value: Any) -> None:
    """A file reference nested in other data is refused, because its file would not be mounted."""
    assert codes_of(pack_dir, terminal(test_files=value)) == ["reference-nested"]


def test_data_with_a_path_among_other_keys_is_data(pack_dir: Path) -> None:
    """A nested object with ``path`` and keys that no file reference has is data, and is accepted."""
    pack = load(pack_dir, terminal(run_tests={"cases": [{"path": "/app/x", "size": 3}]}))
    assert pack.rows[0].eval_files == {}


@pytest.mark.parametrize(
    ("value", "code"),
    [
        pytest.param({"pth": "a.txt", "mount": "x"}, "field-missing", id="no-path"),
        pytest.param({"path": "a.txt", "mod": 1}, "field-unknown", id="unknown-key"),
        pytest.param({"path": 1}, "field-type", id="path-number"),
        pytest.param([{"path": "a.txt"}, "b"], "field-type", id="mixed-list"),
        pytest.param({"path": "../assets/a.txt"}, "path-unsafe", id="K12-climbing"),
        pytest.param({"path": "a.txt", "mount": "x"}, "path-unsafe", id="K14-mount-outside-its-root"),
        pytest.param({"path": "a.txt", "mount": "securebench/evaluator/x"}, "path-unsafe", id="K14-other-lane"),
        pytest.param({"path": "missing"}, "asset-missing", id="missing"),
    ],
)
def test_a_wrong_eval_reference_is_refused(pack_dir: Path, value: Any, code: str) -> None:
    """An eval file reference is refused if its keys, types, path or mount are wrong, or its file is missing."""
    assert codes_of(pack_dir, terminal(test_files=value))[0] == code


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param([{"path": "../manifest.yaml"}], "path-unsafe", id="K12-climbing"),
        pytest.param([{"path": "../hidden/a.txt"}], "path-unsafe", id="F06-sibling"),
        pytest.param([{"path": "/etc/passwd"}], "path-unsafe", id="K12-absolute"),
        pytest.param([{"path": "a.txt", "mount": "task.json"}], "path-unsafe", id="K14-task-json"),
        pytest.param([{"path": "a.txt", "mount": "securebench/evaluation_inputs/x"}], "path-unsafe", id="K14-reserved"),
        pytest.param([{"path": "a.txt", "mount": ".git/hooks/x"}], "path-unsafe", id="K14-git"),
        pytest.param([{"path": "a.txt"}, {"path": "tree", "mount": "A.TXT"}], "mount-collision", id="K14-case"),
        pytest.param(
            [{"path": "a.txt", "mount": "t/x"}, {"path": "tree", "mount": "t"}], "mount-collision", id="K14-child"
        ),
        pytest.param([{"path": "a.txt"}, {"path": "a.txt"}], "mount-collision", id="K14-equal"),
        pytest.param([{"path": "missing.txt"}], "asset-missing", id="missing"),
        pytest.param([{"path": "a.txt/x"}], "asset-missing", id="below-a-file"),
        pytest.param([{"mount": "x"}], "field-missing", id="no-path"),
        pytest.param([{"path": "a.txt", "type": "file"}], "field-unknown", id="unknown-key"),
        pytest.param([{"path": "a.txt", "read_only": "yes"}], "field-type", id="read-only-text"),
        pytest.param({"path": "a.txt"}, "field-type", id="not-a-list"),
        pytest.param([{"path": f"{index}"} for index in range(1001)], "too-many-assets", id="too-many"),
    ],
)
def test_a_wrong_asset_is_refused(pack_dir: Path, given: Any, code: str) -> None:
    """K12, K14: asset paths must stay below ``assets``; mounts must not be reserved, or collide with each other."""
    assert codes_of(pack_dir, row(assets=given))[0] == code


def test_an_eval_file_does_not_take_the_place_of_a_value(pack_dir: Path) -> None:
    """K14: an eval file must not be mounted at ``checker.json``, where the checker's value is written."""
    reference = {"path": "a.txt", "mount": "securebench/evaluation_inputs/checker.json"}
    assert codes_of(pack_dir, terminal(test_files=reference)) == ["mount-collision"]


def _link_out(directory: Path) -> None:
    (directory / "assets" / "bad").symlink_to("/etc/passwd")


def _link_inside(directory: Path) -> None:
    (directory / "assets" / "bad").symlink_to("a.txt")


def _link_to_directory(directory: Path) -> None:
    (directory / "assets" / "bad").symlink_to("../hidden")


def _link_in_tree(directory: Path) -> None:
    (directory / "assets" / "bad" / "deep").mkdir(parents=True)
    (directory / "assets" / "bad" / "deep" / "x").symlink_to("/etc/passwd")


def _hard_link(directory: Path) -> None:
    os.link(directory / "hidden" / "a.txt", directory / "assets" / "bad")


def _fifo(directory: Path) -> None:
    os.mkfifo(directory / "assets" / "bad")


def _fifo_in_tree(directory: Path) -> None:
    (directory / "assets" / "bad").mkdir()
    os.mkfifo(directory / "assets" / "bad" / "x")


def _odd_name(directory: Path) -> None:
    (directory / "assets" / "bad").mkdir()
    (directory / "assets" / "bad" / "a\nb").write_text("x")


def _name_without_text(directory: Path) -> None:
    (directory / "assets" / "bad").mkdir()
    os.close(os.open(bytes(directory / "assets" / "bad") + b"/\xff", os.O_CREAT | os.O_WRONLY))


def _deep_tree(directory: Path) -> None:
    (directory / "assets" / "bad").joinpath(*["d"] * 40).mkdir(parents=True)


@pytest.mark.parametrize(
    ("trap", "code"),
    [
        (_link_out, "asset-link"),
        (_link_inside, "asset-link"),
        (_link_to_directory, "asset-link"),
        (_link_in_tree, "asset-link"),
        (_hard_link, "asset-link"),
        (_fifo, "asset-not-regular"),
        (_fifo_in_tree, "asset-not-regular"),
        (_odd_name, "path-unsafe"),
        (_name_without_text, "path-unsafe"),
        (_deep_tree, "asset-too-large"),
    ],
)
def test_k13_what_is_not_a_plain_file_is_refused(pack_dir: Path, trap: Any, code: str) -> None:
    """K13: symbolic links, hard links, FIFOs, unsafe names and deep trees are refused. A FIFO does not block."""
    trap(pack_dir)
    problem = problems_of(pack_dir, asset("bad"))[0]
    assert problem.code == code
    assert problem.location is not None
    assert problem.location.pointer == "/assets/0/path"


def test_k13_a_linked_root_is_refused(pack_dir: Path) -> None:
    """K13: assets are refused if the directory ``assets`` itself is a symbolic link."""
    (pack_dir / "assets").rename(pack_dir / "real")
    (pack_dir / "assets").symlink_to("real")
    assert codes_of(pack_dir, asset("a.txt")) == ["asset-link"]


def test_a_link_to_the_pack_is_followed(pack_dir: Path) -> None:
    """A symbolic link that leads to the pack directory is followed, because the link is not part of the pack."""
    digest = assets.digest_asset(pack_dir, "assets/tree")
    (pack_dir.parent / "link").symlink_to(pack_dir)
    assert assets.digest_asset(pack_dir.parent / "link", "assets/tree") == digest


def test_a_linked_parent_is_refused(pack_dir: Path) -> None:
    """K12: an asset is refused if a directory in its path is a symbolic link."""
    (pack_dir / "assets" / "way").symlink_to("tree")
    assert codes_of(pack_dir, asset("way/inner/b.txt")) == ["asset-link"]


def test_too_much_is_refused(pack_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to too many bytes or too many files is refused."""
    monkeypatch.setattr(assets, "MAX_ASSET_BYTES", 3)
    assert codes_of(pack_dir, asset("a.txt")) == ["asset-too-large"]
    monkeypatch.setattr(assets, "MAX_ASSET_BYTES", 1000)
    monkeypatch.setattr(assets, "MAX_ASSET_FILES", 2)
    assert codes_of(pack_dir, asset("tree")) == ["asset-too-large"]


def test_the_digest_covers_manifest_rows_and_every_file(pack_dir: Path) -> None:
    """K13: any change of the manifest, the rows or a referenced file changes the digest, and is reported."""
    pack = load(pack_dir, asset("tree"), terminal(test_files={"path": "a.txt"}))
    digests = {pack.digest}
    inner = pack_dir / "assets" / "tree" / "inner" / "b.txt"
    changes: list[Callable[[], object]] = [
        lambda: inner.write_text("c"),
        lambda: inner.chmod(0o755),
        lambda: inner.rename(inner.with_name("c.txt")),
        (inner.parent / "empty").mkdir,
        lambda: (pack_dir / "hidden" / "a.txt").write_text("other"),
        lambda: pack.manifest_path.write_text(MANIFEST + "# comment\n"),
        lambda: pack.tasks_path.write_bytes(pack.tasks_path.read_bytes() + b"\n"),
    ]
    for count, change in enumerate(changes, start=2):
        change()
        with pytest.raises(ConfigError) as caught:
            pack.verify_unchanged()
        assert caught.value.code == "pack-changed"
        digests.add(_reload(pack_dir).digest)
        assert len(digests) == count


def test_the_public_digest_covers_what_agents_may_see_and_nothing_else(pack_dir: Path) -> None:
    """M12: the public digest covers questions and assets, but not hidden content.

    Otherwise, readers could use it to test guesses of the hidden content.
    """
    hidden = {"accepted_answers": ["canary"]}
    tests = terminal(test_files={"path": "a.txt"})
    pack = load(pack_dir, {**asset("a.txt"), "eval": hidden}, tests)
    other = load(pack_dir, {**asset("a.txt"), "eval": {"accepted_answers": ["x"]}}, tests)
    assert (pack.public_digest == other.public_digest, pack.digest == other.digest) == (True, False)
    (pack_dir / "hidden" / "a.txt").write_text("other")
    assert _reload(pack_dir).public_digest == pack.public_digest
    (pack_dir / "assets" / "a.txt").write_text("other")
    assert _reload(pack_dir).public_digest != pack.public_digest
    another_question = load(pack_dir, {**asset("a.txt"), "eval": hidden, "input": {"question": "another"}})
    assert another_question.rows[0].public_digest != pack.rows[0].public_digest


def test_the_public_digest_is_computed_once(pack_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public digest is computed once, because a run publishes it in three places and a pack can have many rows."""
    pack = load(pack_dir, asset("a.txt"))
    compute = Mock(wraps=model._json_digest)
    monkeypatch.setattr(model, "_json_digest", compute)
    assert len({pack.public_digest for _ in range(3)}) == 1
    assert compute.call_count == len([pack, *pack.rows])


def _reload(directory: Path) -> Any:
    from securebench.benchmark_pack import load_benchmark_pack

    return load_benchmark_pack(directory / "manifest.yaml", directory / "tasks.jsonl")


def test_an_unchanged_pack_stays_unchanged(pack_dir: Path) -> None:
    """Changes of files that no row refers to are allowed, and loading the pack again gives the same digest."""
    pack = load(pack_dir, asset("tree"))
    (pack_dir / "assets" / "a.txt").write_text("not referred to")
    (pack_dir / "README.md").write_text("x")
    pack.verify_unchanged()
    assert _reload(pack_dir).digest == pack.digest


def test_a_missing_part_is_a_change(pack_dir: Path) -> None:
    """A pack has changed if a referenced file is missing or was replaced by a link."""
    pack = load(pack_dir, asset("a.txt"))
    (pack_dir / "assets" / "a.txt").unlink()
    with pytest.raises(ConfigError):
        pack.verify_unchanged()
    (pack_dir / "assets" / "a.txt").symlink_to("tree/inner/b.txt")
    with pytest.raises(ConfigError):
        pack.verify_unchanged()


def test_a_file_is_not_a_directory_of_the_same_bytes(pack_dir: Path) -> None:
    """An empty file and an empty directory with the same path have different digests."""
    path = pack_dir / "assets" / "empty"
    path.write_text("")
    of_file = digest_asset(pack_dir, "assets/empty")
    path.unlink()
    path.mkdir()
    assert digest_asset(pack_dir, "assets/empty") != of_file


def test_a_row_has_the_digest_of_its_line(tmp_path: Path) -> None:
    """The digest of a row depends on its line, but not on the line's position or on spaces at its end."""
    first = load(tmp_path, row(id="a"), row(id="b")).rows
    second = load(tmp_path, b"", row(id="b"), json.dumps(row(id="a")).encode() + b"  ").rows
    assert first[0].digest == second[1].digest
    assert first[0].digest != first[1].digest
