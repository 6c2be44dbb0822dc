"""A layer with a small repository and a copy of the pytest that runs these tests."""

from __future__ import annotations

import importlib
import importlib.metadata
import py_compile
import tempfile
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING

from image_archives import directory, file
from securebench.testing.judging.repository import FILES, REPOSITORY

if TYPE_CHECKING:
    from image_archives import Part

PLAIN_PYTHON = "/usr/local/bin/plain-python"
"""A script in the image that runs Python with the standard library but without installed packages."""
_PACKAGES = "usr/local/lib/python3.11/dist-packages"


def image_parts() -> list[Part]:
    """Return the members of a layer with the repository and a copy of the pytest that runs these tests."""
    top = REPOSITORY.strip("/")
    parts = [directory(top), *(file(f"{top}/{name}", text.encode()) for name, text in FILES.items())]
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        parts += _installed(Path(str(importlib.import_module(name).__file__)).parent)
    for name in ("pytest", "pluggy"):
        metadata = (importlib.metadata.distribution(name).read_text("METADATA") or "").encode()
        parts.append(file(f"{_PACKAGES}/{name}-0.dist-info/METADATA", metadata))
    parts.append(file(f"{_PACKAGES}/py.py", Path(str(importlib.import_module("py").__file__)).read_bytes()))
    script = "#!/usr/bin/python3\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
    parts.append(file("usr/local/bin/pytest", script.encode(), mode=0o755))
    return [*parts, file(PLAIN_PYTHON.strip("/"), b'#!/bin/sh\nexec python3 -S "$@"\n', mode=0o755)]


def _installed(package: Path) -> list[Part]:
    files = sorted(path for path in package.rglob("*.py") if "lexers" not in path.parts or path.name < "_")
    lexers = ["__init__.py", "_mapping.py", "python.py", "diff.py"]
    files += [path for path in package.rglob("lexers/*.py") if path.name in lexers and path not in files]
    names = [f"{_PACKAGES}/{path.relative_to(package.parent)}" for path in files]
    sources = [file(name, path.read_bytes()) for name, path in zip(names, files, strict=True)]
    return sources + [_compiled(name, path) for name, path in zip(names, files, strict=True)]


def _compiled(name: str, path: Path) -> Part:
    """Return the compiled ``path``. Without it, each of the hundreds of sandboxes would compile pytest again."""
    with tempfile.NamedTemporaryFile() as output:
        py_compile.compile(
            str(path), output.name, f"/{name}", doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
        )
        data = Path(output.name).read_bytes()
    head, _, stem = name.rpartition("/")
    return file(f"{head}/__pycache__/{stem.removesuffix('.py')}.cpython-311.pyc", data)
