"""``run.json``: the description of a run, and the check whether ``--resume`` may continue it."""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, Problem
from securebench.fs.durable import write_durably
from securebench.limits import MIB
from securebench.results.record import READABLE_VERSIONS, require_shallow, unique_keys
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from securebench.resources import JsonValue

HEADER: Final = "run.json"
HEADER_VERSION: Final = 3
"""Incremented when another version of SecureBench would misread the header or the records."""

_MAX_BYTES: Final = 16 * MIB
"""Far more than a run of a hundred thousand tasks needs."""

_KEYS: Final = {
    "created_at": str,
    "nonce": str,
    "decisive": dict,
    "images": dict,
    "information": dict,
    "problems": list,
    "provider_checks": list,
}
_MAY_LACK: Final = ("problems", "provider_checks")
_NAMES: Final[Mapping[type, str]] = {str: "a string", dict: "an object", list: "a list"}

_HINT: Final = (
    "records of two different runs are never mixed: undo the change, or start a new run with another --output-dir"
)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The description of a run.

    ``decisive`` contains, by section, everything that must be unchanged when a run is resumed. Only the
    ``trials`` and the limit of the ``selection`` may grow, and the agent may get builds for more platforms. ``images``
    maps each image reference that was resolved so far to its id. ``information`` affects nothing.
    """

    decisive: Mapping[str, JsonValue]
    images: Mapping[str, str] = field(default_factory=dict)
    information: Mapping[str, JsonValue] = field(default_factory=dict)
    created_at: str = field(default_factory=_now)
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    problems: tuple[str, ...] = ()
    """Problems of the run as a whole. They stay when the run is resumed."""
    provider_checks: tuple[Mapping[str, JsonValue], ...] = ()
    """The usage of each check of key and model: one for each start or resumption that had tasks to run."""

    def resumed_by(self, now: RunHeader) -> RunHeader:
        """Return the header of this run after it is resumed as ``now``.

        Raises :class:`ConfigError` (``resume-mismatch``) with every difference.
        """
        before, after = _shared(self.images, now.images)
        then, today = _without_growth(self.decisive, now.decisive)
        problems = [*_differences(then, today), *_differences(before, after, "images.")]
        if problems:
            raise ConfigError(code="resume-mismatch", problems=problems)
        images = {**self.images, **now.images}
        return replace(self, decisive=_grown(self.decisive, now.decisive), images=images, information=now.information)

    def checked(self, usage: Mapping[str, JsonValue]) -> RunHeader:
        """Return the header with the usage of another provider check, unless ``usage`` is empty."""
        return replace(self, provider_checks=(*self.provider_checks, usage)) if usage else self

    def with_problem(self, problem: str) -> RunHeader:
        """Return the header with ``problem`` added, unless it is already listed."""
        return self if problem in self.problems else replace(self, problems=(*self.problems, problem))

    def write(self, directory: Path) -> None:
        """Write ``run.json``. Raises :class:`StorageError`."""
        content = {
            "header_version": HEADER_VERSION,
            "created_at": self.created_at,
            "nonce": self.nonce,
            "decisive": dict(self.decisive),
            "images": dict(self.images),
            "information": dict(self.information),
            **({"problems": list(self.problems)} if self.problems else {}),
            **({"provider_checks": [dict(usage) for usage in self.provider_checks]} if self.provider_checks else {}),
        }
        write_durably(directory / HEADER, (json.dumps(content, indent=2) + "\n").encode("ascii"))


def read_header(directory: Path, *, older: bool = False) -> RunHeader | None:
    """Return the header of the run in ``directory``, if there is one.

    ``older``: also accept versions whose runs can be read but not resumed.

    Raises :class:`ConfigError`: ``run-version`` for another format version, ``run-header-damaged``,
    ``file-not-regular``.
    """
    path = directory / HEADER
    if not os.path.lexists(path):
        return None
    with open_regular(path, "run header") as file:
        data = file.read(_MAX_BYTES + 1)
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")  # noqa: TRY301
        content = json.loads(data.decode("ascii"), object_pairs_hook=unique_keys)
        require_shallow(content)
        _require_version(path, content, READABLE_VERSIONS if older else (HEADER_VERSION,))
        return _from_json(content)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            f"{path} is not a valid run header: {missing}",
            code="run-header-damaged",
            hint="restore it, or start a new run with another --output-dir",
        ) from error


def _require_version(path: Path, content: Any, accepted: Collection[int]) -> None:
    """Raise :class:`ConfigError` if the header has another format version, before anything else is checked."""
    version = content.get("header_version") if isinstance(content, dict) else None
    if type(version) is int and version not in accepted:
        raise ConfigError(
            f"{path} was written by another version of SecureBench: expected format {HEADER_VERSION}, got {version}",
            code="run-version",
            hint="use the version that started the run, or start a new run with another --output-dir",
        )


def _from_json(content: Any) -> RunHeader:
    """Convert ``content`` to a header. Raises ``KeyError``, ``TypeError`` or ``ValueError`` if it is invalid."""
    if not isinstance(content, dict):
        raise TypeError("it is not a JSON object")
    if unknown := sorted(content.keys() - {"header_version", *_KEYS}):
        raise ValueError(f"unknown key {unknown[0]!r}")
    for name, kind in _KEYS.items():
        if not isinstance(content.get(name, kind()) if name in _MAY_LACK else content[name], kind):
            raise TypeError(f"{name!r} is not {_NAMES[kind]}")
    if type(version := content["header_version"]) is not int:
        raise TypeError(f"'header_version' is {version!r}, not a number")
    problems, checks = content.get("problems", []), content.get("provider_checks", [])
    if not all(isinstance(problem, str) for problem in problems):
        raise TypeError("'problems' must contain only strings")
    if not all(isinstance(usage, dict) for usage in checks):
        raise TypeError("'provider_checks' must contain only objects")
    if any(isinstance(value, int | float) and value < 0 for usage in checks for value in usage.values()):
        raise ValueError("'provider_checks' contains a negative number")
    return RunHeader(
        decisive=content["decisive"],
        images=content["images"],
        information=content["information"],
        created_at=content["created_at"],
        nonce=content["nonce"],
        problems=tuple(problems),
        provider_checks=tuple(checks),
    )


def _shared(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both mappings restricted to their common keys.

    An image or program build that only one of two runs needed is not a difference.
    """
    names = then.keys() & now.keys()
    return {name: then[name] for name in names}, {name: now[name] for name in names}


def _builds(decisive: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the integrity values of the agent's program by platform: each image platform needs its own build."""
    agent = decisive.get("agent")
    builds = agent.get("integrity") if isinstance(agent, dict) else None
    return builds if isinstance(builds, dict) else None


def _trials(decisive: Mapping[str, Any]) -> int:
    """Return how often each task is tried. A damaged value counts as none, and is then reported as a difference."""
    trials = decisive.get("trials")
    return trials if type(trials) is int else 0


def _limit(decisive: Mapping[str, Any]) -> float:
    """Return how many of the selected tasks are planned at most. A damaged value counts as all of them."""
    selection = decisive.get("selection")
    limit = selection.get("limit") if isinstance(selection, dict) else None
    return limit if type(limit) is int else math.inf


def _without_growth(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return both headers restricted to their common builds, and with the same sizes if these are larger now."""
    if _trials(now) > _trials(then):
        then = {**then, "trials": now["trials"]}
    if _limit(now) > _limit(then):
        unlimited = {name: value for name, value in then["selection"].items() if name != "limit"}
        limit = {"limit": now["selection"]["limit"]} if "limit" in now["selection"] else {}
        then = {**then, "selection": {**unlimited, **limit}}
    before, after = _builds(then), _builds(now)
    if before is None or after is None:
        return then, now
    shared = _shared(before, after)
    return _with_builds(then, shared[0]), _with_builds(now, shared[1])


def _grown(then: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``then`` with the builds of ``now`` added, and with its sizes."""
    builds = _builds(now)
    grown = {**then, **{name: now[name] for name in ("trials", "selection") if name in now}}
    return grown if builds is None else _with_builds(grown, {**(_builds(then) or {}), **builds})


def _with_builds(decisive: Mapping[str, Any], builds: Mapping[str, Any]) -> dict[str, Any]:
    return {**decisive, "agent": {**decisive["agent"], "integrity": dict(builds)}}


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[Problem]:
    """Yield a problem for every leaf that differs."""
    for name in sorted({*then, *now}):
        before, after = then.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{name}.")
        elif before != after:
            yield Problem(
                "resume-mismatch",
                f"cannot resume: {prefix}{name} was {before!r} when the run began, and is {after!r} now",
                hint=_HINT,
            )
