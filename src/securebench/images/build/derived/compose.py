"""The manifest and configuration of an image on top of another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from securebench.images.layout import LAYER_TYPE, document, encoded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.images.layout import Descriptor, ImageManifest
    from securebench.images.store.incoming import Incoming

COMMIT_LABEL = "org.securebench.commit"
SOURCE_LABEL = "org.securebench.source"


@dataclass(frozen=True, slots=True)
class Base:
    """The base image: its id, manifest, and configuration as stored."""

    id: str
    manifest: ImageManifest
    config: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """Settings that an image adds to the settings of its base. An empty ``workdir`` keeps the base's ``workdir``."""

    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def add_image(incoming: Incoming, base: Base, layers: Sequence[Descriptor], additions: Additions) -> str:
    """Add to ``incoming`` an image that has the base's layers, and ``layers`` on top. Return the image's id.

    ``layers`` must be uncompressed and already stored in ``incoming``.
    """
    for layer in base.manifest.layers:
        incoming.has(layer.digest)  # has() also keeps the layer for this image
    typed = [replace(layer, media_type=LAYER_TYPE) for layer in layers]
    config = _config(base.config, [layer.digest for layer in layers], additions)
    return incoming.add(config, [*(replace(e, annotations={}) for e in base.manifest.layers), *typed])


def _config(base: bytes, diff_ids: Sequence[str], additions: Additions) -> bytes:
    whole = document(base, "the base's configuration")
    inner = dict(whole.get("config") or {})
    names = set(additions.environment)
    kept = [pair for pair in inner.get("Env") or [] if pair.partition("=")[0] not in names]
    inner["Env"] = [*kept, *(f"{name}={value}" for name, value in additions.environment.items())]
    inner["Labels"] = {**(inner.get("Labels") or {}), **additions.labels}
    if additions.workdir:
        inner["WorkingDir"] = additions.workdir
    rootfs = {"type": "layers", "diff_ids": [*whole["rootfs"]["diff_ids"], *diff_ids]}
    history = [*(whole.get("history") or []), *({"created_by": "securebench"} for _ in diff_ids)]
    kept_keys = {key: whole[key] for key in ("architecture", "os", "variant") if key in whole}
    return encoded(kept_keys | {"config": inner, "rootfs": rootfs, "history": history})
