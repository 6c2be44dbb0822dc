"""The section ``closing`` of ``run.json``, for a run that has ended: counts, and hashes of its records and logs."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from securebench.results.records.chain import candidates_root
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.egress_log import EGRESS_LOG
from securebench.results.run_directory.files import JOURNAL, SUPERSEDED
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.resources import JsonValue

ENDINGS: Final = ("finished", "interrupted", "stopped", "out_of_budget")

_LOGS: Final = (JOURNAL, SUPERSEDED, EGRESS_LOG)
_WORKER_LOG: Final = re.compile(r"egress-\d+\.jsonl")
"""The name of the egress log of a worker in a separate process."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_COUNTS: Final = (*(status.value for status in VerificationStatus), "not_run", "superseded")
_KINDS: Final = {int: "a number of at least 0", str: "a string", dict: "an object"}
_KEYS: Final = {
    "closed_at": str,
    "ending": str,
    "counts": dict,
    "records": dict,
    "candidates": dict,
    "files": dict,
    "root": str,
}


@dataclass(slots=True)
class RecordTally:
    """What a closing says about the records of a run, counted while they are read."""

    last: str
    """The hash of the last line so far. At first, it is :attr:`RunHeader.genesis`."""
    number: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """The number of records by status, without superseded records."""
    superseded: int = 0
    candidates: set[str] = field(default_factory=set)
    """The digests of the candidates of all records."""

    def counts(self, planned: int) -> dict[str, int]:
        """Return the counts of a run with ``planned`` trials."""
        statuses = {status.value: self.statuses[status.value] for status in VerificationStatus}
        return {**statuses, "not_run": planned - self.statuses.total(), "superseded": self.superseded}


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The closing of a run. ``root`` is a hash of the whole header, including all of the closing except ``root``."""

    closed_at: str
    ending: str
    """How the run ended: one of :data:`ENDINGS`."""
    counts: Mapping[str, int]
    """The number of trials by status, of trials without a record (``not_run``), and of ``superseded`` records."""
    records: int
    """The number of all records, including superseded ones."""
    last: str
    """The hash of the record with the highest sequence number; without records, :attr:`RunHeader.genesis`."""
    candidates: int
    candidates_root: str
    files: Mapping[str, str]
    """The digests of the logs that exist, by name."""
    root: str = ""

    @classmethod
    def of(cls, tally: RecordTally, planned: int, ending: str, directory: Path) -> Closing:
        """Return the closing of a run that ends now. Its :attr:`root` is empty. Raises :class:`ConfigError`."""
        return cls(
            closed_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            ending=ending,
            counts=tally.counts(planned),
            records=tally.number,
            last=tally.last,
            candidates=len(tally.candidates),
            candidates_root=candidates_root(tally.candidates),
            files=file_digests(directory),
        )

    @classmethod
    def from_json(cls, value: Any) -> Closing:
        """Return the closing in ``run.json``. Raises ``ValueError`` or ``TypeError`` if it is invalid."""
        _require_keys(value, _KEYS, "closing")
        _require_keys(value["counts"], dict.fromkeys(_COUNTS, int), "closing.counts")
        _require_keys(value["records"], {"number": int, "last": str}, "closing.records")
        _require_keys(value["candidates"], {"number": int, "root": str}, "closing.candidates")
        _require_keys(value["files"], {name: str for name in value["files"] if is_log(name)}, "closing.files")
        if value["ending"] not in ENDINGS:
            raise ValueError(f"'closing.ending' is {value['ending'][:80]!r}, not one of {', '.join(ENDINGS)}")
        hashes = (value["root"], value["records"]["last"], value["candidates"]["root"], *value["files"].values())
        if not all(map(_DIGEST.fullmatch, hashes)):
            raise ValueError("'closing' contains a hash that is not a SHA-256 in hex")
        return cls(
            closed_at=value["closed_at"],
            ending=value["ending"],
            counts=value["counts"],
            records=value["records"]["number"],
            last=value["records"]["last"],
            candidates=value["candidates"]["number"],
            candidates_root=value["candidates"]["root"],
            files=value["files"],
            root=value["root"],
        )

    def to_json(self) -> dict[str, JsonValue]:
        """Return the closing as it is in ``run.json``. An empty ``root`` is left out."""
        return {
            "closed_at": self.closed_at,
            "ending": self.ending,
            "counts": dict(self.counts),
            "records": {"number": self.records, "last": self.last},
            "candidates": {"number": self.candidates, "root": self.candidates_root},
            "files": dict(self.files),
            **({"root": self.root} if self.root else {}),
        }

    def differences(self, tally: RecordTally, planned: int) -> list[str]:
        """Return how the closing differs from the records."""
        own = {"records": self.records, "candidates": self.candidates, **self.counts}
        found = {"records": tally.number, "candidates": len(tally.candidates), **tally.counts(planned)}
        problems = [
            f"{name.replace('_', ' ')}: {found[name]}, but the run was closed with {number}"
            for name, number in own.items()
            if number != found[name]
        ]
        if self.last != tally.last:
            problems.append("the hash of the last record differs from the hash in the section 'closing' of run.json")
        if self.candidates_root != candidates_root(tally.candidates):
            problems.append("the candidates of the records differ from those in the section 'closing' of run.json")
        return problems


def file_digests(directory: Path) -> dict[str, str]:
    """Return the digests (sha256, hex) of the logs in a run directory. Raises :class:`ConfigError`."""
    found: dict[str, str] = {}
    for name in log_names(directory):
        with open_regular(directory / name, "log of the run") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def log_names(directory: Path) -> list[str]:
    """Return the names of the files in a run directory for which :func:`is_log` holds, sorted."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if is_log(entry.name))


def is_log(name: str) -> bool:
    """Return whether the closing of a run contains the digest of the file ``name``."""
    return name in _LOGS or _WORKER_LOG.fullmatch(name) is not None


def _require_keys(value: Any, kinds: Mapping[str, type], name: str) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``value`` is a dict with exactly the keys and types of ``kinds``.

    Numbers must be at least 0.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{name!r} is not an object")
    if wrong := sorted(value.keys() ^ kinds.keys()):
        raise ValueError(f"{name!r} has an unknown or a missing key: {wrong[0][:80]!r}")
    for key, kind in kinds.items():
        if type(value[key]) is not kind or (kind is int and value[key] < 0):
            raise TypeError(f"'{name}.{key}' is not {_KINDS[kind]}")
