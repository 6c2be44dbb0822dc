"""The manifest: a pack's identity, and the defaults of its rows."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from securebench.benchmark_pack.model import AssetRoots
from securebench.families.fields import Identifier
from securebench.families.model_graded import MaxBytes, Template, Votes
from securebench.families.row import EnvironmentModel, FamilyName
from securebench.pack_paths import folded, is_at_or_below, relative_path_fault
from securebench.strict_input.faults import Fault, Problems
from securebench.strict_input.files import read_text
from securebench.strict_input.models import OPTIONAL, WireModel, fit, refusal
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.strict_input.yaml_text import YamlSource


def _root(path: str) -> str:
    if fault := relative_path_fault(path.removesuffix("/")):
        raise refusal("path-unsafe", fault, "use a plain relative path, such as 'assets/' or 'calibration.jsonl'")
    return path


Root = Annotated[str, AfterValidator(_root)]


class DefaultsModel(WireModel):
    """Defaults of rows."""

    family: FamilyName = OPTIONAL
    environment: EnvironmentModel = OPTIONAL


class AssetRootsModel(WireModel):
    """The pack's directories of public assets and of hidden files."""

    public: Root = OPTIONAL
    eval: Root = OPTIONAL


class AssetDefaultsModel(WireModel):
    """Defaults of all file references, in ``assets`` and in eval fields."""

    read_only: bool = OPTIONAL


class JudgeModel(WireModel):
    """How a judge model grades responses: the defaults of ``model_graded`` rubrics, and the judge's calibration.

    ``calibration`` is a file below the directory ``asset_roots.eval``. A judge is refused if its agreement with the
    grades in that file (Cohen's kappa) is below ``min_kappa``.
    """

    votes: Votes = OPTIONAL
    template: Template = OPTIONAL
    max_bytes: MaxBytes = OPTIONAL
    calibration: Root = OPTIONAL
    min_kappa: Annotated[float, Field(ge=0, le=1)] = OPTIONAL


class ManifestModel(WireModel):
    """A manifest file."""

    id: Identifier
    version: Annotated[int, Field(ge=1)]
    defaults: DefaultsModel = OPTIONAL
    asset_roots: AssetRootsModel = OPTIONAL
    asset_defaults: AssetDefaultsModel = OPTIONAL
    judge: JudgeModel = OPTIONAL


@dataclass(frozen=True, slots=True)
class Manifest:
    """A loaded manifest, with defaults filled in. ``digest`` is the digest of the file's bytes.

    ``rubric`` has the defaults of ``model_graded`` rubrics, ``calibration`` the path of the calibration set in the
    pack, if there is one.
    """

    id: str
    version: int
    family: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    asset_roots: AssetRoots = field(default_factory=AssetRoots)
    rubric: Mapping[str, Any] = field(default_factory=dict)
    calibration: str = ""
    min_kappa: float | None = None
    digest: str = ""


def load_manifest(path: Path, tasks: Path) -> Manifest:
    """Read the manifest of a pack whose rows are in the file ``tasks``. Raises :class:`ConfigError`."""
    text, data = read_text(path, "manifest", MAX_YAML_BYTES)
    value, source, faults = parse_yaml(text, str(path))
    _raise(faults, source)
    model, faults = fit(ManifestModel, value)
    _raise(faults or list(_judge_faults(model)), source)
    manifest = _manifest(dict(value) if isinstance(value, dict) else {}, hashlib.sha256(data).hexdigest())
    _raise(list(_root_faults(manifest.asset_roots, path, tasks)), source)
    return manifest


def _raise(faults: list[Fault], source: YamlSource) -> None:
    problems = Problems()
    problems.extend(faults, source)
    problems.raise_if_any()


def _manifest(value: dict[str, Any], digest: str) -> Manifest:
    defaults, judge = value.get("defaults", {}), dict(value.get("judge", {}))
    roots = AssetRoots(**value.get("asset_roots", {}), **value.get("asset_defaults", {}))
    calibration, min_kappa = judge.pop("calibration", ""), judge.pop("min_kappa", None)
    return Manifest(
        id=value["id"],
        version=value["version"],
        family=defaults.get("family"),
        environment=defaults.get("environment", {}),
        asset_roots=roots,
        rubric=judge,
        calibration=f"{roots.eval.rstrip('/')}/{calibration}" if calibration else "",
        min_kappa=min_kappa,
        digest=digest,
    )


def _judge_faults(manifest: ManifestModel | None) -> Iterator[Fault]:
    judge = manifest.model_dump(exclude_unset=True).get("judge", {}) if manifest else {}
    if "min_kappa" in judge and "calibration" not in judge:
        hint = "set 'judge.calibration' to the path of the calibration set, relative to 'asset_roots.eval'"
        yield Fault(
            "calibration-unfit", "'min_kappa' needs a calibration set", ("judge", "min_kappa"), hint, at_key=True
        )


def _root_faults(roots: AssetRoots, manifest: Path, tasks: Path) -> Iterator[Fault]:
    """Yield a fault for asset roots that could expose hidden files, the manifest or the rows to an agent."""
    public, hidden = folded(roots.public.rstrip("/")), folded(roots.eval.rstrip("/"))
    if is_at_or_below(public, hidden) or is_at_or_below(hidden, public):
        yield Fault(
            "asset-roots-overlap", "the public and eval roots overlap", ("asset_roots",), "use separate directories"
        )
    public_directory = Path(os.path.realpath(manifest.parent)) / roots.public
    if any(Path(os.path.realpath(file)).is_relative_to(public_directory) for file in (manifest, tasks)):
        message = "the manifest or the tasks file is inside the public root"
        yield Fault(
            "asset-roots-overlap",
            message,
            ("asset_roots", "public"),
            "use a directory that does not contain the manifest or the tasks file",
        )
