"""Check that a resumed run is still the same run.

The values in ``decisive`` must be equal, with three exceptions:

* The number of trials may be higher than before.
* The task limit may be higher than before, or removed.
* The set of platforms for which ``decisive`` has a build of the agent program may differ. Builds for the same platform
  must be equal.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.resources import JsonValue

_HINT: Final = (
    "records of two different runs are never mixed: undo the change, or start a new run with another --output-dir"
)
_FRAMEWORK_HINT: Final = (
    "SecureBench was updated or edited since the run began: use it as it was then, or start a new run with another "
    "--output-dir"
)

_DIGEST: Final = re.compile(r"(?:sha(?:256|512)[:-])?(?:[0-9a-f]{64,128}|[A-Za-z0-9+/]{86}==)")
_PARTS: Final = {
    "agent.declaration": "the declaration of the agent",
    "framework.digest": "the source code of SecureBench",
    "harness.agent_digest": "the content of harness.config.agent_dir",
    "harness.config.run": "the run whose candidates are judged again",
    "harness.digest": "the configuration of the harness",
    "judge.config": "the configuration of the judge",
    "pack.commitment": "the pack",
    "pack.public_digest": "the public part of the pack",
}
"""What each digest covers. The digests of a configuration cover the settings in ``information.settings``.

In a run that judges candidates again, ``harness.config.run`` identifies the run of the candidates.
"""
_OF_SETTINGS: Final = {"harness.digest": "harness.", "judge.config": "judge."}

_GROWING: Final = ("trials", "selection")
"""Sections of ``decisive`` that say how much of a run is planned. They affect no verdict."""


def constant(decisive: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return ``decisive`` without what may grow when the run is resumed: trials, selection, and builds of the agent."""
    kept = {name: value for name, value in decisive.items() if name not in _GROWING}
    return kept if _builds(decisive) is None else _with_builds(kept, {})


def require_same(
    then: Mapping[str, JsonValue],
    now: Mapping[str, JsonValue],
    images: tuple[Mapping[str, str], Mapping[str, str]],
    settings: tuple[Mapping[str, JsonValue], Mapping[str, JsonValue]] = ({}, {}),
) -> None:
    """Raise :class:`ConfigError` (``resume-mismatch``) with every difference that a resumed run may not have.

    ``then`` is the ``decisive`` part of the header when the run began, and ``now`` is the current one. ``images`` and
    ``settings`` each contain two mappings: the values when the run began, and the current values. Images that only one
    side resolved are not compared. ``settings`` are those in ``information.settings``. If the digest of a configuration
    differs, the error names the settings that differ, as far as they are recorded.
    """
    before, after = _shared(*images)
    old, new = _without_growth(then, now)
    found = dict(_differences(old, new)) | dict(_differences(before, after, "images."))
    for digest, prefix in _OF_SETTINGS.items():
        named = {name: pair for name, pair in _differences(*settings) if name.startswith(prefix)}
        if (
            digest in found
            and settings[0]
            and (named or any(name.startswith(prefix) for name in found.keys() - {digest}))
        ):
            del found[digest]
            found |= named
    if problems := [_problem(name, *pair) for name, pair in found.items()]:
        raise ConfigError(code="resume-mismatch", problems=problems)


def _shared(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both mappings restricted to their common keys.

    Some images and builds of the agent program are needed only before the run is resumed, or only afterwards. They do
    not count as differences.
    """
    names = then.keys() & now.keys()
    return {name: then[name] for name in names}, {name: now[name] for name in names}


def _builds(decisive: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the integrity value of each build of the agent program, by platform; ``None`` if they are missing.

    Each image platform needs its own build.
    """
    agent = decisive.get("agent")
    builds = agent.get("integrity") if isinstance(agent, dict) else None
    return builds if isinstance(builds, dict) else None


def _trials(decisive: Mapping[str, Any]) -> int:
    """Return the number of trials of each task; 0 if ``decisive`` contains no such number."""
    trials = decisive.get("trials")
    return trials if type(trials) is int else 0


def _limit(decisive: Mapping[str, Any]) -> float:
    """Return the maximum number of planned tasks. It is infinite without a limit, or for a damaged value."""
    selection = decisive.get("selection")
    limit = selection.get("limit") if isinstance(selection, dict) else None
    return limit if type(limit) is int else math.inf


def _without_growth(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return both ``decisive`` parts, changed so that growth of the run is not a difference.

    A higher number of trials in ``now`` replaces the number in ``then``. A higher task limit in ``now`` replaces the
    limit in ``then``. If ``now`` has no limit, the limit is removed from ``then``. Builds of the agent program are
    removed if only one part has them.
    """
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


def grown(then: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``then`` with the builds of ``now`` added, and with the trials and the selection of ``now``."""
    builds = _builds(now)
    grown = {**then, **{name: now[name] for name in _GROWING if name in now}}
    return grown if builds is None else _with_builds(grown, {**(_builds(then) or {}), **builds})


def _with_builds(decisive: Mapping[str, Any], builds: Mapping[str, Any]) -> dict[str, Any]:
    return {**decisive, "agent": {**decisive["agent"], "integrity": dict(builds)}}


def _differences(
    then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the dotted name of each value that differs, and both values."""
    for name in sorted({*then, *now}):
        before, after = then.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name}", (before, after)


def _problem(name: str, before: Any, after: Any) -> Problem:
    """Return the problem of a value that differs. Digests are not shown, because they say nothing to a user."""
    what = f"{name} was {before!r} when the run began, and is {after!r} now"
    if _is_digest(before) or _is_digest(after):
        what = f"{_PARTS.get(name, name)} is not the same as when the run began"
    hint = _FRAMEWORK_HINT if name.startswith("framework.") else _HINT
    return Problem("resume-mismatch", f"cannot continue the run: {what}", hint=hint)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None
