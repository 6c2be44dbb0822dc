"""Replacing the images that a Dockerfile names."""

from __future__ import annotations

import pytest

from securebench.errors import ConfigError
from securebench.images.build.dockerfile.build import with_bases

ID = "sha256:" + "ab" * 32
BASES = {"python:3.13-slim": ID, "ghcr.io/x/tool:1": "tool:2"}


def rewritten(text: str, **arguments: str) -> str:
    """Return the Dockerfile ``text`` after its images were replaced."""
    return with_bases(text, BASES, arguments).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM python:3.13-slim\n", f"FROM {ID}\n"),
        ("from   python:3.13-slim\n", f"FROM {ID}\n"),
        ("FROM docker.io/library/python:3.13-slim\n", f"FROM {ID}\n"),
        ("FROM python:3.13-slim AS build\n", f"FROM {ID} AS build\n"),
        ("FROM --platform=linux/amd64 python:3.13-slim as b\n", f"FROM {ID} as b\n"),
        ("FROM --platform=$BUILDPLATFORM \\\n  python:3.13-slim \\\n  AS b\n", f"FROM {ID} AS b\n"),
        ("ARG V=3.13\nFROM python:$V-slim\n", f"ARG V=3.13\nFROM {ID}\n"),
        ("ARG V\nFROM python:${V:-3.13}-slim\n", f"ARG V\nFROM {ID}\n"),
        ('ARG A="3.13"\nARG B=python:${A}-slim\nFROM ${B}\n', f'ARG A="3.13"\nARG B=python:${{A}}-slim\nFROM {ID}\n'),
        ("ARG V=1\nFROM python:3.13${V:+-slim}\n", f"ARG V=1\nFROM {ID}\n"),
        ("# escape=`\nFROM `\npython:3.13-slim\n", f"# escape=`\nFROM {ID}\n"),
        ("FROM ghcr.io/x/tool:1\n", "FROM tool:2\n"),
        ("FROM other:1\nCOPY --from=ghcr.io/x/tool:1 /a /b\n", "FROM other:1\nCOPY --from=tool:2 /a /b\n"),
    ],
)
def test_what_from_names_is_replaced(text: str, expected: str) -> None:
    """Images are replaced in any spelling, through variables, over several lines, with a stage name or platform."""
    assert rewritten(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "FROM other:1\nRUN echo \\\nFROM python:3.13-slim\n",
        "FROM other:1\n# FROM python:3.13-slim\nRUN x\n",
        "FROM other:1\nRUN <<EOF\nFROM python:3.13-slim\nEOF\nRUN y\n",
        "FROM scratch\n",
        "FROM other:1 AS base\nFROM BASE\nCOPY --from=0 /a /b\nCOPY --from=base /a /b\n",
        "FROM other:1\nRUN echo \\\n\n# comment\n  done\nCMD x",
        "FROM other:1\nARG V=1\nENV FROM=python:3.13-slim\n",
    ],
)
def test_everything_else_stays_as_it_is(text: str) -> None:
    """Comments, here-documents, stages, images without a replacement and instructions without an image are kept."""
    assert rewritten(text) == text


def test_a_stage_with_the_name_of_an_image_is_the_stage() -> None:
    """If a stage and a replaced image have the same name, the name means the stage, as it does in Docker."""
    text = "FROM other:1 AS tool\nFROM tool\n"
    assert with_bases(text, {"tool": ID}, {}).text == text


def test_a_build_argument_goes_before_its_default() -> None:
    """A build argument overrides the default of ``ARG`` in the name of an image."""
    text = "ARG V=3.12\nFROM python:${V}-slim\n"
    assert rewritten(text) == text
    assert ID in rewritten(text, V="3.13")


def test_the_images_that_are_still_needed_are_named() -> None:
    """Each image without a replacement is listed once, in order. A machine without a registry lacks these images."""
    text = "FROM a:1 AS x\nFROM python:3.13-slim\nCOPY --from=b:2 / /\nFROM x\nFROM a:1\n"
    assert with_bases(text, BASES, {}).images == ("a:1", "b:2")


@pytest.mark.parametrize(
    "text", ["", "RUN x\n", "FROM\n", "FROM a b c d\n", "FROM --privileged\n", "FROM $(id)\n", "FROM ${X}\n"]
)
def test_what_is_no_dockerfile_is_refused(text: str) -> None:
    """K15: a Dockerfile is refused if an instruction or the name of an image is invalid, or if it has no image."""
    with pytest.raises(ConfigError) as caught:
        rewritten(text)
    assert caught.value.code == "dockerfile-invalid"
