"""Only modules that a source needs in any case are named."""

from __future__ import annotations

import pytest

from securebench.verifiers.python_imports import needed_modules


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
    """Optional imports, the standard library and sources that change where modules are found name nothing."""
    assert needed_modules(source) == modules
