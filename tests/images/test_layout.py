"""Documents of images: what is read of them, however much else stands there."""

from __future__ import annotations

import json

import pytest

from securebench.errors import ImageError
from securebench.images.layout import ImageConfig


def config(ports: dict[str, object]) -> bytes:
    """Return an image's configuration that exposes ``ports``."""
    return json.dumps({"config": {"ExposedPorts": ports, "WorkingDir": "/app"}}).encode()


def test_an_image_may_expose_every_port() -> None:
    """``EXPOSE 1-65535`` is a line of a Dockerfile like any other."""
    ports: dict[str, object] = {f"{port}/{kind}": {} for port in range(1, 65536) for kind in ("tcp", "udp")}
    assert ImageConfig.parse(config(ports), "image").workdir == "/app"


def test_a_document_without_end_is_refused_in_fitting_words() -> None:
    """Its size and depth are bounded. It is JSON all the same, so nothing else is said."""
    deep = b'{"config": ' * 2000 + b"{}" + b"}" * 2000
    for hostile in (config({str(number): {} for number in range(400_000)}), deep):
        with pytest.raises(ImageError, match="cannot be read as JSON"):
            ImageConfig.parse(hostile, "image")
