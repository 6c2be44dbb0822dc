"""``run.json``: the description of a run, and the check that ``--resume`` may continue it."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError, SourceLocation
from securebench.fs.durable import write_durably
from securebench.limits import MIB
from securebench.plurals import counted
from securebench.results.records.chain import expressible, genesis, value_digest
from securebench.results.records.strict_json import require_shallow, require_written_form, strict_loads
from securebench.results.records.strict_record import READABLE_VERSIONS
from securebench.results.run_directory.closing import Closing
from securebench.results.run_directory.same_run import constant, grown, require_same
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from securebench.resources import JsonValue

HEADER: Final = "run.json"
HEADER_VERSION: Final = 4
"""Incremented when an older version of SecureBench would misread the header or the records."""

_MAX_MODELS: Final = 100
_MAX_BYTES: Final = 16 * MIB
"""Maximum size of ``run.json``, in bytes. The largest part is the list of images: there is room for 70,000."""

_KEYS: Final = {
    "created_at": str,
    "nonce": str,
    "decisive": dict,
    "images": dict,
    "information": dict,
    "problems": list,
    "provider_checks": list,
    "closing": dict,
}
_MAY_LACK: Final = ("problems", "provider_checks", "closing")
_NAMES: Final[Mapping[type, str]] = {str: "a string", dict: "an object", list: "a list"}


def most_models(models: Counter[str]) -> dict[str, JsonValue]:
    """Return the most frequent models with their counts, at most :data:`_MAX_MODELS`.

    A provider may report any number of names.
    """
    return dict(sorted(models.items(), key=lambda item: (-item[1], item[0]))[:_MAX_MODELS])


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The description of a run.

    ``decisive`` contains, by section, values that must be unchanged when a run is resumed, with two exceptions: the
    ``trials`` and the limit of the ``selection`` may grow, and builds of the agent program may be added. ``images``
    maps each image reference that was resolved so far to its id. These ids must be unchanged, too. ``information``
    affects no verdict.
    """

    decisive: Mapping[str, JsonValue]
    images: Mapping[str, str] = field(default_factory=dict)
    information: Mapping[str, JsonValue] = field(default_factory=dict)
    created_at: str = field(default_factory=_now)
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    problems: tuple[str, ...] = ()
    """Problems of the run as a whole. They stay when the run is resumed."""
    provider_checks: tuple[Mapping[str, JsonValue], ...] = ()
    """The usage of each provider check that was made when the run was started or resumed.

    The agents' provider is checked. If the run has a judge, the judge is checked, too. A check of the judge also
    contains ``judge``: the judge's identity and, if the check calibrated the judge, the calibration. A resumed run
    checks no provider if no tasks are left to run or its budget is used up.
    """

    closing: Closing | None = None
    """The counts and hashes of what the run wrote; ``None`` unless the run has been closed."""
    version: int = HEADER_VERSION
    """The format of the header and the records."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return _text(self.decisive, "run_id")

    @property
    def benchmark_id(self) -> str:
        """The id of the pack."""
        return _text(_section(self.decisive, "benchmark"), "id")

    @property
    def label(self) -> str:
        """The name of the agent: ``harness.name`` of the tester YAML, or else the type of its harness."""
        harness = _section(self.decisive, "harness")
        return _text(harness, "name" if isinstance(harness.get("name"), str) else "type")

    @property
    def selection(self) -> Mapping[str, JsonValue]:
        """How the planned tasks were selected; empty if no selection was made."""
        return _section(self.decisive, "selection")

    @property
    def trials(self) -> int:
        """The number of trials of each task."""
        return _number(self.decisive, "trials") if "trials" in self.decisive else 1

    @property
    def budget_usd(self) -> float | None:
        """The budget in US dollars with which the run was last started or resumed; ``None`` without a budget."""
        budget = _section(self.information, "budget")
        if not budget:
            return None
        value = budget["usd"]
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise TypeError("'information.budget.usd' is not an amount")
        return float(value)

    @property
    def planned(self) -> int:
        """The number of planned trials. In a complete run, each of these trials has one current record."""
        return _number(self.information, "planned")

    @property
    def planned_tasks(self) -> int:
        """The number of planned tasks."""
        if "planned_tasks" not in self.information:  # format 2 has one trial of each task
            return self.planned
        tasks = _number(self.information, "planned_tasks")
        if tasks * self.trials != self.planned:
            raise ValueError("'information.planned' is not 'trials' times 'planned_tasks'")
        return tasks

    @property
    def planned_families(self) -> dict[str, int]:
        """The number of planned tasks of each family; empty for a run in format 2."""
        sizes = _section(self.information, "planned_families")
        return {name: _number(sizes, name) for name in sizes}

    @property
    def pack_tasks(self) -> int:
        """The number of tasks of the whole pack."""
        tasks = _number(_section(self.decisive, "pack"), "tasks")
        if tasks < self.planned_tasks:
            raise ValueError(f"{counted(self.planned_tasks, 'task')} planned, but the pack has {tasks}")
        return tasks

    @property
    def genesis(self) -> str:
        """The hash that the chain of records begins with."""
        return genesis(self.run_id, self.created_at, self.nonce)

    @property
    def run_digest(self) -> str:
        """The digest of ``decisive``, without the parts that may grow when the run is resumed (see :func:`constant`).

        Records contain this digest as ``provenance.run``.
        """
        return value_digest(expressible(constant(self.decisive)))

    def resumed_by(self, now: RunHeader) -> RunHeader:
        """Return this header for a resumed run: updated from ``now``, and without the section ``closing``.

        ``now`` is the header that was prepared for the resumed run. Raises :class:`ConfigError` (``resume-mismatch``)
        with every difference that a resumed run must not have.
        """
        settings = (_section(self.information, "settings"), _section(now.information, "settings"))
        require_same(self.decisive, now.decisive, (self.images, now.images), settings)
        decisive, images = grown(self.decisive, now.decisive), {**self.images, **now.images}
        return replace(self, decisive=decisive, images=images, information=now.information, closing=None)

    def checked(self, usages: Iterable[Mapping[str, JsonValue]]) -> RunHeader:
        """Return the header with the ``usages`` of more provider checks added. Empty usages are left out."""
        return replace(self, provider_checks=(*self.provider_checks, *filter(None, usages)))

    def with_problem(self, problem: str) -> RunHeader:
        """Return the header with ``problem`` added, unless it is already listed."""
        return self if problem in self.problems else replace(self, problems=(*self.problems, problem))

    def answered_by(self, models: Counter[str]) -> RunHeader:
        """Return the header with the number of trials in which each model answered: see :func:`most_models`."""
        return replace(self, information={**self.information, "models": most_models(models)}) if models else self

    def closed(self, closing: Closing) -> RunHeader:
        """Return the header with ``closing``.

        The root of the closing is set to the :attr:`root` of the returned header.
        """
        return replace(self, closing=replace(closing, root=replace(self, closing=closing).root))

    @property
    def root(self) -> str:
        """The digest of the header without the field ``root`` of its ``closing``."""
        open_end = replace(self, closing=replace(self.closing, root="")) if self.closing else self
        return value_digest(open_end.to_json())

    def to_json(self) -> JsonValue:
        """Return the content of ``run.json``."""
        return expressible(
            {
                "header_version": self.version,
                "created_at": self.created_at,
                "nonce": self.nonce,
                "decisive": self.decisive,
                "images": self.images,
                "information": self.information,
                **({"problems": self.problems} if self.problems else {}),
                **({"provider_checks": self.provider_checks} if self.provider_checks else {}),
                **({"closing": self.closing.to_json()} if self.closing else {}),
            }
        )

    def to_bytes(self) -> bytes:
        """Return the bytes of ``run.json``."""
        return (json.dumps(self.to_json(), indent=2) + "\n").encode("ascii")

    def write(self, directory: Path) -> None:
        """Write ``run.json``. Raises :class:`StorageError`."""
        write_durably(directory / HEADER, self.to_bytes())


def read_header(directory: Path, *, older: bool = False, check_root: bool = True) -> RunHeader | None:
    """Return the header of the run in ``directory``, or ``None`` if there is no ``run.json``.

    With ``older``, versions whose runs can be read but not resumed are accepted, too. With ``check_root``, a header
    that was changed after the run was closed is refused.

    Raises :class:`ConfigError`: ``run-version`` if the format version is not accepted, ``run-header-damaged``,
    ``closing-mismatch``, ``file-not-regular``, ``file-unreadable``.
    """
    path = directory / HEADER
    if not os.path.lexists(path):
        return None
    with open_regular(path, "run header") as file:
        data = file.read(_MAX_BYTES + 1)
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")  # noqa: TRY301
        content = strict_loads(data)
        require_shallow(content)
        _require_version(path, content, READABLE_VERSIONS if older else (HEADER_VERSION,))
        header = _from_json(content)
        if header.version == HEADER_VERSION:
            require_written_form(data, header.to_bytes())
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            f"{path} is not a valid run header: {missing}",
            code="run-header-damaged",
            hint="restore the file, or start a new run with another --output-dir",
        ) from error
    if check_root and header.closing and header.root != header.closing.root:
        raise ConfigError(
            "the header was changed after the run was closed: 'closing.root' is not the hash of the rest of the file",
            code="closing-mismatch",
            hint="do not use this run directory as evidence: ask for an unchanged copy",
            location=SourceLocation(str(path)),
        )
    return header


def _require_version(path: Path, content: Any, accepted: Collection[int]) -> None:
    """Raise :class:`ConfigError` if the format version of the header is a number that is not ``accepted``.

    It is called before the keys of the header are checked.
    """
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
        raise TypeError(f"'header_version' is {version!r}, not a whole number")
    problems, checks = content.get("problems", []), content.get("provider_checks", [])
    if not all(isinstance(problem, str) for problem in problems):
        raise TypeError("'problems' must contain only strings")
    if not all(isinstance(usage, dict) for usage in checks):
        raise TypeError("'provider_checks' must contain only objects")
    if any(isinstance(value, int | float) and value < 0 for usage in checks for value in usage.values()):
        raise ValueError("'provider_checks' contains a negative number")
    header = RunHeader(
        decisive=content["decisive"],
        images=content["images"],
        information=content["information"],
        created_at=content["created_at"],
        nonce=content["nonce"],
        problems=tuple(problems),
        provider_checks=tuple(checks),
        closing=Closing.from_json(content["closing"]) if "closing" in content else None,
        version=version,
    )
    _require_consistent(header)
    return header


def _require_consistent(header: RunHeader) -> None:
    """Raise ``KeyError``, ``TypeError`` or ``ValueError`` if a value is missing or invalid, or contradicts another."""
    _ = header.run_id, header.benchmark_id, header.label
    _ = header.pack_tasks, header.planned_families, header.selection, header.budget_usd
    _section(header.information, "settings")
    if header.closing and header.version < HEADER_VERSION:
        raise ValueError(f"'closing' is not allowed in version {header.version}")


def _text(section: Mapping[str, JsonValue], name: str) -> str:
    if not isinstance(value := section[name], str):
        raise TypeError(f"{name!r} is not a string")
    return value


def _number(section: Mapping[str, JsonValue], name: str) -> int:
    value = section[name]
    if type(value) is not int or value < 0:
        raise TypeError(f"{name!r} is not a whole number of at least 0")
    return value


def _section(section: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    if not isinstance(value := section.get(name, {}), dict):
        raise TypeError(f"{name!r} is not an object")
    return value
