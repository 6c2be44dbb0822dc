"""Packs that attack the program that reads them. Each must be refused with its error code."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANIFEST: Final = "id: my-benchmark\nversion: 1\n"
_CHOICE: Final[dict[str, Any]] = {
    "id": "task/1",
    "family": "multiple_choice",
    "input": {"question": "Which is even?", "choices": ["one", "two", "three"]},
    "eval": {"answer": "B"},
}
_TERMINAL: Final[dict[str, Any]] = {
    "id": "task/1",
    "family": "terminal_task",
    "input": {"instructions": "Make output.txt."},
    "eval": {"checker": {"command": ["bash", "check.sh"]}},
}


def row(base: dict[str, Any] = _CHOICE, **changes: Any) -> bytes:
    """Return the row ``base`` as a line, with ``changes`` to its top-level keys."""
    return json.dumps({**base, **changes}).encode() + b"\n"


HONEST: Final = row()


@dataclass(frozen=True, slots=True)
class PackAttack:
    """A pack that must be refused: its files, entry in the catalogue of attacks, name and expected error code.

    ``prepare`` adds other things to the directory of the pack.
    """

    entry: str
    name: str
    code: str
    tasks: bytes = HONEST
    manifest: str = MANIFEST
    prepare: Callable[[Path], object] | None = None

    def write(self, directory: Path) -> tuple[Path, Path]:
        """Write the pack into an empty directory, and return the paths of its manifest and its tasks."""
        manifest, tasks = directory / "manifest.yaml", directory / "tasks.jsonl"
        manifest.write_text(self.manifest, encoding="utf-8")
        tasks.write_bytes(self.tasks)
        (directory / "assets").mkdir()
        if self.prepare:
            self.prepare(directory)
        return manifest, tasks


def _yaml(entry: str, name: str, code: str, text: str) -> PackAttack:
    return PackAttack(entry, name, code, manifest=MANIFEST + text)


def _environment(entry: str, name: str, code: str, **environment: Any) -> PackAttack:
    return PackAttack(entry, name, code, row(environment=environment))


def _asset(entry: str, name: str, code: str, path: str, prepare: Callable[[Path], object] | None = None) -> PackAttack:
    return PackAttack(entry, name, code, row(assets=[{"path": path}]), prepare=prepare)


def _two_assets(name: str, first: str, second: str) -> PackAttack:
    assets = [{"path": "a", "mount": first}, {"path": "b", "mount": second}]
    return PackAttack("K14", name, "mount-collision", row(assets=assets), prepare=_write_a_and_b)


def _write_a_and_b(directory: Path) -> None:
    for name in ("a", "b"):
        (directory / "assets" / name).write_text(name, encoding="utf-8")


_BOMB: Final = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

ATTACKS: Final = (
    _yaml("K01", "billion laughs", "yaml-alias", _BOMB),
    _yaml("K01", "a merge key", "yaml-alias", "x: &x {id: a}\ny: {<<: *x}\n"),
    _yaml("K02", "a duplicate key in YAML", "key-duplicate", "id: another\n"),
    PackAttack("K02", "a duplicate key in JSON", "key-duplicate", b'{"id": "a", "id": "b"}\n'),
    _yaml("K03", "a date", "yaml-value", "description: 2001-01-01 00:00:00\nlicense: .nan\n"),
    PackAttack("K03", "a version that is a list", "field-type", manifest="id: my-benchmark\nversion: [1]\n"),
    _yaml("K04", "a Python tag", "yaml-tag", "x: !!python/object/apply:os.system [touch canary]\n"),
    PackAttack("K06", "NaN", "json-value", b'{"id": "a", "input": {"x": NaN}}\n'),
    PackAttack("K06", "infinity", "json-value", b'{"id": "a", "input": {"x": 1e999}}\n'),
    PackAttack("K06", "a huge integer", "json-value", b'{"id": "a", "input": {"x": 1' + b"0" * 400 + b"}}\n"),
    PackAttack("K08", "a byte order mark", "file-encoding", b"\xef\xbb\xbf" + HONEST),
    PackAttack("K08", "a NUL", "file-encoding", b'{"id": "a\0"}\n'),
    PackAttack("K08", "invalid UTF-8", "file-encoding", b'{"id": "\xff"}\n'),
    PackAttack("K08", "a deep value", "too-deep", b'{"id": "a", "input": {"x": ' + b"[" * 5000 + b"]" * 5000 + b"}}\n"),
    PackAttack("K08", "a huge row", "file-too-large", b'{"id": "' + b"x" * (20 << 20) + b'"}\n'),
    *(
        PackAttack("K10", name, code, row(id="task-1") + row(id=other))
        for name, other, code in (
            ("the same id", "task-1", "id-duplicate"),
            ("an id that differs in case", "TASK-1", "id-duplicate"),
            ("a confusable letter", "t\u0430sk-1", "id-duplicate"),
            ("full width", "\uff54ask-1", "id-duplicate"),
        )
    ),
    *(
        PackAttack("K11", f"the id {task_id!a}"[:60], "id-invalid", row(id=task_id))
        for task_id in ("-rf", "/a", "a/../b", "a\\b", "a\nb", "x" * 201, "a\u202eb", "..")
    ),
    *(
        _asset("K12", f"the path {path!a}", "path-unsafe", path)
        for path in ("/etc/passwd", "../x", "a/../../x", "a\\b", "a//b", "./a", "C:\\x", "a\0b", "con")
    ),
    _asset("K13", "a link", "asset-link", "a", lambda place: (place / "assets/a").symlink_to("/etc/passwd")),
    _asset(
        "K13", "a link in the path", "asset-link", "a/passwd", lambda place: (place / "assets/a").symlink_to("/etc")
    ),
    _asset("K13", "a pipe", "asset-not-regular", "a", lambda place: os.mkfifo(place / "assets/a")),
    _two_assets("the same mount", "x", "x"),
    _two_assets("mounts that differ in case", "x", "X"),
    _two_assets("a mount inside another mount", "x", "x/y"),
    PackAttack(
        "K14",
        "a reserved mount",
        "path-unsafe",
        row(assets=[{"path": "a", "mount": "securebench/evaluation_inputs/x"}]),
        prepare=_write_a_and_b,
    ),
    *(
        _environment("K15", f"the image {image!r}", "image-invalid", image=image)
        for image in ("--privileged img", "-v", "img;rm", "$(id)", "a b", "img\n")
    ),
    *(_environment("K16", f"{value} seconds", "timeout-invalid", timeout_seconds=value) for value in (0, -1, 1e9)),
    *(
        _environment("K16", f"the directory {path!r}", "workdir-unsafe", workdir=path)
        for path in ("/", "/proc", "/app/../etc", "/dev/shm", "/sys/x")
    ),
    PackAttack(
        "K18",
        "an empty accepted answer",
        "field-empty",
        row({**_CHOICE, "family": "short_answer", "input": {"question": "?"}, "eval": {"accepted_answers": [""]}}),
    ),
    PackAttack(
        "K18",
        "a rubric that every response meets",
        "field-value",
        row(
            {
                **_CHOICE,
                "family": "free_response",
                "input": {"prompt": "?"},
                "eval": {"rubric": {"type": "token_f1", "min_token_f1": 0.0}, "reference_answer": "x"},
            }
        ),
    ),
    PackAttack("K24", "huge metadata", "metadata-too-large", row(metadata={"x": "y" * (2 << 20)})),
    PackAttack("F18", "a misspelled evaluation field", "field-unknown", row(_TERMINAL, eval={"cheker": "true"})),
    PackAttack("F18", "a misspelled row key", "field-unknown", row(evel={"answer": "B"})),
    *(
        _environment("I02", f"the key {name!r}", "field-unknown", **{name: True})
        for name in ("privileged", "cap_add", "pid", "mounts", "devices")
    ),
    _environment("I23", "a compose file", "field-unknown", compose="docker-compose.yml", extends="base"),
    _environment("J20", "a network", "field-unknown", network="bridge"),
    PackAttack(
        "J20",
        "a network for the checker",
        "field-unknown",
        row(_TERMINAL, eval={"checker": {"command": "true", "network": "host"}}),
    ),
)
