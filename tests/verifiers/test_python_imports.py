"""The third-party modules that a Python source always imports are found without running it."""

from __future__ import annotations

import pytest

from securebench.verifiers.python_imports import first_needed_module, needed_modules


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import numpy", ["numpy"]),
        ("import numpy.linalg as la, json", ["numpy"]),
        ("from pandas.core import frame\nimport numpy", ["numpy", "pandas"]),
        ("from __future__ import annotations\nimport math, typing, unittest.mock", []),
        ("try:\n    import numpy\nexcept ImportError:\n    numpy = None", []),
        ("def test():\n    import numpy", []),
        ("if 0:\n    import numpy", []),
        ("from . import helper\nfrom .x import y", []),
        ("import sys\nsys.path.insert(0, 'x')\nimport solution", []),
        ("from sys import path\nimport solution", []),
        ("import sys as s\ns.path.append('x')\nimport solution", []),
        ("import importlib\nimport solution", []),
        ("import site\nimport solution", []),
        ("import sys\nsys.modules['numpy'] = 1\nimport numpy", []),
        ("import os\nos.path.join('a')\nimport numpy", ["numpy"]),
        ("import numpy as", []),
        ("\0", []),
    ],
)
def test_needed_modules(source: str, modules: list[str]) -> None:
    """Optional, standard library and relative imports are left out.

    No module is returned for invalid source, or if the source may change how modules are found.
    """
    assert needed_modules(source) == modules


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import numpy\nimport pandas\n", "numpy"),
        ("'Doc.'\nfrom __future__ import annotations\nimport os, sys\nfrom numpy.x import y\n", "numpy"),
        ("import sys\nsys.path.append('/x')\nimport numpy\n", None),
        ("x = 1\nimport numpy\n", None),
        ("import mine\nimport numpy\n", None),
        ("from . import x\nimport numpy\n", None),
        ("import json\n", None),
        ("import (", None),
        ("", None),
    ],
)
def test_only_a_first_import_is_certain(source: str, module: str | None) -> None:
    """The first third-party import counts only if just standard library imports run before it."""
    assert first_needed_module(source, {"mine"}) == module
