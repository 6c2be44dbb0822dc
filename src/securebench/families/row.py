"""The file format of a row, before its family validates it."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator

from securebench.families.environment import EnvironmentModel
from securebench.families.fields import FileReferenceModel, Identifier
from securebench.families.registry import FAMILIES
from securebench.strict_input.faults import did_you_mean
from securebench.strict_input.models import OPTIONAL, WireModel, refusal

MAX_ASSETS: Final = 1000
"""Asset objects of one row."""


def _family(name: str) -> str:
    if name not in FAMILIES:
        raise refusal("family-unknown", "is an unknown family", did_you_mean(name, FAMILIES))
    return name


def _few(assets: list[FileReferenceModel]) -> list[FileReferenceModel]:
    if len(assets) > MAX_ASSETS:
        raise refusal("too-many-assets", f"contains more than {MAX_ASSETS} assets", "reference a directory instead")
    return assets


FamilyName: TypeAlias = Annotated[str, AfterValidator(_family)]


class RowModel(WireModel):
    """A row. The models of its family validate ``input`` and ``eval``."""

    id: Identifier
    family: FamilyName = OPTIONAL
    input: dict[str, Any] = OPTIONAL
    eval: dict[str, Any] = OPTIONAL
    assets: Annotated[list[FileReferenceModel], AfterValidator(_few)] = OPTIONAL
    environment: EnvironmentModel = OPTIONAL
    metadata: dict[str, Any] = OPTIONAL
