"""Compile rows into tasks, and give each field its lane."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from securebench import plugins
from securebench.families.registry import FAMILIES, family_faults
from securebench.plugins import ExtensionKind
from securebench.resources import Resource, ResourceBundle, ResourceKind, Visibility
from securebench.strict_input.faults import Fault, Problems
from securebench.tasks import AssetRoot, SecureBenchTask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.benchmark_pack import BenchmarkPack, BenchmarkRow
    from securebench.errors import Problem

EVAL_VISIBILITY: Final[Mapping[str, Mapping[str, Visibility]]] = MappingProxyType(
    {name: FAMILIES[name].lanes for name in plugins.own_names(ExtensionKind.FAMILY)}
)
"""The lane of each eval field that a built-in family declares, by family. Undeclared eval fields are hidden."""

ASSETS: Final = "assets"
"""The name of the public resource that holds a row's ``assets`` list."""


def eval_visibility_for(family: str, key: str) -> Visibility:
    """Return the lane of an eval field: hidden, unless the family declares another lane."""
    known = FAMILIES.get(family)
    return known.lanes.get(key, Visibility.HIDDEN) if known else Visibility.HIDDEN


def compile_benchmark_pack(pack: BenchmarkPack) -> tuple[SecureBenchTask, ...]:
    """Return the task of each row, in order. Raises :class:`ConfigError` with the problems of all rows."""
    problems = Problems()
    for row in pack.rows:
        problems.extend(family_faults(row) or _duplicates(row), row.source)
    problems.raise_if_any()
    roots = _asset_roots(pack)
    return tuple(_compile_row(row, pack, roots) for row in pack.rows)


def pack_warnings(pack: BenchmarkPack) -> list[Problem]:
    """Return warnings about the tasks of a valid pack, at most ``MAX_PROBLEMS``."""
    problems = Problems()
    for row in pack.rows:
        found = FAMILIES[row.family].warnings(dict(row.input), dict(row.eval), row.environment)
        problems.extend(found, row.source)
    return problems.found


def _compile_row(row: BenchmarkRow, pack: BenchmarkPack, roots: tuple[AssetRoot, AssetRoot]) -> SecureBenchTask:
    public, hidden = roots
    return SecureBenchTask(
        id=row.id,
        benchmark_id=pack.id,
        task_type=row.family,
        resources=ResourceBundle(tuple(_resources(row))),
        candidate_kind=FAMILIES[row.family].candidate_kind,
        environment=row.environment,
        metadata=_metadata(row, pack),
        public_assets=public if row.files else None,
        eval_assets=hidden if row.eval_files else None,
        row_digest=row.digest,
        public_digest=row.public_digest,
    )


def _resources(row: BenchmarkRow) -> Iterator[Resource]:
    for name, value in row.input.items():
        yield Resource(name, value, Visibility.PUBLIC)
    if row.assets:
        yield Resource(ASSETS, [dict(item) for item in row.assets], Visibility.PUBLIC, ResourceKind.ASSETS, row.files)
    for name, value in row.eval.items():
        files = row.eval_files.get(name, ())
        kind = ResourceKind.FILE if files else ResourceKind.VALUE
        yield Resource(name, value, eval_visibility_for(row.family, name), kind, files)


def _duplicates(row: BenchmarkRow) -> list[Fault]:
    """Return a fault for each field name that is used twice: it would be unclear which lane applies."""
    taken = {*row.input, *([ASSETS] if row.assets else [])}
    places = [("eval", name) for name in row.eval if name in taken]
    places += [("input", name) for name in row.input if name == ASSETS and row.assets]
    return [
        Fault("resource-duplicate", f"{name!r} is defined twice in this row", (part, name), "rename one", at_key=True)
        for part, name in places
    ]


def _metadata(row: BenchmarkRow, pack: BenchmarkPack) -> dict[str, Any]:
    """Return the row's own metadata and what the row was compiled from, without paths of this machine."""
    environment = row.environment
    return {
        **row.metadata,
        "benchmark_pack": {"id": pack.id, "version": pack.version, "manifest_path": pack.manifest_path.name},
        "environment": {
            name: getattr(environment, name)
            for name in environment.__dataclass_fields__
            if getattr(environment, name) not in (None, False)
        },
        "asset_roots": {"public": pack.asset_roots.public, "eval": pack.asset_roots.eval},
        "asset_defaults": {"read_only": pack.asset_roots.read_only},
    }


def _asset_roots(pack: BenchmarkPack) -> tuple[AssetRoot, AssetRoot]:
    roots, digests = pack.asset_roots, pack.asset_digests
    return (
        AssetRoot(pack.directory / roots.public, roots.read_only, roots.public.rstrip("/"), digests),
        AssetRoot(pack.directory / roots.eval, roots.read_only, roots.eval.rstrip("/"), digests),
    )
