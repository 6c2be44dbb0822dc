"""Image references: which texts are valid, and what their parts mean to a registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from securebench.errors import ConfigError
from securebench.images.reference import RegistryReference, check_reference, parse_reference

IMAGE_ID = "sha256:" + "a" * 64
DIGEST = "sha256:" + "0" * 64

GOOD = [
    "python",
    "securebench/python:3.11",
    "docker.io/library/python:3.11-slim",
    "localhost:5000/team/tool:v1.2_x",
    "registry.example.com/a/b/c",
    "name@sha256:" + "0" * 64,
    "name:tag@sha256:" + "0" * 64,
    "a__b/c--d:1",
    IMAGE_ID,
]
BAD = [
    "",
    " ",
    "--privileged",
    "--privileged img",
    "img --privileged",
    "img;true",
    "$(id)",
    "`id`",
    "img\n",
    "\nimg",
    "img\0",
    "Upper/Case",
    "../up",
    "/absolute",
    "a//b",
    "img:",
    "img:tag:tag",
    "img@sha256:short",
    "img@md5:" + "0" * 32,
    "http://registry/img",
    "img?x=1",
    "img#x",
    "\u0131mg",
    "a" * 600,
]


@pytest.mark.parametrize("reference", GOOD)
def test_a_reference_is_a_reference(reference: str) -> None:
    """References of every usual form are accepted."""
    check_reference(reference)


@pytest.mark.parametrize("reference", BAD)
def test_nothing_else_is_a_reference(reference: str) -> None:
    """K15: Options, shell syntax, URLs and other texts that are not image references are refused."""
    with pytest.raises(ConfigError) as raised:
        check_reference(reference)
    assert raised.value.code == "image-reference-invalid"


@given(st.text(alphabet="abA0./:@-_ \n$", max_size=400))
def test_checking_is_quick_and_admits_no_spaces(text: str) -> None:
    """Any text is checked within 0.5 s of processor time, and text with a space, newline or ``$`` is refused."""
    with processor_seconds(0.5):
        try:
            check_reference(text)
        except ConfigError:
            pass
        else:
            assert not set(text) & set(" \n$")


@pytest.mark.parametrize(
    ("reference", "meant"),
    [
        ("python", RegistryReference("docker.io", "library/python", "latest", "")),
        ("team/tool:1", RegistryReference("docker.io", "team/tool", "1", "")),
        ("docker.io/python:3", RegistryReference("docker.io", "library/python", "3", "")),
        ("localhost/tool", RegistryReference("localhost", "tool", "latest", "")),
        ("localhost:5000/a/b:v1", RegistryReference("localhost:5000", "a/b", "v1", "")),
        ("host:5000/tool", RegistryReference("host:5000", "tool", "latest", "")),
        ("Host/tool", RegistryReference("host", "tool", "latest", "")),
        (f"a.example/b:t@{DIGEST}", RegistryReference("a.example", "b", "t", DIGEST)),
    ],
)
def test_a_reference_means_what_it_means_to_other_tools(reference: str, meant: RegistryReference) -> None:
    """The first part is a registry only if it looks like a host, and missing parts get Docker's defaults."""
    assert parse_reference(reference) == meant


def test_a_digest_beats_the_tag_beside_it() -> None:
    """The version to request is the digest if there is one, because the tag may have moved."""
    assert parse_reference(f"tool:1@{DIGEST}").version == DIGEST
    assert parse_reference("tool:1").version == "1"


def test_an_id_is_not_asked_of_a_registry() -> None:
    """A bare image id is refused, because registries do not know it."""
    with pytest.raises(ConfigError, match="id of a local image"):
        parse_reference(IMAGE_ID)
