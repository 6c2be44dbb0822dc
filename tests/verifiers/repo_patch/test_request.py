"""The parameters of a verification are read from the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pack_files import ROWS, load, row
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.errors import MaterializationError
from securebench.verifiers.repo_patch.request import read_request

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("require", [{}, {"require": "test_by_test"}])
def test_what_a_pack_requires_of_a_verdict_is_read(tmp_path: Path, require: dict[str, str]) -> None:
    """The verifier gets ``tests.require`` of a row. Without this field, a pass by an exit code is allowed."""
    tests = {**ROWS["repo_patch"]["eval"]["tests"], **require}
    pack = load(tmp_path, row("repo_patch", eval={"tests": tests}))
    (task,) = compile_benchmark_pack(pack)
    assert read_request(task.verifier_view()).test_by_test is bool(require)


def test_a_row_that_does_not_say_where_the_repository_is_cannot_be_judged(tmp_path: Path) -> None:
    """A row without ``environment.workdir`` loads, because an installed verifier may judge it.

    The built-in verifier refuses it.
    """
    tests = {"source": "command", "command": "pytest"}
    (task,) = compile_benchmark_pack(load(tmp_path, row("repo_patch", eval={"tests": tests}, environment={})))
    with pytest.raises(MaterializationError) as refused:
        read_request(task.verifier_view())
    assert "environment.workdir" in refused.value.hint
