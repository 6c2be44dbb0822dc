"""Where no clone is at hand: the release on the package index that stands in for a commit, and what differs."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Setup:
    """How a repository is set up on our base image: its Python, and pins for all that its tests need.

    ``asks_git`` for one whose build asks git for its version: the history that would answer is not there.
    """

    python: str
    requirements: tuple[str, ...]
    asks_git: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """A source distribution, by sha256 (hex).

    ``commit`` is that of the repository which a build makes of it: the content decides it. ``absent`` are tests that
    the upstream commit has and this release has not.
    """

    name: str
    version: str
    sha256: str
    commit: str = ""
    absent: frozenset[str] = frozenset()


_FLASK_2 = Setup(
    "3.11",
    (
        "asgiref==3.6.0",
        "blinker==1.6.2",
        "click==8.1.3",
        "iniconfig==2.0.0",
        "itsdangerous==2.1.2",
        "Jinja2==3.1.2",
        "MarkupSafe==2.1.2",
        "packaging==23.1",
        "pip==23.1.2",
        "pluggy==1.0.0",
        "pytest==7.3.1",
        "python-dotenv==1.0.0",
        "setuptools==67.8.0",
        "Werkzeug==2.2.3",
        "wheel==0.40.0",
    ),
)

_REQUESTS_2 = Setup(
    "3.11",
    (
        "blinker==1.6.2",
        "brotlipy==0.7.0",
        "certifi==2023.7.22",
        "cffi==1.15.1",
        "charset-normalizer==2.0.12",
        "click==8.1.3",
        "cryptography==41.0.7",
        "decorator==5.1.1",
        "Flask==2.0.3",
        "httpbin==0.7.0",
        "idna==3.4",
        "iniconfig==2.0.0",
        "itsdangerous==2.0.1",
        "Jinja2==3.0.3",
        "MarkupSafe==2.1.2",
        "packaging==23.2",
        "pip==23.1.2",
        "pluggy==1.3.0",
        "pycparser==2.21",
        "PySocks==1.7.1",
        "pytest==7.4.4",
        "pytest-httpbin==1.0.2",
        "pytest-mock==3.12.0",
        "raven==6.10.0",
        "setuptools==67.8.0",
        "six==1.16.0",
        "trustme==0.9.0",
        "urllib3==1.26.18",
        "Werkzeug==2.0.3",
        "wheel==0.40.0",
    ),
)
_PYTEST_7 = Setup(
    "3.11",
    (
        "attrs==22.2.0",
        "elementpath==4.1.2",
        "hypothesis==6.75.3",
        "iniconfig==2.0.0",
        "nose==1.3.7",
        "packaging==23.1",
        "pip==23.1.2",
        "pluggy==1.0.0",
        "py==1.11.0",
        "Pygments==2.15.1",
        "setuptools==67.8.0",
        "setuptools-scm==7.1.0",
        "sortedcontainers==2.4.0",
        "tomli==2.0.1",
        "typing-extensions==4.6.3",
        "wheel==0.40.0",
        "xmlschema==2.3.0",
    ),
    asks_git=True,
)

SETUPS: Final[Mapping[tuple[str, str], Setup]] = MappingProxyType(
    {
        ("pallets/flask", "2.2"): _FLASK_2,
        ("pallets/flask", "2.3"): _FLASK_2,
        ("psf/requests", "2.26"): _REQUESTS_2,
        ("psf/requests", "2.27"): _REQUESTS_2,
        ("pytest-dev/pytest", "7.2"): _PYTEST_7,
    }
)
"""By repository and the authors' ``version``: what can be built here."""

RELEASES: Final[Mapping[tuple[str, str], Release]] = MappingProxyType(
    {
        ("pallets/flask", "2.3"): Release(
            "Flask",
            "2.2.5",
            "edee9b0a7ff26621bd5a8c10ff484ae28737a2410d99b0bb9a6850c7fb977aa0",
            "658087808b196db7aa829846465073d57928d40c",
            frozenset(
                {
                    "tests/test_blueprints.py::test_nesting_subdomains",
                    "tests/test_blueprints.py::test_child_and_parent_subdomain",
                }
            ),
        ),
        ("psf/requests", "2.26"): Release(
            "requests",
            "2.26.0",
            "b8aa58f8cf793ffd8782d3d8cb19e66ef36f7aba4353eec859e74678b01b07a7",
            "6968ed779a89eae7f60966c21ff0844242c569a5",
        ),
        ("psf/requests", "2.27"): Release(
            "requests",
            "2.27.0",
            "8e5643905bf20a308e25e4c1dd379117c09000bf8a82ebccc462cfb1b34a16b5",
            "81b37462352b981dee37ed5aa1ce8613767465a4",
        ),
        ("pytest-dev/pytest", "7.2"): Release(
            "pytest",
            "7.1.2",
            "a06a0425453864a270bc45e71f783330a7428defb4230fb5e6a731fde06ecd45",
            "bc0576b1a6b0e5b8e32a9e4dd036db686c8fcccd",
        ),
    }
)
"""By repository and ``version``, which names the release that a commit led to: the nearest one before that."""
