"""File references of rows: public assets, and eval fields that accept files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securebench.families.fields import FileReferenceModel
from securebench.families.registry import FAMILIES
from securebench.pack_paths import LANE_ROOTS, colliding_mounts, mount_fault, relative_path_fault
from securebench.resources import FileReference, Visibility
from securebench.strict_input.faults import Fault, Path, shown
from securebench.strict_input.models import fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_REFERENCE_KEYS = frozenset(FileReferenceModel.model_fields)


@dataclass(frozen=True, slots=True)
class Referenced:
    """A file reference: its place in the row, its eval field (empty for an asset), and its lane."""

    place: Path
    field: str
    file: FileReference
    lane: Visibility

    @property
    def mount(self) -> str:
        """The relative path at which the file is mounted. For an eval field, it is below the directory of the lane."""
        return self.file.mount or self.file.path


def public_references(assets: Sequence[Mapping[str, Any]], *, read_only: bool) -> list[Referenced]:
    """Return the references of a row's ``assets``. The default mount is the asset's path."""
    return [
        Referenced(("assets", index), "", _reference(item, item["path"], read_only=read_only), Visibility.PUBLIC)
        for index, item in enumerate(assets)
    ]


def eval_references(family: str, evals: Mapping[str, Any], *, read_only: bool) -> tuple[list[Referenced], list[Fault]]:
    """Return the references in the eval fields that accept files, and the faults of malformed references."""
    found: list[Referenced] = []
    faults: list[Fault] = []
    declared = FAMILIES[family]
    for name in sorted((declared.file_fields | declared.mounted_file_fields) & evals.keys()):
        lane, value = declared.lanes[name], evals[name]
        path: Path = ("eval", name)
        if name in declared.mounted_file_fields:
            items = [(path, value)] if _is_mounted(value, lane) else []
        else:
            items = list(_reference_objects(value, path))
            faults += [] if items else _nested_faults(value, path)
        for place, item in items:
            if wrong := fit(FileReferenceModel, item, secret=True)[1]:
                faults += [fault.below(place) for fault in wrong]
            else:
                reference = _reference(item, f"{LANE_ROOTS[lane]}/{item['path']}", read_only=read_only)
                found.append(Referenced(place, name, reference, lane))
    return found, faults


def path_faults(references: Sequence[Referenced], value_fields: Mapping[str, Visibility]) -> Iterator[Fault]:
    """Yield the faults of the paths and mounts in ``references``, the file references of a row.

    The keys of ``value_fields`` are the names of the eval fields without a file reference. The values are the lanes of
    these fields.
    """
    for one in references:
        if fault := relative_path_fault(one.file.path):
            yield Fault("path-unsafe", f"the path {fault}", (*one.place, "path"), "use a path below the asset root")
        elif fault := mount_fault(one.mount, one.lane):
            hint = f"mounts of this lane must be below {LANE_ROOTS[one.lane]!r}" if one.field else "use another mount"
            yield Fault("path-unsafe", f"the mount {fault}", (*one.place, "mount"), hint)
    for lane in Visibility:
        # A lane without references needs no check here: rows.py checks that the names of fields differ.
        if in_lane := [one for one in references if one.lane is lane]:
            yield from _collision_faults(in_lane, lane, value_fields)


def _collision_faults(
    references: Sequence[Referenced], lane: Visibility, value_fields: Mapping[str, Visibility]
) -> Iterator[Fault]:
    values = [f"{LANE_ROOTS[lane]}/{name}.json" for name, its in value_fields.items() if its is lane]
    collision = colliding_mounts([*values, *(one.mount for one in references)])
    if collision is not None:
        message = f"the mounts {shown(collision[0])} and {shown(collision[1])} collide"
        place = [one.place for one in references if one.mount in collision][-1]
        yield Fault(
            "mount-collision", message, place, "mounts must differ, ignoring case, and none may be inside another"
        )


def _reference_objects(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield each value that must be a file reference, with its place in the row.

    An object must be a file reference if it has one of the keys of file references. All items of a list must be file
    references if at least one item has one of these keys.
    """
    if isinstance(value, dict) and _REFERENCE_KEYS & value.keys():
        yield path, value
    elif isinstance(value, list) and any(isinstance(item, dict) and _REFERENCE_KEYS & item.keys() for item in value):
        for index, item in enumerate(value):
            yield (*path, index), item


def _is_mounted(value: Any, lane: Visibility) -> bool:
    """Whether ``value``, which may be any data, is a file reference with a mount below the directory of ``lane``."""
    if not isinstance(value, dict) or not {"path", "mount"} <= value.keys() <= _REFERENCE_KEYS:
        return False
    return isinstance(value["mount"], str) and value["mount"].startswith(f"{LANE_ROOTS[lane]}/")


def _nested_faults(value: Any, path: Path) -> Iterator[Fault]:
    """Yield a fault for each file reference nested in other data, where it would not be mounted."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        place = (*path, key)
        if isinstance(item, dict) and "path" in item and item.keys() <= _REFERENCE_KEYS:
            message = "a file reference must not be nested in other data: it would not be mounted"
            yield Fault("reference-nested", message, place, "write one reference, or a list of references")
        else:
            yield from _nested_faults(item, place)


def _reference(item: Mapping[str, Any], mount: str, *, read_only: bool) -> FileReference:
    return FileReference(item["path"], item.get("mount", mount), item.get("read_only", read_only))
