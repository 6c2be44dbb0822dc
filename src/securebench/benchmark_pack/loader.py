"""Load a pack: manifest, rows and the files that they reference."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.benchmark_pack.assets import digest_asset
from securebench.benchmark_pack.calibration import load_calibration
from securebench.benchmark_pack.manifest import load_manifest
from securebench.benchmark_pack.model import BenchmarkPack
from securebench.benchmark_pack.rows import RowReader
from securebench.errors import ConfigError
from securebench.families.registry import family_faults
from securebench.strict_input.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.benchmark_pack.calibration import CalibrationItem
    from securebench.benchmark_pack.manifest import Manifest
    from securebench.benchmark_pack.model import BenchmarkRow


def load_benchmark_pack(manifest: Path | str, tasks: Path | str) -> BenchmarkPack:
    """Read a pack from a manifest file and a tasks file.

    Raises :class:`ConfigError` with the problems of the first file that has any, or :class:`PathPolicyError` if one of
    these problems is an unsafe or colliding path. A row that only violates its family's rules raises no error,
    because the compiler checks these rules.
    """
    manifest, tasks = Path(manifest), Path(tasks)
    header = load_manifest(manifest, tasks)
    reader = RowReader(tasks, header)
    rows = reader.read()
    assets = _digest_assets(reader, manifest.parent, header)
    if reader.problems:
        # The error also lists violations of the families' rules, so that it shows all problems of the tasks file.
        _add_family_problems(reader, rows)
    reader.problems.raise_if_any()
    calibration: tuple[CalibrationItem, ...] = ()
    if path := header.calibration:
        assets[f"asset:{path}"] = digest_asset(manifest.parent, path)
        calibration = load_calibration(manifest.parent / path, {row.id: row for row in rows})
    return BenchmarkPack(
        id=header.id,
        version=header.version,
        directory=Path(os.path.realpath(manifest.parent)),
        manifest_path=manifest,
        tasks_path=tasks,
        rows=tuple(rows),
        fingerprint={"manifest": header.digest, "tasks": reader.digest, **assets},
        asset_roots=header.asset_roots,
        calibration=calibration,
        min_kappa=header.min_kappa,
    )


def _digest_assets(reader: RowReader, directory: Path, manifest: Manifest) -> dict[str, str]:
    """Return the digests of the files and directories that rows reference. The keys are ``asset:PATH``.

    Adds a problem to ``reader`` for each reference that cannot be used.
    """
    digests: dict[str, str] = {}
    refused: dict[str, ConfigError] = {}
    for source, reference in reader.references:
        root = manifest.asset_roots.eval if reference.field else manifest.asset_roots.public
        path = f"{root.rstrip('/')}/{reference.file.path}"
        if path not in digests and path not in refused:
            try:
                digests[path] = digest_asset(directory, path)
            except ConfigError as error:
                refused[path] = error
        if wrong := refused.get(path):
            fault = Fault(wrong.code, wrong.message, (*reference.place, "path"), wrong.hint)
            reader.problems.add(fault, source)
    return {f"asset:{path}": digest for path, digest in digests.items()}


def _add_family_problems(reader: RowReader, rows: Iterable[BenchmarkRow]) -> None:
    for row in rows:
        reader.problems.extend(family_faults(row), row.source)
