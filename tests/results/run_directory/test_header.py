"""The header of a run, ``run.json``."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.results.run_directory.header import HEADER, HEADER_VERSION, RunHeader, read_header

if TYPE_CHECKING:
    from pathlib import Path

DECISIVE: dict[str, Any] = {
    "run_id": "r",
    "benchmark": {"id": "b"},
    "pack": {"digest": "p1", "tasks": 3},
    "harness": {"type": "command", "digest": "h1"},
    "verifiers": {"short_answer": "1"},
    "limits": {"memory": 1024},
    "framework": {"version": "0.1.0", "digest": "f1"},
}


def header(images: dict[str, str] | None = None, **changes: Any) -> RunHeader:
    """Return a header with ``images`` and with the sections in ``changes`` replaced or added."""
    return RunHeader(
        decisive={**DECISIVE, **changes},
        images=images or {"base": "sha256:1"},
        information={"workers": 2, "planned": 3},
    )


def test_read_back(tmp_path: Path) -> None:
    """A header that was written is read back unchanged."""
    written = header()
    written.write(tmp_path)
    assert read_header(tmp_path) == written


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"nonce":', '"nonce": "a", "nonce":'),
        ('"nonce":', '"other": 1, "nonce":'),
        (f'"header_version": {HEADER_VERSION}', '"header_version": true'),
        ('"images": {', '"problems": "abc", "images": {'),
        ('"images": {', '"problems": [1], "images": {'),
        ('"images": {', '"provider_checks": [{"requests": -5}], "images": {'),
        ('"decisive": {', '"decisive": [], "decisive_": {'),
    ],
)
def test_a_header_is_read_strictly(tmp_path: Path, old: str, new: str) -> None:
    """Unknown keys, duplicate keys and invalid values are refused."""
    header().write(tmp_path)
    text = (tmp_path / HEADER).read_text()
    assert old in text
    (tmp_path / HEADER).write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        read_header(tmp_path)
    assert caught.value.code == "run-header-damaged"


def test_a_pipe_in_the_place_of_a_header_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe in place of a header is refused at once."""
    os.mkfifo(tmp_path / HEADER)
    with pytest.raises(ConfigError) as caught:
        read_header(tmp_path)
    assert caught.value.code == "file-not-regular"


def test_no_header(tmp_path: Path) -> None:
    """In a directory without ``run.json``, no header is found."""
    assert read_header(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", f'{{"header_version": {HEADER_VERSION}}}', "\udcff"])
def test_damage_is_refused(tmp_path: Path, content: str) -> None:
    """A header that is not JSON or lacks fields is refused as damaged."""
    (tmp_path / HEADER).write_text(content, errors="surrogateescape")
    with pytest.raises(ConfigError) as caught:
        read_header(tmp_path)
    assert caught.value.code == "run-header-damaged"


def test_a_header_of_the_version_before_is_only_read(tmp_path: Path) -> None:
    """A header of version 2 can be read with ``older``, but is refused otherwise, as when a run is resumed."""
    header().write(tmp_path)
    text = (tmp_path / HEADER).read_text().replace(f'"header_version": {HEADER_VERSION}', '"header_version": 2')
    (tmp_path / HEADER).write_text(text)
    assert (found := read_header(tmp_path, older=True)) is not None
    assert found.decisive == DECISIVE
    with pytest.raises(ConfigError, match="expected format 4, got 2"):
        read_header(tmp_path)


def test_trials_may_only_grow() -> None:
    """A resumed run may have more trials of each task, and the header is updated; fewer trials are refused."""
    assert header(trials=2).resumed_by(header(trials=5)).decisive["trials"] == 5
    for now in (1, None, True):
        with pytest.raises(ConfigError, match="trials was 2 when the run began") as caught:
            header(trials=2).resumed_by(header(trials=now))
        assert caught.value.code == "resume-mismatch"


@pytest.mark.parametrize("version", [HEADER_VERSION - 1, HEADER_VERSION + 1])
def test_a_run_of_another_format_is_told_from_damage(tmp_path: Path, version: int) -> None:
    """A header of another version is reported as such and not as damaged, for users who upgrade during a run."""
    (tmp_path / HEADER).write_text(f'{{"header_version": {version}, "of_that_version": 1}}')
    with pytest.raises(ConfigError, match=f"expected format {HEADER_VERSION}, got {version}") as caught:
        read_header(tmp_path)
    assert caught.value.code == "run-version"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"run_id": "other"}, "run_id"),
        ({"pack": {"digest": "p2", "tasks": 3}}, "pack.digest"),
        ({"pack": {"digest": "p1", "tasks": 2}}, "pack.tasks"),
        ({"harness": {"type": "command", "digest": "h2"}}, "harness.digest"),
        ({"verifiers": {"short_answer": "2"}}, "verifiers.short_answer"),
        ({"verifiers": {}}, "verifiers.short_answer"),
        ({"limits": {"memory": 2048}}, "limits.memory"),
        ({"framework": {"version": "0.1.0", "digest": "f2"}}, "framework.digest"),
        ({"something": "new"}, "something"),
    ],
)
def test_a_change_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    """A change that could affect a verdict is refused, and the error names what changed (L05)."""
    with pytest.raises(ConfigError) as caught:
        header().resumed_by(header(**change))
    assert caught.value.code == "resume-mismatch"
    assert [named in str(problem) for problem in caught.value.problems] == [True]


def test_a_header_without_settings_names_the_configuration() -> None:
    """If the header has only the harness's digest, as in earlier releases, the error names no single setting."""
    digests = [{"type": "command", "digest": digit * 64} for digit in "ab"]
    with pytest.raises(ConfigError, match="the configuration of the harness is not the same as when the run began"):
        header(harness=digests[0]).resumed_by(header(harness=digests[1]))


def test_another_securebench_is_named_as_such() -> None:
    """If SecureBench itself changed, the hint says so, because most users then changed no setting of their own."""
    with pytest.raises(ConfigError) as caught:
        header().resumed_by(header(framework={"version": "0.1.0", "digest": "f2"}))
    (problem,) = caught.value.problems
    assert str(problem.hint).startswith("SecureBench was updated or edited since the run began")


def test_every_change_is_named_at_once() -> None:
    """One error lists all changes."""
    with pytest.raises(ConfigError) as caught:
        header().resumed_by(header({"base": "sha256:2"}, run_id="x", limits={"memory": 1}))
    assert [str(p).split(" was ")[0] for p in caught.value.problems] == [
        "cannot continue the run: limits.memory",
        "cannot continue the run: run_id",
        "cannot continue the run: images.base",
    ]


def test_a_moved_tag_is_refused() -> None:
    """An image reference that now refers to another image is refused (L05)."""
    with pytest.raises(ConfigError, match=r"images\.base was 'sha256:1'"):
        header().resumed_by(header({"base": "sha256:2"}))


def test_more_images_are_no_change() -> None:
    """A larger ``--limit`` may need images that the run did not need before. Old and new images are kept."""
    merged = header().resumed_by(header({"other": "sha256:9"}))
    assert merged.images == {"base": "sha256:1", "other": "sha256:9"}


def test_a_resumed_run_is_the_same_run() -> None:
    """A resumed run keeps its original time of creation and nonce (M11)."""
    first, later = replace(header(), created_at="2026-01-02T03:04:05Z"), header()
    merged = first.resumed_by(later)
    assert (merged.created_at, merged.nonce) == (first.created_at, first.nonce)
    assert first.created_at != later.created_at
    assert first.nonce != later.nonce
