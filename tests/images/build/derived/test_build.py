"""Building derived images without an engine. A fake replaces the sandbox in which steps run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from git_repositories import commit, git, repository
from image_archives import file, layer
from images.build.derived.conftest import BASE
from securebench.errors import ConfigError, ImageError
from securebench.images.build.build import Builder
from securebench.images.build.derived.build import StepsResult
from securebench.images.build.derived.compose import COMMIT_LABEL, SOURCE_LABEL
from securebench.images.build.directory import builds_directory
from securebench.images.build.recipe_digest import BASES_LABEL, DIGEST_LABEL, recipe_digest
from securebench.images.build.recipe_kinds import DerivedRecipe, GitSource
from securebench.images.store.places import StorePaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.images.build.derived.build import BuildScript
    from securebench.images.store.image_store import ImageStore

REFERENCE = "securebench/test-derived/one:1"


class Steps:
    """A fake sandbox that records each build script, and returns a fixed output, exit code and layer."""

    def __init__(self, left: bytes = b"", exit_code: int = 0, output: bytes = b"") -> None:
        self.left, self.exit_code, self.output = left, exit_code, output
        self.build_scripts: list[BuildScript] = []
        self.tools: list[str] = []

    @contextmanager
    def __call__(self, build_script: BuildScript, log: Callable[[bytes], None]) -> Iterator[StepsResult | None]:
        """Record the build script without running it, log the output, and yield the result."""
        self.build_scripts.append(build_script)
        self.tools = sorted(path.name for path in build_script.tools.rglob("*"))
        log(self.output)
        yield StepsResult(self.exit_code, iter((self.left,)))


@pytest.fixture
def recipe(tmp_path: Path) -> DerivedRecipe:
    """Return a recipe that only adds files."""
    files = tmp_path / "recipe" / "files"
    (files / "sub").mkdir(parents=True)
    (files / "sub" / "note.txt").write_text("note\n")
    (files / "run.sh").write_text("#!/bin/sh\n")
    (files / "run.sh").chmod(0o4777)
    (files / "link").symlink_to("sub/note.txt")
    return DerivedRecipe(
        name="one",
        directory=tmp_path / "recipe",
        reference=REFERENCE,
        summary="One.",
        checks=(),
        base=BASE,
        workdir="/app",
        environment={"KEPT": "no", "NEW": "x=y"},
        files={"files": "/app"},
        python="3.11",
        requirements=(),
        source=None,
        install=(),
        run=(),
    )


def _builder(store: ImageStore, steps: Steps | None = None, report: Callable[[str], None] = lambda _: None) -> Builder:
    return Builder(store, None, report, lambda *_: (0, ""), steps or Steps(exit_code=99))


def _layers(store: ImageStore, reference: str = REFERENCE) -> list[dict[str, tarfile.TarInfo]]:
    found = store.find(reference)
    assert found is not None
    manifest, _ = store.documents(found.id)
    paths = [StorePaths(store.directory).blob(entry.digest) for entry in manifest.layers]
    found_layers = []
    for path in paths:
        with tarfile.open(path) as archive:
            found_layers.append({member.name: member for member in archive})
    return found_layers


def _left(store: ImageStore) -> list[str]:
    tops = [store.directory / top for top in ("trees", "work", "blobs/sha256")]
    places = [path for top in tops if top.exists() for path in top.iterdir()]
    return sorted(str(path) for path in (*places, *builds_directory().iterdir()) if path.suffix != ".log")


def test_files_alone_need_no_sandbox(based: ImageStore, recipe: DerivedRecipe) -> None:
    """Files are added to those of the base without a sandbox. They get plain modes and one date; links stay links."""
    state = _builder(based).build(recipe)
    with based.lease(state.id) as tree:
        assert (tree.root / "app/sub/note.txt").read_text() == "note\n"
        assert (tree.root / "app/old").read_text() == "old\n"
        assert (tree.root / "app/run.sh").stat().st_mode & 0o7777 == 0o755
        assert str((tree.root / "app/link").readlink()) == "sub/note.txt"
    assert {member.mtime for member in _layers(based)[-1].values()} == {1577836800}


def test_what_the_base_says_holds_unless_the_recipe_says_otherwise(based: ImageStore, recipe: DerivedRecipe) -> None:
    """An image has the variables and labels of its base and of its recipe. The recipe may replace a variable.

    The recipe also replaces the working directory. The base's layers are shared.
    """
    state = _builder(based).build(recipe)
    found = based.find(REFERENCE)
    assert found is not None
    assert found.environment == {"PATH": "/bin", "KEPT": "no", "NEW": "x=y"}
    assert found.workdir == "/app"
    labels = based.labels(REFERENCE)
    assert labels.keys() == {"of", DIGEST_LABEL, BASES_LABEL}
    assert (labels["of"], labels[DIGEST_LABEL]) == ("base", recipe_digest(recipe))
    base = based.find(BASE)
    assert base is not None
    assert labels[BASES_LABEL] == base.id
    assert based.documents(state.id)[0].layers[0].digest == based.documents(base.id)[0].layers[0].digest


def test_the_same_recipe_makes_the_same_image(based: ImageStore, recipe: DerivedRecipe) -> None:
    """The modification times of the recipe's files do not change the image's id; their content does."""
    first = _builder(based).build(recipe).id
    os.utime(recipe.directory / "files" / "run.sh", (1, 1))
    assert _builder(based).build(recipe).id == first
    (recipe.directory / "files" / "run.sh").write_text("other\n")
    assert _builder(based).build(recipe).id != first


def test_a_source_becomes_a_repository_of_one_commit(based: ImageStore, recipe: DerivedRecipe, tmp_path: Path) -> None:
    """C22: an image from a clone with a later commit and a tag contains only the wanted files, in one commit.

    Labels record the source and the new commit.
    """
    clone = repository(tmp_path / "clone")
    (clone / "module.py").write_text("broken\n")
    wanted = commit(clone)
    (clone / "module.py").write_text("fixed\n")
    git(clone, "tag", "v2", commit(clone))
    sourced = replace(recipe, workdir="/testbed", source=GitSource(commit=wanted, path=clone), files={})
    state = _builder(based).build(sourced)
    labels = based.labels(REFERENCE)
    with based.lease(state.id) as tree:
        top = tree.root / "testbed"
        assert (top / "module.py").read_text() == "broken\n"
        assert git(top, "rev-parse", "HEAD") == labels[COMMIT_LABEL] != wanted
        assert git(top, "rev-list", "--all", "--reflog").split() == [labels[COMMIT_LABEL]]
        assert b"fixed" not in b"".join(path.read_bytes() for path in top.rglob("*") if path.is_file())
    assert labels[SOURCE_LABEL].endswith(wanted)


def test_steps_run_in_the_image_with_its_content(based: ImageStore, recipe: DerivedRecipe) -> None:
    """Steps get the variables of the image and the build. They run after files are added, and add the last layer."""
    steps = Steps(layer(file("made", b"made\n")))
    stepped = replace(recipe, install=(("make", "it's"),), run=(("sh", "-c", "a\nb"),))
    state = _builder(based, steps).build(stepped)
    (build_script,) = steps.build_scripts
    assert build_script.environment["NEW"] == "x=y"
    assert build_script.environment["PIP_NO_INDEX"] == "1"
    assert build_script.image_id != state.id
    with based.lease(state.id) as tree:
        assert (tree.root / "made").read_text() == "made\n"
        assert (tree.root / "app/sub/note.txt").exists()
    assert len(_layers(based)) == 3


def test_the_script_runs_each_step_as_it_is_written(based: ImageStore, recipe: DerivedRecipe, tmp_path: Path) -> None:
    """Quotes, newlines and patterns reach a step's program unchanged. The first step that fails ends the script."""
    steps = Steps()
    odd = ("sh", "-c", 'printf "%s|" "$@"', "x", "it's", "a\nb", "$HOME", "*")
    stepped = replace(recipe, workdir="", files={}, run=(odd, ("false",), ("echo", "never")))
    steps.left = layer()
    _builder(based, steps).build(stepped)
    done = subprocess.run(["/bin/sh", "-c", steps.build_scripts[0].script], capture_output=True, text=True, check=False)
    assert "it's|a\nb|$HOME|*|" in done.stdout
    assert done.returncode == 1
    assert "\nnever" not in done.stdout


def test_a_step_that_fails_is_named_with_the_end_of_its_output(based: ImageStore, recipe: DerivedRecipe) -> None:
    """L25: the error contains the step and the end of its output. The log is kept, and nothing is left in the store."""
    before = _left_after_nothing(based)
    steps = Steps(exit_code=7, output=b"securebench: step 1 of 1: make it\nno rule\n")
    stages: list[str] = []
    with pytest.raises(ImageError, match=r"step 1 of 1: make it failed with exit code 7(.|\n)*no rule") as caught:
        _builder(based, steps, stages.append).build(replace(recipe, run=(("make", "it"),)))
    assert caught.value.code == "image-build-failed"
    assert "step 1 of 1: make it" in stages
    (log,) = builds_directory().glob("*.log")
    assert log.name == "test-derived-one-1.log"
    assert b"no rule" in log.read_bytes()
    assert _left(based) == before
    assert based.find(REFERENCE) is None


def _left_after_nothing(store: ImageStore) -> list[str]:
    builds_directory().mkdir(parents=True, exist_ok=True)
    return _left(store)


def test_a_step_that_gives_the_source_another_history_fails_the_build(
    based: ImageStore, recipe: DerivedRecipe, tmp_path: Path
) -> None:
    """F01: a build fails if a step adds a tag to the source's repository: a tag could lead to later history."""
    clone = repository(tmp_path / "clone")
    (clone / "x").write_text("x")
    wanted = commit(clone)
    sourced = replace(recipe, source=GitSource(commit=wanted, path=clone), files={}, run=(("git", "tag"),))
    steps = Steps(layer(file("app/.git/refs/tags/v1", b"0" * 40 + b"\n")))
    with pytest.raises(ImageError, match="refs/tags/v1: a tag") as caught:
        _builder(based, steps).build(sourced)
    assert caught.value.code == "image-check-failed"
    assert based.find(REFERENCE) is None


def test_without_anything_to_make_a_sandbox_with_steps_cannot_be_run(based: ImageStore, recipe: DerivedRecipe) -> None:
    """If this machine cannot create sandboxes, a recipe with steps is refused. One with only files is built."""

    @contextmanager
    def nothing(_build_script: BuildScript, _log: Callable[[bytes], None]) -> Iterator[None]:
        yield None

    builder = Builder(based, None, lambda _: None, lambda *_: None, nothing)
    with pytest.raises(ImageError) as caught:
        builder.build(replace(recipe, run=(("true",),)))
    assert caught.value.code == "image-tool-missing"
    assert builder.build(recipe).id


def test_a_base_that_is_not_there_is_said(based: ImageStore, recipe: DerivedRecipe) -> None:
    """The error for a missing base contains the command that builds it."""
    with pytest.raises(ImageError, match="images build nothing") as caught:
        _builder(based).build(replace(recipe, base="securebench/nothing:1"))
    assert caught.value.code == "image-unavailable"


def _no_directory(files: Path) -> None:
    (files / "run.sh").rename(files.parent / "elsewhere")
    (files / "link").unlink()
    (files / "sub" / "note.txt").unlink()
    (files / "sub").rmdir()
    files.rmdir()


def _a_link(files: Path) -> None:
    files.rename(files.parent / "real")
    files.symlink_to("real")


def _a_pipe(files: Path) -> None:
    os.mkfifo(files / "pipe")


def _a_removal(files: Path) -> None:
    (files / ".wh.etc").write_text("")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("harm", [_no_directory, _a_link, _a_pipe, _a_removal])
def test_files_that_no_image_takes_are_refused(
    based: ImageStore, recipe: DerivedRecipe, harm: Callable[[Path], None]
) -> None:
    """A missing directory, a link to one, a FIFO and a reserved name are refused. The build does not block.

    Nothing is left in the store.
    """
    before = _left_after_nothing(based)
    harm(recipe.directory / "files")
    with pytest.raises(ConfigError) as caught:
        _builder(based).build(recipe)
    assert caught.value.code == "recipe-invalid"
    assert _left(based) == before


def test_wheels_and_what_installs_them_are_given_to_the_sandbox(
    based: ImageStore, recipe: DerivedRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe's wheels are fetched for its Python, and are in the sandbox with their installer."""
    calls: list[object] = []

    def fetch(pins: tuple[str, ...], python: str, directory: Path) -> tuple[str, ...]:
        calls.append((pins, python))
        (directory / "x-1-py3-none-any.whl").write_bytes(b"")
        return ("x-1-py3-none-any.whl sha256:abc",)

    monkeypatch.setattr("securebench.images.build.derived.build.fetch_wheels", fetch)
    steps = Steps(layer())
    _builder(based, steps).build(replace(recipe, requirements=("x==1",), python="3.12"))
    assert calls == [(("x==1",), "3.12")]
    assert steps.tools == ["install_wheels.py", "wheels", "x-1-py3-none-any.whl"]
    assert "install_wheels.py /run/securebench/wheels" in steps.build_scripts[0].script
    (log,) = builds_directory().glob("*.log")
    assert "sha256:abc" in log.read_text()


KILLED = """
import json, sys, time
from contextlib import contextmanager
from pathlib import Path
from securebench.images.build.build import Builder
from securebench.images.build.recipes import load_recipe
from securebench.images.store.image_store import ImageStore
@contextmanager
def steps(job, log):
    print("running", flush=True)
    time.sleep(60)
    yield None
Builder(ImageStore(), None, lambda _: None, lambda *_: (0, ""), steps).build(load_recipe(Path(sys.argv[1])))
"""


@pytest.mark.timeout(60)
def test_a_killed_build_is_cleared_by_the_next(based: ImageStore, recipe: DerivedRecipe) -> None:
    """L25: a build that is killed while its steps run names no image, and the next build removes what it left."""
    document = {"reference": REFERENCE, "summary": "x", "base": BASE, "files": {"files": "/app"}, "run": [["true"]]}
    (recipe.directory / "recipe.yaml").write_text(json.dumps(document))
    before = _left_after_nothing(based)
    argv = [sys.executable, "-c", KILLED, str(recipe.directory)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "running\n"
        killed.kill()
    assert based.find(REFERENCE) is None
    assert _left(based) != before
    state = _builder(based).build(recipe)
    based.remove(state.id)
    based.prune()
    assert _left(based) == [place for place in before if "/trees/" not in place]
