"""Parsing of image configurations that are very large or deeply nested."""

from __future__ import annotations

import json

import pytest

from securebench.errors import ImageError
from securebench.images.layout import ImageConfig


def config(ports: dict[str, object]) -> bytes:
    """Return an image's configuration that exposes ``ports``."""
    return json.dumps({"config": {"ExposedPorts": ports, "WorkingDir": "/app"}}).encode()


def test_an_image_may_expose_every_port() -> None:
    """A configuration that exposes every TCP and UDP port is accepted: ``EXPOSE 1-65535`` is valid in a Dockerfile."""
    ports: dict[str, object] = {f"{port}/{kind}": {} for port in range(1, 65536) for kind in ("tcp", "udp")}
    assert ImageConfig.parse(config(ports), "image").workdir == "/app"


def test_a_document_without_end_is_refused_in_fitting_words() -> None:
    """JSON with too many values or levels is refused. The message says that it cannot be read as JSON."""
    deep = b'{"config": ' * 2000 + b"{}" + b"}" * 2000
    for hostile in (config({str(number): {} for number in range(400_000)}), deep):
        with pytest.raises(ImageError, match="cannot be read as JSON"):
            ImageConfig.parse(hostile, "image")
